"""Checks: of the current step, of all steps, on to the next step with a hit; and the state of the hits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from tui_debugger.errors import CancelledError
from tui_debugger.model import Progress
from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.text.tensors import step_text, steps_text
from tui_debugger.tui import theme
from tui_debugger.tui.actions import key_of, watchpoint_keys
from tui_debugger.tui.cells import ResultCounts
from tui_debugger.tui.context import Context, Controller, NodeFilter
from tui_debugger.tui.dialogs.prompts import NumberPrompt, steps_after
from tui_debugger.tui.header import Status
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.tui.views.view import ViewChanges, notify_views
from tui_debugger.tui.work import MIN_INTERVAL, QUICK, QUICK_PAIRS, JobProgress, one_line

if TYPE_CHECKING:
    from tui_debugger.arrays import Mask
    from tui_debugger.check.types import Pair
    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.model import Hit
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.watcher import Watcher


_ABBREVIATION = 3
"""Letters of the longest abbreviation: a search for TO must not match the words "weight change too large"."""


class LiveStops(Protocol):
    """Where live trainings stand; see ``live.LiveControl``."""

    @property
    def at_newest(self) -> bool:
        """Tells whether the newest step of the rank is shown."""

    def newest(self) -> tuple[Pair, ...]:
        """Returns the newest stop of every rank; ranks may stand at different steps."""

    def waiting(self) -> list[int]:
        """Returns the ranks that wait, and so can check again."""

    def why_not(self) -> str:
        """Returns why the training of the rank that is shown cannot check again."""

    def recheck(self, ranks: Sequence[int], report: JobProgress) -> None:
        """Has trainings check the values that they hold; blocks, so call it in a worker."""


@dataclass(frozen=True, eq=False)
class CheckState:
    """All check results of the run so far.

    Attributes:
        checked: the check that produced this state when it ended; None while a check runs, or without one.
        final: False for partial results of a running check.
        too_large: bytes to read, if a check did not start by itself because of that amount.
        searched_to: the step at which Continue ended.
        unchecked: number of steps that some rank has not checked.
        edition: the session's ``results_edition`` that this state shows; None: the current one.
    """

    result: CheckResult | None = None
    tally: ResultCounts | None = None
    headline: Headline | None = None
    checked: CheckResult | None = None
    final: bool = True
    too_large: int = 0
    searched_to: int | None = None
    unchecked: int = 0
    edition: int | None = None


class CheckController(Controller):
    """Runs checks in a worker, and shows in the hit list which of its hits still hold."""

    def __init__(
        self,
        context: Context,
        inspector: Inspector,
        watcher: Watcher,
        node_filter: NodeFilter,
        *,
        place: Callable[[int, int | None], None],
        lead: Callable[[CheckResult, Hit | None], None] = lambda _result, _hit: None,
        live: LiveStops | None = None,
    ) -> None:
        """Checks nothing yet.

        ``place`` goes to a rank and step. ``lead`` puts the cursor on the finding of the headline; called as long as no
        key was pressed. ``live``: where live trainings stand, None for a dump; at its newest stop a training itself
        does the check.
        """
        super().__init__(context)
        self._inspector = inspector
        self._watcher = watcher
        self._node_filter = node_filter
        self._place = place
        self._lead = lead
        self._live = live
        self._announced = True
        self._asked_for = False
        self._edition = 0
        self._asked: frozenset[Pair] = frozenset()
        self._postponed = False
        self._in_order = live is not None
        """Whether the session knows the order in which the steps ran."""

    def _pairs(self) -> tuple[Pair, ...]:
        """Returns the current step on every rank that has it; for trainings at their newest stop, each rank's stop."""
        if self._live is not None and self._live.at_newest:
            return self._live.newest()
        step = self.state.step
        return self.session.pairs(None, (step,)) if step is not None else ()

    @property
    def _nothing_to_check(self) -> bool:
        return not any(watchpoint.enabled for watchpoint in self.session.watchpoints.items())

    # -- starting --------------------------------------------------------------------------------

    def _run(
        self, job: Callable[[JobProgress], CheckState], asked: Sequence[Pair] = (), *, by_key: bool = False
    ) -> None:
        """Starts a check.

        ``asked``: the pairs that the check will cover, unless it turns out too large. ``by_key``: the user asked for
        the check, so its outcome is shown in the footer.
        """
        self._asked, self._postponed, self._asked_for = frozenset(asked), False, by_key
        self.work.run("check", job, self._take, self._failed)
        if self.state.result is None:
            self._show_state()

    def _check_if_quick(self, wanted: Sequence[Sequence[Pair]]) -> None:
        """Checks the first set of pairs that is quick to check; if none is, shows the cost of the last set."""
        session = self.session

        def work(report: JobProgress) -> CheckState:
            cost = 0
            for pairs in wanted:
                cost = session.size(pairs)  # bytes dumped; ``cost``, the bytes to read, takes longer to find
                if cost > QUICK:
                    cost = session.cost(pairs)
                if cost <= QUICK:
                    return known(session, check_parts(session, pairs, report))
            return known(session, too_large=cost)

        self._run(work, wanted[0])

    def opened(self) -> None:
        """Checks a small run as a whole; of a large run the current step, if that is quick."""
        session = self.session
        if self._live is not None:
            self.arrived(announce=False)
        else:  # finding the order of the steps may read statistics of all ranks: seconds
            self.work.run("steps", lambda _: session.pairs(), lambda _: self._check_opened(), wait=0.1)

    def _when_in_order(self, then: Callable[[], None]) -> None:
        """Calls ``then`` once the order of the steps is known; a worker finds it out."""
        if self._in_order:
            then()
            return
        session = self.session

        def work(report: JobProgress) -> None:
            ranks = session.ranks()
            for at, rank in enumerate(ranks):
                report(Progress(at, len(ranks), f"finding the order of the steps: rank {rank}"))
                session.steps(rank)

        def done(_: None) -> None:
            self._in_order = True
            then()

        self.work.run("order", work, done, self._failed, wait=0.1)

    def _check_opened(self) -> None:
        self._in_order = True
        pairs, here = self.session.pairs(), self._pairs()
        if self._nothing_to_check or not pairs:
            self.step_reset()
            return
        self._check_if_quick([pairs, here] if len(pairs) <= QUICK_PAIRS else [here])

    def arrived(self, *, announce: bool = True) -> None:
        """Shows the results of trainings that stopped; ``announce`` also says their number in the footer."""
        session, pairs = self.session, self._pairs()
        if not pairs:
            self._show(CheckState())
            return
        self._announced = not announce

        self._run(lambda report: _known_or_checked(session, pairs, report))

    def step_reset(self) -> None:
        """Shows the current step's results, or checks it if that is quick."""
        session, state = self.session, self.state
        state.too_large = 0
        self._context.hits_pane.follow(state.rank, state.step)
        if not self._in_order:  # ``_check_opened`` will check the current step
            return
        pairs = self._pairs()
        if not pairs or self._nothing_to_check:
            self._show(CheckState())
        elif self.work.busy("check") and self._asked.issuperset(pairs):
            self._postponed = True  # the running check covers this step, unless it turns out too large
        elif session.fresh(pairs):
            if state.result is not None and self._edition == session.results_edition:
                self._show_outdated(state.result)
                self._show_state()
            else:
                self._run(lambda report: _known_or_checked(session, pairs, report))
        else:
            self._check_if_quick([pairs])

    def act_recheck(self) -> None:
        """Checks this step, whatever it costs; at their newest stop, the trainings that wait do the check."""
        self._when_in_order(self._recheck)

    def _recheck(self) -> None:
        session, pairs, live = self.session, self._pairs(), self._live
        if live is None or not live.at_newest or not pairs or self._nothing_to_check:
            self._check(pairs)
            return
        ranks = live.waiting()
        if not ranks:
            self.say(live.why_not(), bad=True)
            return

        def work(report: JobProgress) -> CheckState:
            live.recheck(ranks, report)
            return _known_or_checked(session, pairs, report)

        self._run(work, by_key=True)

    def act_recheck_all(self) -> None:
        self._when_in_order(lambda: self._check(self.session.pairs()))

    def _check(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            self.say(f"no step is {self._context.kept}", bad=True)
        elif self._nothing_to_check:
            self.say(f"no watchpoint is enabled: {watchpoint_keys()}", bad=True)
        else:
            session = self.session
            self.state.too_large = 0
            self._run(lambda report: known(session, check_parts(session, pairs, report)), pairs, by_key=True)

    def act_continue(self) -> None:
        """Goes to the next step with a hit, or to the last step if there is none."""
        self._when_in_order(lambda: self._search(None))

    def act_forward(self) -> None:
        self._when_in_order(self._ask_forward)

    def _ask_forward(self) -> None:
        ahead = len(self._later_steps())
        if not ahead:
            self.say("this is the last dumped step")
            return
        prompt = NumberPrompt("Steps forward", 1, low=1, high=ahead, note="stops at the first step with a hit")
        prompt.ask(self._context.app, self._search)

    def _later_steps(self) -> list[int]:
        session, step = self.session, self.state.step
        return list(steps_after([*dict.fromkeys(step for _, step in session.pairs())], step))

    def _search(self, count: int | None) -> None:
        steps = self._later_steps()[:count]
        if not steps:
            self.say("this is the last dumped step")
            return
        if self._nothing_to_check and count is None:
            self.say(f"no watchpoint is enabled: {watchpoint_keys()}", bad=True)
            return
        session = self.session

        def work(report: JobProgress) -> CheckState:
            for step in steps:
                result = session.check(session.pairs(None, (step,)), report)
                if result.cancelled or result.hits.findings:
                    break
            return replace(known(session, result), searched_to=step)

        self._run(work)

    # -- results ---------------------------------------------------------------------------------

    def _take(self, found: CheckState) -> None:
        self.state.too_large = found.too_large
        if found.searched_to is not None:
            self._step_found(found, found.searched_to)
        else:
            self.checked(found)
        notify_views(self._context.app, ViewChanges())  # open views show check results as well
        if self._postponed and found.final:
            self._postponed = False
            if found.checked is None or not found.checked.cancelled:
                self.step_reset()

    def checked(self, found: CheckState) -> None:
        context, checked = self._context, found.checked
        self._show(found)
        if found.result is not None and not context.state.touched:
            self._lead(found.result, found.headline.hit if found.headline is not None else None)
        if checked is not None and checked.cancelled:
            context.say(_stopped_line(checked))
        elif checked is not None and self._asked_for:
            findings = checked.hits.findings
            outcome = plural(findings, "hit") if findings else f"no hit{_unsure(found)}"
            context.say(f"{_checked_text(checked)} checked: {outcome}")
            self._asked_for = False
        if found.final:
            self._watcher.tell_saved()
        if found.final and not self._announced:
            self._announced = True
            self._announce()

    def _announce(self) -> None:
        """Says how many findings the trainings' stop has, and moves the hit list to its first finding."""
        context, state = self._context, self.state
        pairs = self._pairs()
        if state.result is None or not pairs:
            return
        hits = state.result.hits
        count = sum(int((hits.at(rank, step) & hits.found()).sum()) for rank, step in pairs)
        if count:
            context.hits_pane.follow(state.rank, state.step)
            steps = {step for _, step in pairs}
            place = f"step {step_text(min(steps))}" if len(steps) == 1 else plural(len(pairs), "rank")
            there = context.hits_pane.stands_on(state.rank, state.step, state.row)
            rest = "" if there else f", {key_of('next_hit')} goes to the first"
            context.say(f"{place}: {plural(count, 'hit')}{rest}")

    def _step_found(self, found: CheckState, searched_to: int) -> None:
        context, checked = self._context, found.checked
        rank = context.state.rank
        if searched_to in self.session.steps(rank):
            self._place(rank, searched_to)
        elif checked is not None and checked.pairs:
            self._place(checked.pairs[0][0], searched_to)
        self._show(found)
        if checked is None:
            return
        if checked.hits.findings:
            context.hits_pane.follow(context.state.rank, searched_to)
            context.say(
                f"step {searched_to} has {plural(checked.hits.findings, 'hit')}: {key_of('next_hit')} goes to the first"
            )
        else:
            context.say("stopped" if checked.cancelled else f"no hit up to step {searched_to}{_unsure(found)}")

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError):
            self.stopped()
        elif self._live is not None:
            self.say(one_line(error), bad=True)
            self.changed()
        else:
            self._context.show_error(error)
            self._watcher.mark()  # marks were not drawn while the check ran

    def stopped(self) -> None:
        """Says that work was cancelled, and shows the results so far."""
        session = self.session
        self.say("stopped")
        self.work.run("known", lambda _: known(session), self._show)
        self._watcher.mark()

    def changed(self, new: Collection[Pair] = ()) -> None:
        """Watchpoints or files changed: checks the same pairs and ``new`` if that is quick, else shows the cost."""
        session, result = self.session, self.state.result
        self._show_state()
        if self._nothing_to_check:
            self.work.cancel("check")
            self._show(CheckState())
            return
        if result is None and self._live is None:
            self.opened()
            return
        before = set(result.pairs) if result is not None else set()
        if self.work.busy("check"):
            before |= set(self._pairs())  # the new watchpoints also apply to the check that runs
        there = session.pairs({rank for rank, _ in before.union(new)})
        again = [pair for pair in there if pair in before]
        more = [pair for pair in there if pair in before.union(new)]
        if self._live is not None or not more:
            self.work.run("known", lambda _: known(session), self._show)
        else:
            self._check_if_quick([more, again])

    def _show(self, found: CheckState) -> None:
        state, result = self.state, found.result
        changed = result is not state.result
        state.result, state.tally, state.headline = result, found.tally, found.headline
        state.unchecked = found.unchecked
        self._edition = self.session.results_edition if found.edition is None else found.edition
        self._show_outdated(result)
        if found.checked is not None:
            state.stopped = _stopped_line(found.checked) if found.checked.stopped else ""
        self._show_state(final=found.final)
        self._watcher.show_list()
        if changed and (result is not None or not self.work.busy("check")):
            self._watcher.mark()  # while a check without results runs, old marks stay: no flicker
        if changed:
            self._inspector.count_hits()
            if state.query.hit:
                self._node_filter.apply_query()
            if state.row >= 0:
                self._inspector.show_anew()
        if changed and found.final and found.headline is not None and found.headline.hit is not None:
            self._ask_reason(found.headline)

    def _show_outdated(self, result: CheckResult | None) -> None:
        """Notes whether results are from an older list of watchpoints; for trainings, only at their stops."""
        outdated = result.outdated if result is not None else frozenset()
        here = outdated if self._live is None else outdated & set(self._pairs())
        self.state.outdated = bool(here)

    def _show_state(self, *, final: bool = True) -> None:
        context, state = self._context, self.state
        context.hits_pane.show(
            state.result,
            place=(state.rank, state.step),
            state=self._title_state(),
            empty=self._empty_text(),
            final=final,
        )
        context.update_header()

    def resumed(self) -> None:
        """Shows results of checks that a view made while it was in front of the panes."""
        session, edition = self.session, self.session.results_edition
        if edition != self._edition and not self.work.busy("check"):
            self.work.run("known", lambda _: known(session), self._show)

    def moved(self) -> None:
        """Shows known results for the new position in the run; checks nothing."""
        state = self.state
        self._show_state()
        self._context.hits_pane.follow(state.rank, state.step)
        self._inspector.count_hits_soon()

    def _ask_reason(self, about: Headline) -> None:
        """Computes the cause for the headline in a worker; an error leaves the headline as it is."""
        session, state = self.session, self.state

        def work(report: JobProgress) -> Headline:
            from tui_debugger.diagnose.headline import with_reason

            return with_reason(about, session, report)

        def done(found: Headline) -> None:
            if state.headline is about:
                state.headline = found
                self._context.update_header()

        self.work.run("headline", work, done, lambda _: None, lambda _: None)

    # -- the state in words ----------------------------------------------------------------------

    def status(self) -> Status:
        state = self.state
        if self.work.busy("check"):
            return "▶", "checking", theme.GOOD
        if self._nothing_to_check:
            return "○", f"no watchpoint is enabled: {watchpoint_keys()}", theme.NORMAL
        if state.stopped:
            return "◐", f"{state.stopped}: {key_of('recheck_all')} goes on", theme.DOUBT
        if state.result is None:
            return "○", f"not checked yet: {self._ways_to_check()}", theme.DOUBT
        if state.outdated:
            return "○", f"outdated: {self._ways_to_check()}", theme.DOUBT
        return self._known_status(state.result)

    def _known_status(self, result: CheckResult) -> Status:
        if result.coverage.parts:
            parts = result.coverage.parts
            lost, incomplete = all(part.unrecorded for part in parts), all(part.incomplete for part in parts)
            rest = "was not recorded" if lost else "is not there" if incomplete else "cannot be listed"
            rest = "was not looked at" if all(part.unclaimed for part in parts) else rest
            return "◐", f"{_checked_text(result)} checked, except what {rest}", theme.DOUBT
        if result.coverage.unreadable:
            return "◐", f"{_checked_text(result)} checked in part", theme.DOUBT
        steps = self.state.unchecked
        if steps and self._live is None:
            return (
                "◐",
                f"{_checked_text(result)} checked{self._cost_text()}: {key_of('recheck_all')} checks {steps:,} more",
                theme.DOUBT,
            )
        return "●", f"{_checked_text(result)} checked", theme.GOOD

    def _title_state(self) -> str:
        if self.work.busy("check"):
            return "checking"
        state = self.state
        if state.stopped:
            return "stopped"
        if self._nothing_to_check:
            return ""
        return "not checked" if state.result is None else "outdated" if state.outdated else ""

    def _ways_to_check(self) -> str:
        here = f"{key_of('recheck')} checks this step{self._cost_text()}"
        return f"{here}, {key_of('recheck_all')} every step and rank"

    def _cost_text(self) -> str:
        return f" ({size(self.state.too_large)})" if self.state.too_large else ""

    def _empty_text(self) -> str:
        state = self.state
        result = state.result
        if self._live is not None and (not self._pairs() if result is None else result.coverage.nothing_came):
            return f"nothing to check yet: {key_of('step_forward')} runs a step"
        if self._nothing_to_check:
            return f"no watchpoint is enabled: {watchpoint_keys()}"
        if self.work.busy("check") and (result is None or not result.hits.findings):
            return "checking: no hit so far"
        if state.stopped and (result is None or not result.hits.findings):
            return f"no hit so far; {state.stopped}: {key_of('recheck_all')} goes on"
        if result is None:
            return f"not checked yet: {self._ways_to_check()}"
        return self._no_hit(result)

    def _no_hit(self, result: CheckResult) -> str:
        where = _checked_text(result)
        if not result.pairs:
            return "nothing checked"
        doubts = self.state.tally.doubts if self.state.tally is not None else ()
        if doubts:
            return f"no hit in {where}, but it cannot be called clean: {'; '.join(map(clean, doubts))}"
        if self.session.ongoing:
            return f"no hit in {where}: {key_of('continue')} runs to the next step with one"
        rest = f": {key_of('continue')} goes on to the next step with one" if self.state.unchecked else ""
        return f"no hit in {where}{rest}"

    # -- filters of the hit list -----------------------------------------------------------------

    def act_filter_hits(self) -> None:
        from tui_debugger.tui.dialogs.filters import HitFilterScreen

        nodes = self._context.nodes_pane.nodes
        graphs = [info.name for info in nodes.graphs] if nodes is not None else []
        pane = self._context.hits_pane
        names, ranks = self._context.watchpoint_names(in_full=True), self.session.ranks()
        screen = HitFilterScreen(pane.filter, names, graphs, ranks, self._scope_here())
        screen.ask(self._context.app, self._set_filter)

    def _set_filter(self, chosen: HitFilter) -> None:
        pane = self._context.hits_pane
        pane.set_filter(chosen, self._context.chip_names(pane))

    def search(self) -> None:
        pane, result = self._context.hits_pane, self.state.result
        pattern = pane.pattern
        if result is None:
            pane.searched()
            return

        def work(_: JobProgress) -> Mask | None:
            from tui_debugger.tui.panes.hit_rows import found_in

            if pattern is None:
                return None
            found = found_in(result.hits, pattern.test)
            named = len(pattern.text) > _ABBREVIATION
            return found | found_in(result.hits, pattern.test, conditions=True) if named else found

        def done(found: Mask | None) -> None:
            pane.show_found(result, found)
            pane.searched()

        self.work.run("hits", work, done)

    def act_clear_hit_filter(self) -> None:
        """Shows all findings again, and all graphs in the node list if both lists had the same graphs."""
        query = self.state.query
        if query.graphs and query.graphs == self._context.hits_pane.filter.graphs:
            self._node_filter.set_query(replace(query, graphs=frozenset()))
        self._context.hits_pane.clear_search()
        self._set_filter(HitFilter(quiet=self._context.hits_pane.filter.quiet))

    def act_this_step_only(self) -> None:
        here = self._toggle("here")
        self._show_state()
        self.say(f"hits of this step only: {key_of('this_step_only')} shows all steps" if here else "hits of all steps")

    def act_origins_only(self) -> None:
        only = f"origins only: {key_of('origins_only')} shows every hit"
        self.say(only if self._toggle("origins") else "every hit, not origins only")

    def act_show_quiet(self) -> None:
        self.say(f"rows where nothing could be compared are {'shown' if self._toggle('quiet') else 'hidden'}")

    def _toggle(self, switch: str) -> bool:
        """Turns a switch of the filter, and returns whether it is on now."""
        current = self._context.hits_pane.filter
        turned: dict[str, Any] = {switch: not getattr(current, switch)}
        self._set_filter(replace(current, **turned))
        return bool(turned[switch])

    def act_scope_only(self) -> None:
        pane, scope = self._context.hits_pane, self._scope_here()
        if not scope and not pane.filter.scope:
            self.say("no scope under the cursor of the node list", bad=True)
            return
        again = pane.filter.scope == scope
        self._set_filter(replace(pane.filter, scope="" if again else scope))
        self.say("hits of all scopes" if again else f"hits of {clean(scope)}: {key_of('scope_only')} shows all scopes")

    def _scope_here(self) -> str:
        pane = self._context.nodes_pane
        if pane.scopes is None or pane.current < 0:
            return ""
        path = pane.scopes.path(pane.current)
        return path if pane.scopes.is_scope(pane.current) else path.rpartition("/")[0] or path

    def act_sort_hits(self) -> None:
        pane = self._context.hits_pane
        pane.sort(pane.order.next)
        self.say(f"hits by {pane.order.value}: {key_of('sort_hits')} sorts by {pane.order.next.value}")

    def act_unfold_hit(self) -> None:
        if not self._context.hits_pane.unfold():
            self.say("this row stands for one rank", bad=True)

    def act_unfold_hits(self) -> None:
        if not self._context.hits_pane.unfold_all():
            self.say("every row stands for one rank", bad=True)


def _stopped_line(result: CheckResult) -> str:
    from tui_debugger.check.verdicts import stopped_line

    return stopped_line(result)


def _checked_text(result: CheckResult) -> str:
    if not result.pairs:
        return "nothing"
    steps, ranks = {step for _, step in result.pairs}, {rank for rank, _ in result.pairs}
    return steps_text(steps) + (f", {plural(len(ranks), 'rank')}" if len(ranks) > 1 else "")


def _unsure(found: CheckState) -> str:
    """Returns the limitation to add to "no hit"; may be empty."""
    return ", but not all could be judged" if found.tally is not None and found.tally.doubts else ""


def known(
    session: Session, checked: CheckResult | None = None, *, final: bool = True, too_large: int = 0
) -> CheckState:
    """Returns all check results of the run, with counts and headline; see ``CheckState`` for the arguments."""
    from tui_debugger.diagnose.headline import headline

    edition = session.results_edition
    result = session.so_far()
    if result is None:
        return CheckState(checked=checked, final=final, too_large=too_large, edition=edition)
    result.hits.across_ranks()  # for the rows of the hit list; slow with many hits, so not on the event loop
    run = session.pairs()
    unchecked = len({step for _, step in result.not_checked(run)})
    answer = headline(result, run, ongoing=session.ongoing) if result.watchpoints else None
    counts = ResultCounts.of(result)
    return CheckState(result, counts, answer, checked, final, too_large, unchecked=unchecked, edition=edition)


def _known_or_checked(session: Session, pairs: Sequence[Pair], report: JobProgress) -> CheckState:
    return known(session, session.known(pairs) or check_parts(session, pairs, report))


_REST: Final = 10
"""Pause between two counts of partial results, as a multiple of the time of a count, so that checking dominates."""


def check_parts(session: Session, pairs: Sequence[Pair], report: JobProgress) -> CheckResult:
    """Checks pairs and reports partial results at most four times a second, less often where counting them is slow."""
    due = time.monotonic() + MIN_INTERVAL

    def collect(_: CheckResult) -> None:
        nonlocal due
        started = time.monotonic()
        if started >= due:
            report.partial(known(session, final=False))
            ended = time.monotonic()
            due = ended + max(MIN_INTERVAL, _REST * (ended - started))

    return session.check(pairs, report, collect if len(pairs) > 1 else None)
