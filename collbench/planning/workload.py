"""A workload: the tensors of a model, how they travel, and how long it computes at which batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from collbench.dtypes import DTYPES
from collbench.errors import UsageError
from collbench.planning import buckets as cut
from collbench.planning import values
from collbench.planning.buckets import Bucket
from collbench.planning.values import Table
from collbench.scenario_values import refused, whole
from collbench.units import parse_duration, shown

FOLDER = Path(__file__).parent / "workloads"
BACKWARD_SHARE = 2 / 3
"""Backward computes two gradients (of inputs and of weights) where forward computes one product."""
MOST_TENSORS = 100_000
"""More are a slip: the largest models that are published have some thousands."""
MOST_PARAMETERS = 10**15
"""More are a slip: the largest models that are published have some 10^12."""

_EXAMPLES: Mapping[str, str] = {
    "schema": "1",
    "title": '"my model"',
    "source": '"https://..."',
    "samples": '"images"',
    "dtype": '"float32"',
    "overlap": '"buckets"',
    "backward": "0.667",
    "tensors": '{ "weight" = [1024, 1024] }',
    "repeat": "24",
    "experts": '["up", "down"]',
    "first": '"1 MiB"',
    "cap": '"25 MiB"',
    "threshold": '"128 MiB"',
    "cycle": '"1 ms"',
    "zero": "3",
    "batch": "32",
    "time": '"80 ms"',
    "parallel": '"tensor"',
    "ranks": "8",
    "times": "96",
    "size_per_sample": '"4 MiB"',
    "parameters": "25557032",
}


@dataclass(frozen=True)
class Tensor:
    """A parameter; tensors of one `unit` belong to the same layer, those of an `expert` are divided among devices."""

    name: str
    elements: int
    unit: int
    expert: bool = False


@dataclass(frozen=True)
class Bucketing:
    """How gradients are cut: sizes in bytes."""

    kind: str = "ddp"
    first_bytes: int = cut.DDP_FIRST_BYTES
    cap_bytes: int = cut.DDP_CAP_BYTES
    threshold_bytes: int = cut.HOROVOD_THRESHOLD_BYTES
    cycle_s: float = cut.HOROVOD_CYCLE_S


@dataclass(frozen=True)
class Exchange:
    """A collective inside the layers: every device of a group of `ranks` takes part `times` a step.

    `tensor` parallel is an all_reduce, and each device holds one part in `ranks` of the model; `expert` parallel is an
    all_to_all among data-parallel devices. The size grows with the batch.
    """

    parallel: str
    ranks: int
    times: int
    bytes_per_sample: int

    @property
    def collective(self) -> str:
        """What travels."""
        return "all_reduce" if self.parallel == "tensor" else "all_to_all"


@dataclass(frozen=True)
class Workload:
    """What a step is made of.

    `compute_s` holds seconds by the batch of a device; where a model is tensor-parallel, of the devices that share it.
    """

    name: str
    title: str
    source: str
    samples: str
    dtype: str
    tensors: tuple[Tensor, ...]
    bucketing: Bucketing = Bucketing()
    zero: int = 0
    exchanges: tuple[Exchange, ...] = ()
    compute_s: Mapping[int, float] | None = None
    overlap: str = "buckets"
    backward: float = BACKWARD_SHARE

    @property
    def parameters(self) -> int:
        """Number of parameters of the whole model."""
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def tensor_ranks(self) -> int:
        """How many devices hold one copy of the model."""
        return next((one.ranks for one in self.exchanges if one.parallel == "tensor"), 1)

    @property
    def expert_parameters(self) -> int:
        """Number of parameters of all experts that the workload names."""
        return sum(tensor.elements for tensor in self.tensors if tensor.expert)

    @property
    def expert_ranks(self) -> int:
        """Among how many data-parallel devices the experts are divided; 1 where the workload names none."""
        if not self.expert_parameters:
            return 1
        return next((one.ranks for one in self.exchanges if one.parallel == "expert"), 1)

    def sizes(self) -> list[int]:
        """Return the bytes of each gradient on one device, in the order of the parameters."""
        itemsize, parts = DTYPES[self.dtype].itemsize, self.tensor_ranks
        shared = parts * self.expert_ranks
        return [-(-tensor.elements // (shared if tensor.expert else parts)) * itemsize for tensor in self.tensors]

    def buckets(self) -> list[Bucket]:
        """Return what travels, in the order in which it becomes ready."""
        return list(self._buckets)

    @cached_property
    def _buckets(self) -> list[Bucket]:
        sizes = self.sizes()
        if not self.expert_parameters:
            return self._cut(sizes, range(len(sizes)))
        return cut.apart(sizes, [tensor.expert for tensor in self.tensors], lambda places: self._cut(sizes, places))

    def _cut(self, all_sizes: Sequence[int], places: Sequence[int]) -> list[Bucket]:
        sizes, how = [all_sizes[place] for place in places], self.bucketing
        match how.kind:
            case "ddp":
                return cut.ddp(sizes, how.first_bytes, how.cap_bytes)
            case "horovod":
                return cut.horovod(sizes, how.threshold_bytes)
            case "layers":
                return cut.by_unit(sizes, [self.tensors[place].unit for place in places])
            case _:
                return cut.unfused(sizes)

    def compute_at(self, batch: int) -> float | None:
        """Return the seconds of computation at a batch, None where the workload has none at all.

        Nothing is interpolated: a smaller batch does not compute in proportion, and a plan that assumes so lays the
        loss on the fabric.
        """
        if not self.compute_s:
            return None
        if batch not in self.compute_s:
            known = ", ".join(str(one) for one in sorted(self.compute_s))
            raise UsageError(
                f"{self.name}: compute: got a batch of {batch} {self.samples} for each device, "
                f"expected one whose time is known ({known}), since the time of one batch says nothing of another's; "
                f"measure it there and give --compute {batch}=TIME"
            )
        return self.compute_s[batch]


class GroupTable(Table):
    """Tensors, once or for each of several layers alike."""

    name: values.Line = ""
    repeat: values.Devices = 1
    first: values.Zero = 0
    experts: list[values.Line] = Field(default_factory=list)
    tensors: Annotated[dict[str, Annotated[list[values.Count], Field(min_length=1)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.repeat > 1 and "{}" not in self.name:
            raise refused("a name with {} in it, since it repeats", 'write e.g. name = "layer.{}"', at=("name",))
        for index, name in enumerate(self.experts):
            if name not in self.tensors:
                raise refused(f"one of the group's tensors {', '.join(self.tensors)}", "", at=("experts", index))
        return self


class PublishedTable(Table):
    """What the source says; the tensors must come to the same."""

    tensors: values.Count
    parameters: values.Count


class BucketingTable(Table):
    """How gradients are cut into messages."""

    kind: Annotated[str, values.one_of("ddp", "horovod", "layers", "none")]
    first: values.Size = cut.DDP_FIRST_BYTES
    cap: values.Size = cut.DDP_CAP_BYTES
    threshold: values.Size = cut.HOROVOD_THRESHOLD_BYTES
    cycle: values.Duration = cut.HOROVOD_CYCLE_S

    @model_validator(mode="after")
    def _fits(self) -> Self:
        allowed = {"ddp": {"first", "cap"}, "horovod": {"threshold", "cycle"}}.get(self.kind, set())
        for key in sorted(self.model_fields_set - {"kind"} - allowed):
            raise refused(f'none with kind = "{self.kind}"', f"remove {key}", at=(key,))
        return self


class DataTable(Table):
    """What is divided among the data-parallel devices."""

    zero: Annotated[int, whole(0, 3)] = 0


class ExchangeTable(Table):
    """A collective inside the layers."""

    parallel: Annotated[str, values.one_of("tensor", "expert")]
    ranks: Annotated[int, whole(2, values.MOST_DEVICES)]
    times: values.Count
    size_per_sample: values.Size


class ComputeTable(Table):
    """How long one device computes a step, at one batch."""

    batch: values.Count
    time: values.Duration
    source: values.Line = ""


class Document(Table):
    """A workload file."""

    version: values.Schema = Field(alias="schema")
    title: values.Line
    source: values.Line
    samples: values.Line = "samples"
    dtype: values.Floating
    overlap: values.Overlap = "buckets"
    backward: values.Share = BACKWARD_SHARE
    published: PublishedTable | None = None
    bucketing: BucketingTable = BucketingTable(kind="ddp")
    data: DataTable = DataTable()
    exchange: list[ExchangeTable] = Field(default_factory=list)
    compute: list[ComputeTable] = Field(default_factory=list)
    group: Annotated[list[GroupTable], Field(min_length=1)]

    @model_validator(mode="after")
    def _agree(self) -> Self:
        number = sum(group.repeat * len(group.tensors) for group in self.group)
        if number > MOST_TENSORS:
            most = max(range(len(self.group)), key=lambda index: self.group[index].repeat)
            remedy = f"together the groups come to {number:,} tensors: repeat less, or put tensors together"
            raise refused(f"groups of at most {MOST_TENSORS:,} tensors", remedy, at=("group", most, "repeat"))
        found = _tensors(self.group)
        if (parameters := sum(one.elements for one in found)) > MOST_PARAMETERS:
            remedy = f"together the groups come to {parameters:.3g} parameters: correct their shapes"
            raise refused(
                f"tensors of at most {MOST_PARAMETERS:,} parameters together", remedy, at=("group",), got="more"
            )
        if self.published is not None:
            for key, got in (("tensors", len(found)), ("parameters", sum(one.elements for one in found))):
                said = getattr(self.published, key)
                if got != said:
                    remedy = "correct the groups or the published number"
                    raise refused(f"the {got} that the groups come to", remedy, at=("published", key))
        for index, one in enumerate(self.compute):
            if one.batch in [other.batch for other in self.compute[:index]]:
                raise refused("each batch once", "remove it", at=("compute", index, "batch"))
        if len([one for one in self.exchange if one.parallel == "tensor"]) > 1:
            raise refused("one exchange of tensor parallelism", "put them in one", at=("exchange",), got="several")
        among = {one.ranks for one in self.exchange if one.parallel == "expert"}
        for index, group in enumerate(self.group):
            if group.experts and len(among) != 1:
                remedy = "give them the same ranks" if among else "describe it or remove experts"
                expected = 'an [[exchange]] with parallel = "expert" and one number of ranks, which divides them'
                without = "exchanges of different ranks" if among else "experts without an exchange"
                raise refused(expected, remedy, at=("group", index, "experts"), got=without)
        return self


def shipped() -> list[str]:
    """Return the names of the workloads that come with collbench."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name_or_path: str) -> Workload:
    """Read a workload: a path or the name of a shipped one."""
    path = values.find(name_or_path, FOLDER, "workload")
    where = path.name if path.parent == FOLDER else str(path)
    file = values.check(Document, values.read_toml(path, "a workload file"), where, _EXAMPLES)
    how = file.bucketing
    return Workload(
        name=path.stem,
        title=file.title,
        source=file.source,
        samples=file.samples,
        dtype=file.dtype,
        tensors=tuple(_tensors(file.group)),
        bucketing=Bucketing(how.kind, how.first, how.cap, how.threshold, how.cycle),
        zero=file.data.zero,
        exchanges=tuple(Exchange(one.parallel, one.ranks, one.times, one.size_per_sample) for one in file.exchange),
        compute_s={one.batch: one.time for one in file.compute} or None,
        overlap=file.overlap,
        backward=file.backward,
    )


def with_compute(workload: Workload, given: tuple[str, ...]) -> Workload:
    """Return the workload with more times of computation, each as BATCH=TIME, such as "32=80 ms"."""
    times, said = dict(workload.compute_s or {}), set[int]()
    for text in given:
        batch, _, time = text.partition("=")
        try:
            seconds = parse_duration(time.strip())
        except ValueError:
            seconds = 0.0
        if not (batch.strip().isascii() and batch.strip().isdecimal() and int(batch) > 0 and seconds > 0):
            raise UsageError(
                f"--compute: got {shown(text)}, expected BATCH=TIME, a device's batch and its time; write "
                "e.g. 32=80ms, and --compute once more for another batch"
            )
        if int(batch) in said and times[int(batch)] != seconds:
            raise UsageError(
                f"--compute: got two times of a batch of {int(batch)}, expected one; leave one of them out"
            )
        said.add(int(batch))
        times[int(batch)] = seconds
    return replace(workload, compute_s=times or None)


def _tensors(groups: list[GroupTable]) -> list[Tensor]:
    found, unit = [], 0
    for group in groups:
        for number in range(group.first, group.first + group.repeat):
            prefix = group.name.replace("{}", str(number))
            for name, shape in group.tensors.items():
                elements = 1
                for length in shape:
                    elements *= length
                found.append(Tensor(f"{prefix}.{name}" if prefix else name, elements, unit, name in group.experts))
            unit += 1
    return found
