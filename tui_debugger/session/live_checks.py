"""What a check of the step at which a training waits comes to: the client's hits, and what it must have looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tui_debugger.analysis.collectives import is_collective, is_receiving
from tui_debugger.analysis.condition_table import (
    CONDITIONS,
    WIRE_CHANGE_TOO_LARGE,
    WIRE_CHANGE_TOO_SMALL,
    WIRE_NOT_CHANGED,
    WIRE_OVERFLOW,
)
from tui_debugger.graph.categories import in_place_slots, update_of
from tui_debugger.graph.edges import real_consumers, real_inputs
from tui_debugger.live.graph import RankGraph
from tui_debugger.live.types import START, ReceivedHit, Stop, TrainingInfo
from tui_debugger.live.watching import judged
from tui_debugger.model import (
    PARAMETERS,
    TRAINABLE,
    Category,
    Coverage,
    ErrorBits,
    ProgressFn,
    Verdict,
    Watchpoint,
    no_progress,
)
from tui_debugger.session.checking import Checker, PairResult
from tui_debugger.session.hits import HitList
from tui_debugger.session.origin.by_design import Contents, Designs, contents_of, mark, stated
from tui_debugger.session.received import ReceivedHits, bad_tensors, received_hits

Mask = npt.NDArray[np.bool_]
_CHANGES: Final = frozenset({WIRE_CHANGE_TOO_LARGE, WIRE_CHANGE_TOO_SMALL, WIRE_NOT_CHANGED})
_UNREADABLE: Final = ErrorBits.UNREADABLE | ErrorBits.OUT_OF_MEMORY | ErrorBits.NO_VALUE


@dataclass(frozen=True, eq=False)
class Watched:
    """The list as a training was given it.

    Attributes:
        version: ``WatchpointList.version`` that it is of.
        watchpoints: the enabled ones.
        masks: the node rows that each covers.
        graph: whose rows they are.
        info: who it was given to.
    """

    version: int
    watchpoints: tuple[Watchpoint, ...]
    masks: tuple[Mask, ...]
    graph: RankGraph
    info: TrainingInfo


class WeightsBefore:
    """Which weights of a training held NaN or Inf when the step that is judged began, as far as that is known.

    A weight is judged after the optimizer changed it. Where it was clean after the step before, modules read clean
    values. That holds for the first step too where the client says what the program wrote (``assigns``): such a value
    is a node of its own.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._last: tuple[int, Watched, frozenset[str]] | None = None

    def at(self, step: int, watched: Watched) -> frozenset[str] | None:
        """Names of those that were bad; None where nobody knows. Steps without a hit in between were clean."""
        if self._last is None or self._last[0] > step or self._last[1] is not watched:
            return frozenset() if step == START + 1 and assigns(watched.info) else None
        return self._last[2] if self._last[0] == step - 1 else frozenset() if self._last[0] < step - 1 else None

    def judged(self, step: int, watched: Watched, result: PairResult) -> None:
        """A step was judged."""
        bad = (hit.key.node for hit in result.hits if hit.stats is None or hit.stats.bad)
        self._last = step, watched, frozenset(bad)


def assigns(info: TrainingInfo) -> bool:
    """Whether a client records what the program itself writes into weights."""
    return info.program.startswith("PyTorch ")


def judgement_of(
    rank: int,
    stop: Stop,
    watched: Watched,
    hits: Sequence[ReceivedHit],
    notice: Callable[[str], None],
    *,
    before: frozenset[str] | None = None,
) -> PairResult:
    """The result of one step by what a training reported, or did not report, of the list that it was given.

    Args:
        rank: of the training.
        stop: where it stands.
        watched: the list.
        hits: what it reported.
        notice: told about what cannot be used of that.
        before: names of the weights that were bad when the step began; None where nobody knows.
    """
    info = watched.info
    asked = [
        (watchpoint, mask)
        for watchpoint, mask in zip(watched.watchpoints, watched.masks, strict=True)
        if _asked(watchpoint, stop, info)
    ]
    found = received_hits((rank, stop.step), watched.graph, watched.watchpoints, hits, notice)
    covered = _places(watched.graph, asked)
    if stop.step <= START:
        covered &= watched.graph.parameter
    clean = _known_clean(watched.graph, found, asked, covered)
    designs = Designs(watched.graph.nodes, _Held(watched.graph, found, clean))
    used = clean if before is None else clean | _clean_before(watched.graph, asked, covered, before)
    found.origin[:] = _origins(watched.graph, found, clean, used, designs)
    for at in np.flatnonzero(bad_tensors(found)).tolist():
        if types := designs.absorbed_by(int(found.node[at]), int(found.slot[at])):
            mark(found, at, types)
    coverage = _coverage((rank, stop.step), watched.graph, found, asked, covered)
    return PairResult(HitList([found]), coverage, _judged(watched.graph, found, covered))


def _asked(watchpoint: Watchpoint, stop: Stop, info: TrainingInfo) -> bool:
    """Whether a client judges a condition at a stop: before the first step those of initial values, and only them."""
    condition = CONDITIONS[watchpoint.condition]
    if condition.initial_only != (stop.step <= START):
        return False
    return judged(condition, info) and not (stop.node and condition.wire in _CHANGES)


def _places(graph: RankGraph, asked: Sequence[tuple[Watchpoint, Mask]]) -> npt.NDArray[np.bool_]:
    """[watchpoint, place]: the tensors that each looks at."""
    may = graph.nodes.watchable[graph.node]
    rows = [mask[graph.node] & may for _, mask in asked]
    return np.stack(rows) if rows else np.zeros((0, len(graph)), np.bool_)


def _judged(graph: RankGraph, hits: ReceivedHits, covered: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """See ``PairResult.judged``: a client says so of what it could not judge or compare, and else has judged it."""
    judges = covered.sum(axis=0)
    doubts = ((hits.verdicts == Verdict.CANNOT_JUDGE) | (hits.verdicts == Verdict.NOT_COMPARABLE)).sum(axis=0)
    for row, slot, count in zip(hits.node.tolist(), hits.slot.tolist(), doubts.tolist(), strict=True):
        place = graph.place(row, slot)
        if place >= 0:
            judges[place] -= count
    mask = np.zeros(len(graph.nodes), np.bool_)
    mask[graph.node[judges > 0]] = True
    return np.packbits(mask)


def _coverage(
    pair: tuple[int, int],
    graph: RankGraph,
    hits: ReceivedHits,
    asked: Sequence[tuple[Watchpoint, Mask]],
    covered: npt.NDArray[np.bool_],
) -> Coverage:
    looked = covered.any(axis=0)
    unreadable = sum(any(each.error & _UNREADABLE for each in results) for results in hits.said)
    counts = zip(asked, covered.sum(axis=1).tolist(), strict=True)
    return Coverage(
        checked=max(int(looked.sum()) - unreadable, 0),
        unreadable=unreadable,
        not_comparable=int((hits.verdicts == Verdict.NOT_COMPARABLE).any(axis=0).sum()),
        skipped=int((~looked & (graph.flags == 0)).sum()),
        steps=(pair,),
        watched=tuple(sorted((watchpoint.id, count) for (watchpoint, _), count in counts if count)),
        blocked=hits.counted(Verdict.BLOCKED),
        by_design=len(hits.designed),
    )


def _known_clean(
    graph: RankGraph, hits: ReceivedHits, asked: Sequence[tuple[Watchpoint, Mask]], covered: npt.NDArray[np.bool_]
) -> Mask:
    """Places of which the client would have said so if they held NaN or Inf: some overflow watchpoint looks at them."""
    overflow = [CONDITIONS[watchpoint.condition].wire == WIRE_OVERFLOW for watchpoint, _ in asked]
    clean: Mask = np.zeros(len(graph), np.bool_)
    for row in np.flatnonzero(overflow).tolist():
        clean |= covered[row]
    for row, slot, bad in zip(hits.node.tolist(), hits.slot.tolist(), bad_tensors(hits).tolist(), strict=True):
        place = graph.place(row, slot)
        if bad and place >= 0:
            clean[place] = False
    return clean


def _clean_before(
    graph: RankGraph,
    asked: Sequence[tuple[Watchpoint, Mask]],
    covered: npt.NDArray[np.bool_],
    bad: frozenset[str],
) -> Mask:
    """Places of the weights that were clean when the step began, whatever the optimizer made of them since."""
    overflow = np.array([CONDITIONS[watchpoint.condition].wire == WIRE_OVERFLOW for watchpoint, _ in asked], np.bool_)
    seen: Mask = covered[overflow].any(axis=0) & graph.parameter
    updated = np.isin(graph.nodes.category[graph.node], [int(each) for each in TRAINABLE])
    seen &= updated
    for place in np.flatnonzero(seen).tolist():
        seen[place] = graph.nodes.names[int(graph.node[place])] not in bad
    return seen


class _Held:
    """What a client said of a tensor: see ``Designs``."""

    def __init__(self, graph: RankGraph, hits: ReceivedHits, clean: Mask) -> None:
        self._graph = graph
        self._clean = clean
        self._bad: dict[tuple[int, int], Contents | None] = {}
        for at, (row, slot) in enumerate(zip(hits.node.tolist(), hits.slot.tolist(), strict=True)):
            self._bad[row, slot] = contents_of(hits.records.get(at))

    def __call__(self, row: int, slot: int) -> Contents | None:
        place = self._graph.place(row, slot)
        if place >= 0 and self._clean[place]:
            return Contents()
        if (row, slot) in self._bad:
            return self._bad[row, slot]
        return stated(self._graph.nodes, row)


def _origins(graph: RankGraph, hits: ReceivedHits, clean: Mask, used: Mask, designs: Designs) -> Mask:
    """Bad tensors all of whose inputs are known to be clean; what was fed in from outside has none.

    A weight is judged after the optimizer changed it. Where it is clean then, it was clean before: nothing an
    optimizer does takes a NaN away. Constants of the graph are what the program says.
    """
    origins = bad_tensors(hits)
    for at in np.flatnonzero(origins).tolist():
        row = int(hits.node[at])
        if used is not clean and _is_used_gradient(graph, row):
            used = clean  # an optimizer has made something of it: weights may be bad from here on
        if designs.intended(row, int(hits.slot[at])):
            origins[at] = False
            continue
        category = graph.nodes.category_of(row)
        if category in PARAMETERS:
            origins[at] = category is Category.PARAMETER  # the others are what the optimizer made them
            continue
        kind = graph.nodes.op_type(row)
        exchanged = is_collective(kind) or is_receiving(kind)  # other ranks had a part in it
        origins[at] = not exchanged and all(
            _clean_input(graph, used, *held) or designs.intended(*held) for held in real_inputs(graph.nodes, row)
        )
    return origins


def _is_used_gradient(graph: RankGraph, row: int) -> bool:
    """Whether an optimizer updates a parameter with what a node makes."""
    nodes = graph.nodes
    for consumer, slot in real_consumers(nodes, row):
        update = update_of(nodes.op_type(consumer))
        if update is not None and slot not in in_place_slots(nodes.op_type(consumer), len(nodes.inputs(consumer))):
            return True
    return False


def _clean_input(graph: RankGraph, clean: Mask, row: int, slot: int) -> bool:
    if row < 0:
        return False
    if graph.nodes.category_of(row) is Category.CONSTANT or graph.nodes.orders_only(row):
        return True
    place = graph.place(row, slot)
    return place >= 0 and bool(clean[place])


class LiveChecker(Checker):
    """Judges as ``Checker`` does, but has the client judge the step at which it waits."""

    alone = True
    ask: Callable[[int, ProgressFn], PairResult | None] = staticmethod(lambda _step, _progress: None)
    """Has the client judge a step; None when it does not stand there."""

    def check_all(self, steps: Sequence[int], progress: ProgressFn = no_progress) -> Iterator[tuple[int, PairResult]]:
        """See ``Checker``."""
        left = []
        for step in steps:
            result = self.ask(step, progress)
            if result is not None:
                yield step, result
            else:
                left.append(step)
        if left:
            yield from super().check_all(left, progress)
