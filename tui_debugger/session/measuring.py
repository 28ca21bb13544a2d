"""Gets records of tensors: from what is known already, from files, or from statistics that the dump recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path

from tui_debugger.analysis.measure import measure
from tui_debugger.analysis.record import Job, Need, Record
from tui_debugger.model import Progress, ProgressFn, Side, TensorMeta, no_progress
from tui_debugger.session.flow import Flow
from tui_debugger.session.records import Identity, Shelf, identity
from tui_debugger.sources.base import TensorTable

Needs = Mapping[tuple[int, int], Need]
"""What has to be known about which tensor, by (step, index in that step's table)."""


class Measurements:
    """Records of the tensors that a data flow has pinned."""

    def __init__(self, flow: Flow, shelf: Shelf, executor: Executor | None = None) -> None:
        """``shelf`` holds what is known and takes what is measured; None as executor measures right here."""
        self.flow = flow
        self._shelf = shelf
        self._executor = executor

    def record(self, step: int, index: int) -> Record | None:
        """What is known about a tensor."""
        return self._shelf.get(step, identity(self.flow.table(step), index))

    def ensure(self, needs: Needs, progress: ProgressFn = no_progress, text: str = "") -> None:
        """Measures every tensor of ``needs`` that is not known well enough yet.

        Raises:
            CancelledError: from ``progress``; what was measured is kept.
        """
        jobs: list[Job] = []
        places: list[tuple[int, Identity, bool]] = []
        for (step, index), need in needs.items():
            table = self.flow.table(step)
            key = identity(table, index)
            known = self._shelf.get(step, key)
            if known is not None and known.need.covers(need):
                continue
            if not self.flow.has_values(table, index):
                first = self.flow.previous_step(int(table.node[index]), step) is None
                self._shelf.put(step, key, _recorded(table, index, need, first_step=first))
                continue
            whole = need if known is None else need | known.need
            earlier, before = self._previous(step, index) if whole.previous else (None, -1)
            valueless = earlier is not None and not self.flow.has_values(earlier, before)
            previous = earlier.spec(before) if earlier is not None and not valueless else None
            jobs.append(Job(len(jobs), table.spec(index), previous, whole))
            places.append((step, key, valueless))

        def keep(number: int, record: Record) -> None:
            step, key, valueless = places[number]
            self._shelf.put(step, key, dataclasses.replace(record, previous="no value") if valueless else record)
            if record.error or record.previous == "unreadable":
                specs = (jobs[number].spec, jobs[number].previous)
                self._shelf.note_failure(step, key, [spec.path for spec in specs if spec])

        def tell(snapshot: Progress) -> None:
            progress(Progress(snapshot.done, snapshot.total, text))

        if jobs:
            measure(jobs, executor=self._executor, on_record=keep, progress=tell)

    def cost(self, needs: Needs) -> int:
        """Bytes of the files that ``ensure`` would read, previous steps' aside; 0 when everything is known."""
        total = 0
        for (step, index), need in needs.items():
            table = self.flow.table(step)
            known = self._shelf.get(step, identity(table, index))
            if (known is None or not known.need.covers(need)) and self.flow.has_values(table, index):
                total += _file_size(table.spec(index).path)
        return total

    def _previous(self, step: int, index: int) -> tuple[TensorTable | None, int]:
        """The table of the previous step and the same tensor's index in it; None where it was not dumped."""
        table = self.flow.table(step)
        node = int(table.node[index])
        before = self.flow.previous_step(node, step)
        if before is None:
            return None, -1
        earlier = self.flow.table(before)
        found = earlier.find(node, Side(int(table.side[index])), int(table.slot[index]))
        return (earlier, found) if found >= 0 else (None, -1)


def _recorded(table: TensorTable, index: int, need: Need, *, first_step: bool) -> Record:
    """A record from the statistics that the dump itself wrote, for tensors without values."""
    stats = table.recorded(index)
    if stats is None:
        return Record(None, None, error="only a statistics row was dumped, and it cannot be read", need=need)
    described = table.recorded_meta(index)
    meta = TensorMeta(described[0], described[1], 0) if described else None
    previous = "no value" if need.previous and not first_step else "none"
    return Record(meta, stats, previous=previous, need=need)


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0
