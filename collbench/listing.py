"""What `collbench list` and `collbench show` print."""

from collbench.backends import TABLE as BACKENDS
from collbench.backends import backend_named
from collbench.collectives import collective_of, entry_named, kernel_names, names
from collbench.dtypes import DTYPES
from collbench.errors import CollbenchError
from collbench.plan import AXES, Case, Plan, expand
from collbench.replay import short
from collbench.scenario import Measure, load, shipped
from collbench.units import format_duration, format_size


def listing() -> int:
    """Print what there is, and why what cannot run here cannot."""
    print("scenarios (collbench launch NAME):")
    for name, question in shipped():
        print(f"  {name:14} {question}")
    for title, listed in (("collectives", names()), ('kernels (kind = "kernel")', kernel_names())):
        print(f"\n{title}:")
        for name in listed:
            print(f"  {name:14} {_summary(type(entry_named(name).collective).__module__)}")
    print("\nbackends:")
    for name in BACKENDS:
        backend = backend_named(name)
        reason = backend.lacking()
        print(f"  {name:14} {backend.summary if reason is None else 'not here: ' + reason}")
    return 0


def _summary(module: str) -> str:
    """Return the first line of a collective's module: what it does."""
    import importlib

    text = importlib.import_module(module).__doc__ or ""
    return text.strip().split("\n")[0].partition(": ")[2]


def default_backend_here(ranks: int) -> str:
    """Name what "default" would most likely stand for in a launch of so many ranks on this machine."""
    if backend_named("nccl").unavailable() is None:
        from collbench.backends.cuda import visible_devices

        if visible_devices() >= ranks:
            return "nccl"
    return "mpi" if backend_named("mpi").unavailable() is None else "loopback"


def show(name: str, ranks: int) -> int:
    """Print the plan of a scenario on so many ranks, with the most memory and time that it takes."""
    scenario = load(name)
    backend = default_backend_here(ranks)
    variants = [variant.name for variant in scenario.variants] or [""]
    for variant in variants:
        plan = expand(scenario, ranks=ranks, variant=variant, backend=backend)
        title = f"{scenario.name}{': variant ' + variant if variant else ''}"
        count = len(plan.cases)
        print(f"{title}: {count} case{'s' * (count > 1)} on {ranks} rank{'s' * (ranks > 1)}")
        print(f"  backend default is {backend} here")
        print(
            f"  at most {format_duration(_most_time(plan, scenario.measure))} of measuring a launch, besides verifying"
        )
        largest = max(_bytes(case, ranks) for case in plan.cases)
        print(f"  at most about {format_size(largest)} of buffers a rank")
        for line in _table(plan):
            print(f"  {line}".rstrip())
    return 0


def _most_time(plan: Plan, measure: Measure) -> float:
    return len(plan.cases) * (measure.warmup_time_s + measure.time_budget_s)


def _bytes(case: Case, ranks: int) -> int:
    """What the largest rank's buffers take; the requested size twice where the case cannot be laid out on so many."""
    try:
        collective = collective_of(case.collective, case.pattern, ranks)
        itemsize = DTYPES[case.dtype].itemsize if case.dtype else 1
        shape = collective.shape(case.requested_bytes, itemsize, ranks)
        layouts = [collective.layout(shape.count, ranks, rank) for rank in {0, ranks - 1}]
    except CollbenchError:
        return 2 * case.requested_bytes * case.buffers
    return max(layout.send + layout.recv for layout in layouts) * itemsize * case.buffers


def _table(plan: Plan) -> list[str]:
    """The cases: what is the same for all of them said once, and a column for each axis that differs."""
    texts = [{axis: _text(axis, getattr(case, axis)) for axis in AXES} for case in plan.cases]
    constant = {axis: value for axis, value in texts[0].items() if all(text[axis] == value for text in texts)}
    said = ", ".join(f"{axis} {value}" for axis, value in constant.items() if value != "-")
    columns = ["case_id", *(axis for axis in AXES if axis not in constant)]
    rows = [[case.case_id, *(text[axis] for axis in columns[1:])] for case, text in zip(plan.cases, texts, strict=True)]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [columns, *rows]]
    return [f"all cases: {said}", "", *lines]


def _text(axis: str, value: object) -> str:
    if axis == "requested_bytes":
        return format_size(int(str(value)))
    if axis == "pattern":
        return short(str(value)) or "-"
    return str(value) or "-"
