"""A picture of a forecast: samples a second and what of each step is communication, over the number of devices."""

from collections.abc import Sequence
from pathlib import Path

from collbench.errors import CannotRun, UsageError
from collbench.planning.step import Step

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
    """Draw the steps that have a time, one line for each number of hosts that has several counts of devices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    speed, parts = figure.subplots(1, 2)
    known = [step for step in steps if step.rate is not None and step.step_s is not None]
    counts = [step.devices for step in known]
    rates = [step.rate for step in known if step.rate is not None]
    middle = [one.middle for one in rates]
    below = [one.middle - one.low for one in rates]
    above = [one.high - one.middle for one in rates]
    speed.errorbar(counts, middle, yerr=[below, above], fmt="o-", capsize=3, label="forecast")
    if known:
        alone = middle[0] / counts[0]
        speed.plot(
            counts, [alone * count for count in counts], ":", color="grey", label="as the first, for each device"
        )
    speed.set(xlabel="devices", ylabel=f"{samples} a second", xscale="log", yscale="log")
    speed.legend()
    names = [f"{step.devices}\n{step.hosts} h." for step in known]
    computed = [1e3 * (step.compute_s or 0.0) for step in known]
    exposed = [1e3 * step.exposed_s.middle for step in known if step.exposed_s is not None]
    parts.bar(names, computed, label="computation")
    parts.bar(names, exposed, bottom=computed, label="exposed communication")
    parts.set(xlabel="devices, hosts", ylabel="step (ms)")
    parts.legend()
    figure.suptitle(title)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(
            f"--plot: got {path}, expected a file that can be written ({error.strerror}); check it"
        ) from None
