"""The scenario file: what to sweep and how to measure it, as frozen data that every rank can unpickle.

Reading a file needs pydantic (`scenario_model`), which is imported only then: rank 0 reads, the other ranks receive the
result.
"""

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from collbench.dtypes import DTYPES, OPERATIONS
from collbench.errors import ScenarioError
from collbench.units import shown

SCHEMA = 1
"""The version of the file format."""

FOLDER = Path(__file__).parent / "scenarios"


@dataclass(frozen=True)
class Measure:
    """How each case is measured. `precision` is the interval's half-width over the median that ends sampling."""

    modes: tuple[str, ...] = ("latency",)
    precision: float = 0.02
    time_budget_s: float = 1.0
    least_time_s: float = 0.1
    least_iterations: int = 20
    most_iterations: int = 100_000
    warmup_time_s: float = 0.5
    timeout_s: float = 60.0
    verify: bool = True
    samples: bool = False
    ranks_per_device: int = 1
    order: str = "auto"
    seed: int = 0
    link_rate: float | None = None
    """Bytes a second that each host's link to the others is said to carry; None where the hosts know it themselves."""


@dataclass(frozen=True)
class Rule:
    """Points of a sweep: those whose named axes all have an allowed value and whose size in bytes is within."""

    match: tuple[tuple[str, tuple[str, ...]], ...] = ()
    least_size: int | None = None
    most_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A cross product of axes, less what `include` leaves out and `exclude` names.

    `sizes` are bytes, each once, in the order of the file; empty where every collective is a barrier. `roots` are rank
    numbers as text, or "all". Of kind "kernel" `collectives` are kernels, and `patterns` their ways (none: all
    of each); of kind "ladder" the axes are those of `collbench.ladder`; of kind "replay" the patterns are those of
    `collbench.replay`. `matrix[i][j]` is the relative weight of what rank i sends to rank j in all_to_all_v.
    """

    kind: str = "collective"
    backends: tuple[str, ...] = ("default",)
    collectives: tuple[str, ...]
    dtypes: tuple[str, ...] = ("float32",)
    operations: tuple[str, ...] = ("sum",)
    roots: tuple[str, ...] = ("0",)
    placements: tuple[str, ...] = ("default",)
    callers: tuple[str, ...] = ("compiled",)
    calls: tuple[str, ...] = ("blocking",)
    syncs: tuple[str, ...] = ("library",)
    buffer: tuple[str, ...] = ("plain",)
    buffers: tuple[int, ...] = (1,)
    pages: tuple[str, ...] = ("default",)
    topologies: tuple[str, ...] = ("world",)
    neighbours: tuple[str, ...] = ("alone",)
    patterns: tuple[str, ...] = ("uniform",)
    matrix: tuple[tuple[float, ...], ...] | None = None
    sizes: tuple[int, ...] = ()
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()


@dataclass(frozen=True)
class Variant:
    """Environment settings that need processes of their own, sorted by name."""

    name: str
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Expect:
    """What must hold for the run to count."""

    transport: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A checked scenario. `name` is the file's stem, `source` its path, `digest` the SHA-256 of what is measured."""

    name: str
    title: str
    source: str = ""
    measure: Measure = Measure()
    sweeps: tuple[Sweep, ...]
    variants: tuple[Variant, ...] = ()
    expect: Expect = Expect()
    digest: str = ""


def known() -> dict[str, tuple[str, ...]]:
    """Return the names that each axis knows, by the axis's singular."""
    from collbench.backends import names as backend_names
    from collbench.collectives import TABLE
    from collbench.collectives import names as collective_names

    return {
        "kind": ("collective", "kernel", "ladder", "replay"),
        "backend": tuple(dict.fromkeys(("default", *backend_names()))),
        "collective": collective_names(),
        "kernel": tuple(name for name, entry in TABLE.items() if entry.collective.is_kernel),
        "way": tuple(dict.fromkeys(way for entry in TABLE.values() for way in entry.collective.ways)),
        "dtype": tuple(DTYPES),
        "operation": tuple(OPERATIONS),
        "placement": ("default", "out_of_place", "in_place"),
        "caller": ("compiled", "python"),
        "call": ("blocking", "nonblocking", "persistent"),
        "sync": ("library", "dissemination", "clock"),
        "buffer": ("plain", "registered", "symmetric"),
        "pages": ("default", "small", "huge"),
        "pattern": ("uniform", "linear"),
        "mode": ("latency", "throughput", "graph"),
        "neighbour": ("alone", "compute", "copy", "communicate"),
        "order": ("auto", "listed", "random"),
        "bucketing": ("ddp", "horovod", "layers", "none"),
    }


def shipped() -> list[tuple[str, str]]:
    """Return the name of each shipped scenario and the question that its first line asks."""
    return [(path.stem, _first_line(path).lstrip("#").strip()) for path in sorted(FOLDER.glob("*.toml"))]


def find(name_or_path: str | Path) -> Path:
    """Return the file that a path or the name of a shipped scenario means; a shipped name goes before a path."""
    names = [path.stem for path in sorted(FOLDER.glob("*.toml"))]
    if str(name_or_path) in names:
        return FOLDER / f"{name_or_path}.toml"
    path = Path(name_or_path)
    got = f"scenario: got {shown(str(name_or_path), 500)}"
    try:
        if path.is_dir():
            raise ScenarioError(f"{got}, a directory, expected a TOML file; name a file in it")
        if path.exists():
            return path
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{got}, expected a file that can be opened ({_reason(error)}); check the path") from None
    remedy = nearest(path.stem, names, "write one of them or a file's path")
    raise ScenarioError(f"{got}, expected a file or one of the shipped scenarios {', '.join(names)}; {remedy}")


def load(name_or_path: str | Path) -> Scenario:
    """Read and check a scenario: a path or the name of a shipped one. ScenarioError has one line for each problem."""
    path = find(name_or_path)
    where = _printable(path.name if path.parent == FOLDER else str(path))
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ScenarioError(
            f"{where}: got no text ({_reason(error)}), expected a readable file; check the file"
        ) from None
    try:
        text = raw.decode("utf-8-sig")  # some editors put a byte order mark in front
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        got = f"got bytes that are not UTF-8 in line {line}"
        raise ScenarioError(f"{where}: {got}, expected a TOML file in UTF-8; save it as UTF-8") from None
    return parse(text, name=path.stem, source=str(path), where=where)


def parse(text: str, *, name: str, source: str = "", where: str = "") -> Scenario:
    """Check the text of a scenario; `where` is what messages call the file (else its name)."""
    from collbench import scenario_model

    where = where or f"{_printable(name)}.toml"
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(_not_toml(where, text, str(error))) from None
    except RecursionError:
        raise ScenarioError(f"{where}: got lists nested too deeply, expected a TOML scenario; flatten them") from None
    except ValueError:  # Python reads no integer of more than some thousand digits
        raise ScenarioError(f"{where}: got a number that is too long, expected a TOML scenario; shorten it") from None
    if not name.isprintable():
        raise ScenarioError(f"{where}: file name: got {shown(name)}, expected printable text; rename the file")
    scenario = scenario_model.build(document, name=name, source=source, where=where)
    return replace(scenario, digest=_digest(scenario))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenario file as its user writes it."""
    from collbench import scenario_model

    return scenario_model.json_schema()


def nearest(word: str, names: Iterable[str], otherwise: str) -> str:
    """Return the remedy "did you mean X?" for the name nearest to a word, or another one where none is near."""
    word = re.sub(r"[\s-]+", "_", word[:100]).lower()
    near = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else otherwise


def _digest(scenario: Scenario) -> str:
    content = asdict(scenario)
    del content["name"], content["title"], content["source"], content["digest"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline()


def _not_toml(where: str, text: str, message: str) -> str:
    """Put what tomllib said into one sentence with the place in front."""
    said, _, place = message.removesuffix(")").rpartition(" (at ")
    if not place.startswith("line "):
        place = f"line {text.rstrip().count(chr(10)) + 1}, at the end"
    said = " ".join(said.split())
    got = f"got text that is not TOML ({said[:1].lower()}{said[1:]})"
    return f"{where}: {place}: {got}, expected a TOML document; correct this line (texts stand in quotes)"


def _printable(text: str) -> str:
    return text if text.isprintable() else shown(text)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
