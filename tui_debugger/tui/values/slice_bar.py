"""One line that says which part of a tensor is shown, lets one edit it, and moves along the fixed dimensions."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input

from tui_debugger.analysis.slicing import Slice, default_slice, parse_slice
from tui_debugger.errors import BadSliceError
from tui_debugger.tui.screens.modal import Field, Line
from tui_debugger.tui.theme import GREY
from tui_debugger.words.clean import clean

Index = tuple[int, ...]


class SliceBar(Vertical):
    """Knows the slice of the tensor that is shown beside it.

    Attributes:
        view: the slice; None before a tensor is there.
    """

    DEFAULT_CSS = """
    SliceBar {
        height: 1; width: 1fr;
        #slice-line { height: 1; }
        #slice-edit { display: none; height: 1; }
        &.-editing #slice-line { display: none; }
        &.-editing #slice-edit { display: block; }
    }
    """

    class Changed(Message):
        """Another slice."""

    class Refused(Message):
        """Text that is no slice of the tensor; with an empty text: editing began or ended."""

        def __init__(self, text: str) -> None:
            """``text`` says what is wrong."""
            super().__init__()
            self.text = text

    class Ended(Message):
        """Editing ended: the focus goes back to the values."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - textual's own parameter name
        """No tensor yet."""
        super().__init__(id=id)
        self.view: Slice | None = None
        self._shape: tuple[int, ...] = ()
        self._dimension = 0
        self._note = ""

    def compose(self) -> Iterable[Line | Field]:
        """The line, or the field in its place."""
        yield Line(id="slice-line")
        yield Field(id="slice-edit")

    @property
    def editing(self) -> bool:
        """Whether the text is being edited."""
        return self.has_class("-editing")

    # -- which part --------------------------------------------------------------------------------

    def set_shape(self, shape: tuple[int, ...]) -> None:
        """Another tensor: the slice stays when it has the same shape."""
        if self.view is None or shape != self._shape:
            self._shape, self._dimension = shape, 0
            self.view = None
            self.set_text(default_slice(shape))
        else:
            self._draw()

    def set_text(self, text: str) -> bool:
        """Another slice; says why not when the text is wrong."""
        try:
            view = parse_slice(text, self._shape)
        except BadSliceError as error:
            self.post_message(self.Refused(str(error)))
            return False
        self.view, self._note = view, ""
        self._draw()
        self.post_message(self.Changed())
        return True

    def include(self, index: Index) -> bool:
        """Shows an element: other fixed indices where needed, and wider ranges where a range leaves it out."""
        if self.view is None:
            return False
        words = self._words()
        for i, (entry, wanted) in enumerate(zip(self.view.entries, index, strict=True)):
            if isinstance(entry, int):
                words[i] = str(wanted)
            elif wanted not in entry:
                words[i] = ":"
        return self.set_text(f"[{', '.join(words)}]")

    def choose(self, by: int) -> None:
        """Another fixed dimension to move along."""
        fixed = self._fixed()
        if fixed:
            self._dimension, self._note = (self._dimension + by) % len(fixed), ""
            self._draw()
        else:
            self.note("no dimension is fixed in this slice")

    def step(self, by: int) -> None:
        """Along the chosen fixed dimension."""
        fixed = self._fixed()
        if not fixed or self.view is None:
            self.note("no dimension is fixed in this slice")
            return
        dimension = fixed[self._dimension % len(fixed)]
        entry = self.view.entries[dimension]
        if isinstance(entry, int) and 0 <= entry + by < self._shape[dimension]:
            words = self._words()
            words[dimension] = str(entry + by)
            self.set_text(f"[{', '.join(words)}]")
        else:
            self.note(f"this is the {'last' if by > 0 else 'first'} index of dimension {dimension}")

    def _words(self) -> list[str]:
        """The slice text, one word per dimension."""
        return self.view.text[1:-1].split(", ") if self.view and self.view.entries else []

    def _fixed(self) -> list[int]:
        return [i for i, entry in enumerate(self.view.entries) if isinstance(entry, int)] if self.view else []

    # -- the line ----------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Says something beside the slice, until the next one: a line that comes and goes would redraw every number."""
        if text != self._note:
            self._note = text
            self._draw()

    def _draw(self) -> None:
        fixed = self._fixed()
        chosen = fixed[self._dimension % len(fixed)] if fixed else -1
        parts: list[str | tuple[str, str]] = ["slice [" if self.view else ""]
        for i, word in enumerate(self._words()):
            parts += [", " if i else "", (word, "bold underline") if i == chosen else word]
        parts.append("]" if self.view else "")
        aside = self._note
        if not aside and chosen >= 0:
            aside = f"[ ] moves dimension {chosen} (0 to {self._shape[chosen] - 1})"
        parts.append((f"   {clean(aside)}", "bold" if self._note else GREY))
        self.query_one("#slice-line", Line).show(Content.assemble(*parts))

    # -- editing -----------------------------------------------------------------------------------

    def edit(self) -> None:
        """Shows the field."""
        edit = self.query_one(Field)
        edit.value = self.view.text if self.view else default_slice(self._shape)
        self.add_class("-editing")
        edit.focus()
        edit.cursor_position = max(0, len(edit.value) - 1)

    def end_editing(self) -> None:
        """Back to the line."""
        self.remove_class("-editing")
        self.post_message(self.Ended())

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        event.stop()
        if self.set_text(event.value.strip() or "[...]"):
            self.end_editing()
