"""How findings are ordered, and how hosts are held side by side."""

from collbench.doctor.finding import Finding, difference, grouped, in_order, named, on_hosts


def test_differences_come_first_and_then_the_gravest() -> None:
    found = [
        Finding("a", "ok", ""),
        Finding("b", "problem", ""),
        Finding("c", "note", ""),
        Finding("d", "warning", "", differs=True),
        Finding("e", "warning", ""),
        Finding("f", "problem", "", differs=True),
    ]
    assert [one.check for one in in_order(found)] == ["f", "d", "b", "e", "c", "a"]


def test_hosts_in_words() -> None:
    assert named(["a", "b"]) == "a, b"
    assert named(["a", "b"], 2) == "both hosts"
    assert named("abc", 3) == "all 3 hosts"
    assert named("abcdef", 9) == "a, b, c, d and 2 more"


def test_the_rarest_value_is_named_first() -> None:
    assert grouped({"a": 1, "b": 2, "c": 1}) == [(2, ["b"]), (1, ["a", "c"])]
    (one,) = difference("x", "the size", {"a": "1", "b": "", "c": "1"}, why="because")
    assert one.seen == "the size differs between hosts: none on b; 1 on a, c"
    assert one.differs
    assert difference("x", "the size", {"a": "1", "b": "1"}, why="") == []


def test_what_hosts_have_in_common_is_said_once() -> None:
    bad, fine = Finding("x", "warning", "broken"), Finding("x", "ok", "fine")
    assert on_hosts({"a": [bad]}) == [bad]
    (both,) = on_hosts({"a": [bad], "b": [bad]})
    assert (both.seen, both.differs) == ("broken (on both hosts)", False)
    found = on_hosts({"a": [bad, fine], "b": [fine], "c": [fine]})
    assert [(one.seen, one.differs) for one in found] == [
        ("broken (on a)", True),
        ("fine (on all 3 hosts)", False),
    ]
