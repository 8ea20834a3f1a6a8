"""Who put himself before a function of libc: by the code at its entry."""

import ctypes
import platform

import pytest

from collbench import unmap_hook

AT = 0x7F0000000000


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("b80b0000000f05483d01f0ffff73", None),  # munmap as the libc has it
        ("e9cb64a4ff0f05483d01f0ffff73", AT + 5 - 0x5B9B35),  # UCX's hook
        ("49bb203b0e42db7f000041ffe373", 0x7FDB420E3B20),  # libfabric's
        ("f30f1efae9100000000f05483d01", AT + 4 + 5 + 0x10),
        ("f30f1efab80b0000000f05483d01", None),
    ],
)
def test_where_a_function_jumps_to(code: str, target: int | None) -> None:
    assert unmap_hook.jump_target(bytes.fromhex(code), AT) == target


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is that of x86-64")
def test_nobody_hooks_this_process() -> None:
    assert unmap_hook.hooked_by("munmap") == ""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the code is that of x86-64")
def test_a_hook_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    monkeypatch.setattr(unmap_hook, "jump_target", lambda code, address: inside)
    assert unmap_hook.hooked_by("munmap").startswith("libc")


@pytest.mark.parametrize(
    ("pml", "file", "deaf"),
    [("ucx", "libverbs-fi.so", "libverbs-fi.so"), ("ucx", "libucm.so.0", ""), ("ucx", "", ""), ("ob1", "x.so", "")],
)
def test_only_ucx_can_be_deaf(monkeypatch: pytest.MonkeyPatch, pml: str, file: str, deaf: str) -> None:
    monkeypatch.setattr(unmap_hook, "selected_pml", lambda: pml)
    monkeypatch.setattr(unmap_hook, "hooked_by", lambda name: file)
    assert unmap_hook.deaf_ucx() == deaf
