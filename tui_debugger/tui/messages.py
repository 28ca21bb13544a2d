"""What workers tell the screen: past-tense messages with immutable results and the number of their request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tui_debugger.graph.stacks import StackIndex
    from tui_debugger.graph.table import NodeTable
    from tui_debugger.graph.tree import Tree
    from tui_debugger.model import Progress
    from tui_debugger.session import Session
    from tui_debugger.session.types import CheckResult, TensorRow
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.marks import Marks


class Finished(Message):
    """Base of all results.

    Attributes:
        lane, request: which request of which lane this answers; the bridge fills them in.
    """

    def __post_init__(self) -> None:
        """Textual's own part of a message, for the dataclasses below."""
        super().__post_init__()
        self.lane = ""
        self.request = 0


@dataclass(eq=False)
class Opened(Finished):
    """The session is open."""

    session: Session


@dataclass(eq=False)
class NodesLoaded(Finished):
    """Nodes of a rank.

    Attributes:
        rank, nodes, tree: what was loaded.
        notes: the dim text that the tree shows after each label.
        dull: which tree entries hold nothing but constants, and stay closed at first.
    """

    rank: int
    nodes: NodeTable
    tree: Tree
    notes: tuple[str, ...]
    dull: npt.NDArray[np.bool_]


@dataclass(eq=False)
class NodesFiltered(Finished):
    """The answer to a node query: what to keep, over tree indices (None: everything), and how many nodes that is."""

    rank: int
    keep: npt.NDArray[np.bool_] | None
    count: int


@dataclass(eq=False)
class NodesMarked(Finished):
    """Which nodes are watched, hit, origins; and how many nodes each watchpoint covers, by id."""

    rank: int
    marks: Marks
    covered: dict[int, int]


@dataclass(eq=False)
class StackIndexed(Finished):
    """Source lines of a rank, searched."""

    rank: int
    index: StackIndex


@dataclass(eq=False)
class TensorsListed(Finished):
    """The tensors of a node, before (``measured`` False) or after they were read."""

    rank: int
    step: int
    row: int
    rows: tuple[TensorRow, ...]
    measured: bool


@dataclass(eq=False)
class Checked(Finished):
    """Some (rank, step) pairs were checked; ``final`` is False for a part of a running check."""

    result: CheckResult
    final: bool = True


@dataclass(eq=False)
class CheckTooLarge(Finished):
    """A step reset did not check by itself, because so many bytes would have to be read."""

    size: int


@dataclass(eq=False)
class StepFound(Finished):
    """Continue ended: at a step with a hit, or (None) at the last step."""

    result: CheckResult | None
    searched_to: int


@dataclass(eq=False)
class Saved(Finished):
    """A tensor was written."""

    path: Path


@dataclass(eq=False)
class Refreshed(Finished):
    """The directory was looked at again."""

    changes: Changes


@dataclass(eq=False)
class Answered(Finished):
    """Work for a dialog is done; ``deliver`` hands the result to whoever asked."""

    value: object


@dataclass(eq=False)
class Failed(Finished):
    """Work ended with an error that people may see."""

    error: Exception


@dataclass(eq=False)
class Progressed(Finished):
    """How far long work is; a later one replaces an earlier one that was not handled yet."""

    progress: Progress

    def can_replace(self, message: Message) -> bool:
        """Only the newest matters."""
        return isinstance(message, Progressed) and message.lane == self.lane


class Started(Message):
    """For the app: a session is open."""

    def __init__(self, session: Session) -> None:
        """The session."""
        super().__init__()
        self.session = session


class Unopened(Message):
    """For the app: the run could not be opened."""

    def __init__(self, error: Exception) -> None:
        """Why."""
        super().__init__()
        self.error = error


def presentable(error: Exception) -> TdbgError:
    """Any exception as one of ours."""
    if isinstance(error, TdbgError):
        return error
    return TdbgError(
        f"{type(error).__name__}: {error}", hint="this is a mistake in tdbg; the rest of the screen goes on working"
    )
