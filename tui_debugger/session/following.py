"""Follows the files whose values are shown, and tells which of them changed.

Sources watch directories only, and overwriting a file in place does not change its directory.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tui_debugger.check.records import StatsCache
from tui_debugger.check.results import KnownResults
from tui_debugger.check.types import Pair
from tui_debugger.model import ReadSpec, TensorKey, turn_of
from tui_debugger.sources.base import Changes, Source
from tui_debugger.stats.side_by_side import Identity, identity

MOST: Final = 32
"""The number of files that are followed, the ones asked for last."""


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of a tensor's file; ``status`` is None where the file is gone or holds other tensors as well."""

    spec: ReadSpec
    status: Identity | None


def state_of(spec: ReadSpec) -> FileState:
    shared = spec.format == "raw"  # a part of a file that goes on growing
    return FileState(spec, None if shared else identity(spec.path))


class SeenFiles:
    """The files whose values are shown, by tensor. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[TensorKey, FileState] = {}

    def note(self, key: TensorKey, state: FileState) -> None:
        """Notes that values are shown; an older state of the tensor stays until ``rewritten`` reports its change."""
        with self._lock:
            self._states[key] = self._states.pop(key, state)
            while len(self._states) > MOST:
                del self._states[next(iter(self._states))]

    def directories(self) -> list[Path]:
        with self._lock:
            return [Path(state.spec.path).parent for state in self._states.values() if state.spec.format != "raw"]

    def rewritten(self) -> list[TensorKey]:
        """Returns the tensors whose file changed; each change is returned once."""
        with self._lock:
            seen = list(self._states.items())
        found = []
        for key, state in seen:
            now = state_of(state.spec)
            if now != state:
                found.append(key)
                with self._lock:
                    if self._states.get(key) is state:
                        self._states[key] = now
        return found


def steps_before(source: Source, rank: int, steps: Collection[int]) -> set[int]:
    """The steps of a rank whose runs all ended before ``steps``: changed files of ``steps`` do not affect these."""
    spans = turn_spans(source, rank)
    begin = min((spans.get(step, (turn_of(step), 0))[0] for step in steps), default=0)
    return {step for step, (_, last) in spans.items() if last < begin and step not in steps}


def turn_spans(source: Source, rank: int) -> dict[int, tuple[int, int]]:
    """The turns of the first and the last run of every dumped step: see ``model.turns``."""
    spans: dict[int, tuple[int, int]] = {}
    for run in source.history(rank):
        if run.has_data:
            first, last = spans.get(run.step, (run.turn, run.turn))
            spans[run.step] = min(first, run.turn), max(last, run.turn)
    for step in source.steps(rank):
        spans.setdefault(step, (turn_of(step), turn_of(step)))
    return spans


class RunFollower:
    """Looks for changes of a run, and drops measurements and results that the changes make stale."""

    def __init__(self, source: Source, cache: StatsCache) -> None:
        self._source = source
        self._cache = cache
        self._seen = SeenFiles()

    def file_state(self, key: TensorKey, spec: ReadSpec) -> FileState:
        """Returns a state that changes with the tensor's values; from now on ``refresh`` looks at this file, too."""
        state = state_of(spec)
        self._seen.note(key, state)
        return state

    def watch_paths(self) -> Sequence[Path]:
        """The directories of the source, and those of the files that ``refresh`` looks at."""
        return list(dict.fromkeys([*self._source.watch_paths(), *self._seen.directories()]))

    def refresh(self, known_results: KnownResults) -> Changes:
        """Returns what changed since the last call, and drops the ``known_results`` that the changes make stale."""
        changes = self._source.refresh()
        healed = self._cache.heal() | self._rewritten()
        if healed:
            changes = dataclasses.replace(changes, grown_steps=tuple(sorted({*changes.grown_steps, *healed})))
        if changes:
            self._drop(changes, known_results)
        return changes

    def forget(self, key: TensorKey) -> None:
        """Has a tensor measured anew the next time, whatever its file looks like."""
        row = self._source.nodes(key.rank).find(key.node, key.graph)
        self._cache.forget(key.rank, key.step, (row, key.side, key.slot, key.round))

    def _drop(self, changes: Changes, known_results: KnownResults) -> None:
        grown = {*changes.grown_steps, *changes.new_steps}
        for rank in changes.rebuilt:
            known_results.drop_from(rank, 0)
        for rank in {rank for rank, _ in grown}:
            changed = {step for of, step in grown if of == rank}
            earlier = steps_before(self._source, rank, changed)
            known_results.keep_only(rank, earlier)
            if not changed.issuperset(set(self._source.steps(rank)) - earlier):
                self._cache.forget_changes(rank)

    def _rewritten(self) -> set[Pair]:
        """Returns the (rank, step) pairs with an overwritten tensor, whose measurements are dropped."""
        pairs = {(key.rank, key.step) for key in self._seen.rewritten()}
        for rank, step in pairs:
            self._cache.forget(rank, step)
        return pairs
