"""A screen that comes to the front is laid out once, and painted whole once."""

from __future__ import annotations

from collections import Counter

import pytest
from textual._compositor import CompositorUpdate, ReflowResult
from textual.geometry import Region, Size
from textual.widget import Widget

from tests.tui.conftest import OpenScreen
from tests.tui.sizes import every_size
from tui_debugger.tui.dialogs.modal import DialogBox
from tui_debugger.tui.widgets.line_window import CachedColumn
from tui_debugger.tui.written_lines import ExactCompositor

NAN = "mindspore-2.0-nan"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Layouts, and paints of everything."""
    counted: Counter[str] = Counter()
    reflow, paint = ExactCompositor.reflow, ExactCompositor.render_full_update

    def lay_out(self: ExactCompositor, parent: Widget, size: Size) -> ReflowResult:
        counted["layouts"] += 1
        return reflow(self, parent, size)

    def paint_all(self: ExactCompositor, simplify: bool = False) -> CompositorUpdate:
        counted["paints"] += 1
        return paint(self, simplify)

    monkeypatch.setattr(ExactCompositor, "reflow", lay_out)
    monkeypatch.setattr(ExactCompositor, "render_full_update", paint_all)
    return counted


@every_size
async def test_the_first_screen(open_screen: OpenScreen, size: tuple[int, int], work: Counter[str]) -> None:
    async with open_screen(NAN, size=size) as screen:
        led = screen.main.has_class("-single")  # to the finding, in a pane that was not on the screen
        assert (screen.main.current_pane == "hits") == led
        assert work == {"layouts": 1 + led, "paints": 1}


@pytest.mark.parametrize("key", ["s", "question_mark", "w", "o", "H"])
async def test_what_is_drawn_once_for_many_lines_is_what_each_of_them_would_be(
    open_screen: OpenScreen, key: str
) -> None:
    async with open_screen(NAN, size=(120, 40)) as screen:
        await screen.press("n", key)
        await screen.settled()
        grounds = [
            screen.app.screen,
            screen.app.screen.query_one(DialogBox),
            screen.main,
            *screen.main.query(CachedColumn),
        ]
        for widget in grounds:
            whole = Region(0, 0, *widget.outer_size)
            each = [
                line for y in range(whole.height) for line in Widget.render_lines(widget, Region(0, y, whole.width, 1))
            ]
            assert [list(line) for line in widget.render_lines(whole)] == [list(line) for line in each], widget
