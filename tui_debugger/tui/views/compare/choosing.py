"""Choosing the other side: one list of steps, ranks and further questions; typing filters it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.analysis.difference.pairs import Fit
from tui_debugger.errors import TdbgError
from tui_debugger.graph.query import NodeQuery
from tui_debugger.graph.search import match
from tui_debugger.session.diagnosis.comparing import Comparer, DifferentShapesError, Side
from tui_debugger.session.naming import find_node, split_slot
from tui_debugger.tui.screens.confirm import ConfirmScreen
from tui_debugger.tui.screens.prompts import ChoiceScreen, TextPrompt
from tui_debugger.tui.views.compare.path_prompt import PathPrompt
from tui_debugger.words.steps import step_text
from tui_debugger.words.tensors import round_text

if TYPE_CHECKING:
    from tui_debugger.model import TensorKey
    from tui_debugger.session import TensorRow
    from tui_debugger.tui.views.view import View

Then = Callable[[Side], None]
MOST: Final = 500
"""Nodes that are offered when several have the name."""


@dataclass(frozen=True, slots=True)
class Option:
    """A line of the list."""

    text: str
    choose: Callable[[], None]
    current: bool = False


def ask_shape(view: View, error: DifferentShapesError, agreed: Callable[[], None]) -> None:
    """Asks whether tensors of different shapes are meant to be compared all the same."""
    how = "element by element, in C order" if error.fit is Fit.RESHAPED else "by stretching one over the other"

    def answered(answer: str | None) -> None:
        if answer == "yes":
            agreed()

    lines = (f"The shapes are {error.where}.", f"They can be compared {how}.", "Is that what you mean?")
    answers = (("n", "no", "no"), ("y", "compare them so", "yes"))
    view.app.push_screen(ConfirmScreen("Different shapes", lines, answers), answered)


class Chooser:
    """Asks what to compare with."""

    def __init__(self, view: View, comparer: Comparer, then: Then) -> None:
        """``then`` gets the other side; nothing happens when one goes back."""
        self._view = view
        self._comparer = comparer
        self._then = then

    def ask(self, key: TensorKey, other: Side | None) -> None:
        """Shows the list.

        Args:
            key: the tensor.
            other: what it is compared with now.
        """
        options = self._options(key, other)

        def chosen(index: int | None) -> None:
            if index is not None:
                options[index].choose()

        current = next((i for i, option in enumerate(options) if option.current), None)
        self._view.app.push_screen(ChoiceScreen("Compare with", [option.text for option in options], current), chosen)

    def _options(self, key: TensorKey, other: Side | None) -> list[Option]:
        session = self._comparer.session
        now = other if other is not None and other.key is not None and not other.path else None
        base = now.key if now is not None and now.key is not None else key
        found = [
            Option("another tensor, by name …", lambda: self._ask_name(key)),
            Option("a .npy file …", self._ask_file),
            Option("another run …", lambda: self._ask_run(key)),
        ]
        for step in session.steps(base.rank):
            side = Side(base.at_step(step))
            if side.key != key:
                found.append(Option(f"step {step_text(step)}", self._take(side), side == other))
        for rank in session.ranks():
            side = Side(replace(base, rank=rank))
            if rank != base.rank and side.key != key:
                found.append(Option(f"rank {rank}", self._take(side), side == other))
        return found

    def _take(self, side: Side) -> Callable[[], None]:
        return lambda: self._then(side)

    # -- another tensor ----------------------------------------------------------------------------

    def _ask_name(self, key: TensorKey) -> None:
        def given(text: str | None) -> None:
            if text is not None:
                self._view.work("looking", lambda _: self._find(key, text.strip()), self._found)

        note = "id of a node, the end or any part of it; :0 is output 0, :in1 input 1"
        prompt = TextPrompt("Compare with which tensor?", check=lambda text: None if text.strip() else "", note=note)
        self._view.app.push_screen(prompt, given)

    def _find(self, key: TensorKey, text: str) -> list[tuple[str, Side | Callable[[], None]]]:
        """(words, side) of the tensors that may be meant; of several nodes what asks on.

        Raises:
            TdbgError: nothing is called so.
        """
        session = self._comparer.session
        nodes = session.nodes(key.rank)
        try:
            found = find_node({key.rank: nodes}, {key.rank: session.in_scope(key.rank)}, text)
        except TdbgError:
            name, _ = split_slot(text)
            rows = np.flatnonzero(match(nodes, NodeQuery(text=name)) & ~nodes.structural)[:MOST].tolist()
            if not rows:
                raise
            slot = text[len(name) :]
            several = len(nodes.graphs) > 1
            names = [f"{nodes.graph_of(row).name}/" * several + nodes.names[row] + slot for row in rows]
            return [(name, self._again(key, name)) for name in names]
        rows_of = session.tensor_rows(key.rank, key.step, found.rows[key.rank], found.asked.round)
        meant = [row for row in rows_of if found.asked.covers(row)]
        if not found.asked.role:
            meant = [row for row in meant if row.role == "out"] or meant
        if not meant:
            there = ", ".join(f":{row.role}{row.slot}" for row in rows_of)
            raise TdbgError(
                f"this node has no tensor {found.asked}".rstrip() + f" at step {step_text(key.step)}",
                where=found.node,
                hint=f"it has {there}" if there else "choose another step first",
            )
        return [(_row_text(row), Side(row.key)) for row in meant]

    def _again(self, key: TensorKey, name: str) -> Callable[[], None]:
        return lambda: self._view.work("looking", lambda _: self._find(key, name), self._found)

    def _found(self, found: Sequence[tuple[str, Side | Callable[[], None]]]) -> None:
        def chosen(index: int | None) -> None:
            if index is not None:
                side = found[index][1]
                if isinstance(side, Side):
                    self._then(side)
                else:
                    side()

        if len(found) == 1:
            chosen(0)
        else:
            screen = ChoiceScreen("Which one?", [text for text, _ in found])
            self._view.app.push_screen(screen, chosen)

    # -- files and runs ----------------------------------------------------------------------------

    def _ask_file(self) -> None:
        def check(path: Path) -> str | None:
            return None if path.is_file() else "this is a directory" if path.is_dir() else "there is no such file"

        def given(text: str | None) -> None:
            if text is not None:
                self._then(Side(path=text.strip()))

        self._view.app.push_screen(PathPrompt("Compare with which file?", _usable(check), suffix=".npy"), given)

    def _ask_run(self, key: TensorKey) -> None:
        def check(path: Path) -> str | None:
            return None if path.is_dir() else "there is no such directory"

        def given(text: str | None) -> None:
            if text is not None:
                self._then(Side(key, str(Path(text.strip()).expanduser())))

        note = "the same node, slot, rank and step there; , and . lead to other steps"
        self._view.app.push_screen(PathPrompt("Compare with which run?", _usable(check), suffix="/", note=note), given)


def _row_text(row: TensorRow) -> str:
    return f"{row.role}:{row.slot}{round_text(row.key.round)}  {row.origin_text or row.key.node}"


def _usable(check: Callable[[Path], str | None]) -> Callable[[str], str | None]:
    """What is wrong with a path that is being typed: it may be none at all, such as the home directory of nobody."""

    def checked(text: str) -> str | None:
        if not text.strip():
            return "a path is needed"
        try:
            return check(Path(text.strip()).expanduser())
        except (OSError, ValueError, RuntimeError) as error:
            return f"not a usable path: {error}"

    return checked
