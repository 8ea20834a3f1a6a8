"""What `collbench list` and `collbench show` print."""

from collbench.backends import TABLE as BACKENDS
from collbench.backends import backend_named
from collbench.collectives import entry_named, kernel_names, names
from collbench.plan import Plan, expand
from collbench.scenario import Measure, load, shipped
from collbench.units import format_duration, format_size


def listing() -> int:
    """Print what there is, and why what cannot run here cannot."""
    print("scenarios (collbench launch NAME):")
    for name, question in shipped():
        print(f"  {name:14} {question}")
    for title, listed in (("collectives", names()), ("kernels (backend device)", kernel_names())):
        print(f"\n{title}:")
        for name in listed:
            print(f"  {name:14} {_summary(type(entry_named(name).collective).__module__)}")
    print("\nbackends:")
    for name in BACKENDS:
        backend = backend_named(name)
        reason = backend.unavailable()
        print(f"  {name:14} {backend.summary if reason is None else 'not here: ' + reason}")
    return 0


def _summary(module: str) -> str:
    """Return the first line of a collective's module: what it does."""
    import importlib

    text = importlib.import_module(module).__doc__ or ""
    return text.strip().split("\n")[0].partition(": ")[2]


def default_backend_here() -> str:
    """Name what "default" would most likely stand for in a launch on this machine."""
    for name in ("nccl", "mpi"):
        if backend_named(name).unavailable() is None:
            return name
    return "loopback"


def _bytes(size: int, buffers: int) -> int:
    """Two buffers a set, each of the case's size at the most."""
    return 2 * size * buffers


def _most_time(plan: Plan, measure: Measure) -> float:
    return len(plan.cases) * (measure.warmup_time_s + measure.time_budget_s)


def show(name: str, ranks: int) -> int:
    """Print the plan of a scenario on so many ranks, with the most memory and time that it takes."""
    scenario = load(name)
    backend = default_backend_here()
    variants = [variant.name for variant in scenario.variants] or [""]
    for variant in variants:
        plan = expand(scenario, ranks=ranks, variant=variant, backend=backend)
        title = f"{scenario.name}{': variant ' + variant if variant else ''}"
        print(f"{title}: {len(plan.cases)} cases on {ranks} ranks; backend default is {backend} here")
        print(
            f"  at most {format_duration(_most_time(plan, scenario.measure))} of measuring a launch, besides verifying"
        )
        largest = max((_bytes(case.requested_bytes, case.buffers) for case in plan.cases), default=0)
        print(f"  at most about {format_size(largest)} of buffers a rank\n")
        print("  case_id       backend   collective  dtype    op    placement     caller    mode        size")
        for case in plan.cases:
            print(
                f"  {case.case_id}  {case.backend:8}  {case.collective:10}  {case.dtype:7}  {case.operation:4}  "
                f"{case.placement:12}  {case.caller:8}  {case.mode:10}  {format_size(case.requested_bytes)}"
            )
    return 0
