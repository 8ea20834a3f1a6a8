"""Statistics that a network driver keeps beside the kernel's own, by the ETHTOOL ioctl: pause frames (PFC, 802.3x).

Source: include/uapi/linux/ethtool.h and sockios.h. Reading them needs no privilege.
"""

import contextlib
import ctypes
import fcntl
import re
import socket
from functools import cache

_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_STATISTICS, _COUNT_STRINGS = 0x1B, 0x1D, 0x37
_STATISTICS = 1  # ETH_SS_STATS
_NAME_BYTES = 32
_MOST = 8192
_PAUSE = re.compile(r"(rx|tx)_(prio\d+_pause|global_pause|pause|priority\d*_xoff|flow_control_xoff)")


class _Request(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 16), ("data", ctypes.c_void_p), ("rest", ctypes.c_char * 16))


def pauses(interface: str) -> int | None:
    """Pause frames that the interface has received and sent so far; None where the driver does not count them."""
    places = _places(interface)
    if not places:
        return None
    with contextlib.suppress(OSError):
        numbers = _statistics(interface, _count(interface))
        return sum(numbers[place] for place in places if place < len(numbers))
    return None


@cache
def _places(interface: str) -> tuple[int, ...]:
    """Where among the statistics the pause frames are."""
    with contextlib.suppress(OSError):
        names = _names(interface, _count(interface))
        return tuple(place for place, name in enumerate(names) if _PAUSE.fullmatch(name))
    return ()


def _count(interface: str) -> int:
    buffer = ctypes.create_string_buffer(_header(_COUNT_STRINGS, 0) + (1 << _STATISTICS).to_bytes(8, "little"), 64)
    _ask(interface, buffer)
    return min(int.from_bytes(buffer.raw[16:20], "little"), _MOST)


def _names(interface: str, count: int) -> list[str]:
    head = _header(_GET_STRINGS, _STATISTICS) + count.to_bytes(4, "little")
    buffer = ctypes.create_string_buffer(head, 12 + count * _NAME_BYTES)
    _ask(interface, buffer)
    rows = (buffer.raw[12 + i * _NAME_BYTES : 12 + (i + 1) * _NAME_BYTES] for i in range(count))
    return [row.split(b"\0")[0].decode(errors="replace") for row in rows]


def _statistics(interface: str, count: int) -> list[int]:
    buffer = ctypes.create_string_buffer(_header(_GET_STATISTICS, count), 8 + count * 8)
    _ask(interface, buffer)
    return [int.from_bytes(buffer.raw[8 + i * 8 : 16 + i * 8], "little") for i in range(count)]


def _header(command: int, word: int) -> bytes:
    return command.to_bytes(4, "little") + word.to_bytes(4, "little")


def _ask(interface: str, buffer: "ctypes.Array[ctypes.c_char]") -> None:
    request = _Request(interface.encode()[:15], ctypes.addressof(buffer), b"")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, _SIOCETHTOOL, bytearray(request), True)
