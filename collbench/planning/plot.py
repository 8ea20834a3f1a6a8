"""A picture of a forecast: samples a second and what of each step is communication, over the number of devices."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collbench.errors import CannotRun, UsageError
from collbench.planning.step import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Refuse a picture that cannot be drawn or saved, before anything is computed."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(
            f"--plot: got {path}, expected a name that ends in {', '.join(ENDINGS)}; write e.g. forecast.png"
        )
    if not path.parent.is_dir():
        raise UsageError(f"--plot: got {path}, expected a folder that exists; make {path.parent} first")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise CannotRun(
            "--plot: got no matplotlib, expected it beside collbench; install collbench with the extra forecast"
        ) from None


def draw(path: Path, title: str, samples: str, steps: Sequence[Step]) -> None:
    """Draw the steps that have a time, one line for each number of hosts; what was extrapolated is hollow."""
    from matplotlib.figure import Figure

    known = sorted(
        (step for step in steps if step.rate is not None and step.step_s is not None),
        key=lambda step: (step.devices, step.hosts),
    )
    figure = Figure(figsize=(max(10.0, min(24.0, 5 + 0.6 * len(known))), 5), layout="constrained")
    speed, parts = figure.subplots(1, 2)
    _speeds(speed, samples, known)
    _parts(parts, known)
    for one in (speed, parts):
        one.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False, fontsize="small")
    figure.suptitle(title)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(
            f"--plot: got {path}, expected a file that can be written ({error.strerror}); check it"
        ) from None


def _speeds(axes: "Axes", samples: str, known: Sequence[Step]) -> None:
    """Samples a second over devices."""
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    axes.set(xlabel="devices", ylabel=f"{samples} a second", xscale="log", yscale="log")
    hosts = sorted({step.hosts for step in known})
    on_each = len({step.devices / step.hosts for step in known}) == 1
    lines = [known] if on_each or len(hosts) == len(known) else [[s for s in known if s.hosts == one] for one in hosts]
    for line in lines:
        name = f"{line[0].hosts} host{'s' * (line[0].hosts > 1)}" if len(lines) > 1 else _all_hosts(hosts)
        rates = [step.rate for step in line if step.rate is not None]
        errors = [[one.middle - one.low for one in rates], [one.high - one.middle for one in rates]]
        counts = [step.devices for step in line]
        drawn = axes.errorbar(counts, [one.middle for one in rates], yerr=errors, fmt="o-", capsize=3, label=name)
        beyond = [(step.devices, one.middle) for step, one in zip(line, rates, strict=True) if step.extrapolated]
        if beyond:
            axes.plot(*zip(*beyond, strict=True), "o", mfc="white", mec=drawn.lines[0].get_color(), zorder=5)
    if any(step.extrapolated for step in known):
        axes.plot([], [], "o", mfc="white", mec="black", label="beyond what was measured")
    if known and known[0].rate is not None:
        counts = sorted({step.devices for step in known})
        alone = known[0].rate.middle / known[0].devices
        axes.plot(counts, [alone * count for count in counts], ":", color="grey", label="as the first, for each device")
        axes.set_xticks(counts, [f"{count:,}" for count in counts], rotation=45 * (len(counts) > 8))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in _ticks(low, high) if low <= tick <= high])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _all_hosts(hosts: Sequence[int]) -> str:
    return f"{hosts[0]} host{'s' * (hosts[0] > 1)}" if len(hosts) == 1 else f"{hosts[0]} to {hosts[-1]:,} hosts"


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis: of each power of ten one, two or five, or every half where it is short."""
    if not 0 < low < high:
        return []
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        found = [digit * 10.0**power for power in powers for digit in digits]
        if sum(low <= tick <= high for tick in found) > 2:
            return found
    middle = math.sqrt(low * high)
    return [float(f"{tick:.3g}") for tick in (low * 1.001, middle, high * 0.999)]


def _parts(axes: "Axes", known: Sequence[Step]) -> None:
    """What of each step is communication that computation does not hide."""
    names = [f"{step.devices:,}\n{step.hosts:,} h." for step in known]
    places = range(len(known))
    computed = [1e3 * (step.compute_s or 0.0) for step in known]
    exposed = [1e3 * step.exposed_s.middle for step in known if step.exposed_s is not None]
    axes.bar(places, computed, label="computation")
    bars = axes.bar(places, exposed, bottom=computed, label="exposed communication")
    hatched = [bar for bar, step in zip(bars, known, strict=True) if step.extrapolated]
    for bar in hatched:
        bar.set(hatch="///", edgecolor="white")
    if hatched:
        axes.bar(
            [0], [0], color=bars[0].get_facecolor(), hatch="///", edgecolor="white", label="beyond what was measured"
        )
    axes.set_xticks(places, names, fontsize="small" if len(known) > 8 else "medium")
    axes.set(xlabel="devices, hosts", ylabel="step (ms)")
