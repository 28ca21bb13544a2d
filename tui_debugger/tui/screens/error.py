"""An error in full: what happened, where, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget

from tui_debugger.errors import TdbgError
from tui_debugger.tui.screens.modal import Line, Modal, clean_lines
from tui_debugger.tui.theme import GREY


class ErrorScreen(Modal[None]):
    """Shows an error until Esc or Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space,q", "cancel", show=False)]
    DEFAULT_CSS = """
    ErrorScreen {
        & > #box { border: round $error; }
        #parts { height: auto; max-height: 20; scrollbar-size-vertical: 1; }
        .part { height: auto; }
        .word { width: 7; }
    }
    """
    heading = "✗ Error"
    hints = (("Enter Esc", "back"),)

    def __init__(self, error: TdbgError) -> None:
        """Any error of this program."""
        super().__init__()
        self.error = error

    def body(self) -> Iterable[Widget]:
        """The three parts."""
        with VerticalScroll(id="parts"):
            yield Line(Content.styled(clean_lines(self.error.what), "bold"))
            for word, text in (("where", self.error.where), ("do", self.error.hint)):
                if text:
                    with Horizontal(classes="part"):
                        yield Line(Content.styled(word, GREY), classes="word")
                        yield Line(clean_lines(text))

    def on_mount(self) -> None:
        """Arrow keys scroll a long one."""
        self.query_one(VerticalScroll).focus()
