"""The one-line search box of a pane."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

MAX_LENGTH = 255
"""Characters of a search text."""


class SearchBar(Input):
    """Opens on ``/``; the list follows while one types. Enter keeps the search, Esc takes it back.

    A leading ``~`` means a regular expression.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", show=False),
        Binding("down", "keep", show=False),
    ]
    DEFAULT_CSS = """
    SearchBar, SearchBar:focus {
        display: none; height: 1; border: none; padding: 0 1; background: $panel;
        &.-open { display: block; }
        &.-wrong { color: $error; text-style: bold; }
    }
    """

    class Typed(Message):
        """The text changed."""

        def __init__(self, bar: SearchBar, text: str) -> None:
            super().__init__()
            self.bar = bar
            self.text = text

    class Left(Message):
        """The focus should go back to the list."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  (Textual's own name)
        super().__init__(
            placeholder="search (~ for a regular expression)",
            id=id,
            classes=classes,
            max_length=MAX_LENGTH,
            select_on_focus=False,
        )
        self.cursor_blink = False

    def open(self) -> None:
        """Shows the box and takes the focus."""
        self.add_class("-open")
        self.focus()

    def drop(self) -> None:
        """Empties and closes the box."""
        self.value = ""
        self.remove_class("-open", "-wrong")

    def action_drop(self) -> None:
        """Esc."""
        self.drop()
        self.post_message(self.Left())

    def action_keep(self) -> None:
        """Down: into the list."""
        self.post_message(self.Left())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tells the pane."""
        event.stop()
        self.remove_class("-wrong")
        self.post_message(self.Typed(self, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter: keeps the search; an empty box closes."""
        event.stop()
        self.action_keep()

    def on_blur(self, _: events.Blur) -> None:
        """An empty box takes no line."""
        if not self.value:
            self.remove_class("-open")
