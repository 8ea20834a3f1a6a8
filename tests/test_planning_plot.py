"""The picture of a forecast: what is on it, by its lines, bars and words."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from collbench.planning import plot
from collbench.planning.costs import Range
from collbench.planning.fabric import Split
from collbench.planning.step import Step


def at(devices: int, hosts: int, rate: float, extrapolated: bool = False) -> Step:
    sent = Split(Range(0.01, 0.01, 0.01, extrapolated=extrapolated))
    spread = Range(0.9 * rate, rate, 1.1 * rate)
    time = Range(0.1, 0.1, 0.1)
    return Step(devices, hosts, 32, devices * 32, 0.09, sent, Range(0.01, 0.01, 0.01), time, spread)


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *steps: Step) -> Figure:
    kept: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, path: Path) -> None:
        save(figure, path)
        kept.append(figure)

    with monkeypatch.context() as patched:
        patched.setattr(Figure, "savefig", keep)
        plot.draw(tmp_path / "a.png", "title", "images", steps)
    return kept[0]


def lines(figure: Figure) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in figure.axes[0].containers:
        assert isinstance(one, ErrorbarContainer)
        assert one.lines[0] is not None
        found[str(one.get_label())] = np.asarray(one.lines[0].get_xdata(), float).tolist()
    return found


def test_each_number_of_hosts_has_a_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = [at(4, 1, 100), at(4, 2, 90), at(8, 2, 180), at(4, 4, 80), at(8, 4, 160)]
    figure = drawn(tmp_path, monkeypatch, *several)
    assert lines(figure) == {"1 host": [4], "2 hosts": [4, 8], "4 hosts": [4, 8]}
    full = drawn(tmp_path, monkeypatch, at(16, 2, 200), at(8, 1, 100), at(32, 4, 390))
    assert lines(full) == {"1 to 4 hosts": [8, 16, 32]}


def test_numbers_are_plain_and_nothing_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(tmp_path, monkeypatch, at(4, 1, 1500), at(8, 1, 2900))
    speed, parts = figure.axes
    assert [label.get_text() for label in speed.get_xticklabels()] == ["4", "8"]
    words = [label.get_text() for label in speed.get_yticklabels()]
    assert "2,000" in words
    assert all("10^" not in word and "times" not in word for word in words)
    for axes in (speed, parts):
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y1 <= axes.get_window_extent().y0
    assert [label.get_text() for label in parts.get_xticklabels()] == ["4\n1 h.", "8\n1 h."]


def test_what_is_extrapolated_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = drawn(tmp_path, monkeypatch, at(4, 1, 100), at(8, 1, 190))
    beyond = drawn(tmp_path, monkeypatch, at(4, 1, 100), at(8, 1, 190, extrapolated=True))
    for figure, marked in ((measured, False), (beyond, True)):
        for axes in figure.axes:
            legend = axes.get_legend()
            assert legend is not None
            assert ("beyond what was measured" in [text.get_text() for text in legend.get_texts()]) == marked
        white = [one.get_xdata() for one in figure.axes[0].lines if one.get_markerfacecolor() == "white"]
        hollow = [np.asarray(places, float).tolist() for places in white]
        assert [places for places in hollow if places] == ([[8]] if marked else [])


def test_steps_without_a_time_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = drawn(tmp_path, monkeypatch, at(4, 1, 100), replace(at(8, 1, 190), rate=None))
    assert lines(figure) == {"1 host": [4]}
