"""Does it fit: bytes per device by parameters, precision, optimizer and ZeRO stage, and what the sharding costs.

Of activations, workspace and what the driver keeps nothing is guessed: they are given, or said to be missing.
"""

import csv
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.errors import UsageError
from collbench.units import parse_size, shown

DEVICES = Path(__file__).parent / "devices.csv"
SOURCES: Mapping[str, str] = {
    "nvidia-vgpu-types-6.2": (
        "NVIDIA AI Enterprise 6.2, Virtual GPU Types for Supported GPUs, "
        "https://docs.nvidia.com/ai-enterprise/release-6/latest/appendix/vgpu.html; its MB are MiB"
    ),
}
MOST_DEVICES = 4096
"""A model that does not fit on so many does not fit."""

_MIB = 2**20
_STATES: Mapping[str, int] = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
"""Values that an optimizer keeps for each parameter."""

_ITEM: Mapping[str, int] = {"mixed": 2, "fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Device:
    """A GPU or vGPU profile: bytes of its frame buffer, and where that stands."""

    name: str
    memory_bytes: int
    kind: str
    on: str
    source: str


@dataclass(frozen=True)
class Recipe:
    """How a model is trained; `activations_bytes` is None where nobody said, else bytes of each device."""

    optimizer: str = "adamw"
    precision: str = "mixed"
    zero: int = 0
    activations_bytes: int | None = None

    def per_parameter(self) -> tuple[int, int, int]:
        """Return the bytes of weights, gradients, and optimizer state for each parameter.

        Mixed precision keeps weights and gradients in 16 bits, and a copy of the weights and the optimizer's values in
        32 bits (Rajbhandari et al., ZeRO, SC 2020): 2 + 2 + 12 with Adam. Else everything has one width.
        """
        item, states = _ITEM[self.precision], _STATES[self.optimizer]
        kept = 4 + 4 * states if self.precision == "mixed" else item * states
        return item, item, kept


@dataclass(frozen=True)
class Need:
    """Bytes on one of `devices` devices."""

    devices: int
    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All that is known of."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Traffic:
    """A collective of a step: its size as collbench's rows have it, and the bytes that each device sends in a ring."""

    collective: str
    when: str
    size_bytes: int
    sent_bytes: int


def need(parameters: int, recipe: Recipe, devices: int) -> Need:
    """Return the bytes on each device; ZeRO divides optimizer state (1), gradients too (2), weights too (3)."""
    weights, gradients, optimizer = (parameters * size for size in recipe.per_parameter())

    def part(whole: int, stage: int) -> int:
        return -(-whole // devices) if recipe.zero >= stage else whole

    return Need(devices, part(weights, 3), part(gradients, 2), part(optimizer, 1), recipe.activations_bytes or 0)


def smallest(parameters: int, recipe: Recipe, available_bytes: int) -> int | None:
    """Return the smallest number of devices on which it fits, None where no number up to `MOST_DEVICES` does."""
    least, most = 1, MOST_DEVICES
    if need(parameters, recipe, most).total > available_bytes:
        return None
    while least < most:
        middle = (least + most) // 2
        if need(parameters, recipe, middle).total <= available_bytes:
            most = middle
        else:
            least = middle + 1
    return least


def traffic(parameters: int, recipe: Recipe, devices: int) -> list[Traffic]:
    """Return the collectives of a step among the devices that share it."""
    weights, gradients, _ = (parameters * size for size in recipe.per_parameter())
    if devices < 2:
        return []

    def one(collective: str, when: str, size: int) -> Traffic:
        passes = 2 if collective == "all_reduce" else 1
        return Traffic(collective, when, size, passes * size * (devices - 1) // devices)

    if recipe.zero == 0:
        return [one("all_reduce", "gradients, in backward", gradients)]
    found = [one("reduce_scatter", "gradients, in backward", gradients)]
    if recipe.zero < 3:
        return [*found, one("all_gather", "updated weights, after the optimizer", weights)]
    forward, backward = (one("all_gather", f"weights, in {when}", weights) for when in ("forward", "backward"))
    return [forward, backward, *found]


def caution(one: Device) -> str:
    """Return what a vGPU profile costs besides memory; empty for a whole GPU.

    Peer-to-peer by NVIDIA's documentation of vGPU for compute (Peer-to-Peer CUDA Transfers): over NVLink alone, between
    time-sliced vGPUs of one VM that hold the whole frame buffer.
    """
    if not one.kind.startswith("vgpu"):
        return ""
    sliced = one.kind == "vgpu time-sliced"
    largest = max(other.memory_bytes for other in devices().values() if (other.on, other.kind) == (one.on, one.kind))
    if sliced and one.memory_bytes == largest:
        return ""
    shares = "it shares the GPU's processors with its neighbours" if sliced else "it has a part of the GPU's processors"
    return (
        f"{one.name} reaches no other vGPU directly (no peer-to-peer): collectives in the VM go through host memory, "
        f"and {shares}: measure its links and its computation, not those of a whole GPU"
    )


@cache
def devices() -> Mapping[str, Device]:
    """Return the devices and vGPU profiles that are known, by name."""
    with DEVICES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["name"]: Device(row["name"], int(row["memory_mib"]) * _MIB, row["kind"], row["on"], SOURCES[row["source"]])
        for row in rows
    }


def device(name: str) -> Device:
    """Return a device by its name, in any case, with or without the "GRID" or "NVIDIA" that drivers put in front."""
    plain = name.upper().removeprefix("NVIDIA ").removeprefix("GRID ").removeprefix("GRID_").strip()
    by_name = {known.upper(): one for known, one in devices().items()}
    if plain in by_name:
        return by_name[plain]
    near = [known for known in by_name if known.startswith(f"{plain}-")][:3] or difflib.get_close_matches(
        plain, by_name, 1
    )
    remedy = "give its memory as --device-memory SIZE"
    if near:
        remedy = f"did you mean {' or '.join(by_name[known].name for known in near)}?"
    raise UsageError(
        f"--device: got {shown(name)}, expected a known GPU or vGPU profile such as "
        f"A100-80GB, H100-80GB, A40-24C, L40S-48C; {remedy}"
    )


def given(option: str, text: str, least: int = 1) -> int:
    """Return the bytes that an option gives as a size."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if size < least:
        raise UsageError(f"{option}: got {shown(text)}, expected at least {least} B; give more")
    return size


@dataclass(frozen=True)
class Available:
    """Bytes of a device, and what the driver keeps of them (None where nobody said)."""

    memory_bytes: int
    keeps_bytes: int | None
    name: str
    caution: str = ""

    @property
    def left(self) -> int:
        """What a process can have."""
        return max(0, self.memory_bytes - (self.keeps_bytes or 0))
