"""``tdbg show --heat``: the map of a window in plain glyphs, and its cells as JSON."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.memory import MemorySource, Op
from tests.sources.writer import DumpWriter
from tests.stats.windows import whole
from tui_debugger.cli import show_report
from tui_debugger.cli.show_report import MapCanvas, heat_of
from tui_debugger.model import Progress, Side, no_progress
from tui_debugger.stats.heat import shrink
from tui_debugger.text.heat_map import Colors

Capsys = pytest.CaptureFixture[str]
Memory = Callable[[Any], str]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Makes ``tdbg show memory`` about one node with one output."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((60, 24)))

    def make(value: Any) -> str:
        source = MemorySource(
            {0: {0: {("Default/Add-op1", Side.OUTPUT, 0): value}}}, ops=[Op("Default/Add-op1", "Add")]
        )
        monkeypatch.setattr("tui_debugger.session.session.open_source", lambda *_: source)
        return "memory"

    return make


def test_a_window_in_glyphs_with_its_indices_and_a_legend(capsys: Capsys, memory: Memory) -> None:
    array = np.outer(np.linspace(-1, 1, 40), np.ones(30)).astype(np.float32)
    array[20, 3] = np.nan
    answer = run(capsys, "show", memory(array), "Add-op1", "[:, 10::-1]", "--heat")
    assert answer.code == 0
    body = answer.lines[answer.lines.index("  [:, 10::-1]") + 1 :]
    assert body[0].split() == ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1", "0"]
    assert body[1].split()[0] == "0"
    assert set(body[1].split()[1]) == {"▤"}
    assert [line for line in body[:-1] if "N" in line] == [body[7]]
    assert body[-1].strip().startswith("-1 ▤")
    assert body[-1].endswith("1  cell 3 × 1  N NaN 1")
    assert all(len(line) <= 60 for line in body)
    assert "\x1b" not in answer.out


def test_without_a_slice_it_is_the_first_plane(capsys: Capsys, memory: Memory) -> None:
    answer = run(capsys, "show", memory(np.zeros((3, 4, 5), np.int8)), "Add-op1", "--heat")
    assert "  [0, :, :]" in answer.lines


def test_the_cells_as_json_equal_the_picture(capsys: Capsys, memory: Memory) -> None:
    array = np.random.default_rng(3).normal(size=(200, 300))
    array[5, 5], array[100, 200] = np.nan, -np.inf
    answer = run(capsys, "show", memory(array), "Add-op1", "--heat", "--json").json
    (tensor,) = answer["tensors"]
    heat = tensor["heat"]
    rows, columns = heat["cell"]
    picture = shrink(
        lambda down, across: array[down, across], whole(array.shape, (len(heat["rows"]), len(heat["columns"])))
    )
    assert (picture.window.rows.step, picture.window.columns.step) == (rows, columns)
    assert heat["rows"] == list(range(0, 200, rows))
    assert heat["columns"] == list(range(0, 300, columns))
    assert heat["nan"] == picture.nan.tolist()
    assert heat["neg_inf"] == picture.neg_inf.tolist()
    assert heat["bounds"] == list(picture.bounds or ())
    for row, line in enumerate(heat["values"]):
        for column, value in enumerate(line):
            bad = bool(picture.kinds[row, column])
            assert value == ("nan" if bad else picture.values[row, column])


@pytest.mark.parametrize(
    ("value", "slice_", "reason"),
    [
        (np.zeros((0, 3)), (), "no elements"),
        (np.zeros((3, 3)), ("[1:1, :]",), "no elements"),
        (np.array(["a", "b"]), (), "no heat map of them"),
    ],
)
def test_where_there_is_nothing_to_draw_the_reason_is_said(
    value: Any, slice_: tuple[str, ...], reason: str, capsys: Capsys, memory: Memory
) -> None:
    answer = run(capsys, "show", memory(value), "Add-op1", *slice_, "--heat")
    assert answer.code == 2
    assert reason in answer.out


def test_wrong_slices_and_two_wishes_are_refused(capsys: Capsys, memory: Memory) -> None:
    answer = run(capsys, "show", memory(np.zeros((3, 3))), "Add-op1", "[9, :]", "--heat")
    assert answer.code == 2
    assert "index 9 is outside dimension 0" in answer.err
    answer = run(capsys, "show", "memory", "Add-op1", "--heat", "--stat")
    assert answer.code == 2
    assert "--stat and --heat are two answers" in answer.err


@pytest.mark.parametrize(("colors", "code"), [(Colors.TRUE, "48;2;"), (Colors.MANY, "48;5;"), (Colors.FEW, "[9")])
def test_a_terminal_gets_its_colours(colors: Colors, code: str) -> None:
    heat = heat_of(np.eye(4) - 0.5, None, MapCanvas(12, 40, colors, no_progress))
    assert f"\x1b[{code}".replace("[[", "[") in heat.text


def test_only_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert show_report.canvas(no_progress).colors is Colors.TRUE
    monkeypatch.setenv("NO_COLOR", "")
    assert show_report.canvas(no_progress).colors is Colors.NONE
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    monkeypatch.delenv("NO_COLOR")
    assert show_report.canvas(no_progress).colors is Colors.NONE


def test_a_large_tensor_tells_how_far_it_is() -> None:
    told: list[Progress] = []
    heat_of(np.broadcast_to(np.float32(1), (3000, 3000)), None, MapCanvas(20, 80, Colors.NONE, told.append))
    assert told[0].total == 9_000_000
    assert told[-1].done < 9_000_000


def test_a_real_dump(capsys: Capsys, dumps: Callable[[str], Path]) -> None:
    answer = run(capsys, "show", dumps("mindspore-2.0-nan"), "Log-op381:0", "--step", "3", "--heat")
    assert answer.code == 0
    assert "▼ -Inf 1" in answer.lines[-1]


def test_statistics_alone_make_no_heat_map(capsys: Capsys, tmp_path: Path) -> None:
    DumpWriter(tmp_path).statistics(0, [("Add", "Add-op1", "output", 0, np.ones(3, np.float32))])
    answer = run(capsys, "show", tmp_path, "Add-op1", "--heat")
    assert answer.code == 2
    assert "only statistics were dumped, no values" in answer.out
