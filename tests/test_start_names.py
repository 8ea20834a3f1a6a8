"""Hosts that were cloned have one name: they are told apart all the same."""

from collbench.start import _told_apart


def test_one_name_in_several_places_is_several_hosts() -> None:
    told = [
        ("vm", "boot1 net1"),
        ("vm", "boot1 net1"),
        ("vm", "boot2 net1"),
        ("other", "boot3 net1"),
        ("vm", "boot2 net1"),
    ]
    assert _told_apart(told) == ["vm", "vm", "vm#2", "other", "vm#2"]


def test_what_the_kernel_does_not_tell_is_one_place() -> None:
    assert _told_apart([("vm", ""), ("vm", "")]) == ["vm", "vm"]
