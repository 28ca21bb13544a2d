"""Every action of the screen, once: key bindings, footer, command palette, help page and manual come from here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Final

from textual.binding import Binding

from tui_debugger.config import in_use
from tui_debugger.text.old_words import old_words
from tui_debugger.tui.views.registry import VIEWS

PANES: tuple[tuple[str, str], ...] = (
    ("nodes", "Nodes"),
    ("stack", "Stack"),
    ("watchpoints", "Watchpoints"),
    ("hits", "Hits"),
    ("tensors", "Tensors"),
)
"""Panes in the order of their number keys: (id, title)."""

WHERE: dict[str, tuple[str, ...]] = {pane: ("global", "list", pane) for pane, _ in PANES} | {
    "nodes": ("global", "list", "tree", "nodes")
}
"""The groups of actions that a key can reach while the focus is in a pane; later groups win."""

SEARCH, SEARCH_BOX = "search", "search box"
"""Groups of actions that work while a list is searched, and in the box of the search."""

_NAMES = {
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "enter": "Enter",
    "escape": "Esc",
    "space": "Space",
    "backspace": "⌫",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "comma": ",",
    "insert": "Insert",
    "delete": "Delete",
    **{f"ctrl+{letter}": f"Ctrl+{letter.upper()}" for letter in ascii_lowercase},
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}


FIXED_KEYS: dict[str, tuple[str, ...]] = {
    "quit": ("ctrl+c",),
    "palette": ("ctrl+p",),
    "back": ("escape",),
    "cancel": ("escape",),
    "leave_start": ("escape",),
}
"""Keys that an action always keeps, by its name in the configuration, so that a user who changes keys can still leave.
"""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a key does.

    Attributes:
        id: name of the handler.
        title: two or three words, for footer and palette: a key has the same title wherever it does the same.
        usual_keys: key names as Textual spells them (a printable character stands for itself); none: palette and help
            run the action.
        where: ``global``, ``list`` (any table), ``tree`` (the node tree), ``SEARCH``, ``SEARCH_BOX``, or a pane id.
        group: heading on the help page.
        help: one sentence for the help page and the manual.
        setting: the action's name in the configuration of keys; empty if its keys cannot be changed.
    """

    id: str
    title: str
    usual_keys: tuple[str, ...]
    where: str
    group: str
    help: str
    setting: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The chosen keys and the fixed keys, else the usual keys."""
        chosen = in_use().keys.get(self.setting)
        return self.usual_keys if chosen is None else tuple(dict.fromkeys((*chosen, *FIXED_KEYS.get(self.setting, ()))))

    @property
    def label(self) -> str:
        """The keys as people read them: ``s``, ``PgUp``, ``g Home``."""
        return " ".join(_NAMES.get(key, key) for key in self.keys)

    @property
    def usual_main_key(self) -> str:
        """The first usual key as people read it, whatever the user chose."""
        return "".join(_NAMES.get(key, key) for key in self.usual_keys[:1])

    @property
    def main_key(self) -> str:
        return self.label.partition(" ")[0]

    @property
    def words(self) -> str:
        """Everything by which people look for the action, in small letters."""
        other = (SYNONYMS.get(self.id, ""), old_words(self.id), self.id.replace("_", " "))
        return " ".join((self.title, self.help, self.group, *other)).lower()

    @property
    def moves(self) -> bool:
        """Tells whether the action moves a cursor: no palette lists it."""
        return self.where in {"list", "tree", SEARCH_BOX} or not _MOVING.isdisjoint(self.usual_keys)


SYNONYMS: Final = {
    "back": "cancel stop close leave",
    "cancel": "close leave",
    "compare": "diff difference previous step",
    "continue": "run go on",
    "copy_here": "clipboard yank",
    "export": "save write download file npy",
    "export_hit": "save write download file npy",
    "health": "overview heat map steps",
    "history": "iterations runs",
    "notices": "warnings doubts",
    "origin": "cause why first nan",
    "explain": "cause why advice",
    "quit": "exit close leave",
    "ranks": "devices workers gpu",
    "recheck": "check again run",
    "report": "bug issue markdown save",
    "runs": "diff compare another run",
    "search": "find filter grep",
    "step": "reset jump go to iteration",
    "trend": "loss curve plot history over time",
    "undo": "revert take back",
    "whole_run": "all parent",
    "new_watchpoint": "condition breakpoint create add",
    "zoom": "maximize full screen",
}
"""Words that people look for and that neither title nor sentence has, by id."""
_MOVING: Final = frozenset({"up", "down", "left", "right", "pageup", "pagedown", "home", "end", "g", "G"})

_MOVE, _VIEW, _STEP, _CHECK, _GENERAL = "Moving", "View", "Steps, ranks, graphs", "Checking", "General"
CAUSES = "To the cause"
_SEARCH = "While searching (/)"
IN_VIEWS = "view"
EVERY_VIEW = "Every view (Enter on a tensor, or one of the keys above)"
_NODES, _STACK, _WATCH, _HITS, _TENSORS = "Nodes (1)", "Stack (2)", "Watchpoints (3)", "Hits (4)", "Tensors (5)"


ActionRow = tuple[str, str, str, str]
"""(id, keys, title, help)."""


def _of(where: str, group: str, *rows: ActionRow) -> tuple[Action, ...]:
    """Returns the actions of one ``where`` and one group."""
    changeable = group == EVERY_VIEW if where == IN_VIEWS else where not in {SEARCH, SEARCH_BOX}
    return tuple(
        Action(id_, title, tuple(keys.split()), where, group, text, id_ if changeable and id_ != "suspend" else "")
        for id_, keys, title, text in rows
    )


ACTIONS: tuple[Action, ...] = (
    *_of(
        "list",
        _MOVE,
        ("cursor_up", "up k", "Up", "One line up."),
        ("cursor_down", "down j", "Down", "One line down."),
        ("page_up", "pageup", "Page up", "One page up."),
        ("page_down", "pagedown", "Page down", "One page down."),
        ("first", "home g", "First", "To the first line."),
        ("last", "end G", "Last", "To the last line."),
        ("pan_left", "left h", "Left", "Moves long text back."),
        ("pan_right", "right l", "Right", "Shows the rest of long text and more columns."),
        ("select", "enter", "Open", "Opens what is under the cursor: node, line, watchpoint, hit, values."),
    ),
    *_of(
        "global",
        _VIEW,
        *(
            (f"pane_{pane}", str(number), title, f"Goes to the {title.lower()} pane.")
            for number, (pane, title) in enumerate(PANES, 1)
        ),
        ("next_pane", "tab", "Next pane", "Goes to the next pane."),
        ("previous_pane", "shift+tab", "Previous pane", "Goes to the previous pane."),
        ("zoom", "z", "Zoom", "Gives the whole screen to the focused pane, and back."),
        ("search", "/", "Search", "Searches in the focused pane: the cursor goes to the first match."),
        ("back", "escape", "Back", "Stops what is running, else goes back one level; never destroys anything."),
    ),
    *_of(
        SEARCH_BOX,
        _SEARCH,
        ("keep_search", "enter down", "To the match", "From the box into the list; a leading ~ means an expression."),
        ("drop_search", "escape", "Back", "Ends the search and goes back to where the cursor was before."),
    ),
    *_of(
        SEARCH,
        _SEARCH,
        ("next_match", "n", "Next", "In a list that is searched: to the next match; after the last the first."),
        ("previous_match", "N", "Previous", "In a list that is searched: to the match before."),
        ("clear_search", "backspace", "Show all", "Ends the search; the cursor stays on the match. Esc goes back."),
    ),
    *_of(
        "global",
        _STEP,
        ("step", "s", "Step", "Goes to a step; the prompt knows the dumped steps and the run history."),
        ("step_back", "[", "Step back", "One dumped step back, in the order in which they ran."),
        ("step_forward", "]", "Step forward", "One dumped step forward, in the order in which they ran."),
        ("forward", "F", "N steps forward", "N dumped steps forward, stopping at the first step with a hit."),
        ("continue", "c", "Continue", "Goes on to the next step with a hit."),
        ("pause", "p", "Pause", "Stops what is running; what was finished stands."),
        ("rank_back", "<", "Previous rank", "One rank back."),
        ("rank_forward", ">", "Next rank", "One rank forward."),
        ("graph_back", "{", "Previous graph", "Nodes and hits of one graph back; before the first one come all."),
        ("graph_forward", "}", "Next graph", "Nodes and hits of one graph forward; after the last one come all."),
        (
            "whole_run",
            "Z",
            "Whole run",
            "Opens all of the run, where the path was a part of it: a checkpoint, a rank, a file.",
        ),
        ("history", "y", "Run history", "Lists which graphs ran at which step; Enter goes there."),
    ),
    *_of(
        "global",
        _CHECK,
        ("recheck", "r", "Recheck", "Checks the watchpoints at this step."),
        ("recheck_all", "R", "Check all", "Checks every step of every rank."),
        ("next_hit", "n", "Next", "Goes to the next hit, from any pane."),
        ("previous_hit", "N", "Previous", "Goes to the previous hit, from any pane."),
        (
            "this_step_only",
            "0",
            "This step only",
            "The hit list shows the hits of this step only, or of all steps again.",
        ),
        ("next_origin", "O", "Next origin", "Goes to the next origin: bad output, clean inputs."),
        ("report", "X", "Report", "Writes a Markdown report of what was found, for a bug report."),
    ),
    *_of("global", CAUSES, ("loss", "$", "Loss", "Plots the loss over the steps, and what else the program noted.")),
    *_of("global", CAUSES, *((view.id, view.usual_key, view.title, view.help) for view in VIEWS)),
    *_of(
        "tree",
        _NODES,
        ("close_scope", "left h", "Left", "Closes the scope, or goes to the one around it."),
        ("open_scope", "right l", "Right", "Opens the scope, or goes to its first entry."),
        ("open_all", "*", "Open all", "Opens or closes everything below the cursor."),
    ),
    *_of(
        "nodes",
        _NODES,
        (
            "toggle_watch",
            "space",
            "Mark",
            "Puts the node or scope into the selected watchpoint, or takes it out: the lower edge says which.",
        ),
        ("filter_nodes", "f", "Filter", "Filters by graph, category, operator type, watched, hit."),
        ("clear_filter", "backspace", "Show all", "Removes search, filters and the restriction to a source line."),
    ),
    *_of(
        "stack",
        _STACK,
        ("stack_mode", "m", "More", "Changes between all lines of the run and the selected node's own stack."),
        ("clear_line", "backspace", "Show all", "Ends the search and the restriction of the nodes to a source line."),
    ),
    *_of("global", _STACK, ("source", "v", "Source", "Shows the source lines around the frame.")),
    *_of(
        "global",
        _WATCH,
        ("new_watchpoint", "w", "New watchpoint", "Makes a watchpoint from the condition table."),
        ("add_recommended", "a", "Add recommended", "Adds the recommended watchpoints that are not in the list yet."),
        (
            "undo",
            "u",
            "Undo",
            "Takes back the last change of the watchpoints: made, edited, deleted, enabled, loaded, or nodes by Space.",
        ),
        ("redo", "U", "Redo", "Does again what was undone last."),
    ),
    *_of(
        "watchpoints",
        _WATCH,
        ("edit_watchpoint", "W", "Edit", "Edits the watchpoint under the cursor; Enter does the same."),
        ("toggle_enabled", "space", "Enable", "Enables or disables the watchpoint."),
        ("delete_watchpoint", "d", "Delete", "Deletes the watchpoint; Undo brings it back."),
        ("clear_watchpoints", "", "Delete all", "Deletes all watchpoints; Undo brings them back."),
        ("show_covered", "f", "Filter", "The node list shows only the nodes this watchpoint covers, or all again."),
        ("save_watchpoints", "e", "Export", "Writes the list to a new file that --watch-file takes."),
        ("load_watchpoints", "", "Load from file", "Adds the watchpoints of a file that are not in the list yet."),
    ),
    *_of(
        "hits",
        _HITS,
        ("filter_hits", "f", "Filter", "Filters by origin, step, scope, watchpoint, graph and rank."),
        ("sort_hits", "comma", "Sort", "Sorts by step, severity (origins, NaN and Inf, the rest), name or size."),
        ("origins_only", "x", "Origins only", "Shows only origins, or every hit again."),
        ("scope_only", "i", "This scope", "Shows only hits of the scope under the node list's cursor, or all again."),
        ("unfold_hit", "space", "Open, close", "Shows the ranks of a row that stands for several, or hides them."),
        ("unfold_hits", "*", "Open all", "Shows or hides the ranks of every row."),
        ("show_quiet", "m", "More", "Shows or hides rows where there was nothing to compare with."),
        ("clear_hit_filter", "backspace", "Show all", "Removes search and filters."),
        ("export_hit", "e", "Export", "Writes the tensor under the cursor as .npy."),
    ),
    *_of(
        "tensors",
        _TENSORS,
        ("export", "e", "Export", "Writes the tensor under the cursor as .npy."),
        ("producer", "(", "To producer", "Goes to the node that made this input."),
        ("consumers", ")", "To consumers", "Goes to a node that uses this output."),
    ),
    *_of(
        "global",
        _GENERAL,
        ("copy_here", "Y", "Copy", "Copies what is under the cursor to the clipboard, whole, through the terminal."),
        ("screenshot", "P", "Screenshot", "Writes a picture (.svg) of the screen into the working directory."),
        ("notices", "!", "Notices", "Lists what was missing or odd in the dump."),
        ("help", "? f1", "Help", "Shows all keys and conditions."),
        ("palette", ": ctrl+p", "Commands", "Finds an action by its name."),
        ("redraw", "ctrl+l", "Redraw", "Draws the screen again."),
        ("suspend", "ctrl+z", "To the shell", "Gives the terminal back to the shell; fg leads back. Trainings go on."),
        ("quit", "q ctrl+c", "Quit", "Leaves at once."),
    ),
)
TO_THE_CAUSE = {"next_hit": "Hit", "origin": "Origin", "explain": "Explain"}
"""Global actions at the beginning of the footer, and their words there; Enter and what puts something right follow."""
_NEXT = {
    "step": "Step",
    "new_watchpoint": "Watch",
    "compare": "Compare",
    "runs": "Runs",
    "ranks": "Ranks",
    "report": "Report",
    "undo": "Undo",
    "quit": "Quit",
}
"""Global actions of the footer after those, and their words there; the pane's own actions follow."""
FOOTER: tuple[str, ...] = (
    *("recheck", "search", "continue", "zoom", "source", "recheck_all", "redo"),
    *("step_back", "step_forward", "palette", "help"),
)
"""Global actions at the end of the footer; the last one is always shown."""
_PUTS_RIGHT = frozenset({"clear_filter", "clear_hit_filter", "clear_line"})
"""Actions that end what hides rows: where they are possible, they come early."""
_TAKEN = _PUTS_RIGHT | {"search", "next_hit"}
"""Actions that the footer leaves out in a list that is searched: the search uses their keys or replaces them."""
BY_ENTER = frozenset({"edit_watchpoint"})
"""Actions of panes that Enter does as well; the footer leaves them out."""
_ENTER = {"nodes": "Tensors", "stack": "Its nodes", "watchpoints": "Edit", "hits": "Tensors", "tensors": "Values"}
"""The label of Enter, by pane."""
NOT_IN_PALETTE = frozenset({"next_pane", "previous_pane", "palette", "redraw"})

BY_ID: dict[tuple[str, str], Action] = {(action.where, action.id): action for action in ACTIONS}


def bindings_for(where: str) -> Iterator[Binding]:
    """Returns the Textual bindings of one ``where``.

    Actions of lists and of the search box are methods of the widget; all others go through the screen's ``act``.
    """
    for action in ACTIONS:
        if action.where == where:
            call = action.id if where in {"list", "tree", SEARCH, SEARCH_BOX} else f"screen.act('{action.id}')"
            yield _binding(action, call)


NO_KEY: Final = "f24"
"""The key of actions without a key: no keyboard has it."""


def _binding(action: Action, call: str) -> Binding:
    """Returns the binding of the usual keys; Textual finds the chosen keys by the binding's id.

    Without a usual key the binding has one that no keyboard has, for a key that the user chooses.
    """
    return Binding(",".join(action.usual_keys) or NO_KEY, call, action.title, show=False, id=action.setting or None)


def methods_of_keys(owner: object) -> dict[str, Callable[[], None]]:
    """Returns the methods that keys call, by the action's id: ``act_undo`` is the method of the action ``undo``."""
    names = [name for name in dir(type(owner)) if name.startswith("act_")]
    return {name.removeprefix("act_"): getattr(owner, name) for name in names}


def key_of(setting: str) -> str:
    return _BY_SETTING[setting].main_key


def watchpoint_keys() -> str:
    """Returns a hint for an empty list of watchpoints: the keys that add watchpoints."""
    return f"{key_of('new_watchpoint')} makes one, {key_of('add_recommended')} adds the recommended ones"


_BY_SETTING = {action.setting: action for action in ACTIONS}
LIVE_GROUP = "Live training (tdbg listen)"

LIVE_ACTIONS = _of(
    "global",
    LIVE_GROUP,
    ("step_forward", "]", "Run a step", "At the newest step runs one step; before it goes one kept step forward."),
    ("forward", "F", "Run N steps", "Runs N steps, stopping early at a hit."),
    ("continue", "c", "Continue", "Runs until a watchpoint hits."),
    ("pause", "p", "Pause", "Stops trainings at the end of their step, or what is being fetched."),
    ("recheck", "r", "Recheck", "The trainings that wait check the watchpoints on the values they hold now."),
    (
        "run_to_node",
        "t",
        "Run to node",
        "Runs to the selected node, of a scope to its first operator, where the training can stop inside a step.",
    ),
    ("next_node", ".", "Next node", "Runs to the next node, where the training can stop inside a step."),
    ("go_to_stop", "@", "Where it stands", "Goes back to the step and the node at which the training stands."),
    ("all_ranks", "A", "All ranks", "Commands go to all ranks, or to this one only."),
    ("save_dump", "S", "Save as dump", "Writes what was kept as a dump directory that tdbg open reads."),
    ("terminate", "T", "Terminate", "Ends the training processes, after a question."),
    ("quit", "q ctrl+c", "Quit", "Leaves; asks what becomes of trainings that wait."),
)
"""Actions while trainings are attached: new actions, and actions of ``ACTIONS`` with another meaning."""

_LIVE_BY_ID = {action.id: action for action in LIVE_ACTIONS}
_LIVE_ADDED = tuple(action for action in LIVE_ACTIONS if ("global", action.id) not in BY_ID)
_LIVE_FOOTER = ("step_forward", "continue", "pause", "forward", "terminate", "save_dump")
"""The keys that drive trainings: the first three begin the footer, the others end it."""
DRIVING = frozenset({"step_forward", "forward", "continue", "pause", "recheck", "all_ranks"})
"""Actions that drive trainings and do not move the cursor."""
LIVE_ONLY = frozenset(action.id for action in _LIVE_ADDED)
"""Actions that do nothing without a training."""


def drives(*names: str | None) -> bool:
    """Tells whether a key, by any of its names, belongs to an action of ``DRIVING``."""
    return any(name in action.keys for action in LIVE_ACTIONS if action.id in DRIVING for name in names)


def live_bindings() -> list[Binding]:
    """Returns the bindings of ``LIVE_ONLY``."""
    return [_binding(action, f"screen.act('{action.id}')") for action in _LIVE_ADDED]


_OPENED = {
    "nodes": "Opens or closes the scope; of a node it opens the tensors.",
    "stack": "Shows only the nodes of this source line.",
    "watchpoints": "Edits the watchpoint.",
    "hits": "Goes to the tensors of the hit.",
    "tensors": "Shows the values of the tensor.",
}
"""The effect of Enter, by pane, for the help page."""


def help_actions(pane: str, *, live: bool = False, search: str = "") -> tuple[Action, ...]:
    """Returns the actions for the help page: keys of the focused pane, then keys that lead to a cause, then the rest.

    ``search`` (not empty) puts the keys of a search first; ``live`` puts the keys of trainings after the pane's own.
    """
    own = [action for action in ACTIONS if action.where == pane]
    enter = replace(BY_ID["list", "select"], group=own[0].group, help=_OPENED[pane])
    searching = [action for action in ACTIONS if search and action.group == _SEARCH]
    meant = [_meant_live(action) if live else action for action in ACTIONS]
    causes = [replace(BY_ID["global", id_], group=CAUSES) for id_ in ("next_hit", "next_origin")]
    listed = {(action.where, action.id) for action in causes}
    rest = [action for action in meant if (action.where, action.id) not in listed]
    views = [action for action in rest if action.group == CAUSES]
    here = [action for action in rest if action.group == own[0].group]
    driving = LIVE_ACTIONS if live else ()
    return tuple(dict.fromkeys([*searching, enter, *here, *driving, *causes, *views, *rest]))


def view_help_actions(own: Iterable[Action], *, searched: bool = False) -> tuple[Action, ...]:
    """Returns the actions for the help page of a view; ``searched``: one of its lists is searched."""
    searching = [action for action in ACTIONS if searched and action.group == _SEARCH]
    opening = [replace(action, group=CAUSES) for action in opening_actions()]
    return (*searching, *own, *opening, *(replace(action, group="Every view") for action in VIEW_ACTIONS))


def reachable(pane: str, *, live: bool = False) -> list[Action]:
    """Returns the actions whose keys work in a pane; a more specific ``where`` takes a key from a general one."""
    taken: dict[str, Action] = {}
    for where in WHERE[pane]:
        for action in ACTIONS:
            if action.where == where:
                taken |= dict.fromkeys(action.keys, action)
    found = [action for action in ACTIONS if any(taken.get(key) is action for key in action.keys)]
    return [*_LIVE_ADDED, *map(_meant_live, found)] if live else found


def footer(
    pane: str, *, live: bool = False, search: str = "", impossible: Collection[str] = frozenset(), due: bool = False
) -> list[Action]:
    """Returns the actions that the footer of a pane shows, most useful first.

    ``search`` is ``SEARCH_BOX`` while the box has the focus, ``SEARCH`` in a list that is searched, else empty.
    ``impossible`` has the ids of actions that could do nothing now; ``due``: results are missing or outdated.
    """
    if search:
        keys = [action for action in ACTIONS if action.where == search]
        # In the box, letters are text: no other keys work.
        others = footer(pane, live=live, impossible=impossible, due=due) if search == SEARCH else []
        others.sort(key=lambda action: action.id != "select")  # what Enter does comes first
        back = [BY_ID["global", "back"]] if search == SEARCH else []
        return [*keys[:2], *back, *keys[2:], *(each for each in others if each.id not in _TAKEN)]
    own = [action for action in ACTIONS if action.where == pane and action.id not in BY_ENTER]
    listed = [replace(BY_ID["global", id_], title=title) for id_, title in TO_THE_CAUSE.items()]
    listed += [replace(BY_ID["list", "select"], title=_ENTER[pane])]
    listed += [action for action in own if action.id in _PUTS_RIGHT]
    listed += [BY_ID["global", "recheck"]] if due else []
    listed += [replace(BY_ID["global", id_], title=title) for id_, title in _NEXT.items()]
    listed += [*own, *(BY_ID["global", id_] for id_ in FOOTER)]
    if live:
        driving = [_LIVE_BY_ID[id_] for id_ in _LIVE_FOOTER]
        rest = [_meant_live(action) for action in listed]
        listed = [*driving[:3], *rest[:-1], *driving[3:], rest[-1]]
    there: dict[str, Action] = {}
    for action in listed:
        if action.id not in impossible and action.keys:
            there.setdefault(action.id, action)
    return list(there.values())


def _meant_live(action: Action) -> Action:
    return _LIVE_BY_ID.get(action.id, action) if action.where == "global" else action


START = "start"
START_GROUP = "Start page (tdbg open without PATH, or with several dumps below it)"
START_ACTIONS = _of(
    START,
    START_GROUP,
    ("open_path", "p", "Open path", "Opens a path that is typed, or lists the dumps below it."),
    ("look_for_dumps", "r", "Look again", "Searches for dumps again."),
    ("forget_dump", "d", "Remove", "Takes a dump off the list of recent ones; the dump itself stays."),
    ("leave_start", "escape", "Back", "Stops the search for dumps, else ends the search in the list, else leaves."),
)
"""Keys of the start page; Enter opens the dump under the cursor."""
_START_GLOBAL = ("search", "redraw", "help", "quit")
"""Global actions that also work on the start page."""


def start_actions() -> tuple[Action, ...]:
    """Returns the actions of the start page, without the keys that move in its list."""
    return (*START_ACTIONS, *(BY_ID["global", id_] for id_ in _START_GLOBAL))


def start_bindings() -> list[Binding]:
    return [_binding(action, f"screen.act('{action.id}')") for action in start_actions()]


def start_footer(search: str) -> list[Action]:
    """Returns the actions that the footer of the start page shows; ``search`` as for ``footer``."""
    if search:
        return [*(action for action in ACTIONS if action.where == search), BY_ID["global", "quit"]]
    path, again, forget, _ = START_ACTIONS
    some = [BY_ID["global", id_] for id_ in ("search", "help", "quit")]
    return [replace(BY_ID["list", "select"], title="Open"), some[0], path, again, forget, *some[1:]]


def view_actions(group: str, *rows: ActionRow) -> tuple[Action, ...]:
    return _of(IN_VIEWS, group, *rows)


VIEW_ACTIONS = view_actions(
    EVERY_VIEW,
    ("cancel", "escape q", "Back", "Stops what is running, else goes back to where one came from."),
    ("copy", "Y", "Copy", "Copies what is under the cursor to the clipboard, through the terminal."),
    ("copy_all", "", "Copy all", "Copies everything that the view says."),
    ("export", "e", "Export", "Writes the view to a file: .npy, .csv, .txt, .md or .svg, by its name."),
    ("screenshot", "P", "Screenshot", "Writes a picture (.svg) of the screen into the working directory."),
    ("keys", "? f1", "Help", "All keys of this view."),
    ("palette", ": ctrl+p", "Commands", "Finds an action by its name."),
)
"""Keys of every view besides those that open another one."""
LOOK_AGAIN, SEARCH_VIEW = view_actions(
    EVERY_VIEW,
    ("look_again", "r", "Look again", "Computes the view again, from the run as it is now."),
    ("search", "/", "Search", "The cursor goes to the first match; then n and N go on, and Esc goes back."),
)
"""The key of views that only mark themselves outdated (other views follow the run and its checks); that of lists."""


def bindings(actions: Iterable[Action]) -> list[Binding]:
    """Returns Textual bindings that call the action of the same id."""
    return [_binding(action, action.id) for action in actions if action.usual_keys or action.setting]


def opening_actions() -> tuple[Action, ...]:
    """Returns the actions that open a view from another view."""
    return tuple(
        Action(f"open('{view.id}')", view.title, (view.usual_key,), IN_VIEWS, EVERY_VIEW, view.help, view.id)
        for view in VIEWS
    )


def shown_key(text: str) -> str:
    """Returns the user's key in place of a usual key in a hint; other texts stay as they are."""
    return next(
        (each.main_key for each in (*opening_actions(), *VIEW_ACTIONS, LOOK_AGAIN) if each.usual_main_key == text), text
    )


VALUES_GROUP = "Values (Enter on a tensor)"


MOVES: tuple[ActionRow, ...] = (
    ("move(-1,0)", "up k", "Up", "One row up."),
    ("move(1,0)", "down j", "Down", "One row down."),
    ("move(0,-1)", "left h", "Left", "One column to the left."),
    ("move(0,1)", "right l", "Right", "One column to the right."),
    ("page(-1,0)", "pageup", "Page up", "One page of rows up."),
    ("page(1,0)", "pagedown", "Page down", "One page of rows down."),
    ("page(0,-1)", "<", "Page left", "One page of columns to the left."),
    ("page(0,1)", ">", "Page right", "One page of columns to the right."),
    ("to_end(1,False)", "home", "First", "To the first column."),
    ("to_end(1,True)", "end", "Last", "To the last column."),
    ("to_end(0,False)", "g", "First", "To the first row."),
    ("to_end(0,True)", "G", "Last", "To the last row."),
)
SLICING: tuple[ActionRow, ...] = (
    ("slice", "s", "Slice", "Edits the slice: at most two dimensions with a colon."),
    ("fixed(-1)", "[", "Previous index", "Previous index of the chosen fixed dimension."),
    ("fixed(1)", "]", "Next index", "Next index of the chosen fixed dimension."),
    ("choose(-1)", "{", "Previous dimension", "Chooses the fixed dimension before."),
    ("choose(1)", "}", "Next dimension", "Chooses the next fixed dimension."),
)
SEARCHING: tuple[ActionRow, ...] = (
    (
        "search",
        "/",
        "Search",
        "To the next element that is nan, inf, > 1e3, |x| <= 0.5, 0.25 ...; then n and N go on, Esc goes back.",
    ),
    ("end_search", "backspace", "Show all", "Ends the search; the cursor stays."),
)
"""The keys of the search in values; during a search, ``n`` and ``N`` go through its matches."""
DIGITS: tuple[ActionRow, ...] = (
    ("finer(1)", "+ =", "More detail", "One digit more, up to 10; in the heat map, larger cells."),
    ("finer(-1)", "-", "Less detail", "One digit less, down to 0; in the heat map, smaller cells."),
    ("scientific", "", "Scientific", "Scientific notation on and off."),
)
FINE: ActionRow = ("fine", "", "Fine cells", "Heat map: the smallest cells; over a slow line, larger ones cost less.")
VALUE_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
    *view_actions(
        VALUES_GROUP,
        *MOVES,
        ("heat", "t", "Other form", "Table or heat map: the cursor stays on its element."),
        ("element", "enter", "Open", "From a cell of the heat map to its element in the table."),
        FINE,
        *SLICING,
        *SEARCHING,
        ("bad(1)", "n", "Next", "To the next NaN or Inf of the whole tensor (in the heat map: cell)."),
        ("bad(-1)", "N", "Previous", "To the previous NaN or Inf of the whole tensor."),
        ("extreme(True)", "x", "Largest", "To the largest finite value (of complex numbers: magnitude)."),
        ("extreme(False)", "m", "Smallest", "To the smallest finite value (of complex numbers: magnitude)."),
        *DIGITS,
        ("bits", "B", "Bytes", "The bytes of the value under the cursor, its sign, exponent, mantissa and ULP."),
        ("previous", "p", "Previous step", "The same place at the previous step, and back."),
    ),
)
TABLE_HINTS: tuple[tuple[str, str], ...] = (
    ("t", "map"),
    ("s", "slice"),
    ("e", "export"),
    ("[ ]", "index"),
    ("/", "search"),
    ("n", "NaN/Inf"),
    ("x", "max"),
    ("m", "min"),
    ("p", "prev"),
    ("?", "keys"),
    ("Esc", "back"),
)
MAP_HINTS: tuple[tuple[str, str], ...] = (
    ("t", "table"),
    ("+ -", "zoom"),
    ("Enter", "element"),
    ("n", "NaN/Inf"),
    ("?", "keys"),
    ("Esc", "back"),
)
