"""The main screen: five panes, header and footer. It lays them out and passes on keys, messages and results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.widget import Widget

from tui_debugger.errors import CancelledError
from tui_debugger.tui import actions
from tui_debugger.tui.panes.hits import HitsPane
from tui_debugger.tui.panes.nodes import NodesPane
from tui_debugger.tui.panes.pane import TITLES, Pane, PanesScreen
from tui_debugger.tui.panes.stack import StackPane
from tui_debugger.tui.panes.tensors import TensorsPane
from tui_debugger.tui.panes.watchpoints import WatchpointsPane
from tui_debugger.tui.widgets.bars import TabStrip, opening_lines
from tui_debugger.tui.widgets.line_window import CachedColumn, CachedRow
from tui_debugger.tui.work import JobRunner

if TYPE_CHECKING:
    from rich.text import Text
    from textual.binding import BindingsMap
    from textual.dom import DOMNode

    from tui_debugger.diagnose.headline import Headline
    from tui_debugger.model import Hit
    from tui_debugger.session import CheckResult, Session
    from tui_debugger.sources.base import Changes
    from tui_debugger.tui.checker import CheckController
    from tui_debugger.tui.context import Context, NodeFilter, ScreenState
    from tui_debugger.tui.inspector import Inspector
    from tui_debugger.tui.live import LiveControl
    from tui_debugger.tui.navigator import Navigator
    from tui_debugger.tui.view_opener import ViewOpener
    from tui_debugger.tui.watcher import Watcher

WIDE, HIGH = 110, 30
"""Columns and lines of a terminal from which on all five panes are shown."""
WITHOUT_SESSION = frozenset(
    {"quit", "suspend", "help", "palette", "back", "pause", "redraw", "zoom", "next_pane", "previous_pane"}
)
_CLEARS = {"nodes": "clear_filter", "stack": "clear_line", "hits": "clear_hit_filter"}
"""The actions that end the filters of a pane."""
Handler = Callable[[], None]


class MainScreen(PanesScreen):
    """The screen of a run: a dump (``live`` is None), or live trainings. ``session`` is None until the run is open."""

    BINDINGS: ClassVar[list[BindingType]] = [*actions.bindings_for("global"), *actions.live_bindings()]
    state: ScreenState
    navigator: Navigator
    checker: CheckController
    watcher: Watcher
    inspector: Inspector
    node_filter: NodeFilter
    views: ViewOpener

    def __init__(
        self,
        *,
        title: str,
        recommended: bool | None,
        rank: int | None,
        step: int | None,
        live: LiveControl | None = None,
        settled: Callable[[], None] = lambda: None,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """Shows empty panes until ``start``; most arguments are those of ``TdbgApp``.

        ``settled`` is called after much long-lived data was made. ``forget`` forgets what the terminal shows, so that
        the next frame is written as a whole.
        """
        super().__init__()
        self.run_title = title
        self.session: Session | None = None
        self.live = live
        self.work = JobRunner(self.post_message, self._failed, self.update_header)
        self.nodes_pane = NodesPane()
        self.stack_pane = StackPane()
        self.watchpoints_pane = WatchpointsPane()
        self.hits_pane = HitsPane()
        self.tensors_pane = TensorsPane()
        self.panes: dict[str, Pane] = {
            pane.PANE: pane
            for pane in (self.nodes_pane, self.stack_pane, self.watchpoints_pane, self.hits_pane, self.tensors_pane)
        }
        for pane in self.panes.values():
            pane.detail_changed = self._update_detail
        self.hits_pane.highlighted = self._preview
        self.hits_pane.notes_of = self._notes_of
        self.left_column = CachedColumn(id="left", classes="column")
        self.right_column = CachedColumn(id="right", classes="column")
        self.tabs = TabStrip()
        self.current_pane = "nodes"
        self._came_from = ""
        """The pane that Enter led to the tensors from, to which Esc goes back."""
        self.zoomed = False
        self._recommended, self._first_rank, self._first_step = recommended, rank, step
        self._settled = settled
        self._forget = forget
        self._shared: Context | None = None
        self._header_due = False
        self._chain: tuple[Widget | None, list[tuple[DOMNode, BindingsMap]]] | None = None
        self._run_cell: Text | None = None
        self._run_cell_of: Headline | None = None
        self.handlers: dict[str, Handler] = self._own_handlers()
        if live is not None:
            self.tensors_pane.absent = "not kept"

    @property
    def pane(self) -> Pane:
        return self.panes[self.current_pane]

    def compose(self) -> ComposeResult:
        """Puts nodes and watchpoints on the left; hits, tensors and stack on the right.

        Everything that depends on the size is set before the widgets are styled and laid out.
        """
        single = self._is_single(self.app.size)
        self.set_class(single, "-single", update=False)
        self._draw_frames(single)
        yield self.header
        yield self.tabs
        with CachedRow(id="panes"):
            with self.left_column:
                yield self.nodes_pane
                yield self.watchpoints_pane
            with self.right_column:
                yield self.hits_pane
                yield self.tensors_pane
                yield self.stack_pane
        yield self.footer

    def on_mount(self) -> None:
        self.focus_pane("nodes")
        self.update_header()

    # -- a run is there --------------------------------------------------------------------------

    def wait_for_trainings(self, live: LiveControl) -> None:
        live.wait(self._make_context(live.session), self.start)
        self.handlers |= live.handlers_of_waiting()

    def start(self, session: Session) -> None:
        """Shows an open run, and checks whatever is quick to check."""
        from tui_debugger.tui.checker import CheckController
        from tui_debugger.tui.context import NodeFilter
        from tui_debugger.tui.export import Copier, ReportExporter
        from tui_debugger.tui.inspector import Inspector
        from tui_debugger.tui.navigator import Navigator
        from tui_debugger.tui.view_opener import ViewOpener
        from tui_debugger.tui.watcher import Watcher

        context = self._make_context(session)
        self.session = session
        self.tensors_pane.recorded_in = session.info.recorded_in
        self.work.progress.clear()
        self.tensors_pane.refresh_rows()  # adds the columns of statistics
        self.node_filter = NodeFilter(context)
        self.inspector = Inspector(context)
        self.watcher = Watcher(
            context,
            self.node_filter,
            self._recommended,
            self._watchpoints_changed,
            grew=self._load_nodes,
        )
        self.checker = CheckController(
            context,
            self.inspector,
            self.watcher,
            self.node_filter,
            place=self._place,
            lead=self._lead,
            live=self.live,
        )
        self.navigator = Navigator(
            context,
            self.inspector,
            self.watcher,
            self.checker,
            self.node_filter,
            first_rank=self._first_rank,
            first_step=self._first_step,
        )
        self.views = ViewOpener(context, self.inspector, self.navigator)
        helpers = (
            self.node_filter,
            Copier(context),
            ReportExporter(context, self.run_title if self.live is None else ""),
        )
        for controller in (self.navigator, self.checker, self.watcher, self.inspector, self.views, *helpers):
            self.handlers |= controller.handlers()
        if self.live is not None:
            self.handlers |= self.live.handlers()
            self.live.connect(self.navigator, self.checker)
        self.navigator.opened()
        self.watcher.show_list()
        self.watcher.opened(self.checker.opened)
        self.update_header()
        if self.live is not None:
            self.live.show_past_events()

    def _make_context(self, session: Session) -> Context:
        from tui_debugger.tui.context import Context, ScreenState

        if self._shared is None:
            self.state = ScreenState()
            self._shared = Context(
                app=self.app,
                session=session,
                state=self.state,
                work=self.work,
                nodes_pane=self.nodes_pane,
                stack_pane=self.stack_pane,
                watchpoints_pane=self.watchpoints_pane,
                hits_pane=self.hits_pane,
                tensors_pane=self.tensors_pane,
                kept="dumped" if self.live is None else "kept",
                say=self.say,
                show_error=self.show_error,
                update_header=self.update_header,
                settled=self._has_settled,
                call_in=self._call_in,
                call_next=self.call_next,
                set_timer=self.set_timer,
                set_interval=self.set_interval,
                current_pane=lambda: self.current_pane,
                focus_pane=self.focus_pane,
                one_pane=lambda: self.has_class("-single"),
            )
        return self._shared

    def _call_in(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Calls a callback after ``seconds`` and the next paint; cheaper than a timer of Textual, which is a task."""
        return asyncio.get_running_loop().call_later(seconds, self.call_after_refresh, callback)

    def _watchpoints_changed(self) -> None:
        self.checker.changed()

    def _load_nodes(self) -> None:
        self.navigator.load_nodes()

    def _place(self, rank: int, step: int | None) -> None:
        self.navigator.place(rank, step)

    def _lead(self, result: CheckResult, hit: Hit | None) -> None:
        self.navigator.lead(result, hit)

    def _has_settled(self) -> None:
        self._run_cell = None  # the nodes may bring the network's name
        self.app.call_later(self._settled)

    def refreshed(self, changes: Changes) -> None:
        from tui_debugger.tui.views.view import ViewChanges, notify_views

        self._run_cell = None
        self.navigator.refreshed(changes)
        notify_views(self.app, ViewChanges.of(changes))
        self.update_header()

    # -- results of work -------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        if isinstance(error, CancelledError):
            self.checker.stopped()
        else:
            self.show_error(error)

    def say(self, text: str, *, bad: bool = False) -> None:
        """Shows one line in the footer until the next key."""
        self.footer.say(text, bad=bad)

    def update_header(self) -> None:
        """Draws header and tabs again, once for all changes made by the current message."""
        if not self._header_due:
            self._header_due = True
            self.call_next(self._draw_header)

    def _draw_header(self) -> None:
        self._header_due = False
        if self.live is not None:
            lines = self.live.header_lines(self.run_title)
        elif self.session is None:
            lines = opening_lines(self.run_title, self.work.progress)
        else:
            from tui_debugger.tui.header import header_lines, run_cell

            if self._run_cell is None or self._run_cell_of is not self.state.headline:  # new steps were listed
                self._run_cell, self._run_cell_of = run_cell(self.session), self.state.headline
            lines = header_lines(self._run_cell, self.session, self.state, self.work.progress, self.checker.status())
        self.header.show(*lines)
        self._update_tabs()
        self.update_footer()
        self.hits_pane.update_detail()  # notes may get their loss after the hits are shown

    def _notes_of(self, hit: Hit) -> str:
        from tui_debugger.text.notes import NOTES_ROOM, notes_text

        if self.session is None:
            return ""
        return notes_text(self.session.notes_at(hit.key.rank, hit.key.step), NOTES_ROOM, marked=False)

    def keys_here(self) -> list[actions.Action]:
        """Returns the actions that are in reach, most useful first."""
        live = self.live is not None
        found = actions.reachable(self.current_pane, live=live)
        found += [action for action in actions.ACTIONS if action.where in self.panes and action not in found]
        order = [action.id for action in actions.footer(self.current_pane, live=live)]
        found.sort(key=lambda action: order.index(action.id) if action.id in order else len(order))
        return found

    def on_screen_resume(self) -> None:
        """Shows check results that came while a view or dialog was in front."""
        if self.session is not None:
            self.checker.resumed()

    # -- layout and focus ------------------------------------------------------------------------

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        """Keeps the widgets to be painted: Textual forgets them when it lays out the screen."""
        changed = set(self._dirty_widgets)
        super()._refresh_layout(size, scroll)
        if changed:
            self.call_next(self._draw_changed, changed)

    def _draw_changed(self, changed: set[Widget]) -> None:
        self._dirty_widgets |= changed
        self.check_idle()

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out(event.size)

    def _is_single(self, size: Size) -> bool:
        return self.zoomed or size.width < WIDE or size.height < HIGH

    def _draw_frames(self, single: bool) -> None:
        """Shows five panes, or the current pane.

        ``display`` is set directly: Textual applies the styles of a class one frame too late.
        """
        current = self.pane
        shown: dict[Widget, bool] = {self.tabs: single}
        for pane in self.panes.values():
            pane.set_frame(active=pane is current, single=single)
            shown[pane] = not single or pane is current
        left = current in (self.nodes_pane, self.watchpoints_pane)
        shown |= {self.left_column: not single or left, self.right_column: not single or not left}
        changed = [widget for widget, is_shown in shown.items() if widget.display != is_shown]  # see ``Pane.set_frame``
        for widget in changed:
            widget.display = shown[widget]
            widget._layout_required = False  # noqa: SLF001 - it would request a second layout
        if changed and self.is_mounted:
            self._layout_required = True
            self.check_idle()

    def _lay_out(self, size: Size) -> None:
        single = self._is_single(size)
        self.set_class(single, "-single")
        self._draw_frames(single)
        self._update_tabs()
        self._update_detail()

    def _update_tabs(self) -> None:
        tabs = []
        for number, (name, title) in enumerate(actions.PANES, 1):
            count = self.watchpoints_pane.total if name == "watchpoints" else ""
            count = self.hits_pane.findings if name == "hits" else count
            tabs.append((name, f"{number} {title}" + (f" {count}" if count else "")))
        self.tabs.show(tabs, self.current_pane)

    def focus_pane(self, name: str) -> None:
        """Gives a pane the focus and shows it."""
        if name == "nodes" and self.current_pane == "hits" and self.session is not None:
            self.navigator.reveal_selected()
        self.current_pane = name
        self._came_from = ""
        if self.session is not None:
            self.inspector.came_into_sight(name)
        self._lay_out(self.size)
        self.set_focus(self.panes[name].table, scroll_visible=False)  # the table's own focus() paints all of it
        self.update_footer()

    def on_descendant_focus(self, _: events.DescendantFocus) -> None:
        pane = (
            next((a for a in self.focused.ancestors_with_self if isinstance(a, Pane)), None) if self.focused else None
        )
        if pane is not None and self.current_pane != pane.PANE:
            self.current_pane = pane.PANE
            self._came_from = ""
            self._lay_out(self.size)
        self.update_footer()

    def on_tab_strip_chosen(self, event: TabStrip.Chosen) -> None:
        self.focus_pane(event.pane)

    def update_footer(self) -> None:
        shown = actions.footer(
            self.current_pane,
            live=self.live is not None,
            search=self.pane.search_keys,
            impossible=self._impossible(),
            due=self.session is not None and (self.state.outdated or self.state.result is None),
        )
        self.footer.show([(action.main_key, action.title, action.id) for action in shown])
        self._update_detail()

    def _impossible(self) -> frozenset[str]:
        """Returns the actions that could do nothing now."""
        session = self.session
        if session is None:
            return frozenset(action.id for action in actions.ACTIONS if action.id not in WITHOUT_SESSION)
        state, hits = self.state, self.hits_pane
        possible = {
            "next_hit next_origin": state.result is not None and state.result.hits.findings,
            "step step_back step_forward forward continue": self.live is not None or len(session.steps(state.rank)) > 1,
            "ranks rank_back rank_forward unfold_hit unfold_hits": len(session.ranks()) > 1,
            "undo": session.watchpoints.last_change,
            "clear_filter": state.query != type(state.query)(),
            "clear_line": state.query.line or self.stack_pane.search_text,
            "show_covered toggle_enabled delete_watchpoint save_watchpoints edit_watchpoint": len(session.watchpoints),
            "clear_hit_filter": hits.filter or hits.search_text,
            "filter_hits sort_hits origins_only scope_only show_quiet export_hit": state.result is not None,
            "export producer consumers": self.tensors_pane.table.row_count,
        }
        return frozenset(id_ for ids, there in possible.items() if not there for id_ in ids.split())

    def _update_detail(self) -> None:
        """Shows the row's detail in the footer if one pane is shown: that pane has no lower edge."""
        self.footer.show_detail(self.pane.detail if self.has_class("-single") else "")

    # -- keys ------------------------------------------------------------------------------------

    @property
    def _binding_chain(self) -> list[tuple[DOMNode, BindingsMap]]:
        """Returns the widgets that answer keys, from the focused one on, and their bindings; cached per focused widget.

        Textual copies all bindings and applies the configured keys to them twice a key.
        """
        if self._chain is None or self._chain[0] is not self.focused:
            self._chain = self.focused, super()._binding_chain
        return self._chain[1]

    def _own_handlers(self) -> dict[str, Handler]:
        panes: dict[str, Handler] = {f"pane_{name}": partial(self.focus_pane, name) for name in TITLES}
        return (
            panes
            | actions.methods_of_keys(self)
            | {
                "next_pane": lambda: self._neighbour(1),
                "previous_pane": lambda: self._neighbour(-1),
            }
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Switches off the keys that drive trainings if the screen shows a dump."""
        if action == "act" and self.live is None and parameters and parameters[0] in actions.LIVE_ONLY:
            return False
        return super().check_action(action, parameters)

    def action_act(self, action: str) -> None:
        self.footer.clear_notice()
        if not (self.live is not None and action in actions.DRIVING):
            self._touch()
        if self.session is None and action not in WITHOUT_SESSION and not action.startswith("pane_"):
            self.footer.say("still opening", bad=True)
            return
        self.handlers[action]()

    def on_key(self, event: events.Key) -> None:
        """Removes the message in the footer; each key except those of ``actions.DRIVING`` gives the user the cursor."""
        self.footer.clear_notice()
        if not (self.live is not None and actions.drives(event.key, event.character)):
            self._touch()

    def _touch(self) -> None:
        """From now on the cursor moves on the user's keys only."""
        if self.session is not None:
            self.state.touched = True

    def act_pause(self) -> None:
        if not self.work.cancel_shown():
            self.say("nothing is running")

    def _neighbour(self, by: int) -> None:
        names = list(TITLES)
        self.focus_pane(names[(names.index(self.current_pane) + by) % len(names)])

    def act_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self._lay_out(self.size)

    def act_search(self) -> None:
        self.pane.open_search()

    def act_palette(self) -> None:
        self.app.action_command_palette()

    def act_redraw(self) -> None:
        self._forget()
        self.refresh(repaint=True, layout=True)

    def act_suspend(self) -> None:
        self.app.action_suspend_process()

    def act_quit(self) -> None:
        self.app.exit()

    def act_whole_run(self) -> None:
        """Ends the program's screen with the directory of the whole run, which ``run_app`` opens instead."""
        scope = None if self.session is None else self.session.scope
        if scope is None or scope.whole:
            self.say("this is the whole run")
        elif len(scope.paths) > 1:
            self.say(scope.text, bad=True)
        else:
            self.app.exit(Path(scope.root))

    def act_back(self) -> None:
        if self.work.cancel_shown():
            return
        if self.pane.clear_search(back=True):
            return
        here = self.current_pane
        clear = _CLEARS.get(here, "")
        covered = here == "watchpoints" and self.session is not None and self.state.query.watched is not None
        if covered or (clear and self.session is not None and clear not in self._impossible()):
            self.handlers[clear or "clear_filter"]()
        elif here == "tensors" and self._came_from:
            self.focus_pane(self._came_from)
        elif self.zoomed:
            self.act_zoom()

    def act_help(self) -> None:
        from tui_debugger.tui.dialogs.pages import HelpScreen

        listed = actions.help_actions(self.current_pane, live=self.live is not None, search=self.pane.search_keys)
        heading = f"Help: keys, {TITLES[self.current_pane]} first"
        HelpScreen((*listed, *actions.VALUE_ACTIONS), heading=heading).ask(self.app, self.run_listed)

    def run_listed(self, action: actions.Action) -> None:
        """Does an action that was chosen in a list of actions."""
        searches = action.where in {actions.SEARCH, actions.SEARCH_BOX}
        if action.where == actions.IN_VIEWS or (searches and not self.pane.search_keys):
            self.say(f"{action.main_key or action.title} works elsewhere: {action.group}", bad=True)
            return
        if action.where in self.panes and action.where != self.current_pane:
            self.focus_pane(action.where)
        self.run_action_of(action.id, action.where)

    # -- what the panes say ----------------------------------------------------------------------

    def on_pane_searched(self, event: Pane.Searched) -> None:
        """Searches short lists at once, other lists in a worker."""
        event.pane.asked()
        if self.session is None:
            return
        if event.pane is self.nodes_pane:
            self.node_filter.search(event.pane.search_text)
        elif event.pane is self.stack_pane:
            self.inspector.search_stack()
        elif event.pane is self.hits_pane:
            self.checker.search()
        elif isinstance(event.pane, TensorsPane | WatchpointsPane):
            event.pane.refresh_rows()
            event.pane.searched()
        self.update_footer()

    def on_nodes_pane_node_highlighted(self, event: NodesPane.NodeHighlighted) -> None:
        """Shows the selected node's tensors and stack; while the hit list has the focus, those follow the hit."""
        event.stop()
        if event.row >= 0 and (event.opened or self.current_pane != "hits"):
            self.inspector.show_node(event.row)
        if event.opened:
            self._drill_in("nodes")

    def on_stack_pane_line_chosen(self, event: StackPane.LineChosen) -> None:
        """Restricts the node list to a source line; if one pane is shown, goes to the node list."""
        self.node_filter.restrict_to_line(event.path, event.line)
        if self.has_class("-single") and self.current_pane == "stack" and self.state.query.line is not None:
            self.focus_pane("nodes")

    def on_stack_pane_mode_changed(self, _: StackPane.ModeChanged) -> None:
        self.inspector.search_stack()

    def on_watchpoints_pane_watchpoint_highlighted(self, event: WatchpointsPane.WatchpointHighlighted) -> None:
        self.watcher.selected(event.watchpoint)
        if event.opened:
            self.watcher.act_edit_watchpoint()

    def _preview(self, hit: Hit) -> None:
        if self.current_pane == "hits":
            self.navigator.preview(hit)

    def on_hits_pane_hit_chosen(self, event: HitsPane.HitChosen) -> None:
        self.navigator.go_to_hit(event.hit)
        self._drill_in("hits")

    def _drill_in(self, origin: str) -> None:
        """Goes to the tensors, unless a faster key has already moved the focus away from ``origin``."""
        if self.current_pane == origin:
            self.focus_pane("tensors")
            self._came_from = origin

    def on_tensors_pane_tensor_chosen(self, event: TensorsPane.TensorChosen) -> None:
        self.views.show_values(event.row)
