"""Does it fit: bytes per device by parameters, precision, optimizer and ZeRO stage, and what the sharding costs.

Of activations, workspace and what the driver keeps nothing is guessed: they are given, or said to be missing.
"""

import csv
import difflib
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from collbench.dtypes import DTYPES
from collbench.errors import UsageError
from collbench.planning import groups
from collbench.planning.workload import Workload
from collbench.units import parse_size, shown

DEVICES = Path(__file__).parent / "devices.csv"
SOURCES: Mapping[str, str] = {
    "nvidia-vgpu-types-6.2": (
        "NVIDIA AI Enterprise 6.2, Virtual GPU Types for Supported GPUs, "
        "https://docs.nvidia.com/ai-enterprise/release-6/latest/appendix/vgpu.html; its MB are MiB"
    ),
}
MOST_DEVICES = 4096
"""A model that does not fit on so many does not fit."""

_MIB = 2**20
_STATES: Mapping[str, int] = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}
"""Values that an optimizer keeps for each parameter."""

_ITEM: Mapping[str, int] = {"mixed": 2, "fp32": 4, "bf16": 2}


@dataclass(frozen=True)
class Device:
    """A GPU or vGPU profile: bytes of its frame buffer, and where that stands."""

    name: str
    memory_bytes: int
    kind: str
    on: str
    source: str


@dataclass(frozen=True)
class Recipe:
    """How a model is trained; `activations_bytes` is None where nobody said, else bytes of each device."""

    optimizer: str = "adamw"
    precision: str = "mixed"
    zero: int = 0
    activations_bytes: int | None = None

    def per_parameter(self) -> tuple[int, int, int]:
        """Return the bytes of weights, gradients, and optimizer state for each parameter.

        Mixed precision keeps weights and gradients in 16 bits, and a copy of the weights and the optimizer's values in
        32 bits (Rajbhandari et al., ZeRO, SC 2020): 2 + 2 + 12 with Adam. Else everything has one width.
        """
        item, states = _ITEM[self.precision], _STATES[self.optimizer]
        kept = 4 + 4 * states if self.precision == "mixed" else item * states
        return item, item, kept


@dataclass(frozen=True)
class Model:
    """Parameters that a device holds where ZeRO divides nothing: its part of the experts, and all else.

    Experts are divided among `expert_ranks` data-parallel devices; the number of these is a multiple of `together`.
    `units` are what ZeRO 3 gathers at once, in order: the parameters, and whether they are of experts.
    """

    others: int
    experts: int = 0
    expert_ranks: int = 1
    units: tuple[tuple[int, bool], ...] = ()
    together: int = 1

    def gathered(self, devices: int) -> int:
        """Return the parameters that are there in whole at once: a unit, its gradients, and the next one ahead.

        What one device alone holds is not gathered.
        """
        holders = devices // self.expert_ranks
        sizes = [size for size, expert in self.units if (holders if expert else devices) > 1]
        pairs = itertools.pairwise([*sizes, 0])
        return max((one + other + max(one, other) for one, other in pairs), default=0)


@dataclass(frozen=True)
class Need:
    """Bytes on one of `devices` devices; `gathered` is what ZeRO 3 holds in whole for a while."""

    devices: int
    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int

    @property
    def total(self) -> int:
        """All that is known of."""
        return self.weights + self.gradients + self.optimizer + self.gathered + self.activations


@dataclass(frozen=True)
class Traffic:
    """A collective of a step: its size as collbench's rows have it, and the bytes that each device sends in a ring.

    Those of an `expert` are among the devices that hold the same experts.
    """

    collective: str
    when: str
    size_bytes: int
    sent_bytes: int
    expert: bool = False


def model_of(workload: Workload) -> Model:
    """Return what a device holds of a workload, and its units as the step gathers them."""
    parts, ranks, experts = workload.tensor_ranks, workload.expert_ranks, workload.expert_parameters
    itemsize = DTYPES[workload.dtype].itemsize
    units = tuple((bucket.size_bytes // itemsize, bucket.expert) for bucket in workload.buckets())
    others, each = -(-(workload.parameters - experts) // parts), -(-experts // (parts * ranks))
    return Model(others, each, ranks, units, groups.multiple(workload) // parts)


def need(model: Model, recipe: Recipe, devices: int) -> Need:
    """Return the bytes on each of so many data-parallel devices, a multiple of those that share the experts.

    ZeRO divides optimizer state (1), gradients too (2), weights too (3): what stands on several devices alike, among
    these.
    """
    item, gradient, kept = recipe.per_parameter()
    holders = devices // model.expert_ranks

    def part(each: int, stage: int) -> int:
        if recipe.zero < stage:
            return each * (model.others + model.experts)
        return -(-each * model.others // devices) - (-each * model.experts // holders)

    whole = item * model.gathered(devices) if recipe.zero == 3 else 0
    return Need(devices, part(item, 3), part(gradient, 2), part(kept, 1), whole, recipe.activations_bytes or 0)


def smallest(model: Model, recipe: Recipe, available_bytes: int) -> int | None:
    """Return the smallest number of devices on which it fits, None where no number up to `MOST_DEVICES` does."""
    ranks = math.lcm(model.expert_ranks, model.together)

    def fits(count: int) -> bool:
        return need(model, recipe, count * ranks).total <= available_bytes

    # One alone gathers nothing; from two on, more devices never hold more.
    if fits(1):
        return ranks
    least, most = 2, MOST_DEVICES // ranks
    if most < least or not fits(most):
        return None
    while least < most:
        middle = (least + most) // 2
        if fits(middle):
            most = middle
        else:
            least = middle + 1
    return least * ranks


def traffic(model: Model, recipe: Recipe, devices: int) -> list[Traffic]:
    """Return the collectives of a step among the data-parallel devices, those of experts behind the others."""
    others = _traffic(model.others, recipe, devices, expert=False)
    return others + _traffic(model.experts, recipe, devices // model.expert_ranks, expert=True)


def _traffic(parameters: int, recipe: Recipe, devices: int, expert: bool) -> list[Traffic]:
    weights, gradients, _ = (parameters * size for size in recipe.per_parameter())
    if devices < 2 or not parameters:
        return []
    whose = " of experts" if expert else ""

    def one(collective: str, what: str, when: str, size: int) -> Traffic:
        passes = 2 if collective == "all_reduce" else 1
        sent = passes * size * (devices - 1) // devices
        return Traffic(collective, f"{what}{whose}, {when}", size, sent, expert)

    if recipe.zero == 0:
        return [one("all_reduce", "gradients", "in backward", gradients)]
    found = [one("reduce_scatter", "gradients", "in backward", gradients)]
    if recipe.zero < 3:
        return [*found, one("all_gather", "updated weights", "after the optimizer", weights)]
    forward, backward = (one("all_gather", "weights", f"in {when}", weights) for when in ("forward", "backward"))
    return [forward, backward, *found]


def caution(one: Device) -> str:
    """Return what a vGPU profile costs besides memory; empty for a whole GPU.

    Peer-to-peer by NVIDIA's documentation of vGPU for compute (Peer-to-Peer CUDA Transfers): over NVLink alone, between
    time-sliced vGPUs of one VM that hold the whole frame buffer.
    """
    if not one.kind.startswith("vgpu"):
        return ""
    sliced = one.kind == "vgpu time-sliced"
    largest = max(other.memory_bytes for other in devices().values() if (other.on, other.kind) == (one.on, one.kind))
    if sliced and one.memory_bytes == largest:
        return ""
    shares = "it shares the GPU's processors with its neighbours" if sliced else "it has a part of the GPU's processors"
    return (
        f"{one.name} reaches no other vGPU directly (no peer-to-peer): collectives in the VM go through host memory, "
        f"and {shares}: measure its links and its computation, not those of a whole GPU"
    )


@cache
def devices() -> Mapping[str, Device]:
    """Return the devices and vGPU profiles that are known, by name."""
    with DEVICES.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["name"]: Device(row["name"], int(row["memory_mib"]) * _MIB, row["kind"], row["on"], SOURCES[row["source"]])
        for row in rows
    }


def device(name: str) -> Device:
    """Return a device by its name, in any case, with or without the "GRID" or "NVIDIA" that drivers put in front."""
    plain = name.upper().removeprefix("NVIDIA ").removeprefix("GRID ").removeprefix("GRID_").strip()
    by_name = {known.upper(): one for known, one in devices().items()}
    if plain in by_name:
        return by_name[plain]
    near = _near(plain, by_name)
    remedy = "give its memory as --device-memory SIZE"
    if near:
        remedy = f"did you mean {' or '.join(by_name[known].name for known in near)}?"
    raise UsageError(
        f"--device: got {shown(name)}, expected a known GPU or vGPU profile such as "
        f"A100-80GB, H100-80GB, A40-24C, L40S-48C; {remedy}"
    )


def _near(plain: str, by_name: Mapping[str, Device]) -> list[str]:
    """Return the names that may be meant: of a board alone its first, of its profiles those nearest in memory."""
    if first := [known for known in by_name if known.startswith(f"{plain}-")]:
        return first[:3]
    board, _, size = plain.rpartition("-")
    its = [known for known in by_name if known.rpartition("-")[0] == board]
    if its and (gib := re.match("[0-9]{1,9}", size)):
        return sorted(its, key=lambda known: abs(by_name[known].memory_bytes - int(gib[0]) * 2**30))[:3]
    return difflib.get_close_matches(plain, by_name, 1)


def given(option: str, text: str, least: int = 1) -> int:
    """Return the bytes that an option gives as a size."""
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    if size < least:
        raise UsageError(f"{option}: got {shown(text)}, expected at least {least} B; give more")
    return size


@dataclass(frozen=True)
class Available:
    """Bytes of a device, and what the driver keeps of them (None where nobody said)."""

    memory_bytes: int
    keeps_bytes: int | None
    name: str
    caution: str = ""

    @property
    def left(self) -> int:
        """What a process can have."""
        return max(0, self.memory_bytes - (self.keeps_bytes or 0))
