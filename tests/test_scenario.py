import pickle
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import collbench.collectives
from collbench import scenario
from collbench.scenario import Expect, Measure, Rule, Scenario, Sweep, Variant
from collbench.scenario_values import growing

LEAST = """
schema = 1
[[sweep]]
collectives = ["all_reduce"]
sizes = ["8 B"]
"""

FULL = """
# What does it cost?
schema = 1
title = "everything"

[measure]
modes = ["throughput", "latency"]
precision = 1
time_budget = "250 ms"
least_time = "0 s"
least_iterations = 7
most_iterations = 1000
warmup_time = "1 min"
timeout = "2 min"
verify = false
samples = true
ranks_per_device = 2
order = "random"
seed = 17
link_rate = "25 Gbit/s"

[[sweep]]
kind = "collective"
backends = ["mpi", "loopback"]
collectives = ["barrier", "all_reduce"]
dtypes = ["int8", "float64"]
operations = ["max", "sum"]
roots = [0, "3", "all"]
placements = ["in_place", "default"]
callers = ["python", "compiled"]
calls = ["persistent"]
syncs = ["dissemination", "clock"]
buffer = ["registered"]
buffers = [1, 1024]
pages = ["huge"]
topologies = ["pairs", "host:alone", "first:4", "first:doubling", "every:2", "0-1,3;4"]
neighbours = ["alone", "copy"]
patterns = ["uniform"]
sizes = ["1 KiB", "0 B", "1 MB"]
include = [{ dtype = ["int8", "float64"], mode = "latency" }]
exclude = [{ collective = "all_reduce", operation = "max", least_size = "1 KiB", most_size = "1 MiB" }, { root = 0 }]

[[sweep]]
collectives = ["barrier"]

[[variant]]
name = "ring"
env = { NCCL_PROTO = "LL", NCCL_ALGO = "Ring" }

[[variant]]
name = "plain"

[expect]
transport = "rdma"
"""


def parsed(text: str) -> Scenario:
    return scenario.parse(text, name="x")


def sizes_of(sizes: str) -> tuple[int, ...]:
    return parsed(LEAST.replace('["8 B"]', sizes)).sweeps[0].sizes


def test_what_is_left_out_has_the_defaults_of_the_dataclasses() -> None:
    found = parsed(LEAST)
    assert found == Scenario(
        name="x", title="x", sweeps=(Sweep(collectives=("all_reduce",), sizes=(8,)),), digest=found.digest
    )
    assert found.measure == Measure()


def test_every_key_arrives() -> None:
    found = parsed(FULL)
    assert found.title == "everything"
    assert found.measure == Measure(
        modes=("throughput", "latency"),
        precision=1.0,
        time_budget_s=0.25,
        least_time_s=0.0,
        least_iterations=7,
        most_iterations=1000,
        warmup_time_s=60.0,
        timeout_s=120.0,
        verify=False,
        samples=True,
        ranks_per_device=2,
        order="random",
        seed=17,
        link_rate=3.125e9,
    )
    assert found.sweeps == (
        Sweep(
            kind="collective",
            backends=("mpi", "loopback"),
            collectives=("barrier", "all_reduce"),
            dtypes=("int8", "float64"),
            operations=("max", "sum"),
            roots=("0", "3", "all"),
            placements=("in_place", "default"),
            callers=("python", "compiled"),
            calls=("persistent",),
            syncs=("dissemination", "clock"),
            buffer=("registered",),
            buffers=(1, 1024),
            pages=("huge",),
            topologies=("pairs", "host:alone", "first:4", "first:doubling", "every:2", "0-1,3;4"),
            neighbours=("alone", "copy"),
            patterns=("uniform",),
            matrix=None,
            sizes=(1024, 0, 1_000_000),
            include=(Rule((("dtype", ("int8", "float64")), ("mode", ("latency",)))),),
            exclude=(
                Rule((("collective", ("all_reduce",)), ("operation", ("max",))), 1024, 1_048_576),
                Rule((("root", ("0",)),)),
            ),
        ),
        Sweep(collectives=("barrier",)),
    )
    assert found.variants == (Variant("ring", (("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL"))), Variant("plain"))
    assert found.expect == Expect("rdma")


def test_full_names_every_key_that_there_is() -> None:
    schema = scenario.json_schema()
    for table in ("MeasureTable", "SweepTable"):
        missing = [
            key for key in schema["$defs"][table]["properties"] if not re.search(rf"^{key} = ", FULL, re.MULTILINE)
        ]
        assert missing in ([], ["kernels", "ways", "matrix", "workloads", "bucketings", "computes"])


@pytest.mark.parametrize(
    ("sizes", "size_bytes"),
    [
        ('{ from = "8 B", to = "64 B", factor = 2 }', (8, 16, 32, 64)),
        ('{ from = "8 B", to = "63 B", factor = 2.0 }', (8, 16, 32)),
        ('{ from = "8 B", to = "41 B", factor = 1.5 }', (8, 12, 18, 27, 41)),
        ('{ from = "1 B", to = "3 B", factor = 1.1 }', (1, 2, 3)),
        ('{ from = "5 B", to = "9 B", factor = 1.7 }', (5, 9)),
        ('{ from = "1 KiB", to = "1 KiB", factor = 2 }', (1024,)),
        ('{ from = "0 B", to = "10 B", step = "4 B" }', (0, 4, 8)),
        ('{ from = "4 KiB", to = "12 KiB", step = "4 KiB" }', (4096, 8192, 12288)),
        ('["1 MiB", "8 B", "1 TiB", "0 B"]', (1_048_576, 8, 2**40, 0)),
        ('{ from = "1 B", to = "10000 B", step = "1 B" }', tuple(range(1, 10_001))),
    ],
)
def test_sizes_are_written_out_once_each_in_order(sizes: str, size_bytes: tuple[int, ...]) -> None:
    assert sizes_of(sizes) == size_bytes


def test_a_factor_reaches_its_end_exactly() -> None:
    assert growing(1000, 1000 * 11**3 // 10**3, 1.1) == [1000, 1100, 1210, 1331]


def test_the_scenario_of_the_library_leaves_nothing_out() -> None:
    """Every collective in every form and with every pattern, and what has types for every type and operation."""
    sweeps = scenario.load("library").sweeps
    known, table = scenario.known(), collbench.collectives.TABLE
    for name in known["collective"]:
        own = [sweep for sweep in sweeps if name in sweep.collectives]
        assert any(set(sweep.calls) == set(known["call"]) for sweep in own), name
        assert any({"default", "in_place"} <= set(sweep.placements) for sweep in own), name
        if not table[name].collective.has_data:
            continue
        operations = set(known["operation"]) if table[name].collective.reduces else set()
        fit = (set(sweep.dtypes) == set(known["dtype"]) and operations <= set(sweep.operations) for sweep in own)
        assert any(fit), name
        assert not table[name].collective.has_patterns or any(
            set(sweep.patterns) == set(known["pattern"]) for sweep in own
        )
        assert not table[name].collective.rooted or any("all" in sweep.roots for sweep in own), name


def test_a_barrier_needs_no_sizes() -> None:
    assert parsed('schema = 1\n[[sweep]]\ncollectives = ["barrier"]').sweeps[0].sizes == ()


def test_least_values_that_are_left_out_give_way() -> None:
    measure = parsed(f'{LEAST}[measure]\ntime_budget = "10 ms"\nmost_iterations = 5').measure
    assert (measure.least_time_s, measure.least_iterations) == (0.01, 5)


def test_weights_of_all_to_all_v(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collbench.collectives, "names", lambda: ("all_to_all_v",))
    text = LEAST.replace("all_reduce", "all_to_all_v")
    assert parsed(f"{text}matrix = [[0, 1], [2.5, 0]]").sweeps[0].matrix == ((0.0, 1.0), (2.5, 0.0))
    assert parsed(f'{text}patterns = ["linear", "uniform"]').sweeps[0].patterns == ("linear", "uniform")


def test_the_digest_names_the_content(tmp_path: Path) -> None:
    digest = parsed(LEAST).digest
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert parsed(f"# a comment\n{LEAST}").digest == digest
    assert parsed(f"{LEAST}[measure]\nprecision = 0.02").digest == digest
    assert parsed(LEAST.replace("8 B", "9 B")).digest != digest
    assert parsed(f"{LEAST}[measure]\nseed = 1").digest != digest
    # A name and a title say nothing of what is measured.
    assert scenario.parse(LEAST, name="y").digest == digest
    assert parsed(LEAST.replace("schema = 1", 'schema = 1\ntitle = "other"', 1)).digest == digest
    for folder in ("a", "b"):
        path = tmp_path / folder / "x.toml"
        path.parent.mkdir()
        path.write_text(LEAST)
        found = scenario.load(path)
        assert (found.digest, found.source) == (digest, str(path))


def test_other_ranks_need_no_pydantic() -> None:
    found = parsed(FULL)
    program = (
        "import pickle, sys; import collbench.scenario; found = pickle.load(sys.stdin.buffer);"
        "assert 'pydantic' not in sys.modules; print(repr(found), hash(found) is not None)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(found), capture_output=True, check=True, timeout=60
    ).stdout
    assert printed.decode().strip() == f"{found!r} True"


def test_shipped_scenarios_load_and_ask_a_question() -> None:
    listed = scenario.shipped()
    assert "quickstart" in dict(listed)
    for name, question in listed:
        found = scenario.load(name)
        assert (found.name, Path(found.source).stem) == (name, name)
        assert question.endswith("?"), name


def test_quickstart() -> None:
    found = scenario.load("quickstart")
    sweep = found.sweeps[0]
    assert "all_reduce" in sweep.collectives
    assert sweep.placements == ("out_of_place", "in_place")
    assert (min(sweep.sizes), max(sweep.sizes)) == (8, 64 * 2**20)
    assert found.measure == Measure(time_budget_s=0.5)


def test_a_scenario_is_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.toml"
    path.write_text(LEAST)
    assert scenario.find(path) == path
    assert scenario.find("mine.toml") == Path("mine.toml")
    (tmp_path / "quickstart").mkdir()
    assert scenario.find("quickstart") == scenario.FOLDER / "quickstart.toml"


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbf" + LEAST.encode(), LEAST.replace("\n", "\r\n").encode()])
def test_marks_of_other_systems_do_no_harm(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(raw)
    assert replace(scenario.load(path), source="") == parsed(LEAST)


def test_known_names() -> None:
    known = scenario.known()
    assert known["backend"][0] == "default"
    assert {"mpi", "nccl", "loopback"} < set(known["backend"])
    assert known["collective"] == collbench.collectives.names()
    assert known["kernel"] == collbench.collectives.kernel_names()
    assert all(len(set(names)) == len(names) > 0 for names in known.values())


def fits(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Judge a value by the keywords of JSON Schema that the scenario's schema uses."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    types = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "number": number,
        "integer": number and value == int(value),
    }
    if "anyOf" in schema and not any(fits(value, branch, root) for branch in schema["anyOf"]):
        return False
    if "oneOf" in schema and sum(fits(value, branch, root) for branch in schema["oneOf"]) != 1:
        return False
    if not types[schema["type"]] if "type" in schema else False:
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if isinstance(value, str):
        return re.search(schema.get("pattern", ""), value) is not None
    if isinstance(value, list):
        return (
            schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
            and not (schema.get("uniqueItems") and any(item in value[:index] for index, item in enumerate(value)))
            and all(fits(item, schema.get("items", {}), root) for item in value)
        )
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        return (
            all(key in value for key in schema.get("required", []))
            and all(re.search(schema.get("propertyNames", {}).get("pattern", ""), key) for key in value)
            and all(key in known or (others is not False and fits(item, others, root)) for key, item in value.items())
            and all(fits(item, known[key], root) for key, item in value.items() if key in known)
        )
    return not number or (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
    )


SHIPPED = [(scenario.FOLDER / f"{name}.toml").read_text(encoding="utf-8") for name, _ in scenario.shipped()]


@pytest.mark.parametrize("text", [LEAST, FULL, *SHIPPED])
def test_the_json_schema_fits_good_files(text: str) -> None:
    schema = scenario.json_schema()
    assert fits(tomllib.loads(text), schema, schema)


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1",
        LEAST.replace("schema = 1", ""),
        LEAST.replace("schema = 1", "schema = 2"),
        LEAST.replace('["8 B"]', '"8 B"'),
        LEAST.replace('["8 B"]', "[8]"),
        LEAST.replace('["8 B"]', '["8 mib"]'),
        LEAST.replace('["8 B"]', '{ from = "8 B", to = "16 B", factor = 1 }'),
        LEAST.replace('["8 B"]', '{ from = "8 B", to = "16 B", factor = 2, step = "8 B" }'),
        LEAST.replace("all_reduce", "allreduce"),
        f'{LEAST}topologies = ["first:0"]',
        f"{LEAST}buffers = [0]",
        f'{LEAST}roots = ["01"]',
        f'{LEAST}dtypes = ["int8", "int8"]',
        f'{LEAST}exclude = [{{ dtypes = "int8" }}]',
        f"{LEAST}[measure]\nprecision = 0",
        f"{LEAST}[measure]\nverify = 1",
        f'{LEAST}[measure]\ntime_budget = "3"',
        f"{LEAST}[measure]\nspeed = 1",
        f'{LEAST}[[variant]]\nname = "a"\nenv = {{ A = 1 }}',
    ],
)
def test_the_json_schema_fits_no_wrong_file(text: str) -> None:
    schema = scenario.json_schema()
    assert not fits(tomllib.loads(text), schema, schema)


def test_the_json_schema_states_defaults_and_examples_as_a_file_writes_them() -> None:
    schema = scenario.json_schema()
    assert schema["$defs"]["MeasureTable"]["properties"]["time_budget"]["default"] == "1 s"
    checked = 0
    for table in (schema, *schema["$defs"].values()):
        assert table["additionalProperties"] is False
        for key, properties in table["properties"].items():
            for value in (
                *properties.get("examples", []),
                *([properties["default"]] if "default" in properties else []),
            ):
                assert fits(value, properties, schema), key
                checked += 1
    assert checked > 40


def test_the_json_schema_is_one() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = scenario.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for text in (LEAST, FULL, *SHIPPED):
        jsonschema.validate(tomllib.loads(text), schema)
