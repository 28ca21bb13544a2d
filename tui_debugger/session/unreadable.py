"""Parts of a run that could not be looked at: which of them belong to a question, and the words for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tui_debugger.model import NodeKind, UnreadablePart, Watchpoint
from tui_debugger.session.types import Pair
from tui_debugger.text.numbers import plural

Span = tuple[int, int]
"""First and last number, both included."""
ADVICE: Final = "see that it may be read and that its copy is complete, or leave it out with --rank and --step"
_NAMED: Final = 3
"""So many parts are named in a sentence."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Which ranks and steps somebody asked for; None: all of them."""

    ranks: tuple[Span, ...] | None = None
    steps: tuple[Span, ...] | None = None

    def covers(self, part: UnreadablePart) -> bool:
        """Whether a part may hold something of them; of which rank or step nobody knows, it belongs to all."""
        return _within(part.rank, self.ranks) and _within(part.step, self.steps)


def _within(number: int | None, spans: tuple[Span, ...] | None) -> bool:
    return number is None or spans is None or any(first <= number <= last for first, last in spans)


def belonging(
    parts: Iterable[UnreadablePart], pairs: Collection[Pair], ranks: Collection[int]
) -> tuple[UnreadablePart, ...]:
    """The parts that belong to some (rank, step) pairs.

    Args:
        parts: the parts.
        pairs: what somebody speaks about.
        ranks: the ranks that have steps: nobody can name a step of another one, so that it belongs to every question.
    """
    chosen = set(pairs)
    of_ranks = {rank for rank, _ in chosen}
    of_steps = {step for _, step in chosen}

    def belongs(part: UnreadablePart) -> bool:
        if part.rank is None or part.rank not in ranks:
            return part.step is None or part.step in of_steps
        return part.rank in of_ranks if part.step is None else (part.rank, part.step) in chosen

    return tuple(part for part in parts if belongs(part))


def is_closed(parts: Iterable[UnreadablePart], rank: int, root_graph: int, step: int) -> bool:
    """Whether the directory of a step of a graph, or the one of the graph, cannot be listed."""
    for part in parts:
        if part.rank == rank and not part.graph:
            inside = [int(name) if name.isdigit() else -1 for name in part.where.split("/")[2:]]
            if inside == [root_graph] or (inside == [root_graph, step] and part.step == step):
                return True
    return False


def needs_graph(watchpoints: Iterable[Watchpoint]) -> bool:
    """Whether some watchpoint may miss nodes where the graph is not known; one on every tensor misses none."""
    return any(
        watchpoint.selection.exclude
        or any((each.kind, each.text.lower()) != (NodeKind.CATEGORY, "tensor") for each in watchpoint.selection.include)
        for watchpoint in watchpoints
    )


def parts_text(parts: Sequence[UnreadablePart]) -> str:
    """``2 parts of the dump cannot be listed: rank_0/Net/0/3 (permission denied), ...``.

    Of a live training: ``not recorded by the training: rank 0: modules inside torch.compile (3, first ...)``.
    """
    listed = [part for part in parts if not part.unrecorded]
    lost = [part for part in parts if part.unrecorded]
    texts = []
    if listed:
        texts.append(f"{plural(len(listed), 'part')} of the dump cannot be listed: {_named(listed)}")
    if lost:
        texts.append(f"not recorded by the training: {_named(lost)}")
    return "; ".join(texts)


def _named(parts: Sequence[UnreadablePart]) -> str:
    named = ", ".join(part_text(part) for part in parts[:_NAMED])
    return named + (f", and {len(parts) - _NAMED:,} more" if len(parts) > _NAMED else "")


def part_text(part: UnreadablePart) -> str:
    """One part: ``rank_0/Net/0/3 (permission denied)``."""
    return f"{part.where} ({part.why})"
