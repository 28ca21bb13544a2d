"""Checking: step resets, rechecks, everything, on to the next step with a hit; and in which state the hits are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import plural, size
from tui_debugger.text.tensors import step_text
from tui_debugger.tui import theme
from tui_debugger.tui.answers import Checked, CheckTooLarge, HitsFound, StepFound
from tui_debugger.tui.header import Status
from tui_debugger.tui.navigator import after
from tui_debugger.tui.panes.hit_rows import HitFilter
from tui_debugger.tui.panes.pane import matcher
from tui_debugger.tui.panes.watch_rows import Tally
from tui_debugger.tui.work import MIN_INTERVAL, Report

if TYPE_CHECKING:
    from tui_debugger.check.types import Pair
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.tui.main_screen import MainScreen

QUICK = 64 << 20
"""Bytes: a step reset checks by itself up to this much."""
QUICK_PAIRS = 64
"""(rank, step) pairs: on opening, everything is checked by itself up to this many."""


class Checker:
    """Runs checks in the worker and keeps the hit list honest."""

    def __init__(self, desk: MainScreen) -> None:
        """Nothing checked."""
        self._desk = desk
        self._known = False

    def handlers(self) -> dict[str, Callable[[], None]]:
        """Actions by id."""
        return {
            "recheck": self.recheck,
            "recheck_all": self.recheck_all,
            "continue": self.go_on,
            "forward": self.ask_forward,
            "filter_hits": self.ask_filter,
            "clear_hit_filter": self.clear_filter,
            "show_quiet": self.toggle_quiet,
        }

    @property
    def _session(self) -> Session:
        return self._desk.opened_session

    def _pairs(self) -> tuple[Pair, ...]:
        """The current step on every rank that has it."""
        step = self._desk.state.step
        return self._session.pairs(None, (step,)) if step is not None else ()

    @property
    def _nothing_to_check(self) -> bool:
        return not any(watchpoint.enabled for watchpoint in self._session.watchpoints.items())

    # -- starting --------------------------------------------------------------------------------

    def opened(self) -> None:
        """A small run is checked as a whole; of a large one the current step, when that is quick."""
        session = self._session
        pairs = session.pairs()
        if len(pairs) > QUICK_PAIRS or self._nothing_to_check:
            self.step_reset()
            return
        here = self._pairs()

        def work(report: Report) -> Checked | CheckTooLarge:
            if session.cost(pairs) <= QUICK:
                return counted(check_parts(session, pairs, report))
            cost = session.cost(here)
            return counted(check_parts(session, here, report)) if cost <= QUICK else CheckTooLarge(cost)

        self._desk.bridge.run("check", work)

    def step_reset(self) -> None:
        """Shows the current step's hits when they are known, or checks when that is quick."""
        session, pairs, state = self._session, self._pairs(), self._desk.state
        state.too_large = 0
        if not pairs:
            self._show(None)
            return
        if session.fresh(pairs) or self._nothing_to_check:
            self._desk.bridge.run("check", lambda _: counted(session.known(pairs) or session.check(pairs)))
            return

        def work(report: Report) -> Checked | CheckTooLarge:
            cost = session.cost(pairs)
            return counted(check_parts(session, pairs, report)) if cost <= QUICK else CheckTooLarge(cost)

        self._desk.bridge.run("check", work)
        self._show(None)

    def recheck(self) -> None:
        """This step, whatever it costs."""
        self._check(self._pairs())

    def recheck_all(self) -> None:
        """Every step of every rank."""
        self._check(self._session.pairs())

    def _check(self, pairs: Sequence[Pair]) -> None:
        if not pairs:
            self._desk.say(f"no step is {self._desk.KEPT}", bad=True)
        elif self._nothing_to_check:
            self._desk.say("no watchpoint is enabled: w makes one, a adds the recommended ones", bad=True)
        else:
            session = self._session
            self._desk.state.too_large = 0
            self._desk.bridge.run("check", lambda report: counted(check_parts(session, pairs, report)))

    def go_on(self) -> None:
        """On to the next step with a hit; to the last step when there is none."""
        self._search(None)

    def ask_forward(self) -> None:
        """N steps forward, stopping at a hit."""
        from tui_debugger.tui.dialogs.prompts import NumberPrompt

        ahead = len(self._ahead())
        if not ahead:
            self._desk.say("this is the last dumped step")
            return
        prompt = NumberPrompt("Steps forward", 1, low=1, high=ahead, note="stops at the first step with a hit")
        self._desk.app.push_screen(prompt, lambda count: None if count is None else self._search(count))

    def _ahead(self) -> list[int]:
        session, step = self._session, self._desk.state.step
        return list(after(list(dict.fromkeys(step for _, step in session.pairs())), step))

    def _search(self, count: int | None) -> None:
        steps = self._ahead()[:count]
        if not steps:
            self._desk.say("this is the last dumped step")
            return
        if self._nothing_to_check and count is None:
            self._desk.say("no watchpoint is enabled: w makes one, a adds the recommended ones", bad=True)
            return
        session = self._session

        def work(report: Report) -> StepFound:
            for step in steps:
                result = session.check(session.pairs(None, (step,)), report)
                if result.cancelled or result.hits.findings:
                    break
            return StepFound(result, Tally.of(result), step)

        self._desk.bridge.run("check", work)

    # -- answers ---------------------------------------------------------------------------------

    def checked(self, message: Checked) -> None:
        """A check, or a part of one, is done."""
        result = message.result
        self._show(result, message.tally, final=message.final)
        if result.cancelled:
            self._desk.say(_stopped_line(result))
        elif message.final and self._desk.hits_pane.shown and len(result.pairs) > 1:
            self._desk.say(f"{plural(self._desk.hits_pane.shown, 'hit')}: n goes to the next one, from any pane")

    def too_large(self, message: CheckTooLarge) -> None:
        """The step is not checked by itself."""
        self._desk.state.too_large = message.size
        self._show(None)
        self._desk.watcher.mark()

    def step_found(self, message: StepFound) -> None:
        """Continue ended."""
        desk, result = self._desk, message.result
        rank = desk.state.rank
        if message.searched_to in self._session.steps(rank):
            desk.navigator.place(rank, message.searched_to)
        elif result.pairs:
            desk.navigator.place(result.pairs[0][0], message.searched_to)
        self._show(result if result.pairs else None, message.tally)
        if message.tally.findings:
            desk.say(f"step {message.searched_to} has {plural(desk.hits_pane.shown, 'hit')}: n goes to the first")
        else:
            unsure = ", but not all could be judged" if message.tally.doubts else ""
            desk.say("stopped" if result.cancelled else f"no hit up to step {message.searched_to}{unsure}")

    def stopped(self) -> None:
        """Work was cancelled."""
        self._desk.say("stopped")
        self.changed()
        self._desk.watcher.mark()

    def changed(self) -> None:
        """Watchpoints or files changed: the hits may be outdated now."""
        self._show(self._desk.state.result, self._desk.state.tally)

    def _show(self, result: CheckResult | None, tally: Tally | None = None, *, final: bool = True) -> None:
        desk = self._desk
        state = desk.state
        changed = result is not state.result
        state.result, state.tally = result, tally if result is not None else None
        self._known = result is not None and self._session.fresh(result.pairs)
        desk.hits_pane.show(
            result, where=self._where(result), state=self._words(), empty=self._empty(result), final=final
        )
        desk.watcher.show_list()
        if changed and (result is not None or not desk.bridge.busy("check")):
            desk.watcher.mark()  # the marks wait for the answer of a check: they need not go and come again
        if changed:
            if state.query.hit:
                desk.navigator.apply_query()
            if state.row >= 0:
                desk.inspector.show_node(state.row)
        desk.update_header()

    # -- the state in words ----------------------------------------------------------------------

    @property
    def fresh(self) -> bool:
        """Whether the hits are what the watchpoints say about the files as they are, of all that was asked for."""
        return self._known and not self._stopped

    @property
    def _stopped(self) -> bool:
        """Whether a check was ended before its end."""
        result = self._desk.state.result
        return result is not None and result.stopped

    def status(self) -> Status:
        """For the header."""
        if self._desk.bridge.busy("check"):
            return "▶", "checking", theme.GOOD
        if self._desk.state.result is None:
            if self._nothing_to_check:
                return "○", "no watchpoints: w makes one, a adds the recommended ones", theme.NORMAL
            return "○", f"outdated: r checks this step{self._price()}", theme.DOUBT
        if not self._known:
            return "○", "outdated: r checks this step, R everything", theme.DOUBT
        return self._known_status(self._desk.state.result)

    def _known_status(self, result: CheckResult) -> Status:
        if result.stopped:
            return "◐", f"{_stopped_line(result)}: R goes on", theme.DOUBT
        if result.coverage.parts:
            lost = all(part.unrecorded for part in result.coverage.parts)
            far = "was recorded" if lost else "can be listed"
            return "◐", f"fresh: {self._where(result)}, as far as it {far}", theme.DOUBT
        return "●", f"fresh: {self._where(result)}", theme.GOOD

    def _words(self) -> str:
        if self._desk.bridge.busy("check"):
            return "checking"
        if self._known and self._stopped:
            return "stopped"
        return "" if self._known or self._nothing_to_check else "outdated"

    def _price(self) -> str:
        return f" ({size(self._desk.state.too_large)})" if self._desk.state.too_large else ""

    def _where(self, result: CheckResult | None) -> str:
        if result is None or not result.pairs:
            return ""
        steps, ranks = {step for _, step in result.pairs}, {rank for rank, _ in result.pairs}
        first, last = step_text(min(steps)), step_text(max(steps))
        text = f"step {first}" if len(steps) == 1 else f"steps {first}–{last}"
        return text + (f", {plural(len(ranks), 'rank')}" if len(ranks) > 1 else "")

    def _empty(self, result: CheckResult | None) -> str:
        if self._nothing_to_check:
            return "no watchpoint is enabled: w makes one, a adds the recommended ones"
        if result is None:
            return f"outdated: r checks this step{self._price()}, R every step and rank"
        where = self._where(result)
        if result.stopped:
            return f"no hit so far; {_stopped_line(result)}: R goes on"
        if not where:
            return "nothing checked"
        doubts = self._desk.state.tally.doubts if self._desk.state.tally is not None else ()
        if doubts:
            return f"no hit in {where}, but nobody can say that it is clean: {'; '.join(map(clean, doubts))}"
        return f"no hit in {where}: c goes on to the next step with one"

    # -- filters of the hit list -----------------------------------------------------------------

    def ask_filter(self) -> None:
        """The filter dialog of the hit list."""
        from tui_debugger.tui.dialogs.filters import HitFilterScreen

        nodes = self._desk.nodes_pane.nodes
        graphs = [info.name for info in nodes.graphs] if nodes is not None else []
        pane = self._desk.hits_pane
        screen = HitFilterScreen(pane.filter, self._desk.watcher.names(), graphs, self._session.ranks())
        self._desk.app.push_screen(screen, lambda chosen: None if chosen is None else self._set_filter(chosen))

    def _set_filter(self, chosen: HitFilter) -> None:
        self._desk.hits_pane.set_filter(chosen, self._desk.watcher.names())

    def search(self) -> None:
        """Looks for the text in the search box of the hit list."""
        pane, result = self._desk.hits_pane, self._desk.state.result
        text = pane.search_text
        test = matcher(text)
        pane.mark_search(test is None)
        if result is None:
            return

        def work(_: Report) -> HitsFound:
            from tui_debugger.tui.panes.hit_rows import found_in

            return HitsFound(result, found_in(result.hits, test) if text and test is not None else None)

        self._desk.bridge.run("hits", work)

    def searched(self, message: HitsFound) -> None:
        """The answer."""
        self._desk.hits_pane.show_found(message.result, message.found)

    def show_graphs(self, graphs: frozenset[str]) -> None:
        """Only the hits of some graphs; none of them means all."""
        if graphs != self._desk.hits_pane.filter.graphs:
            self._set_filter(replace(self._desk.hits_pane.filter, graphs=graphs))

    def clear_filter(self) -> None:
        """All findings again, in the node list every graph."""
        query = self._desk.state.query
        if query.graphs and query.graphs == self._desk.hits_pane.filter.graphs:
            self._desk.navigator.set_query(replace(query, graphs=frozenset()))
        self._desk.hits_pane.clear_search()
        self._set_filter(HitFilter(quiet=self._desk.hits_pane.filter.quiet))

    def toggle_quiet(self) -> None:
        """Rows without a comparison."""
        pane = self._desk.hits_pane
        self._set_filter(replace(pane.filter, quiet=not pane.filter.quiet))
        self._desk.say("rows where nothing could be compared are " + ("shown" if pane.filter.quiet else "hidden"))


def _stopped_line(result: CheckResult) -> str:
    from tui_debugger.check.verdicts import stopped_line

    return stopped_line(result)


def counted(result: CheckResult, *, final: bool = True) -> Checked:
    """The answer, with what there is to count in it."""
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
            report.tell(counted(joined(parts), final=False))
            due = time.monotonic() + MIN_INTERVAL

    return session.check(pairs, report, collect if len(pairs) > 1 else None)
