"""``tdbg listen --no-screen``: drives trainings, and prints hits as they come, what was covered, the verdict."""

from __future__ import annotations

import argparse
import dataclasses
import os
import queue
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tui_debugger import __version__
from tui_debugger.cli.options import add_watchpoints, conditions_of, given_watchpoints
from tui_debugger.cli.output import interruptible, note, undecided
from tui_debugger.errors import CancelledError, LostError, NotStoppedError, TdbgError
from tui_debugger.text.documents import document_line
from tui_debugger.text.writer import Meaning, meant, terminal_of, write_data, write_lines

if TYPE_CHECKING:
    from pathlib import Path

    from tui_debugger.check.hits import HitList
    from tui_debugger.check.step import PairResult
    from tui_debugger.check.types import Pair
    from tui_debugger.check.verdicts import Doubt, Judgement
    from tui_debugger.model import Coverage, Hit, ProgressFn, TensorKey, Watchpoint
    from tui_debugger.notes import ShownNote
    from tui_debugger.session import CheckResult
    from tui_debugger.session.live import LiveEvent, LiveSession, LiveState


_NOTES_ROOM: Final = 60
"""Cells that the notes of a step take on the line of a hit."""
_KEPT: Final = 200_000
"""The number of hits that are kept for the summary; those after them are counted only."""
_ROOM: Final = 256 << 20
"""Bytes of values that are fetched at one step to be saved."""
_EVERYTHING: Final = 5000
"""Tensors that are fetched then."""
_SETTLED: Final = 2.0
"""Seconds without a word of a step after which it is summed up although its training still runs."""
_QUIET: Final = 5.0
"""Seconds between two lines that say how far a training is that has nothing to say."""


class Log:
    """The hits that were printed, and what they add up to."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._json: bool = arguments.json
        self._arguments = arguments
        self._results: dict[Pair, PairResult] = {}
        self._counts: dict[Pair, int] = {}
        self._printed: dict[int, tuple[Pair, set[tuple[TensorKey, tuple[int, ...]]]]] = {}
        self._open: dict[int, Pair] = {}
        """By rank the step with findings that is not summed up yet."""
        self._first: dict[int, HitList] = {}
        self._passed: dict[int, int] = {}
        self._heard: dict[int, float] = {}
        """By rank when a finding came last."""
        self._last_note = time.monotonic()
        self._kept = 0
        self._findings = 0

    # -- while it runs -----------------------------------------------------------------------------

    def report(self, pair: Pair, result: PairResult, *, graphs: bool, notes: Sequence[ShownNote] = ()) -> Sequence[Hit]:
        """Prints the findings of a step, each once; returns those that are new.

        Args:
            pair: (rank, step).
            result: what was found there so far.
            graphs: the training has several graphs, so that a name alone may mean two nodes.
            notes: the scalars of the step.
        """
        from tui_debugger.model import Verdict

        rank = pair[0]
        if self._open.get(rank, pair) != pair:
            self._sum_up(rank)
        found = result.hits.with_verdict(Verdict.FINDING)
        printed = self._printed.get(rank)
        if printed is None or printed[0] != pair:
            printed = self._printed[rank] = (pair, set())
        new = [hit for hit in found if (hit.key, _finders(hit)) not in printed[1]]
        printed[1].update((hit.key, _finders(hit)) for hit in new)
        self._keep(pair, result, len(found))
        for hit in new:
            self._line(hit, notes, graphs=graphs)
        if new:
            self._open[rank], self._heard[rank] = pair, time.monotonic()
        sys.stdout.flush()
        return new

    def _keep(self, pair: Pair, result: PairResult, findings: int) -> None:
        """Keeps what a step came to, for the summary; its hits only while there is room."""
        before = self._results.get(pair)
        self._kept -= len(before.hits) if before is not None else 0
        room = self._kept + len(result.hits) <= _KEPT
        self._kept += len(result.hits) if room else 0
        self._results[pair] = result if room else dataclasses.replace(result, hits=result.hits[:0])
        self._findings += findings - self._counts.get(pair, 0)
        self._counts[pair] = findings
        self._first[pair[0]] = result.hits

    def pause(self, session: LiveSession) -> None:
        """Sums up steps with findings while nothing happens, and says now and then how far the others are."""
        from tui_debugger.live.wire import Phase

        now = time.monotonic()
        for rank in list(self._open):
            # At operator level the findings of a step come one after the other.
            if session.state(rank).phase is not Phase.RUNNING or now - self._heard[rank] > _SETTLED:
                self._sum_up(rank)
        if now - self._last_note < _QUIET:
            return
        self._last_note = now
        for state in session.trainings():
            if state.passed is not None and state.passed > self._passed.get(state.rank, -1):
                self._passed[state.rank] = state.passed
                note(f"step {state.passed}  rank {state.rank}  no new findings")

    def _sum_up(self, rank: int) -> None:
        """One line for a step with findings."""
        from tui_debugger.text.hits import hit_text
        from tui_debugger.text.numbers import plural
        from tui_debugger.text.tensors import step_text

        pair, hits = self._open.pop(rank), self._first.pop(rank, None)
        result = self._results[pair]
        if hits is None or not self._counts[pair]:
            return
        first = next((hit for hit in hits if hit.origin), None) or _first_finding(hits)
        named = f"{first.key.node.rpartition('/')[2]} ({hit_text(first)})" if first is not None else ""
        parts = [f"step {step_text(pair[1])}", f"rank {rank}", plural(result.coverage.checked, "tensor")]
        note("  ".join([*parts, plural(self._counts[pair], "finding"), f"first: {named}"]))
        self._passed[rank] = max(pair[1], self._passed.get(rank, -1))
        self._last_note = time.monotonic()

    def _line(self, hit: Hit, notes: Sequence[ShownNote], *, graphs: bool) -> None:
        from tui_debugger.text.notes import notes_row, notes_text

        if self._json:
            from tui_debugger.text.rows import hit_row

            _print_json({"event": "hit", **hit_row(hit), **notes_row(notes)})
            return
        from tui_debugger.text.hits import hit_text, said_words
        from tui_debugger.text.tables import Column, Cut, table_lines
        from tui_debugger.text.tensors import place_text, step_text

        words = ("◆ " if hit.origin else "") + hit_text(hit)
        where = f"step {step_text(hit.key.step)}  rank {hit.key.rank}"
        found = meant(words, Meaning.ORIGIN if hit.origin else Meaning.FINDING)
        columns = [
            Column(""),
            Column(""),
            Column("", cut=Cut.END),
            Column("", cut=Cut.MIDDLE, weight=9),
            Column("", cut=Cut.END),
        ]
        cells = [where, said_words(hit), found, place_text(hit.key, with_graph=graphs), notes_text(notes, _NOTES_ROOM)]
        kept = [at for at, cell in enumerate(cells) if cell]
        row = [cells[at] for at in kept]
        write_lines(*table_lines([columns[at] for at in kept], [row], terminal_of()))

    def collect(self, session: LiveSession, pair: Pair, result: PairResult, progress: ProgressFn) -> None:
        """Fetches the tensors around findings, to be saved: see ``LiveSession.keep``."""
        from tui_debugger.errors import CancelledError, TdbgError
        from tui_debugger.session.live_evidence import Budget

        try:
            session.keep(*pair, result.hits, Budget(_EVERYTHING, _ROOM, _ROOM), progress)
        except CancelledError:
            raise
        except TdbgError as error:
            note(f"not everything around the hits could be fetched: {error.what}")

    def collect_all(self, session: LiveSession, rank: int, step: int, progress: ProgressFn) -> None:
        """Fetches what is watched at the last step, to be saved."""
        from tui_debugger.check.hits import HitList
        from tui_debugger.session.live_evidence import Budget

        session.keep(rank, step, HitList(()), Budget(_EVERYTHING, _ROOM, _ROOM), progress)

    # -- at the end --------------------------------------------------------------------------------

    def failed(self, error: TdbgError) -> None:
        """With ``--json`` an error is the last line."""
        if self._json:
            _print_json({"event": "summary", **undecided("listen", None, error)})

    def summary(
        self, session: LiveSession, rules: Collection[int], fail_on: frozenset[str], batch: Batch, saved: str
    ) -> int:
        """Prints what it all comes to; returns the exit code."""
        from tui_debugger.check.verdicts import Doubt

        for rank in list(self._open):
            self._sum_up(rank)
        result = self._total(session, cancelled=batch.interrupted)
        steps = _steps(result, session)
        sick = {rank for (rank, _), count in self._counts.items() if count}
        doubts = [*batch.early_ends(steps, sick), *(Doubt("lost", text) for text in batch.gone)]
        doubts += [Doubt("unsaved", text) for text in batch.unsaved]
        judgement = self._judged(result, rules, fail_on, doubts)
        if not any(steps.values()):
            judgement = _doubted(judgement, Doubt("nothing", "no step was judged"))
        code = judgement.outcome.exit_code
        for notice in session.info.notices:
            note(notice)
        if self._json:
            _print_json(self._document(result, judgement, code, steps, saved))
            return code
        from tui_debugger.cli.check_report import OUTCOMES

        *texts, last = self._texts(result, judgement, steps, saved)
        for text in texts:
            note(text, Meaning.DOUBT if text.startswith("cannot judge") else None)
        note(last, OUTCOMES[judgement.outcome])
        return code

    def _total(self, session: LiveSession, *, cancelled: bool) -> CheckResult:
        """Everything that was judged, steps without hits included."""
        from tui_debugger.check.hits import HitList
        from tui_debugger.check.results import combined
        from tui_debugger.check.types import CheckResult

        version, watchpoints = session.watchpoints.snapshot()
        parts = list(self._results.values())
        covers = [part.coverage for part in parts]
        covers += [_times(coverage, count) for _, count, coverage in session.silent()]
        coverage = dataclasses.replace(combined(covers), parts=session.unreadable())
        hits = HitList.merged(part.hits for part in parts)
        return CheckResult(coverage.steps, hits, coverage, watchpoints, version, cancelled=cancelled)

    def _judged(
        self, result: CheckResult, rules: Collection[int], fail_on: frozenset[str], doubts: Sequence[Doubt]
    ) -> Judgement:
        from tui_debugger.check.verdicts import judge

        judgement = judge(
            result,
            rules=rules,
            fail_on=fail_on,
            allow_unreadable=self._arguments.allow_unreadable,
            allow_unmatched=self._arguments.allow_unmatched,
        )
        for doubt in doubts:
            judgement = _doubted(judgement, doubt)
        return judgement

    def _document(
        self, result: CheckResult, judgement: Judgement, code: int, steps: dict[int, int], saved: str
    ) -> dict[str, Any]:
        from tui_debugger.text.rows import coverage_row, key_row, part_rows, watch_row

        coverage = coverage_row(result.coverage)
        del coverage["pairs"]
        return {
            "event": "summary",
            "command": "listen",
            "exit_code": code,
            "verdict": judgement.outcome.value,
            "reasons": [{"kind": doubt.kind, "text": doubt.text} for doubt in judgement.doubts],
            "watchpoints": [
                {
                    **watch_row(tally.watchpoint, tally.tensors),
                    "judged": tally.judged,
                    "findings": tally.findings,
                    "blocked": tally.blocked.tensors,
                }
                for tally in judgement.tallies
            ],
            "coverage": coverage,
            "unrecorded": part_rows(part for part in result.coverage.parts if part.unrecorded),
            "steps": [{"rank": rank, "steps": count} for rank, count in steps.items()],
            "findings": self._findings,
            "failing": len(judgement.failing),
            "origins": [key_row(hit.key) for hit in result.hits if hit.origin],
            "saved": saved or None,
            "version": __version__,
        }

    def _texts(self, result: CheckResult, judgement: Judgement, steps: dict[int, int], saved: str) -> list[str]:
        from tui_debugger.check.verdicts import Outcome
        from tui_debugger.text.numbers import plural

        coverage = result.coverage
        ran = ", ".join(f"rank {rank}: {plural(count, 'step')}" for rank, count in steps.items()) or "no step ran"
        judged = f"{plural(coverage.checked, 'tensor')} judged by the training"
        texts = [f"{ran}; {judged}, {coverage.unreadable:,} unreadable, {coverage.not_comparable:,} not comparable"]
        texts += [f"saved {saved}"] if saved else []
        texts += [f"cannot judge: {doubt.text}" for doubt in judgement.doubts]
        origins = sum(hit.origin for hit in result.hits)
        found = plural(self._findings, "finding") + (f", {plural(origins, 'origin')} ◆" if origins else "")
        last = {
            Outcome.FINDING: f"FINDINGS: {found}",
            Outcome.CLEAN: "clean" if not self._findings else f"clean: {found}, none that --fail-on names",
            Outcome.CANNOT_JUDGE: "" if judgement.doubts else "cannot judge",
            Outcome.INTERRUPTED: f"interrupted: {found} so far",
        }[judgement.outcome]
        return [*texts, *([last] if last else [])]


def _doubted(judgement: Judgement, doubt: Doubt) -> Judgement:
    """With one more reason not to say "clean", unless there is one of its kind that says as much."""
    from tui_debugger.check.verdicts import Outcome

    if doubt.kind == "nothing" and any(each.kind == "nothing" for each in judgement.doubts):
        return judgement
    outcome = Outcome.CANNOT_JUDGE if judgement.outcome is Outcome.CLEAN else judgement.outcome
    return dataclasses.replace(judgement, doubts=(*judgement.doubts, doubt), outcome=outcome)


def _times(coverage: Coverage, count: int) -> Coverage:
    return dataclasses.replace(
        coverage,
        checked=coverage.checked * count,
        skipped=coverage.skipped * count,
        watched=tuple((watchpoint, tensors * count) for watchpoint, tensors in coverage.watched),
    )


def _steps(result: CheckResult, session: LiveSession) -> dict[int, int]:
    """Steps that ended and were judged, by rank: what runs after the last one belongs to a step that never ends."""
    counts: dict[int, int] = {}
    ended = session.ended()
    for rank, step in result.coverage.steps:
        counts[rank] = counts.get(rank, 0) + (0 <= step <= ended.get(rank, -1))
    for rank, count, _ in session.silent():
        counts[rank] = counts.get(rank, 0) + count
    return dict(sorted(counts.items()))


def _finders(hit: Hit) -> tuple[int, ...]:
    """The watchpoints that found it."""
    from tui_debugger.model import Verdict

    return tuple(each.watchpoint for each in hit.results if each.verdict is Verdict.FINDING)


def _first_finding(hits: HitList) -> Hit | None:
    from tui_debugger.model import Verdict

    return next(iter(hits.with_verdict(Verdict.FINDING)), None)


def _print_json(row: dict[str, Any]) -> None:
    write_data(document_line(row), flush=True)


GRACE: Final = 20.0
"""Seconds that a training which was lost has to come back before it counts as gone."""
_LOOK: Final = 0.2
"""Seconds between two looks at the clock."""


def run_batch(arguments: argparse.Namespace, listen: Callable[[], LiveSession], warning: str) -> int:
    """Listens until the end, sums up, and lets every training go; returns the exit code.

    Args:
        arguments: of the command.
        listen: begins to listen; the session is closed when the command ends.
        warning: what to say once it listens; empty: nothing.

    Raises:
        TdbgError: ``listen`` does; or no training came.
    """
    log = Log(arguments)
    try:
        return _listen(arguments, listen, warning, log)
    except TdbgError as error:
        log.failed(error)
        raise


def _listen(arguments: argparse.Namespace, listen: Callable[[], LiveSession], warning: str, log: Log) -> int:
    given = given_watchpoints(arguments)
    fail_on = conditions_of(arguments.fail_on)
    if arguments.save is not None:
        _make_room(arguments.save)
    with interruptible(lambda _: None) as progress:
        session = listen()
        if warning:
            note(warning)
        for line in (f"waiting for a training at {session.address}", *session.waiting_text().splitlines()):
            note(line)
        batch = Batch(session, arguments, given, log, progress)
        try:
            batch.follow()
        except CancelledError:
            batch.interrupted = True
    return batch.finish(fail_on)


def _make_room(directory: Path) -> None:
    """Makes the directory now: after hours of training it is too late to hear that it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        empty = not any(directory.iterdir())
    except FileExistsError:
        empty = False
    except OSError as error:
        raise TdbgError(
            f"the directory cannot be made: {error.strerror or error}", where=str(directory), hint="choose another one"
        ) from error
    if not empty:
        raise TdbgError("the directory exists and is not empty", where=str(directory), hint="choose another one")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TdbgError("the directory must not be written to", where=str(directory), hint="choose another one")


@dataclass
class Follow:
    """The progress of one training.

    Attributes:
        begun: it was let go on the first time.
        stop: number of the stop at which it stood last, as far as that was worked through.
        standing: it waits there.
        first: the step that it stood at then.
        over: nothing more is expected of it.
        lost: when it was lost, by ``time.monotonic``; None while it is there.
        last: the last step that is known.
    """

    begun: bool = False
    stop: int = 0
    standing: bool = False
    first: int = -1
    over: bool = False
    lost: float | None = None
    last: int = -1


@dataclass
class Batch:
    """One session of listening.

    Attributes:
        interrupted: Ctrl-C was pressed.
        gone: sentences about trainings that cannot be followed.
        early: ranks of trainings that ended before their time, or were lost, while more was expected of them.
        unsaved: why what was to be saved was not.
    """

    session: LiveSession
    arguments: argparse.Namespace
    given: Sequence[Watchpoint]
    log: Log
    progress: ProgressFn
    interrupted: bool = False
    gone: list[str] = field(default_factory=list)
    early: list[int] = field(default_factory=list)
    unsaved: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Listens from now on."""
        self._events: queue.SimpleQueue[LiveEvent] = queue.SimpleQueue()
        self._end = self.session.subscribe(self._events.put)
        self.session.on_new_nodes(self._more_nodes)
        self._ranks: dict[int, Follow] = {}
        self._rules: frozenset[int] | None = None
        self._stop = False
        self._since = time.monotonic()
        for state in self.session.trainings():  # who came before anybody listened to events
            if state.stop is not None and state.graph:
                self._ranks[state.rank] = Follow(stop=state.stop.count, standing=True)

    # -- while it runs -----------------------------------------------------------------------------

    def follow(self) -> None:
        """Until nothing more is to come.

        Raises:
            TdbgError: no training came in time, or no watchpoint is left.
        """
        self._begin_all()
        while not self._over():
            try:
                event = self._events.get(timeout=_LOOK)
            except queue.Empty:
                self.log.pause(self.session)
                self._look_at_the_clock()
                continue
            self._take(event)
            if not self._stop:
                self._begin_all()

    def _over(self) -> bool:
        return self._stop or (bool(self._ranks) and all(each.over for each in self._ranks.values()))

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        timeout = self.arguments.timeout
        if timeout is not None and self._rules is None and now - self._since > timeout:
            there = len(self.session.ranks())
            what = f"only {there} of {self._wanted} trainings came" if there else "no training came"
            raise TdbgError(
                f"{what} within {timeout:g} s", where=self.session.address, hint=self.session.waiting_text()
            )
        for rank, each in self._ranks.items():
            if each.lost is not None and not each.over and now - each.lost > GRACE:
                each.over = True
                self.early.append(rank)

    @property
    def _wanted(self) -> int:
        return self.arguments.ranks or 1

    def _take(self, event: LiveEvent) -> None:
        from tui_debugger.session.live import LiveKind

        kind, rank = event.kind, event.rank
        if kind in (LiveKind.CONNECTED, LiveKind.REFUSED, LiveKind.LOST, LiveKind.BACK, LiveKind.DONE):
            note(event.text)
        if rank is None:
            return
        each = self._ranks.setdefault(rank, Follow())
        if kind is LiveKind.REFUSED:
            self.session.release([rank])
            each.over = True
            self.gone.append(f"rank {rank}: {event.text}")
        if kind in (LiveKind.DONE, LiveKind.LOST) and not each.begun and not self._has_nodes(rank):
            del self._ranks[rank]  # it showed nothing, and takes nothing with it
            return
        if event.step is not None:
            each.last = event.step
        if kind in (LiveKind.STOPPED, LiveKind.HITS):
            each.lost = None
            if kind is LiveKind.STOPPED:
                self._stood(rank, each, event)
            else:
                self._report(event)
        elif kind is LiveKind.DONE:
            if not each.over and self.session.state(rank).ending:
                self.early.append(rank)
            each.over = True
        elif kind is LiveKind.LOST:
            each.lost = time.monotonic()
        elif kind is LiveKind.BACK:
            each.lost = None
            if each.begun and not self._stop and self.session.state(rank).phase.name == "STOPPED":
                self._go_on(rank, each)  # it still waits where it was lost

    def _stood(self, rank: int, each: Follow, event: LiveEvent) -> None:
        """Handles a training that waits at a stop; a stop that was handled already is not a new one."""
        if event.count <= each.stop:
            return
        each.stop, each.standing = event.count, True
        self._report(event, standing=True)
        if each.begun and not self._stop:
            self._go_on(rank, each)

    def _begin_all(self) -> None:
        """Lets trainings go that stand for the first time, as soon as enough are there."""
        standing = [rank for rank, each in self._ranks.items() if each.standing and each.lost is None]
        ready = [rank for rank in standing if self._ranks[rank].begun or self._has_nodes(rank)]
        for rank in set(standing).difference(ready):
            self._pass(rank)
        waiting = [rank for rank in ready if not self._ranks[rank].begun]
        if not waiting or (self._rules is None and len(ready) < self._wanted):
            return
        if self._rules is None:
            self._fill_list()
        for rank in waiting:
            self._begin(self.session.state(rank))

    def _has_nodes(self, rank: int) -> bool:
        return len(self.session.nodes(rank)) > 0

    def _pass(self, rank: int) -> None:
        """Lets a training run a step that has shown no node yet: there is nothing to watch."""
        self._ranks[rank].standing = False
        with suppress(NotStoppedError, LostError):
            self.session.run(1, [rank], stop_on_hit=False)

    def _fill_list(self) -> None:
        self._rules = add_watchpoints(self.session, self.given, recommended=self._recommended)

    @property
    def _recommended(self) -> bool:
        recommended: bool | None = self.arguments.recommended
        return not self.given if recommended is None else recommended

    def _more_nodes(self, _: int) -> None:
        """A training named nodes that it did not have before: what is recommended for them is watched, too."""
        if self._recommended:
            self.session.add_recommended()

    def _begin(self, state: LiveState) -> None:
        each = self._ranks[state.rank]
        each.begun = True
        each.first = state.step if state.step is not None else -1
        self._go_on(state.rank, each)

    def _go_on(self, rank: int, each: Follow) -> None:
        """Lets one training run, as long as steps are left for it."""
        arguments, state = self.arguments, self.session.state(rank)
        at = state.step if state.step is not None else each.first
        left = None if arguments.steps is None else each.first + arguments.steps - at
        if left is not None and left <= 0:
            if arguments.save is not None:
                self.log.collect_all(self.session, rank, at, self.progress)
            each.over = True
            self.session.release([rank])
            return
        stops = bool(arguments.stop_on_hit or arguments.save is not None)
        each.standing = False
        try:
            went = self.session.run(left, [rank], stop_on_hit=stops, progress=self.progress)
            if not went:  # what nobody had judged before was found wrong
                self._report_known(rank, at)
                if not self._stop:
                    self.session.run(left, [rank], stop_on_hit=stops, progress=self.progress)
        except (NotStoppedError, LostError):
            return  # it went away meanwhile: an event says so

    def _report(self, event: LiveEvent, *, standing: bool = False) -> None:
        """Reports what an event says was found."""
        if event.rank is not None and event.step is not None and event.result is not None and self._rules is not None:
            self._found((event.rank, event.step), event.result, standing=standing)

    def _report_known(self, rank: int, step: int) -> None:
        """Reports what the training was just asked to judge."""
        result = self.session.latest(rank, step)
        if result is not None:
            self._found((rank, step), result, standing=True)

    def _found(self, pair: Pair, result: PairResult, *, standing: bool) -> None:
        found = self.log.report(
            pair, result, graphs=bool(self.session.graph_names(pair[:1])), notes=self.session.notes_at(*pair)
        )
        if found and standing and self.arguments.save is not None:
            self.log.collect(self.session, pair, result, self.progress)
        if found and self.arguments.stop_on_hit:
            self._stop = True

    # -- at the end --------------------------------------------------------------------------------

    def finish(self, fail_on: frozenset[str]) -> int:
        """Saves, sums up, lets trainings go; returns the exit code."""
        saved = self._save()
        self._rest()
        self.session.settle()
        code = self.log.summary(self.session, self._rules or frozenset(), fail_on, self, saved)
        self.session.release()
        if not self.interrupted:
            self._stay()
        self._end()
        self.session.close()
        return code

    def early_ends(self, steps: Mapping[int, int], sick: Collection[int]) -> list[Doubt]:
        """Says of trainings that ended before their time how they did, and what is clean up to there.

        Args:
            steps: by rank how many steps were judged.
            sick: ranks with findings.
        """
        from tui_debugger.check.verdicts import Doubt
        from tui_debugger.live.wire import Phase
        from tui_debugger.text.numbers import named

        doubts = []
        for rank in self.early:
            state, first = self.session.state(rank), self._ranks[rank].first + 1
            which = f"the training of rank {rank}" if len(self._ranks) > 1 else "the training"
            text = f"{which} {state.ending}"
            ran = range(first, state.ended + 1)
            if rank not in sick and ran and steps.get(rank) == len(ran):
                text += f"; {named('step', ran)} clean"
            doubts.append(Doubt("lost" if state.phase is Phase.LOST else "ended", text))
        return doubts

    def _save(self) -> str:
        """Says what was saved where; a disk that is full takes nothing away from what was found."""
        directory = self.arguments.save
        if directory is None or not self.session.ranks():
            return ""
        try:
            saved = f"{self.session.save(directory)} in {directory}"
            from tui_debugger.text.numbers import plural

            lost = self.session.live.spool.lost.items()
            self.unsaved += [f"values of {plural(count, 'tensor')} were not saved: {why}" for why, count in lost]
            return saved
        except TdbgError as error:
            self.unsaved.append(f"not everything was saved in {directory}: {error.what}")
            return ""

    def _stay(self) -> None:
        """Answers trainings that would end without anybody who does, until they end by themselves."""
        if not self.session.dependents():
            return
        note("the training goes on without watchpoints; this process stays until its end, because MindSpore ends a")
        note("training that gets no answer (Ctrl-C leaves, and with it the training ends)")
        sys.stdout.flush()
        with interruptible(lambda _: None), suppress(CancelledError):
            while self.session.dependents():
                with suppress(queue.Empty):
                    self._events.get(timeout=_LOOK)

    def _rest(self) -> None:
        """Works on what was reported and not worked on, when something else ended the listening."""
        while not self._events.empty():
            self._report(self._events.get())
