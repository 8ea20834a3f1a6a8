"""What a check of the doctor finds, and how what the hosts have is held side by side."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

Level = Literal["ok", "note", "warning", "problem"]
T = TypeVar("T")

_ORDER: tuple[Level, ...] = ("problem", "warning", "note", "ok")
_MOST_HOSTS = 4


@dataclass(frozen=True)
class Finding:
    """One finding: how grave it is, what was seen, why it matters, what to do, and where that is known from."""

    check: str
    level: Level
    seen: str
    why: str = ""
    remedy: str = ""
    source: str = ""
    differs: bool = False
    """Whether it is something that is not alike on all hosts: that is shown first."""

    def text(self) -> str:
        """The finding in a few lines."""
        lines = [f"{self.level:8} {self.check}: {self.seen}"]
        for name, value in (("why", self.why), ("remedy", self.remedy), ("source", self.source)):
            if value:
                lines.append(f"         {name}: {value}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What one rank saw."""

    rank: int
    host: str
    facts: T


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """Put findings in the order in which they are read: differences between hosts, then the gravest."""
    return sorted(found, key=lambda one: (not one.differs, _ORDER.index(one.level)))


def by_host(ranks: Sequence[Seen[T]]) -> dict[str, T]:
    """What the first rank of each host saw."""
    found: dict[str, T] = {}
    for one in ranks:
        found.setdefault(one.host, one.facts)
    return found


def named(hosts: Iterable[str], of: int = 0) -> str:
    """Hosts in words: all of them (`of` is their number), some by name, or the first few and a count."""
    names = list(dict.fromkeys(hosts))
    if of > 1 and len(names) == of:
        return "both hosts" if of == 2 else f"all {of} hosts"
    if len(names) <= _MOST_HOSTS:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_HOSTS])} and {len(names) - _MOST_HOSTS} more"


def grouped(values: Mapping[str, T]) -> list[tuple[T, list[str]]]:
    """Each value and the hosts that have it, the rarest first: that is where to look."""
    found: list[tuple[T, list[str]]] = []
    for host, value in values.items():
        for known, hosts in found:
            if known == value:
                hosts.append(host)
                break
        else:
            found.append((value, [host]))
    return sorted(found, key=lambda one: len(one[1]))


def on_hosts(found: Mapping[str, Iterable[Finding]]) -> list[Finding]:
    """Say once what was found on several hosts, with their names behind it where there is more than one host."""
    hosts_of: dict[Finding, list[str]] = {}
    for host, findings in found.items():
        for one in findings:
            hosts_of.setdefault(one, []).append(host)
    if len(found) < 2:
        return list(hosts_of)
    return [
        replace(
            one,
            seen=f"{one.seen} (on {named(hosts, len(found))})",
            differs=one.level in ("problem", "warning") and len(hosts) < len(found),
        )
        for one, hosts in hosts_of.items()
    ]


def difference(
    check: str,
    what: str,
    values: Mapping[str, str],
    *,
    why: str,
    remedy: str = "",
    source: str = "",
    level: Level = "warning",
) -> list[Finding]:
    """One finding where a value, in words, is not the same on all hosts; none where it is."""
    groups = grouped(values)
    if len(groups) < 2:
        return []
    seen = "; ".join(f"{value or 'none'} on {named(hosts)}" for value, hosts in groups)
    return [Finding(check, level, f"{what} differs between hosts: {seen}", why, remedy, source, differs=True)]
