"""What changed in a run while views of it are open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tui_debugger.session import Session
    from tui_debugger.session.types import Pair
    from tui_debugger.sources.base import Changes


@dataclass(frozen=True, slots=True)
class News:
    """What open views have to take in. Nothing of it is read yet.

    Attributes:
        pairs: (rank, step) of which there are tensors that were not there before, or others.
        rewritten: those of them in which tensors that were there may have other values now.
        ranks: ranks that appeared, or whose nodes were read anew.
        results: checks found something out, or what they found does not hold any more.
    """

    pairs: frozenset[Pair] = frozenset()
    rewritten: frozenset[Pair] = frozenset()
    ranks: frozenset[int] = frozenset()
    results: bool = False

    @classmethod
    def of_dump(cls, changes: Changes) -> News:
        """Files appeared: nobody knows which of them take the place of others."""
        pairs = frozenset((*changes.new_steps, *changes.grown_steps))
        return cls(pairs, pairs, frozenset((*changes.new_ranks, *changes.rebuilt)))

    @classmethod
    def of_training(cls, changes: Changes, renewed: Iterable[Pair]) -> News:
        """A training went on: what it had at its earlier stops stays, but for the step that it is still in."""
        pairs = frozenset((*changes.new_steps, *changes.grown_steps))
        return cls(pairs, frozenset(renewed), frozenset((*changes.new_ranks, *changes.rebuilt)))

    def __or__(self, other: News) -> News:
        """Both together."""
        return News(
            self.pairs | other.pairs,
            self.rewritten | other.rewritten,
            self.ranks | other.ranks,
            self.results or other.results,
        )

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.pairs or self.rewritten or self.ranks or self.results)

    def up_to(self, step: int) -> bool:
        """Whether something before or at a step may be different, of whatever rank."""
        return bool(self.ranks) or any(at <= step for _, at in self.rewritten)

    def steps_of(self, rank: int) -> list[int]:
        """The steps of a rank, ascending."""
        return sorted(step for of, step in self.pairs if of == rank)


class SeenResults:
    """What checks had found when a view looked, so that it can tell when they found something else."""

    def __init__(self, session: Session) -> None:
        """Nothing was looked at."""
        self._session = session
        self._seen: dict[Pair, object] = {}

    def note(self, pairs: Iterable[Pair]) -> None:
        """These are shown, with what is known of them now."""
        self._seen = {pair: self._now(pair) for pair in pairs}

    @property
    def newer(self) -> bool:
        """Whether there is a result now that was not there then."""
        return any(
            now is not None and now is not seen for pair, seen in self._seen.items() for now in [self._now(pair)]
        )

    def _now(self, pair: Pair) -> object:
        return self._session.checks().book.fresh(pair, self._session.watchpoints.version)
