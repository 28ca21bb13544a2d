"""From what was seen of a step to what the watchpoints say about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tui_debugger.live.client.agent import ClientHit
from tui_debugger.live.client.judging import Judge
from tui_debugger.model import TensorStats, WatchResult
from tui_debugger.stats.records import Record, RequiredStats
from tui_debugger.torch import exact
from tui_debugger.torch.captures import Capture, Step
from tui_debugger.torch.rough import rough_record
from tui_debugger.torch.suspects import lines, suspects
from tui_debugger.torch.transfer import Waiting


def judge_step(step: Step, judge: Judge, *, recheck: bool) -> list[ClientHit]:
    """What the watchpoints say about a step: one transfer of quick numbers, and a second one when some are suspicious.

    Args:
        step: in execution order.
        judge: the watchpoints.
        recheck: look at everything exactly, also what was judged before.
    """
    return _hits(look_now(step, judge, recheck=recheck), judge)


def look_now(step: Step, judge: Judge, *, recheck: bool = False) -> list[Capture]:
    """The lines of a step that may be findings, with their records: see ``judge_step``."""
    if step.fetched is None:
        step.fetched = step.waiting.fetch()
    seen = step if recheck else sorted(lines(step.entries, step.fetched), key=lambda each: each.order)
    watched = [each for each in seen if judge.need(each.name) is not None and (recheck or not each.told)]
    if recheck:
        chosen = watched
    else:
        screened = [
            each
            for each in watched
            if each.plan is not None and each.screened and each.look is None and each.record is None
        ]
        clean = {id(each) for each in screened} - {id(each) for each in suspects(screened, step.fetched)}
        chosen = [each for each in watched if id(each) not in clean]
    find_records(step, chosen, judge)
    return chosen


def judge_one(capture: Capture, waiting: Waiting, judge: Judge) -> list[ClientHit]:
    """What the watchpoints say about a tensor that was just made, whose numbers wait by themselves."""
    fetched = waiting.fetch()
    capture.told, capture.fetched = True, fetched
    if capture.screened and capture.look is None and not suspects([capture], fetched):
        return []
    if capture.look is not None:
        capture.record, capture.look = exact.finish([capture.look], fetched)[0], None
    elif capture.tensor is not None:
        need = judge.need(capture.name) or RequiredStats()
        capture.record = exact.records([(capture.tensor, need, capture.previous)])[0]
    return _hits([capture], judge)


def find_records(step: Step, captures: Sequence[Capture], judge: Judge) -> None:
    """Gives lines their records, exactly: of values that still are what they were, else what was found out then."""
    if step.fetched is None:
        step.fetched = step.waiting.fetch()
    pending: list[Capture] = []
    for capture in captures:
        need = judge.need(capture.name) or RequiredStats()
        if capture.record is not None and capture.record.need.covers(need):
            continue
        if capture.look is not None:
            capture.record, capture.look = exact.finish([capture.look], step.fetched)[0], None
        elif capture.intact:
            pending.append(capture)
        elif capture.screened and capture.record is None:
            capture.record, capture.rough = rough_record(capture, capture.fetched or step.fetched), True
    values = [(each.tensor, judge.need(each.name) or RequiredStats(), each.previous) for each in pending]
    found = exact.records([(tensor, need, before) for tensor, need, before in values if tensor is not None])
    for capture, record in zip(pending, found, strict=True):
        capture.record = record


def initial_hits(names: Iterable[str], records: Iterable[Record], judge: Judge) -> list[ClientHit]:
    """What the condition on initial values says about weights before the first step."""
    hits = []
    for name, record in zip(names, records, strict=True):
        results = judge.results(name, record, initial=True)
        hits += [ClientHit(name, 0, result, record.meta, record.stats) for result in results]
    return hits


def _hits(captures: Sequence[Capture], judge: Judge) -> list[ClientHit]:
    hits: list[ClientHit] = []
    said: set[tuple[str, int, int]] = set()
    for capture in captures:
        for result, stats in _results(capture, judge):
            key = (capture.name, capture.slot, result.watchpoint)
            if key not in said:  # several passes of one step: the first one counts
                said.add(key)
                hits.append(ClientHit(capture.name, capture.slot, result, capture.meta, stats))
    return hits


def _results(capture: Capture, judge: Judge) -> Iterable[tuple[WatchResult, TensorStats | None]]:
    record = capture.record
    if record is None:
        return []
    stats = None if capture.rough else record.stats
    return [(result, stats) for result in judge.results(capture.name, record)]
