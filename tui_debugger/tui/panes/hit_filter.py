"""What restricts the hit list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tui_debugger.model import Verdict

if TYPE_CHECKING:
    import numpy.typing as npt

    from tui_debugger.session.hits import HitList

_QUIET: Final = (Verdict.NOT_COMPARABLE, Verdict.BY_DESIGN)


@dataclass(frozen=True)
class HitFilter:
    """Which rows of the hit list are shown. Empty parts do not filter.

    Attributes:
        watchpoints: ids.
        graphs: graph names.
        ranks: ranks.
        quiet: also rows where nothing could be compared for a good reason, and those with Inf by design.
    """

    watchpoints: frozenset[int] = frozenset()
    graphs: frozenset[str] = frozenset()
    ranks: frozenset[int] = frozenset()
    quiet: bool = False

    def __bool__(self) -> bool:
        """Whether it can hide findings."""
        return bool(self.watchpoints or self.graphs or self.ranks)

    def mask(self, hits: HitList) -> npt.NDArray[np.bool_]:
        """Which rows are shown."""
        kept = np.ones(len(hits), np.bool_) if self.quiet else ~np.isin(hits.verdict, _QUIET)
        if self.watchpoints:
            kept &= hits.said_by(self.watchpoints)
        if self.graphs:
            kept &= hits.of_graphs(self.graphs)
        if self.ranks:
            kept &= np.isin(hits.rank, list(self.ranks))
        return kept
