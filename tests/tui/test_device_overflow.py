"""Operators that overflowed on an Ascend device are marked, whatever their values show: a dump of two ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ascend_files import OVERFLOWING, take_for_long, task_of, write_long_tensors, write_overflowing_dump
from tests.tui.conftest import OpenScreen
from tests.tui.driver import Driver
from tests.tui.sizes import every_size
from tui_debugger.watch.text import parse_watch

MATMUL, RELU, _ = (node.name for node in OVERFLOWING.nodes)


def marked(screen: Driver) -> list[str]:
    """The nodes with the mark, scopes left out."""
    tree = screen.main.nodes_pane.scopes
    assert tree is not None
    rows = (screen.main.nodes_pane.tree_widget.entry_cells(index)[0] for index in range(len(tree.row)))
    return [tree.label[at] for at, gutter in enumerate(rows) if "▲" in str(gutter) and tree.row[at] >= 0]


@every_size
async def test_the_mark_stands_where_the_device_recorded_it(
    tmp_path: Path, open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    write_overflowing_dump(tmp_path)
    async with open_screen(tmp_path, size=size) as screen:
        assert (screen.main.state.rank, screen.main.state.step) == (1, 2), "the only origin"
        assert marked(screen) == [RELU.rpartition("/")[2]]
        row = next(at for at, text in enumerate(screen.pane("hits")) if "status 0x20" in text)
        screen.main.hits_pane.table.move_to(row)
        await screen.press("4", "enter")
        await screen.settled()
        assert (screen.main.state.rank, screen.main.state.step) == (0, 1), "all values are finite there"
        assert marked(screen) == [RELU.rpartition("/")[2]]
        assert "▲1 overflowed" in screen.text
        assert "▲ overflowed on the device: AI Core status 0x20" in "\n".join(screen.pane("hits"))
        await screen.press("1")
        assert [line for line in screen.lines if "▲" in line and "ReLU" in line]
        assert "▲ overflowed on the device" in screen.text or size[0] == 120, "there the list is narrow"
        await screen.press("5")
        await screen.settled()
        assert [row[:2] for row in screen.pane("tensors") if row[2:].lstrip().startswith("out")] == ["✗▲"]
        await screen.press("end")
        await screen.settled()
        assert f"Core status 0x20 (task {task_of(RELU, OVERFLOWING)}, stream 2, block 4)" in screen.text
        await screen.press("[")
        await screen.settled()
        assert marked(screen) == []
        assert "overflowed" not in screen.lines[0]


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_hits_have_the_mark_whatever_was_watched_for(
    tmp_path: Path, open_screen: OpenScreen, size: tuple[int, int]
) -> None:
    write_overflowing_dump(tmp_path)
    async with open_screen(tmp_path, recommended=False, size=size) as screen:
        for watch in ("TO", "TL abs_mean_gt=0"):
            screen.session.watchpoints.add(*parse_watch(watch))
        await screen.press("R", "4")
        await screen.settled()
        rows = [row for row in screen.pane("hits") if "ReLU-op2" in row]
        at = {row.split()[1]: row for row in rows}
        assert "▲ TO TL" in at["2"]
        assert "▲ TL" in at["1"]
        assert sum("▲" in row for row in screen.pane("hits")) == 2
        assert [line for line in screen.lines if "ReLU" in line and "▲ T" in line]


async def test_it_stays_when_nothing_watches_for_it(tmp_path: Path, open_screen: OpenScreen) -> None:
    write_overflowing_dump(tmp_path)
    async with open_screen(tmp_path, recommended=False) as screen:
        await screen.press("]")
        await screen.settled()
        assert screen.main.state.step == 1
        assert marked(screen) == [RELU.rpartition("/")[2]]


async def test_other_dumps_have_no_column_for_it(open_screen: OpenScreen) -> None:
    async with open_screen("mindspore-2.0-nan") as screen:
        marks = screen.main.nodes_pane.tree_widget._marks
        assert marks is not None
        assert marks.overflowed is None
        assert "▲" not in screen.text


async def test_of_a_long_tensor_no_more_is_converted_than_is_looked_at(
    tmp_path: Path, open_screen: OpenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = write_long_tensors(tmp_path)
    converted = take_for_long(monkeypatch)
    async with open_screen(tmp_path, size=(120, 40)) as screen:
        await screen.settled()
        await screen.press("]", "1", "slash")
        await screen.type("ReLU-op2")
        await screen.press("enter", "enter")
        await screen.settled()
        converted.pieces.clear()
        await screen.press("5", "end", "enter")
        await screen.settled()
        assert "[0, 0, :, :]" in screen.text
        assert f"{values[0, 0, 0, 0]:.4f}" in screen.text
        await screen.press("end", "G", "enter")
        assert 0 < converted.total < values.size // 20
        await screen.press("t")
        await screen.settled()
        assert 0 < converted.total < values.size // 20
        for view, text in (("b", "percentiles"), ("C", "equal")):
            converted.pieces.clear()
            await screen.press("escape", view)
            await screen.until(lambda text=text: text in screen.text)
            await screen.settled()
            assert converted.total >= values.size
        assert converted.most <= values.size // 3
