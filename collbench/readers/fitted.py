"""A family of curves with its fits, and with the laws that its numbers of ranks support."""

from collections.abc import Iterable
from dataclasses import dataclass

from collbench.readers.fit import Fit, fit
from collbench.readers.fit_rows import Family, families
from collbench.readers.laws import fit_law, laws_of
from collbench.readers.over_ranks import Support, support
from collbench.record import Record


@dataclass(frozen=True, eq=False)
class Fitted:
    """A family with a fit for each of its curves, and the laws over ranks, best supported first."""

    family: Family
    fits: tuple[Fit, ...]
    laws: tuple[Support, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest that any curve has."""
        ends = [(one.curve.sizes[0], one.curve.sizes[-1]) for one in self.fits]
        return int(min(low for low, _ in ends)), int(max(high for _, high in ends))

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of ranks that were measured."""
        return tuple(sorted({one.curve.ranks for one in self.fits}))

    @property
    def hosts(self) -> tuple[int, ...]:
        """The numbers of hosts that were measured."""
        return tuple(sorted({one.curve.hosts for one in self.fits}))

    @property
    def several(self) -> tuple[Fit, ...]:
        """The fits on several ranks: one rank alone tells nothing of them."""
        return tuple(one for one in self.fits if one.curve.ranks > 1)

    @property
    def law(self) -> str:
        """The best law over ranks of those that were tried, or the only one that there is; empty where none is told."""
        told = len(self.laws) == 1 or any(one.error is not None for one in self.laws[:1])
        return self.laws[0].fitted.law.name if told else ""


def fitted(records: Iterable[Record]) -> tuple[Fitted, ...]:
    """Fit all families of the rows."""
    return tuple(fit_family(one) for one in families(records))


def fit_family(family: Family) -> Fitted:
    """Fit a family's curves, and find the law that its numbers of ranks support."""
    fits = tuple(fit(one) for one in family.curves)
    several = [one for one in fits if one.curve.ranks > 1]
    curves = [one.curve for one in several]
    laws = laws_of(family.value("collective"), curves) if several else ()
    found = [support(fit_law(law, curves), several) for law in laws]
    found.sort(key=lambda one: (one.error is None, one.misfit if one.error is None else one.error, one.misfit))
    return Fitted(family, fits, tuple(found))
