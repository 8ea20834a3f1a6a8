"""The ladder as a sweep: its steps in their order, and what its table in a scenario may say."""

from collbench.ladder import ALL, PAIR, STEPS, ladder, sweeps
from collbench.plan import Case, expand
from collbench.scenario import Scenario, Sweep, parse

HEAD = 'schema = 1\n[measure]\nmodes = ["throughput"]\n'


def cases(text: str) -> tuple[Case, ...]:
    return expand(parse(HEAD + text, name="t")).cases


def test_the_steps_in_their_order() -> None:
    found = cases('[[sweep]]\nkind = "ladder"\nsizes = ["1 MiB"]\n')
    assert [(one.backend, one.collective, one.pattern, one.topology) for one in found] == [
        ("perftest", "rdma_write", "host", "two_hosts"),
        ("perftest", "rdma_write", "device", "two_hosts"),
        ("mpi", "ping_pong", "", "two_hosts"),
        ("mpi", "send_recv", "", "two_hosts"),
        ("mpi_cuda", "ping_pong", "", "two_hosts"),
        ("mpi_cuda", "send_recv", "", "two_hosts"),
        ("staged", "ping_pong", "", "two_hosts"),
        ("staged", "send_recv", "", "two_hosts"),
        ("nccl", "send_recv", "", "two_hosts"),
        ("nccl", "all_reduce", "", "two_hosts"),
        ("mpi", "all_reduce", "", "two_hosts"),
        ("nccl", "all_reduce", "", "world"),
        ("mpi", "all_reduce", "", "world"),
    ]
    assert {one.requested_bytes for one in found} == {1 << 20}
    assert {one.dtype for one in found if one.backend != "perftest"} == {"float32"}
    assert {one.mode for one in found} == {"throughput"}


def test_each_size_and_type_has_all_steps_but_a_message_has_no_type() -> None:
    found = cases('[[sweep]]\nkind = "ladder"\nsizes = ["1 KiB", "1 MiB"]\ndtypes = ["float16", "float32"]\n')
    programs = [one for one in found if one.backend == "perftest"]
    assert len(programs) == 2 * 2
    assert len(found) - len(programs) == (len(STEPS) - 2) * 2 * 2
    assert len({one.case_id for one in found}) == len(found)


def test_a_step_is_an_ordinary_case() -> None:
    """A result of the ladder is the same case as one of a sweep that names it."""
    found = cases('[[sweep]]\nkind = "ladder"\nsizes = ["1 MiB"]\n')
    (own,) = cases(
        '[[sweep]]\nbackends = ["mpi"]\ncollectives = ["ping_pong"]\ntopologies = ["two_hosts"]\nsizes = ["1 MiB"]\n'
    )
    assert own in found


def test_every_step_stands_on_one_that_comes_before() -> None:
    seen: set[str] = set()
    for step in STEPS:
        assert step.on in seen or step is STEPS[0]
        assert not step.instead_of or step.instead_of in seen
        assert step.topology in (PAIR, ALL)
        seen.add(step.name)
    assert len(seen) == len(STEPS)


def test_its_axes_name_what_its_steps_have() -> None:
    sweep = ladder((8,), ("float32",))
    assert sweep.backends == ("perftest", "mpi", "mpi_cuda", "staged", "nccl")  # NCCL is asked what it chooses
    assert set(sweep.collectives) == {"rdma_write", "ping_pong", "send_recv", "all_reduce"}
    ordinary = Sweep(collectives=("barrier",))
    assert list(sweeps(ordinary)) == [ordinary]


def test_too_many_points_are_counted_by_step() -> None:
    scenario = Scenario(name="t", title="t", sweeps=(ladder((8, 16), ("int8", "float32")),))
    assert len(expand(scenario).cases) == 2 * 2 + (len(STEPS) - 2) * 4
