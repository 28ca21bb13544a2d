"""The runs that the directories of one step hold: which of them wrote what, and in which order they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tui_debugger.arrays import Int64, Mask, UInt16
from tui_debugger.sources.columns import tensor_keys
from tui_debugger.sources.mindspore.rounds import Span, begins, numbered, runs_at, span

if TYPE_CHECKING:
    from tui_debugger.sources.mindspore.listing import Listing


class Block(NamedTuple):
    """The operators or the parameters of one run: what stands together in a table.

    Attributes:
        root: number of the graph's directory.
        run: which run of the step, from 1.
        parameters: whether these are its parameters.
    """

    root: int
    run: int
    parameters: bool


@dataclass(frozen=True, eq=False)
class Writings:
    """What time stamps say about the files of a step, and about its recorded rows behind them.

    Attributes:
        run: the run of its graph within the step that wrote each, from 1; None where every directory holds one run.
        round: see ``base.TensorTable``; None where every tensor was written once.
        spans: by number of the graph's directory, when each of its runs was written, oldest first.
        blocks: in the order in which they were written. A run's parameters come behind its operators.
    """

    run: UInt16 | None
    round: UInt16 | None
    spans: Mapping[int, tuple[Span, ...]]
    blocks: tuple[Block, ...]


def writings_of(listing: Listing) -> Writings:
    """Tells the runs of a step apart: see ``rounds``. Constants are no part of any run."""
    columns = _Columns(listing)
    if columns.repeated():
        run, rounds, spans = columns.divided()
    else:
        run, rounds, spans = None, None, {root: (span(*columns.of(rows)),) for root, rows in columns.roots.items()}
    return Writings(run, rounds, spans, in_order(spans))


def in_order(spans: Mapping[int, Sequence[Span]]) -> tuple[Block, ...]:
    """The blocks of a step by the time at which they were written; within one graph operators, parameters, next run.

    A graph whose times are not known comes where its number is.
    """
    placed: list[tuple[int, int, int, Block]] = []
    for root, runs in sorted(spans.items()):
        latest, sequence = 0, 0
        for number, each in enumerate(runs, 1):
            for parameters, began in ((False, each.began), (True, each.parameters)):
                latest = max(latest, began)
                placed.append((latest, root, sequence, Block(root, number, parameters)))
                sequence += 1
    known = {root for root, runs in spans.items() if any(each.began for each in runs)}
    placed.sort(key=lambda each: each[:3])
    ordered = [block for *_, block in placed if block.root in known]
    for *_, block in placed:
        if block.root not in known:
            before = [at for at, each in enumerate(ordered) if (each.root, each) <= (block.root, block)]
            ordered.insert(before[-1] + 1 if before else 0, block)
    return tuple(ordered)


class _Columns:
    """The files of a listing, then its recorded rows."""

    def __init__(self, listing: Listing) -> None:
        lexicon, files, recorded = listing.lexicon, listing.files, listing.statistics
        self._files, self._parts = len(files), listing.parts
        prefix, side, slot, time = files.prefix, listing.side, listing.slot, files.timestamp
        if recorded:
            prefix = np.concatenate([prefix, *(each.prefix for each in recorded)])
            side = np.concatenate([side, *(each.rows.side for each in recorded)])
            slot = np.concatenate([slot, *(each.rows.slot for each in recorded)])
            time = np.concatenate([time, *(each.rows.timestamp for each in recorded)])
        self.prefix, self.side, self.slot, self.time = prefix, side, slot, time
        self.operator: Mask = lexicon.operators()[prefix]
        places = lexicon.places_of()[prefix]
        self.roots: dict[int, Int64] = {}
        for root in dict.fromkeys(lexicon.places[part.place][0] for part in listing.parts):
            numbers = [at for at, place in enumerate(lexicon.places) if place == (root, False)]
            self.roots[root] = np.flatnonzero(np.isin(places, numbers))

    def of(self, rows: Int64) -> tuple[Int64, Mask]:
        return self.time[rows], self.operator[rows]

    def repeated(self) -> bool:
        """Whether any tensor was written several times."""
        for rows in self.roots.values():
            for some in (rows[rows < self._files], rows[rows >= self._files]):
                keys = np.sort(tensor_keys(self.prefix[some], self.side[some], self.slot[some]))
                if (keys[1:] == keys[:-1]).any():
                    return True
        return False

    def divided(self) -> tuple[UInt16, UInt16, dict[int, tuple[Span, ...]]]:
        """Run and round of every row, and the spans of the runs."""
        run, rounds = np.ones(len(self.time), np.uint16), np.zeros(len(self.time), np.uint16)
        spans: dict[int, tuple[Span, ...]] = {}
        for root, rows in self.roots.items():
            time, operator = self.of(rows)
            key, recorded = tensor_keys(self.prefix[rows], self.side[rows], self.slot[rows]), rows >= self._files
            kinds = [each for each in (~recorded, recorded) if each.any()]
            each_began = [begins(key[kind], time[kind], operator[kind]) for kind in kinds]
            began = max(each_began, key=len, default=np.zeros(0, np.int64))
            run[rows] = runs_at(time, began)
            several = np.full(len(rows), len(began) > 0)
            if len(rows):
                rounds[rows] = numbered(key, time, run[rows], several, recorded)
            by = np.argsort(run[rows], kind="stable")
            ends = np.searchsorted(run[rows][by], np.arange(1, len(began) + 1), side="right")
            spans[root] = tuple([span(time[mine], operator[mine]) for mine in np.split(by, ends)])
        return run, rounds, spans
