"""A screen that comes to the front is laid out once, and painted whole once."""

from __future__ import annotations

from collections import Counter

import pytest
from textual._compositor import CompositorUpdate, ReflowResult
from textual.geometry import Size
from textual.widget import Widget

from tests.tui.conftest import OpenScreen
from tests.tui.sizes import every_size
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
        tabs = screen.main.tabs.display  # they come when the size is known
        assert work == {"layouts": 1 + tabs, "paints": 1}
