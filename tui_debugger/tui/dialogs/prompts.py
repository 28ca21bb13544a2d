"""Small questions: a step, a number, a line of text, a path, another run, a choice, yes or no."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual import events, on
from textual.binding import Binding, BindingType
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from tui_debugger.model import GraphRun
from tui_debugger.text.clean import clean, clean_lines
from tui_debugger.text.tensors import BEFORE_FIRST, round_text, step_text, steps_text
from tui_debugger.tui.dialogs.modal import LIST_KEYS, InputLine, ListDialog, Modal, PlainLine
from tui_debugger.tui.theme import DIM, DOUBT, FINDING, NONE, STRONG
from tui_debugger.tui.widgets.text import Cell, ScopedName
from tui_debugger.tui.widgets.virtual_table import LazyRows, ListRows, TableColumn, VirtualTable

if TYPE_CHECKING:
    from tui_debugger.model import ProgressFn
    from tui_debugger.session.dumps import KnownDump, Overview

_RELATIVE = re.compile(r"([+-])\s*(\d{0,18})")
_NUMBER = re.compile(r"\d{1,18}")


class NoSuchStepError(ValueError):
    """The text names no dumped step. The message names steps near it; ``nearest`` is the closest."""

    def __init__(self, message: str, nearest: int | None = None) -> None:
        super().__init__(message)
        self.nearest = nearest


def find_step(text: str, steps: Sequence[int], current: int) -> int:
    """Returns the dumped step that a text means.

    ``text``: a step number; ``+3`` or ``-2``: that many *dumped* steps after or before ``current`` (``+`` alone: one);
    ``first``, ``last`` or the beginning of these words; in a live training also ``start``. ``steps`` are in the order
    in which they ran. ``current`` need not be dumped.

    Raises:
        NoSuchStepError: there is no such step; the message names its neighbours.
    """
    word = text.strip().lower()
    if not steps:
        msg = "no step is dumped"
        raise NoSuchStepError(msg)
    if word and "first".startswith(word):
        return steps[0]
    if word and "last".startswith(word):
        return steps[-1]
    if word and steps[0] < 0 and BEFORE_FIRST.startswith(word):
        return steps[0]
    if match := _RELATIVE.fullmatch(word):
        return _relative(match[1], int(match[2] or 1), steps, current)
    if not _NUMBER.fullmatch(word):
        msg = f"{text.strip()!r} is no step: write a number, +3, -2, first or last"
        raise NoSuchStepError(msg)
    step = int(word)
    if step in steps:
        return step
    raise NoSuchStepError(*_neighbours(step, steps))


def _relative(sign: str, count: int, steps: Sequence[int], current: int) -> int:
    ahead = steps_after(steps, current) if sign == "+" else steps_after(steps[::-1], current, down=True)
    if count == 0:
        return nearest_step(current, steps)
    if count <= len(ahead):
        return ahead[count - 1]
    where = "after" if sign == "+" else "before"
    if not ahead:
        msg = f"no dumped step comes {where} step {current}"
        raise NoSuchStepError(msg, nearest_step(current, steps))
    noun = "step comes" if len(ahead) == 1 else "steps come"
    msg = f"only {len(ahead)} dumped {noun} {where} step {current}: {'last' if sign == '+' else 'first'} is {ahead[-1]}"
    raise NoSuchStepError(msg, ahead[-1])


def steps_after(steps: Sequence[int], step: int | None, *, down: bool = False) -> Sequence[int]:
    """Returns the steps after ``step`` in the given order; if ``step`` is not in ``steps``, those with greater numbers.

    ``steps`` is in the order in which the steps ran, or backwards. None as ``step`` gives all of them. ``down``:
    smaller numbers instead of greater ones.
    """
    if step is None:
        return steps
    if step in steps:
        return steps[steps.index(step) + 1 :]
    return [each for each in steps if (each < step if down else each > step)]


def _neighbours(step: int, steps: Sequence[int]) -> tuple[str, int]:
    """Returns the message and the nearest step for a missing step, by number, not by order of runs."""
    before = max((each for each in steps if each < step), default=None)
    after = min((each for each in steps if each > step), default=None)
    if before is None:
        lowest = min(steps)
        return f"step {step} is not dumped: the first is {lowest}", lowest
    if after is None:
        return f"step {step} is not dumped: the last is {before}", before
    near = before if step - before <= after - step else after
    return f"step {step} is not dumped: {before} comes before, {after} after it", near


def nearest_step(step: int, steps: Sequence[int]) -> int:
    """Returns the dumped step closest to ``step``, the earlier of two equally close steps."""
    return min(steps, key=lambda each: (abs(each - step), each))


def step_rows(
    steps: Sequence[int], current: int, runs: Iterable[GraphRun], findings: Mapping[int, int]
) -> tuple[tuple[TableColumn, ...], LazyRows[int]]:
    """Returns a table of dumped steps: their findings, and the graphs that ran if these differ from step to step.

    ``runs`` without data are shown, too: they explain why a step has less data than others. ``findings`` has the steps
    that were checked.
    """
    ran: dict[int, Text] = {step: Text() for step in steps}
    differ = False
    for run in runs:
        graphs = ran.setdefault(run.step, Text())
        differ |= not run.has_data
        name = f"{', ' if graphs else ''}{run.graph}{round_text(run.round)}"
        graphs.append(name, "" if run.has_data else DIM).append("" if run.has_data else " (no data)", DIM)
    differ |= len({ran[step].plain for step in steps}) > 1

    def cells(step: int) -> Sequence[Cell]:
        here, count = step == current, findings.get(step)
        found = Text("not checked" if count is None else f"{count:,}", FINDING if count else DIM)
        mark, number = Text("▶" if here else " ", STRONG), Text(step_text(step), STRONG if here else "")
        return (mark, number, found, ran[step]) if differ else (mark, number, found)

    columns: tuple[TableColumn, ...] = (
        TableColumn("", 1),
        TableColumn("step", 8, right=True),
        TableColumn("findings", 11, right=True),
    )
    columns += (TableColumn("graphs", 20, elastic=1),) if differ else ()
    return columns, LazyRows(steps, cells, lambda step: step)


class StepPrompt(ListDialog[int]):
    """Asks for a dumped step. Typing moves the list below to the nearest step; the arrow keys pick from it."""

    BINDINGS: ClassVar[list[BindingType]] = LIST_KEYS
    DEFAULT_CSS = "StepPrompt VirtualTable { height: auto; max-height: 12; min-height: 3; }"
    heading = "Go to step"
    hints = (("Enter", "go"), ("↑ ↓", "pick"), ("Esc", "back"))

    def __init__(
        self,
        steps: Sequence[int],
        current: int,
        runs: Sequence[GraphRun],
        findings: Mapping[int, int],
    ) -> None:
        """``steps`` are in the order in which they ran; ``+3`` and ``-2`` count from ``current``."""
        super().__init__()
        self.steps = steps
        self.current = current
        self.runs = runs
        self.findings = findings
        self._picked: int | None = None

    def body(self) -> Iterable[Widget]:
        yield InputLine(placeholder="a step, +3, -2, first, last", id="step")
        columns, rows = step_rows(self.steps, self.current, self.runs, self.findings)
        yield VirtualTable(columns, rows, empty="no step is dumped", id="steps")

    def on_mount(self) -> None:
        self.table.can_focus = False
        self.table.styles.height = max(2, min(12, len(self.steps) + 1))
        if self.steps:
            self.call_after_refresh(self.table.move_to_key, nearest_step(self.current, self.steps))
        self.field.focus()

    @on(Input.Changed, "#step")
    def _typed(self, event: Input.Changed) -> None:
        if not event.value.strip():
            self.say("")
            return
        self._picked = None
        try:
            near: int | None = find_step(event.value, self.steps, self.current)
            self.say("")
        except NoSuchStepError as error:
            near = error.nearest
            self.say(str(error), note=True)
        if near is not None:
            self.table.move_to_key(near)

    def action_list(self, action: str) -> None:
        """Moves in the list; Enter then takes the step under the cursor, whatever was typed before."""
        super().action_list(action)
        if self.table.row_count:
            self._picked = self.steps[self.table.cursor_row]
            self.set_field(step_text(self._picked))
            self.say("")

    @on(Input.Submitted, "#step")
    def _accept(self, event: Input.Submitted) -> None:
        text = event.value.strip()
        if self._picked is not None:
            self.dismiss(self._picked)
        elif not text and self.steps:
            self.dismiss(self.steps[self.table.cursor_row])
        else:
            try:
                self.dismiss(find_step(text, self.steps, self.current))
            except NoSuchStepError as error:
                self.say(str(error))

    @on(VirtualTable.RowSelected)
    def _clicked(self, event: VirtualTable.RowSelected) -> None:
        self.dismiss(self.steps[event.row])


class TextPrompt(ListDialog[str]):
    """Asks for a line of text, checked while it is typed."""

    DEFAULT_CSS = "TextPrompt #note { color: $text-muted; }"
    hints: Sequence[tuple[str, str]] = (("Enter", "accept"), ("Esc", "back"))

    def __init__(
        self, title: str, value: str = "", check: Callable[[str], str | None] = lambda _: None, *, note: str = ""
    ) -> None:
        """``check`` returns the problem with a text, None if it is accepted; ``note`` is an explanation below."""
        super().__init__()
        self.heading = title
        self.value = value
        self.check = check
        self.note = note

    def body(self) -> Iterable[Widget]:
        yield InputLine(self.value, id="text")
        if self.note:
            yield PlainLine(self.note, id="note")

    def on_mount(self) -> None:
        self.field.focus()
        self.field.action_end()

    @on(Input.Changed, "#text")
    def _typed(self, event: Input.Changed) -> None:
        self.say("" if event.value == self.value else self.check(event.value) or "", note=True)

    @on(Input.Submitted, "#text")
    def _accept(self, event: Input.Submitted) -> None:
        wrong = self.check(event.value)
        if wrong:
            self.say(wrong)
        else:
            self.dismiss(event.value)


class NumberPrompt(ListDialog[int]):
    """Asks for a whole number between two bounds; up and down change it by one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "add(1)", show=False),
        Binding("down", "add(-1)", show=False),
        Binding("pageup", "add(10)", show=False),
        Binding("pagedown", "add(-10)", show=False),
    ]
    DEFAULT_CSS = "NumberPrompt #note { color: $text-muted; }"
    hints = (("Enter", "accept"), ("↑ ↓", "±1"), ("Esc", "back"))

    def __init__(self, title: str, value: int = 1, *, low: int = 1, high: int | None = None, note: str = "") -> None:
        """``high`` None: no upper bound."""
        super().__init__()
        self.heading = title
        self.value = value
        self.low = low
        self.high = high
        self.note = note

    def body(self) -> Iterable[Widget]:
        yield InputLine(str(self.value), id="number")
        bounds = f"{self.low} to {self.high}" if self.high is not None else f"{self.low} or more"
        yield PlainLine(f"{self.note}  ({bounds})" if self.note else bounds, id="note")

    def on_mount(self) -> None:
        self.field.focus()
        self.field.select_all()

    def _problem(self, text: str) -> str:
        word = text.strip().removeprefix("+")
        if not (word.removeprefix("-").isdecimal() and word.isascii() and len(word) < 19):
            return f"{text.strip()!r} is not a whole number" if word else "a whole number is needed"
        if int(word) < self.low:
            return f"the smallest is {self.low}"
        if self.high is not None and int(word) > self.high:
            return f"the largest is {self.high}"
        return ""

    def action_add(self, by: int) -> None:
        word = self.field.value.strip()
        value = int(word) if word.removeprefix("-").isdecimal() and len(word) < 19 else self.value
        value = max(self.low, value + by)
        self.field.value = str(value if self.high is None else min(self.high, value))
        self.field.action_end()

    @on(Input.Changed, "#number")
    def _typed(self, event: Input.Changed) -> None:
        self.say(self._problem(event.value) if event.value.strip() else "", note=True)

    @on(Input.Submitted, "#number")
    def _accept(self, event: Input.Submitted) -> None:
        problem = self._problem(event.value)
        if problem:
            self.say(problem)
        else:
            self.dismiss(int(event.value.strip()))


class ChoiceScreen(ListDialog[int]):
    """Asks for one of several options: typing filters, the arrow keys choose."""

    BINDINGS: ClassVar[list[BindingType]] = LIST_KEYS
    hints = (("Enter", "choose"), ("↑ ↓", "move"), ("type", "to filter"), ("Esc", "back"))

    def __init__(self, title: str, options: Sequence[str], current: int | None = None) -> None:
        """The result is an index into ``options``; the option ``current`` is marked and under the cursor at first."""
        super().__init__()
        self.heading = title
        self.options = options
        self.current = current

    def body(self) -> Iterable[Widget]:
        yield InputLine(placeholder="type to filter", id="filter")
        yield VirtualTable(
            (TableColumn("", 1, frozen=True), TableColumn("", 10, elastic=1)),
            self._rows(""),
            header=False,
            empty="nothing matches",
            id="options",
        )

    def _rows(self, needle: str) -> ListRows:
        words = needle.lower().split()
        shown = [i for i, option in enumerate(self.options) if all(word in option.lower() for word in words)]
        mark = Text("▶", STRONG)
        return ListRows([(mark if i == self.current else " ", self.options[i]) for i in shown], shown)

    def on_mount(self) -> None:
        self.table.can_focus = False
        self.table.styles.height = max(1, min(len(self.options), self.app.size.height - 6))
        if self.current is not None:
            self.call_after_refresh(self.table.move_to_key, self.current)
        self.field.focus()

    @on(Input.Changed, "#filter")
    def _filter(self, event: Input.Changed) -> None:
        self.table.set_rows(self._rows(event.value))

    @on(Input.Submitted, "#filter")
    def _accept(self) -> None:
        self._choose(self.table.cursor_key)

    @on(VirtualTable.RowSelected)
    def _clicked(self, event: VirtualTable.RowSelected) -> None:
        self._choose(event.key)

    def _choose(self, key: object) -> None:
        if isinstance(key, int):
            self.dismiss(key)


MOST_ENTRIES = 2000
"""Most entries of a directory that are read for a completion."""


class PathPrompt(TextPrompt):
    """Asks for a path; Tab and the right arrow take the completion that is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", show=False, priority=True)]
    hints: Sequence[tuple[str, str]] = (("Tab Enter", "complete, accept"), ("Esc", "back"))

    def __init__(self, title: str, check: Callable[[str], str | None], *, suffix: str, note: str = "") -> None:
        """Suggests directories, and files that end with ``suffix``; ``check`` and ``note`` as for ``TextPrompt``."""
        super().__init__(title, "", check, note=note)
        self._suffix = suffix

    def on_mount(self) -> None:
        super().on_mount()
        self.field.suggester = _Paths(self._suffix)

    def action_complete(self) -> None:
        self.field.action_end()
        found = completion(self.field.value, self._suffix)
        if found is not None:
            self.field.value = found
            self.field.action_end()


class _Paths(Suggester):
    def __init__(self, suffix: str) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._suffix = suffix

    async def get_suggestion(self, value: str) -> str | None:
        return completion(value, self._suffix)


def typed_path(text: str) -> Path:
    return Path(text.strip()).expanduser()


def path_check(wrong: Callable[[Path], str | None], needed: str = "a path is needed") -> Callable[[str], str | None]:
    """Returns a ``check`` for ``TextPrompt``; ``wrong`` returns a path's problem, ``needed`` is for an empty text."""

    def check(text: str) -> str | None:
        if not text.strip():
            return needed
        try:
            return wrong(typed_path(text))
        except (OSError, ValueError, RuntimeError) as error:  # name too long, ~name of an unknown user
            return f"not a usable path: {error}"

    return check


def completion(text: str, suffix: str) -> str | None:
    """Returns the first path of a directory, or of a file with ``suffix``, that begins with ``text``; None for none."""
    if not text:
        return None
    head, _, start = text.rpartition("/")
    names = []
    try:
        folder = Path(f"{head}/" if "/" in text else ".").expanduser()
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_ENTRIES), entries, strict=False):
                directory = entry.is_dir()
                if entry.name.startswith(start) and (directory or entry.name.endswith(suffix)):
                    names.append(entry.name + ("/" if directory else ""))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: ~name of an unknown user
        return None
    visible = [name for name in names if start or not name.startswith(".")]
    return (f"{head}/" if "/" in text else "") + min(visible) if visible else None


Answer = tuple[str, str, str]
"""(key, words, result)."""


class ConfirmScreen(Modal[str]):
    """Asks before something that cannot be undone."""

    def __init__(self, heading: str, lines: Sequence[str], answers: Sequence[Answer]) -> None:
        """Enter and Ctrl+C give the first answer: it must be harmless."""
        super().__init__()
        self.heading = heading
        self.lines = lines
        self._answers = {key: value for key, _, value in answers} | {"enter": answers[0][2], "ctrl+c": answers[0][2]}
        first, *rest = answers
        self.hints = (
            (f"Enter {first[0]}", first[1]),
            *((key, words) for key, words, _ in rest),
            ("Esc", "back"),
        )

    def body(self) -> Iterable[Widget]:
        yield PlainLine(clean_lines("\n".join(self.lines)))

    def on_key(self, event: events.Key) -> None:
        if event.key in self._answers:
            event.stop()
            event.prevent_default()
            self.dismiss(self._answers[event.key])


OTHER_RUNS: Final = "the list has dumps that were opened before, and those beside this one"


class RunPrompt(PathPrompt):
    """Asks for another run; typing completes a path and filters the list, the arrow keys pick from it."""

    BINDINGS: ClassVar[list[BindingType]] = LIST_KEYS
    DEFAULT_CSS = "RunPrompt VirtualTable { height: auto; max-height: 12; min-height: 3; }"
    hints = (("Tab Enter", "complete, accept"), ("↑ ↓", "pick"), ("Esc", "back"))

    def __init__(self, this: str) -> None:
        """``this`` is the path of the open run, which is not offered."""
        super().__init__("Compare with which run?", text_problem, suffix="/", note=OTHER_RUNS)
        self._this = os.path.realpath(this)
        self._dumps: tuple[KnownDump, ...] = ()
        self._shown: tuple[KnownDump, ...] = ()
        self._picked = False
        self._found: Overview | None = None
        self._laid_out = False

    def body(self) -> Iterable[Widget]:
        yield from super().body()
        columns = (
            TableColumn("dump", 24, elastic=3),
            TableColumn("last verdict", 16, elastic=2),
            TableColumn("steps", 10),
            TableColumn("layout", 10),
        )
        yield VirtualTable(columns, empty="looking …", id="dumps")

    def on_mount(self) -> None:
        super().on_mount()
        self.table.can_focus = False
        self.table.styles.height = max(3, min(13, self.app.size.height - 8))
        self._laid_out = True
        if self._found is not None:
            self.show(self._found)

    def show(self, found: Overview) -> None:
        """Shows the dumps found so far; callable before the dialog is mounted."""
        self._found = found
        if not self._laid_out or not self.is_open:
            return
        self._dumps = tuple(each for each in found.dumps if not each.gone and os.path.realpath(each.path) != self._this)
        self.table.set_empty("no other dump is known: type its path" if found.ended else "looking …")
        self._filter(self.field.value if not self._picked else "")

    def _filter(self, text: str) -> None:
        words = text.strip().lower()
        self._shown = tuple(each for each in self._dumps if words in each.path.lower()) if words else self._dumps
        self.table.set_rows(LazyRows(self._shown, _dump_cells, lambda each: each.path))

    @on(Input.Changed, "#text")
    def _typed_more(self, event: Input.Changed) -> None:
        self._picked = False
        self._filter(event.value)

    def action_list(self, action: str) -> None:
        """Moves in the list; Enter then takes the dump under the cursor."""
        if self._picked or action != "cursor_down" or self.table.cursor_row:
            super().action_list(action)
        if self._shown:
            self._picked = True
            self.set_field(self._shown[self.table.cursor_row].path)
            self.say("")

    @on(Input.Submitted, "#text")
    def _accept(self, event: Input.Submitted) -> None:
        event.prevent_default()  # not the handler of ``TextPrompt``
        text = event.value.strip()
        named = "/" in text or text.startswith((".", "~"))
        if not named and self._shown:  # a part of a listed path
            self.dismiss(self._shown[self.table.cursor_row].path)
            return
        wrong = text_problem(text)
        if wrong:
            self.say(wrong)
        else:
            self.dismiss(os.path.expanduser(text))  # noqa: PTH111 - the ~name of an unknown user stays

    @on(VirtualTable.RowSelected)
    def _clicked(self, event: VirtualTable.RowSelected) -> None:
        self.dismiss(self._shown[event.row].path)


def look_for_dumps(this: str, found: Callable[[Overview], None], progress: ProgressFn) -> Overview:
    """Returns recent dumps and the dumps beside a run; ``found`` gets partial results."""
    from tui_debugger.session.dumps import Overview, RecentDumps, overview

    known = Overview(os.path.dirname(this))  # noqa: PTH120 - text; a URL stays one
    for known in overview(Path(this).parent, RecentDumps(), progress):
        found(known)
    return known


def _dump_cells(dump: KnownDump) -> Sequence[Cell]:
    facts, recent = dump.facts, dump.recent
    scope, _, name = dump.path.rpartition("/")
    path = ScopedName(Text(clean(name), no_wrap=True), scope, DIM)
    verdict = recent.verdict.words if recent is not None and recent.verdict is not None else NONE
    if facts is None:
        return [path, Text(clean(verdict), DIM), "", ""]
    if facts.problem:
        return [path, Text(clean(facts.problem), DOUBT)]
    return [path, Text(clean(verdict), DIM), steps_text(facts.steps), clean(facts.layout)]


def text_problem(text: str, needed: str = "type a path, or pick a dump with ↑ and ↓") -> str | None:
    if not text.strip():
        return needed
    return "no path has a zero byte" if "\0" in text else None
