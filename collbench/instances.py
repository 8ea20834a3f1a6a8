"""Instances of devices (MIG) in CUDA_VISIBLE_DEVICES: each rank takes its own entry of the list.

CUDA shows a process one compute instance of each GPU instance, and with drivers before R570 one instance in all,
however many the list names (MIG User Guide, "CUDA Device Enumeration"). So ranks cannot choose among them by number, as
they do among whole devices: what a rank is not to see must be out of its list before the driver reads it (cuInit).
"""

import os

VARIABLE = "CUDA_VISIBLE_DEVICES"

_INSTANCE = "MIG-"


def own_entry(visible: str, local_rank: int) -> str:
    """Return what a rank is to see of a list, by its number on the host: all of it where it names no instance."""
    entries = [entry for entry in map(str.strip, visible.split(",")) if entry]
    if not any(entry.upper().startswith(_INSTANCE) for entry in entries):
        return visible
    return entries[local_rank % len(entries)]


def take_own(local_rank: int) -> None:
    """Leave in this process's environment, and so in that of its children, what is its own; the list is short then."""
    visible = os.environ.get(VARIABLE)
    if visible is not None and (own := own_entry(visible, local_rank)) != visible:
        os.environ[VARIABLE] = own
