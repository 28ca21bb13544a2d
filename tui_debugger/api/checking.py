"""Checks watchpoints: their tensors step by step, every file once, all watchpoints together."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence

import numpy as np

from tui_debugger.api.conditions import ConditionBase, TableCondition, checked, wrong_type
from tui_debugger.api.debugger_tensor import DebuggerTensor
from tui_debugger.api.hits import Hits, Watchpoint, WatchpointHit
from tui_debugger.api.node import Node, Run
from tui_debugger.api.tensors import Columns, columns_of
from tui_debugger.check.outputs import OutputHits, OutputTensors, WatchedOutputs
from tui_debugger.check.results import combined, parts_text
from tui_debugger.errors import DebuggerParamTypeError
from tui_debugger.model import Coverage, ErrorBits, Hit, ProgressFn, UnreadablePart, Verdict, WatchResult, no_progress
from tui_debugger.model import Watchpoint as CoreWatchpoint
from tui_debugger.text.clean import clean
from tui_debugger.watch.condition_table import WIRE_OPERATOR_OVERFLOW

_log = logging.getLogger("tui_debugger")


def check(
    run: Run, watchpoints: Iterable[Watchpoint], error_on_no_value: bool, progress: ProgressFn = no_progress
) -> Hits:
    """See ``DumpAnalyzer.check_watchpoints``."""
    if not isinstance(watchpoints, Iterable):
        raise wrong_type(watchpoints, "watchpoints", "a list of Watchpoint")
    given = [checked(watchpoint, "watchpoints", Watchpoint, "a list of Watchpoint") for watchpoint in watchpoints]
    conditions = [watchpoint.condition for watchpoint in given]
    cores = [_core(number, condition) for number, condition in enumerate(conditions)]
    hits: list[WatchpointHit] = []
    covers = [Coverage(watched=tuple((core.id, 0) for core in cores))]
    by_step = _by_step([columns_of(watchpoint.tensors, run) for watchpoint in given])
    for step, ranks in by_step.items():
        found: list[tuple[tuple[int, int], int, WatchpointHit]] = []
        missing: list[tuple[int, WatchpointHit]] = []
        for rank, parts in ranks.items():
            outputs = run.outputs(rank)
            watches = [WatchedOutputs(cores[number], part.row, part.slot) for number, part in parts]
            answer = outputs.judge(step, watches, progress)
            covers.append(answer.coverage)
            run.warn_of_unknown(rank, step, outputs.unknown(step))
            numbers = [number for number, _ in parts]
            for number, hit in _comparable(answer, numbers, error_on_no_value):
                found.append((hit.order, number, _hit(run, conditions[number], hit)))
            if error_on_no_value:
                valueless = _valueless(outputs, step, answer, numbers, cores)
                missing += [(number, _hit(run, conditions[number], hit)) for number, hit in valueless]
        found.sort(key=lambda each: each[0])  # stable: ranks ascend, and inside a tensor the watchpoints
        missing.sort(key=lambda each: each[0])
        hits += [hit for _, _, hit in found]
        hits += [hit for _, hit in missing]
    cover = combined(covers)
    result = Hits(hits, dataclasses.replace(cover, parts=_unlisted(run, by_step)))
    _warn(conditions, result)
    return result


def _unlisted(run: Run, by_step: dict[int, dict[int, _Parts]]) -> tuple[UnreadablePart, ...]:
    """Returns what could not be looked at of the ranks and steps that tensors were chosen of."""
    there = {rank for rank in run.session.ranks() if run.session.steps(rank)}
    pairs = [(rank, step) for step, ranks in by_step.items() for rank in ranks]
    parts = run.session.unreadable(pairs) if pairs else ()
    chosen = {rank for rank, _ in pairs}
    if chosen >= there:
        return parts
    known = there | chosen  # some ranks were left out, perhaps that of a part, too
    return tuple(part for part in parts if part.rank is None or part.rank in known)


def _warn(conditions: Sequence[ConditionBase], hits: Hits) -> None:
    """Says what a list of hits does not."""
    if hits.coverage.parts:
        _log.warning("cannot judge: %s", clean(parts_text(hits.coverage.parts)))
    if any(condition.condition_id == WIRE_OPERATOR_OVERFLOW for condition in conditions):
        _log.warning("OperatorOverflowCondition cannot be judged: a dump of values does not tell whether it holds")
    elif conditions and not hits and not hits.coverage.checked:
        _log.warning("nothing was checked: no tensor under the watchpoints that they could judge was dumped")


def _core(number: int, condition: ConditionBase) -> CoreWatchpoint:
    if not isinstance(condition, TableCondition):
        raise DebuggerParamTypeError(
            f"{type(condition).__name__} cannot be checked", hint="use one of the conditions of tui_debugger"
        )
    return CoreWatchpoint(number, condition.row.id, tuple(condition.param_dict.items()))


_Parts = list[tuple[int, Columns]]
"""(number of the watchpoint, its tensors, none twice)."""


def _by_step(columns: Sequence[Columns]) -> dict[int, dict[int, _Parts]]:
    """Returns what is asked, by step, then rank; both ascend."""
    found: dict[int, dict[int, _Parts]] = {}
    for number, each in enumerate(columns):
        for step, rank, where in each.groups():
            part = each.take(where)
            _, first = np.unique(part.row.astype(np.int64) << 32 | part.slot, return_index=True)
            found.setdefault(step, {}).setdefault(rank, []).append((number, part.take(np.sort(first))))
    return {step: dict(sorted(ranks.items())) for step, ranks in sorted(found.items())}


def _comparable(answer: OutputHits, numbers: Sequence[int], with_valueless: bool) -> list[tuple[int, Hit]]:
    """The hits by watchpoint. That only statistics were dumped is not told unless missing values are asked for."""
    hits = []
    for number, hit in answer.hits:
        (result,) = hit.results
        if result.error & ErrorBits.NO_VALUE and not with_valueless:
            if result.error == ErrorBits.NO_VALUE:
                continue
            result = dataclasses.replace(result, error=result.error & ~ErrorBits.NO_VALUE)
            hit = dataclasses.replace(hit, results=(result,))  # noqa: PLW2901 - the same hit, told otherwise
        hits.append((numbers[number], hit))
    return hits


def _valueless(
    outputs: OutputTensors, step: int, answer: OutputHits, numbers: Sequence[int], cores: Sequence[CoreWatchpoint]
) -> list[tuple[int, Hit]]:
    """One row with the error "no value" for everything that could not be judged."""
    rows = []
    for watch, output in answer.valueless:
        number = numbers[watch]
        result = WatchResult(number, cores[number].condition, Verdict.CANNOT_JUDGE, ErrorBits.NO_VALUE)
        rows.append((number, Hit(outputs.key(step, output), output[0], (result,), (step, 0))))
    return rows


def _hit(run: Run, condition: ConditionBase, hit: Hit) -> WatchpointHit:
    key = hit.key
    return WatchpointHit(DebuggerTensor(Node(run, key.rank, hit.row), key.slot, key.step), condition, hit)
