"""scripts/gpu_check as far as it needs no device."""

import importlib.util
import json
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

import launching
from collbench import scenario

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "gpu_check"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("gpu_check", str(SCRIPT))
    spec = importlib.util.spec_from_loader("gpu_check", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module  # dataclasses look there
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # beside the script it would lie about
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def test_a_machine_without_a_device_is_one_sentence() -> None:
    if launching.cuda_devices():
        pytest.skip("there is a device here")
    done = launching.run([sys.executable, SCRIPT], timeout=60).expect(7)
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("gpu_check: ")


def test_an_interpreter_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    done = launching.run([sys.executable, SCRIPT, tmp_path / "python"], timeout=60).expect(7)
    assert len(done.err.splitlines()) == 1
    assert "No such file" in done.err


def test_its_scenarios_can_be_read_whole_and_smaller(script: ModuleType) -> None:
    shipped = (ROOT / "scenarios" / "gpu_kernels.toml").read_text()
    for name, text in (("one", script.ONE_RANK), ("two", script.TWO_RANKS), ("kernels", shipped)):
        whole = scenario.parse(text, name=name)
        small = scenario.parse(script.smaller(text), name=name)
        assert len(small.sweeps) == len(whole.sweeps)
        assert max(size for sweep in whole.sweeps for size in sweep.sizes) >= 1 << 20
        assert max(size for sweep in small.sweeps for size in sweep.sizes) <= 1 << 18
    assert scenario.parse(script.TWO_RANKS, name="two").measure.ranks_per_device == 2


def test_the_best_row_of_each_kind(script: ModuleType) -> None:
    rows = [
        {"collective": "copy", "pattern": "kernel", "busbw_GBps": "9.5"},
        {"collective": "copy", "pattern": "kernel", "busbw_GBps": "11.5"},
        {"collective": "copy", "pattern": "engine", "busbw_GBps": ""},
        {"collective": "reduce_local", "pattern": "", "busbw_GBps": "1"},
    ]
    assert script.best(rows, ("collective", "pattern"), "busbw_GBps") == [rows[1], rows[3]]


def test_the_last_line_that_says_anything(script: ModuleType) -> None:
    assert script.last_line("one\ntwo\n\n  \n", 1) == "two"
    assert script.last_line("", 1) == "no word"
    assert script.last_line("one", 124) == "one (time limit)"


def test_a_part_that_takes_too_long_is_ended(script: ModuleType, tmp_path: Path) -> None:
    check = script.Check(sys.executable, tmp_path, False, script.time.monotonic() + 100)
    began = script.time.monotonic()
    assert check.run("slow", ["sh", "-c", "echo begun; sleep 30"], 1) == (124, "begun\n")
    assert script.time.monotonic() - began < 10
    assert check.run("quick", ["sh", "-c", "echo $WORD; exit 3"], 10, WORD="said") == (3, "said\n")


def test_parts_that_fail_do_not_keep_others_from_running(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hardware = {"device": {"name": "NVIDIA H200", "driver_version": "580.1"}}
    monkeypatch.setattr(script, "look", lambda python: {"missing": ["mpi4py"], "hardware": hardware})
    monkeypatch.setattr(script.shutil, "which", lambda *_, **__: None)

    def broken(check: object, limit_s: float) -> tuple[str, str]:
        """Break."""
        return "failed", "it broke"

    def whole(check: object, limit_s: float) -> tuple[str, str]:
        """Go well."""
        return "ok", ""

    parts = {"compile": (broken, 5), "tests": (whole, 5)}
    monkeypatch.setattr(script, "PARTS", parts)
    monkeypatch.setattr(sys, "argv", ["gpu_check", "--output", str(tmp_path), "--only", "compile", "tests"])
    assert script.main() == 1
    out = capsys.readouterr().out
    assert "compile: Break.\n  failed in 0 s: it broke\ntests: Go well.\n  ok in 0 s\nsomething failed" in out
    summary = (tmp_path / "summary.txt").read_text()
    assert summary.startswith("NVIDIA H200, driver 580.1, ")
    assert "without mpi4py: two ranks cannot run or know less" in summary
    assert "emulated" not in summary
    assert '"NVIDIA H200"' in (tmp_path / "hardware.json").read_text()


@pytest.mark.parametrize(
    ("within", "emulated", "code", "outcome", "words"),
    [
        (True, False, 0, "ok", "1.040 at 8 B"),
        (False, False, 1, "failed", "1.040 at 8 B; beyond the criterion at 8 B (ratio at most 1.05)"),
        (False, True, 1, "ok", "1.040 at 8 B; beyond the criterion at 8 B, which says nothing of an emulated device"),
        (True, False, 124, "failed", "1.040 at 8 B; it stopped (time limit)"),
    ],
)
def test_an_overhead_beyond_the_criterion_fails(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: bool, emulated: bool, code: int,
    outcome: str, words: str,
) -> None:  # fmt: skip
    case = {"bytes": 8, "ratio": {"value": 1.04}, "within": within}
    content = {"cases": [case], "criterion": "ratio at most 1.05"}
    (tmp_path / "overhead.json").write_text(json.dumps(content))
    check = script.Check(sys.executable, tmp_path, emulated, script.time.monotonic() + 100)
    monkeypatch.setattr(script.shutil, "which", lambda *_, **__: "cc")
    monkeypatch.setattr(script.Check, "run", lambda *_, **__: (code, "it stopped"))
    assert script.overhead(check, 10) == (outcome, f"collbench over C: {words}")
