"""Checking: step resets, rechecks, everything, on to the next step with a hit; and in which state the hits are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tui_debugger.errors import CancelledError
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of, watchpoint_keys
from tui_debugger.tui.header import Status
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.tui.panes.pane import matcher
from tui_debugger.tui.panes.watch_rows import Tally
from tui_debugger.tui.views.view import ViewChanges, tell_views
from tui_debugger.tui.work import MIN_INTERVAL, Report, one_line

if TYPE_CHECKING:
    from tui_debugger.arrays import Mask
    from tui_debugger.check.types import Pair
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.context import Context
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.node_filter import NodeFilter
    from tui_debugger.tui.watcher import Watcher

QUICK = 64 << 20
"""Bytes: a step reset checks by itself up to this much."""
QUICK_PAIRS = 64
"""(rank, step) pairs: on opening, everything is checked by itself up to this many."""


class LiveStops(Protocol):
    """Tells where trainings stand; only a live session has it."""

    @property
    def at_newest(self) -> bool:
        """Tells whether the newest step of the rank is shown."""

    def newest(self) -> tuple[Pair, ...]:
        """Returns the newest stop of every rank, which need not be the same step."""

    def waiting(self) -> list[int]:
        """Returns the ranks that wait, and so can check again."""

    def why_not(self) -> str:
        """Says why the training of this rank cannot check again."""

    def recheck(self, ranks: Sequence[int], report: Report) -> None:
        """Has trainings check again the values that they hold. For workers."""


@dataclass(frozen=True, eq=False)
class Checked:
    """Some (rank, step) pairs were checked; ``final`` is False for a part of a running check."""

    result: CheckResult
    tally: Tally
    final: bool = True


@dataclass(frozen=True)
class _TooLarge:
    """A step was not checked by itself, because so many bytes would have to be read."""

    size: int


@dataclass(frozen=True, eq=False)
class _StepFound:
    """Continue ended: at a step with a hit, or at the last step."""

    result: CheckResult
    tally: Tally
    searched_to: int


class Checker:
    """Runs checks in a worker and keeps the hit list honest."""

    def __init__(
        self,
        context: Context,
        inspector: Inspector,
        watcher: Watcher,
        node_filter: NodeFilter,
        *,
        place: Callable[[int, int | None], None],
        live: LiveStops | None = None,
    ) -> None:
        """Checks nothing yet.

        Args:
            context: see ``Context``.
            inspector: shows marks of hits on tensors.
            watcher: shows hits per watchpoint, and on nodes.
            node_filter: a query may ask for nodes with hits.
            place: goes to a rank and step.
            live: where trainings stand; None for a dump. Of the newest stop of every rank, the trainings themselves
                say what hits.
        """
        self._context = context
        self._inspector = inspector
        self._watcher = watcher
        self._node_filter = node_filter
        self._place = place
        self._live = live
        self._announced = True

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Returns actions by id."""
        return {
            "recheck": self.recheck,
            "recheck_all": self.recheck_all,
            "continue": self.continue_to_hit,
            "forward": self.ask_forward,
            "filter_hits": self.ask_filter,
            "clear_hit_filter": self.clear_filter,
            "show_quiet": self.toggle_quiet,
        }

    @property
    def _session(self) -> Session:
        return self._context.session

    def _pairs(self) -> tuple[Pair, ...]:
        """Returns the current step on every rank that has it; of trainings the newest stop of every rank."""
        if self._live is not None and self._live.at_newest:
            return self._live.newest()
        step = self._context.state.step
        return self._session.pairs(None, (step,)) if step is not None else ()

    @property
    def _nothing_to_check(self) -> bool:
        return not any(watchpoint.enabled for watchpoint in self._session.watchpoints.items())

    # -- starting --------------------------------------------------------------------------------

    def _run(self, job: Callable[[Report], Checked | _TooLarge | _StepFound]) -> None:
        self._context.work.run("check", job, self._take, self._failed)

    def opened(self) -> None:
        """Checks a small run as a whole; of a large one the current step, when that is quick."""
        if self._live is not None:
            self.arrived(announce=False)
            return
        session = self._session
        pairs = session.pairs()
        if len(pairs) > QUICK_PAIRS or self._nothing_to_check:
            self.step_reset()
            return
        here = self._pairs()

        def work(report: Report) -> Checked | _TooLarge:
            if session.cost(pairs) <= QUICK:
                return counted(check_parts(session, pairs, report))
            cost = session.cost(here)
            return counted(check_parts(session, here, report)) if cost <= QUICK else _TooLarge(cost)

        self._run(work)

    def arrived(self, *, announce: bool = True) -> None:
        """Shows what a training found that stopped."""
        session, pairs = self._session, self._pairs()
        if not pairs:
            self._show(None)
            return
        self._announced = not announce
        self._run(lambda report: counted(session.known(pairs) or check_parts(session, pairs, report)))

    def step_reset(self) -> None:
        """Shows the current step's hits when they are known, or checks when that is quick."""
        session, pairs, state = self._session, self._pairs(), self._context.state
        state.too_large = 0
        if not pairs:
            self._show(None)
            return
        if session.fresh(pairs) or self._nothing_to_check:
            self._run(lambda _: counted(session.known(pairs) or session.check(pairs)))
            return

        def work(report: Report) -> Checked | _TooLarge:
            cost = session.cost(pairs)
            return counted(check_parts(session, pairs, report)) if cost <= QUICK else _TooLarge(cost)

        self._run(work)
        self._show(None)

    def recheck(self) -> None:
        """Checks this step, whatever it costs; at their newest stop the trainings that wait do it."""
        session, pairs, live = self._session, self._pairs(), self._live
        if live is None or not live.at_newest or not pairs or self._nothing_to_check:
            self._check(pairs)
            return
        ranks = live.waiting()
        if not ranks:
            self._context.say(live.why_not(), bad=True)
            return

        def work(report: Report) -> Checked:
            live.recheck(ranks, report)
            return counted(session.known(pairs) or check_parts(session, pairs, report))

        self._run(work)

    def recheck_all(self) -> None:
        """Checks every step of every rank."""
        self._check(self._session.pairs())

    def _check(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            self._context.say(f"no step is {self._context.kept}", bad=True)
        elif self._nothing_to_check:
            self._context.say(f"no watchpoint is enabled: {watchpoint_keys()}", bad=True)
        else:
            session = self._session
            self._context.state.too_large = 0
            self._run(lambda report: counted(check_parts(session, pairs, report)))

    def continue_to_hit(self) -> None:
        """Goes on to the next step with a hit; to the last step when there is none."""
        self._search(None)

    def ask_forward(self) -> None:
        """Asks how many steps to go forward, stopping at a hit."""
        from tui_debugger.tui.dialogs.prompts import NumberPrompt

        ahead = len(self._later_steps())
        if not ahead:
            self._context.say("this is the last dumped step")
            return
        prompt = NumberPrompt("Steps forward", 1, low=1, high=ahead, note="stops at the first step with a hit")
        self._context.app.push_screen(prompt, lambda count: None if count is None else self._search(count))

    def _later_steps(self) -> list[int]:
        session, step = self._session, self._context.state.step
        return list(steps_after(list(dict.fromkeys(step for _, step in session.pairs())), step))

    def _search(self, count: int | None) -> None:
        steps = self._later_steps()[:count]
        if not steps:
            self._context.say("this is the last dumped step")
            return
        if self._nothing_to_check and count is None:
            self._context.say(f"no watchpoint is enabled: {watchpoint_keys()}", bad=True)
            return
        session = self._session

        def work(report: Report) -> _StepFound:
            for step in steps:
                result = session.check(session.pairs(None, (step,)), report)
                if result.cancelled or result.hits.findings:
                    break
            return _StepFound(result, Tally.of(result), step)

        self._run(work)

    # -- results ---------------------------------------------------------------------------------

    def _take(self, found: Checked | _TooLarge | _StepFound) -> None:
        if isinstance(found, _TooLarge):
            self._context.state.too_large = found.size
            self._show(None)
            self._watcher.mark()
            return
        if isinstance(found, _StepFound):
            self._step_found(found)
        else:
            self.checked(found)
        tell_views(self._context.app, ViewChanges())  # what a check found is in open views as well

    def checked(self, found: Checked) -> None:
        """Shows the result of a check, or of a part of one."""
        context, result = self._context, found.result
        self._show(result, found.tally, final=found.final)
        if result.cancelled:
            context.say(_stopped_line(result))
        elif found.final and context.hits_pane.shown and len(result.pairs) > 1:
            context.say(
                f"{plural(context.hits_pane.shown, 'hit')}: {key_of('next_hit')} goes to the next one, from any pane"
            )
        if found.final and not self._announced:
            self._announced = True
            self._announce(result)

    def _announce(self, result: CheckResult) -> None:
        """Says how many hits a stop of trainings has."""
        shown = self._context.hits_pane.shown
        if shown and result.pairs:
            steps = {step for _, step in result.pairs}
            place = f"step {step_text(min(steps))}" if len(steps) == 1 else plural(len(result.pairs), "rank")
            self._context.say(f"{place}: {plural(shown, 'hit')}, {key_of('next_hit')} goes to the first")

    def _step_found(self, found: _StepFound) -> None:
        """Continue ended."""
        context, result = self._context, found.result
        rank = context.state.rank
        if found.searched_to in self._session.steps(rank):
            self._place(rank, found.searched_to)
        elif result.pairs:
            self._place(result.pairs[0][0], found.searched_to)
        self._show(result if result.pairs else None, found.tally)
        if found.tally.findings:
            hits = plural(context.hits_pane.shown, "hit")
            context.say(f"step {found.searched_to} has {hits}: {key_of('next_hit')} goes to the first")
        else:
            unsure = ", but not all could be judged" if found.tally.doubts else ""
            context.say("stopped" if result.cancelled else f"no hit up to step {found.searched_to}{unsure}")

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError):
            self.stopped()
        elif self._live is not None:
            self._context.say(one_line(error), bad=True)
            self.changed()
        else:
            self._context.show_error(error)
            self._watcher.mark()  # the marks waited for the result

    def stopped(self) -> None:
        """Says that work was cancelled."""
        self._context.say("stopped")
        self.changed()
        self._watcher.mark()

    def changed(self) -> None:
        """Watchpoints or files changed: the hits may be outdated now."""
        self._show(self._context.state.result, self._context.state.tally)

    def _show(self, result: CheckResult | None, tally: Tally | None = None, *, final: bool = True) -> None:
        context = self._context
        state = context.state
        changed = result is not state.result
        state.result, state.tally = result, tally if result is not None else None
        state.current = result is not None and self._session.fresh(result.pairs)
        context.hits_pane.show(
            result,
            where=self._place_text(result),
            state=self._title_state(),
            empty=self._empty_text(result),
            final=final,
        )
        self._watcher.show_list()
        if changed and (result is not None or not context.work.busy("check")):
            self._watcher.mark()  # the marks wait for the answer of a check: they need not go and come again
        if changed:
            if state.query.hit:
                self._node_filter.apply_query()
            if state.row >= 0:
                self._inspector.show_node(state.row)
        context.update_header()

    # -- the state in words ----------------------------------------------------------------------

    def status(self) -> Status:
        """Returns the state of the hits, for the header."""
        if self._context.work.busy("check"):
            return "▶", "checking", theme.GOOD
        if self._context.state.result is None:
            if self._nothing_to_check:
                return "○", f"no watchpoints: {watchpoint_keys()}", theme.NORMAL
            return "○", f"outdated: {key_of('recheck')} checks this step{self._cost_text()}", theme.DOUBT
        if not self._context.state.current:
            keys = f"{key_of('recheck')} checks this step, {key_of('recheck_all')} everything"
            return "○", f"outdated: {keys}", theme.DOUBT
        return self._known_status(self._context.state.result)

    def _known_status(self, result: CheckResult) -> Status:
        if result.stopped:
            return "◐", f"{_stopped_line(result)}: {key_of('recheck_all')} goes on", theme.DOUBT
        if result.coverage.parts:
            lost = all(part.unrecorded for part in result.coverage.parts)
            far = "was recorded" if lost else "can be listed"
            return "◐", f"fresh: {self._place_text(result)}, as far as it {far}", theme.DOUBT
        return "●", f"fresh: {self._place_text(result)}", theme.GOOD

    def _title_state(self) -> str:
        if self._context.work.busy("check"):
            return "checking"
        state = self._context.state
        if state.current and not state.fresh:
            return "stopped"
        return "" if state.current or self._nothing_to_check else "outdated"

    def _cost_text(self) -> str:
        return f" ({size(self._context.state.too_large)})" if self._context.state.too_large else ""

    def _place_text(self, result: CheckResult | None) -> str:
        if result is None or not result.pairs:
            return ""
        steps, ranks = {step for _, step in result.pairs}, {rank for rank, _ in result.pairs}
        first, last = step_text(min(steps)), step_text(max(steps))
        text = f"step {first}" if len(steps) == 1 else f"steps {first}–{last}"
        return text + (f", {plural(len(ranks), 'rank')}" if len(ranks) > 1 else "")

    def _empty_text(self, result: CheckResult | None) -> str:
        if self._live is not None and not self._place_text(result) and not self._pairs():
            return "nothing to check yet: ] runs a step"
        if self._nothing_to_check:
            return f"no watchpoint is enabled: {watchpoint_keys()}"
        if result is None:
            here = f"{key_of('recheck')} checks this step{self._cost_text()}"
            return f"outdated: {here}, {key_of('recheck_all')} every step and rank"
        if result.stopped:
            return f"no hit so far; {_stopped_line(result)}: {key_of('recheck_all')} goes on"
        return self._no_hit(self._place_text(result))

    def _no_hit(self, where: str) -> str:
        if not where:
            return "nothing checked"
        doubts = self._context.state.tally.doubts if self._context.state.tally is not None else ()
        if doubts:
            return f"no hit in {where}, but nobody can say that it is clean: {'; '.join(map(clean, doubts))}"
        return f"no hit in {where}: c {'goes on' if self._live is None else 'runs'} to the next step with one"

    # -- filters of the hit list -----------------------------------------------------------------

    def ask_filter(self) -> None:
        """Opens the filter dialog of the hit list."""
        from tui_debugger.tui.dialogs.filters import HitFilterScreen

        nodes = self._context.nodes_pane.nodes
        graphs = [info.name for info in nodes.graphs] if nodes is not None else []
        pane = self._context.hits_pane
        screen = HitFilterScreen(pane.filter, self._context.watchpoint_names(), graphs, self._session.ranks())
        self._context.app.push_screen(screen, lambda chosen: None if chosen is None else self._set_filter(chosen))

    def _set_filter(self, chosen: HitFilter) -> None:
        self._context.hits_pane.set_filter(chosen, self._context.watchpoint_names())

    def search(self) -> None:
        """Looks for the text in the search box of the hit list."""
        pane, result = self._context.hits_pane, self._context.state.result
        text = pane.search_text
        test = matcher(text)
        pane.mark_search(test is None)
        if result is None:
            return

        def work(_: Report) -> Mask | None:
            from tui_debugger.tui.panes.hit_rows import found_in

            return found_in(result.hits, test) if text and test is not None else None

        self._context.work.run("hits", work, lambda found: pane.show_found(result, found))

    def clear_filter(self) -> None:
        """Shows all findings again, in the node list every graph."""
        query = self._context.state.query
        if query.graphs and query.graphs == self._context.hits_pane.filter.graphs:
            self._node_filter.set_query(replace(query, graphs=frozenset()))
        self._context.hits_pane.clear_search()
        self._set_filter(HitFilter(quiet=self._context.hits_pane.filter.quiet))

    def toggle_quiet(self) -> None:
        """Rows without a comparison."""
        pane = self._context.hits_pane
        self._set_filter(replace(pane.filter, quiet=not pane.filter.quiet))
        self._context.say("rows where nothing could be compared are " + ("shown" if pane.filter.quiet else "hidden"))


def _stopped_line(result: CheckResult) -> str:
    from tui_debugger.check.verdicts import stopped_line

    return stopped_line(result)


def counted(result: CheckResult, *, final: bool = True) -> Checked:
    """Returns the result with its counts."""
    return Checked(result, Tally.of(result), final)


def check_parts(session: Session, pairs: Sequence[Pair], report: Report) -> CheckResult:
    """Checks, telling what was found so far at most four times a second."""
    from tui_debugger.check.results import joined

    parts: list[CheckResult] = []
    due = time.monotonic() + MIN_INTERVAL

    def collect(part: CheckResult) -> None:
        nonlocal due
        parts.append(part)
        if time.monotonic() >= due:
            report.partial(counted(joined(parts), final=False))
            due = time.monotonic() + MIN_INTERVAL

    return session.check(pairs, report, collect if len(pairs) > 1 else None)


def steps_after(steps: Sequence[int], step: int | None, *, down: bool = False) -> Sequence[int]:
    """Returns the steps that come after one in the given order; where it is not among them, those of greater number.

    Args:
        steps: in the order in which they ran, or backwards.
        step: where we are; None for before the first one.
        down: smaller numbers instead.
    """
    if step is None:
        return steps
    if step in steps:
        return steps[list(steps).index(step) + 1 :]
    return [each for each in steps if (each < step if down else each > step)]
