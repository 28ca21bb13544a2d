"""What a command says, and which exit code it has, where it could not look at a part of what it speaks about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.cli.output import note
from tui_debugger.errors import TdbgError

if TYPE_CHECKING:
    from tui_debugger.model import UnreadablePart
    from tui_debugger.session import Session
    from tui_debugger.session.types import Pair


@dataclass(frozen=True, slots=True)
class Unseen:
    """The parts, in the order of their paths."""

    parts: tuple[UnreadablePart, ...] = ()

    def code(self, code: int) -> int:
        """The exit code: what would be 0 is "cannot judge"."""
        return TdbgError.exit_code if self.parts and not code else code

    @property
    def rows(self) -> dict[str, Any]:
        """For JSON: ``reasons`` as ``tdbg check`` gives them, and the parts."""
        if not self.parts:  # and imports nothing: Ctrl-C may have left an import of numpy in the middle
            return {"reasons": [], "unreadable": []}
        from tui_debugger.session.tables import part_rows
        from tui_debugger.session.unreadable import parts_text

        reasons = [{"kind": "unreadable", "text": parts_text(self.parts)}]
        return {"reasons": reasons, "unreadable": part_rows(self.parts)}

    def tell(self) -> None:
        """One line on stderr: what, where, what to do."""
        if self.parts:
            from tui_debugger.session.unreadable import ADVICE, parts_text

            note(f"cannot judge: {parts_text(self.parts)}; {ADVICE}")


ALL_SEEN: Final = Unseen()


def unseen(session: Session, pairs: Sequence[Pair] | None = None, *, graph: bool = True) -> Unseen:
    """What could not be looked at of the ranks and steps that were asked for, after everything else was done.

    Args:
        session: the session.
        pairs: the (rank, step) pairs that the command speaks about; None: all that were asked for.
        graph: whether the command depends on what the graph says.
    """
    return Unseen(session.unreadable(pairs, graph=graph))


def from_on(session: Session, shown: Iterable[Pair]) -> list[Pair]:
    """Some pairs and all that come after them: who looks for the last one says something about those, too."""
    found: list[Pair] = []
    for rank, step in shown:
        steps = list(session.steps(rank))
        later = steps[steps.index(step) :] if step in steps else [step]
        found += [(rank, each) for each in later]
    return found
