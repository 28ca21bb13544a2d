"""The base of every dialog: a title, a line for messages, key hints, Esc to go back; and errors in full."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.screen import ModalScreen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from tui_debugger.errors import TdbgError
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.tui.frames import DrawnOnce
from tui_debugger.tui.theme import GREY
from tui_debugger.tui.widgets.line_window import SizedOnce, ground
from tui_debugger.tui.widgets.virtual_table import VirtualTable

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_FRAME = 4
"""Cells of a full screen's hint line that hints cannot use: its two ends, and blanks beside them."""
_KEPT = frozenset({"?", "Esc", "Esc q"})
"""Keys that are named even if there is little room: they list all other keys, or leave."""
ResultT = TypeVar("ResultT")
T = TypeVar("T")

Run = Callable[[Callable[[], T], Callable[[T], None], Callable[[Exception], None]], None]
"""Runs slow work: ``run(work, done, failed)``.

``work`` runs in a thread, then ``done`` or ``failed`` on the event loop. Screens take this as an argument, since only
the module ``work`` starts threads.
"""


class PlainLine(SizedOnce, Static):
    """One or more lines of text that is never markup; control characters are made visible."""

    DEFAULT_CSS = "PlainLine { width: 1fr; height: auto; }"

    def __init__(
        self,
        content: Content | str = "",
        *,
        id: str | None = None,  # noqa: A002 - textual's own parameter name
        classes: str | None = None,
    ) -> None:
        super().__init__(_safe(content), markup=False, id=id, classes=classes)

    def show(self, content: Content | str) -> None:
        """Replaces the text; an empty text sets the class ``-empty``."""
        self.update(_safe(content))
        self.set_class(not str(content), "-empty")


def plain_lines(*names: str) -> Iterator[PlainLine]:
    return (PlainLine(id=name) for name in names)


def _safe(content: Content | str) -> Content | str:
    """Returns the text without control characters, in case no caller cleaned it."""
    if isinstance(content, str):
        return clean_lines(content)
    if clean_lines(content.plain) == content.plain:
        return content
    return Content.assemble(*((clean_lines(text), style) for text, style in content.render()))


class InputLine(SizedOnce, Input):
    """An input line: one row, no blinking, no border, selects nothing on focus."""

    DEFAULT_CSS = """
    InputLine {
        height: 1; width: 1fr; border: none; padding: 0; background: $surface;
        &:focus { border: none; background-tint: $foreground 0%; background: $panel; }
        &.-invalid, &.-invalid:focus { border: none; color: $error; }
        & > .input--placeholder { color: $text-muted; }
    }
    """

    def __init__(self, value: str = "", *, placeholder: str = "", id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        super().__init__(value, placeholder=clean(placeholder), id=id, select_on_focus=False, compact=True)
        self.cursor_blink = False

    @property
    def _value(self) -> Text:
        # The text that the base class draws. Each bad character becomes one other character, because the cursor
        # counts characters; ``value`` stays as it is, so that a node name with an escape sequence still works.
        shown = "".join(char if clean(char) == char else REPLACEMENT for char in self.value)
        return Text(shown, no_wrap=True, overflow="ignore", end="")


class DialogBox(SizedOnce, Vertical):
    """The content of a dialog."""

    def render_lines(self, crop: Region) -> list[Strip]:
        if crop != Region(0, 0, *self.outer_size):
            return super().render_lines(crop)
        sides = self.gutter
        return ground(super().render_lines, crop, sides.top, sides.bottom)


class Modal(DrawnOnce, SizedOnce, ModalScreen[ResultT]):
    """Base of dialogs and views.

    Subclasses set ``heading`` and ``hints`` and override ``body``. ``FULL`` covers the whole terminal; else the body is
    a small box in the middle.
    """

    FULL: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "cancel", "back", show=False)]

    DEFAULT_CSS = """
    Modal {
        align: center middle;
        background: $background 0%;
        & > #box {
            width: 76; max-width: 100%; height: auto; max-height: 100%;
            background: $surface; color: $foreground;
            border: round $primary; padding: 0 1;
            border-title-color: $foreground; border-title-style: bold;
            border-subtitle-color: $text-muted; border-subtitle-align: left;
        }
        &.-full { background: $surface; }
        &.-full > #box {
            width: 100%; height: 100%; padding: 0 1;
            border: none; border-top: solid $primary; border-bottom: solid $primary;
        }
        #message { color: $error; text-style: bold; }
        #message.-empty { display: none; }
        #message.-note { color: $text-muted; text-style: none; }
    }
    """

    heading: str = ""
    hints: Sequence[tuple[str, str]] = (("Esc", "back"),)

    def __init__(self) -> None:
        super().__init__(classes="-full" if self.FULL else None)

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.styles.background.a < 1:
            return super().render_lines(crop)
        return ground(super().render_lines, crop)

    def compose(self) -> ComposeResult:
        with DialogBox(id="box") as box:
            box.border_title = self._title(self.heading)
            box.border_subtitle = self._hints(self.hints)
            yield from self.body()
            yield PlainLine(id="message", classes="-empty")

    def body(self) -> Iterable[Widget]:
        return ()

    def say(self, text: str, *, note: bool = False) -> None:
        """Shows an error (or a quiet note); an empty text removes the line."""
        line = self.query_one("#message", PlainLine)
        line.set_class(note, "-note")
        line.show(clean_lines(text))

    def text_line(self, name: str) -> PlainLine:
        return self.query_one(f"#{name}", PlainLine)

    def show_line(self, name: str, content: Content | str) -> None:
        self.text_line(name).show(content)

    def put_line(self, name: str, content: Content | str, *, anew: bool = False) -> None:
        """Shows a line if its text changed, or ``anew``; lays out only if the number of lines changed."""
        line, old = self.text_line(name), str(self.text_line(name).content)
        if anew or old != str(content):
            line.update(_safe(content), layout=old.count("\n") != str(content).count("\n"))

    def _title(self, text: str) -> Content:
        # Textual puts blanks around the title of a frame with corners only.
        return Content(f" {clean(text)} " if self.FULL else clean(text))

    def _hints(self, hints: Sequence[tuple[str, str]]) -> Content:
        if not self.FULL:
            return hint_line(hints)
        return Content.assemble(" ", hint_line(fitting(hints, self.app.size.width - _FRAME)), " ")

    @on(events.Resize)
    def _fit_hints(self) -> None:
        # More or fewer hints fit now.
        if self.FULL and self.is_mounted:
            self.set_hints(self.hints)

    def set_heading(self, text: str) -> None:
        self.heading = text
        self.query_one("#box", Vertical).border_title = self._title(text)

    def set_hints(self, hints: Sequence[tuple[str, str]]) -> None:
        self.hints = hints
        self.query_one("#box", Vertical).border_subtitle = self._hints(hints)

    def action_cancel(self) -> None:
        self.dismiss(None)

    def ask(self, app: App[Any], then: Callable[[ResultT], None]) -> None:
        """Opens the dialog; ``then`` gets its result, unless the user goes back."""
        app.push_screen(self, lambda result: None if result is None else then(result))


class ListDialog(Modal[ResultT]):
    """A dialog with a list, a line for input, or both; ``LIST_KEYS`` move in the list while the line has the focus."""

    @property
    def field(self) -> InputLine:
        return self.query_one(InputLine)

    @property
    def table(self) -> VirtualTable:
        return self.query_one(VirtualTable)

    def set_field(self, text: str) -> None:
        """Fills the line as if it had not been typed."""
        with self.prevent(Input.Changed):
            self.field.value = text
            self.field.action_end()

    def action_list(self, action: str) -> None:
        getattr(self.table, f"action_{action}")()


LIST_KEYS: list[BindingType] = [
    Binding("up", "list('cursor_up')", show=False),
    Binding("down", "list('cursor_down')", show=False),
    Binding("pageup", "list('page_up')", show=False),
    Binding("pagedown", "list('page_down')", show=False),
]


def fitting(hints: Sequence[tuple[str, str]], room: int) -> Sequence[tuple[str, str]]:
    """Returns the first hints that fit into ``room`` cells, always with the keys of ``_KEPT``."""
    shown = list(hints)
    while hint_line(shown).cell_length > room:
        spare = [hint for hint in shown if hint[0] not in _KEPT]
        if not spare:
            break
        shown.remove(spare[-1])
    return shown


def hint_line(hints: Iterable[tuple[str, str]]) -> Content:
    """Returns ``Enter use  Esc back``; keys are bold, so that they stand out without colours."""
    parts: list[Content | str | tuple[str, str]] = []
    for key, word in hints:
        parts += [(key, "bold"), f" {word}  "]
    return Content.assemble(*parts).rstrip()


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
        super().__init__()
        self.error = error

    def body(self) -> Iterable[Widget]:
        with VerticalScroll(id="parts"):
            yield PlainLine(Content.styled(clean_lines(self.error.what), "bold"))
            for word, text in (("where", self.error.where), ("do", self.error.hint)):
                if text:
                    with Horizontal(classes="part"):
                        yield PlainLine(Content.styled(word, GREY), classes="word")
                        yield PlainLine(clean_lines(text))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()
