"""Every action of the screen, once: key bindings, footer, command palette, help page and README come from here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.binding import Binding

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
"""Which groups of actions a key can reach while the focus is in a pane; later groups win."""

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
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "ctrl+p": "Ctrl+P",
    "ctrl+c": "Ctrl+C",
    "ctrl+l": "Ctrl+L",
    "f1": "F1",
    "f5": "F5",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing a key can do.

    Attributes:
        id: name of the handler.
        title: two or three words, for footer and palette.
        keys: key names as Textual spells them (a printable character stands for itself).
        where: ``global``, ``list`` (any table), ``tree`` (the node tree), or a pane id.
        group: heading on the help page.
        help: one sentence for the help page and the README.
        foot: place in the footer (lower comes first); 0 keeps it out.
        palette: whether the command palette offers it.
    """

    id: str
    title: str
    keys: tuple[str, ...]
    where: str
    group: str
    help: str
    foot: int = 0
    palette: bool = True

    @property
    def label(self) -> str:
        """Keys as people read them: ``s``, ``PgUp``, ``g Home``."""
        return " ".join(_NAMES.get(key, key) for key in self.keys)

    @property
    def main_key(self) -> str:
        """The first key, as people read it."""
        return _NAMES.get(self.keys[0], self.keys[0])


_MOVE, _VIEW, _STEP, _CHECK = "Moving", "View", "Steps, ranks, graphs", "Checking"
_NODES, _STACK, _WATCH, _HITS, _TENSORS, _GENERAL = (
    "Nodes (1)",
    "Stack (2)",
    "Watchpoints (3)",
    "Hits (4)",
    "Tensors (5)",
    "General",
)


def _list(id_: str, title: str, keys: str, text: str) -> Action:
    return Action(id_, title, tuple(keys.split()), "list", _MOVE, text, palette=False)


ACTIONS: tuple[Action, ...] = (
    _list("cursor_up", "Up", "up k", "One line up."),
    _list("cursor_down", "Down", "down j", "One line down."),
    _list("page_up", "Page up", "pageup", "One page up."),
    _list("page_down", "Page down", "pagedown", "One page down."),
    _list("first", "First line", "home g", "To the first line."),
    _list("last", "Last line", "end G", "To the last line."),
    _list("pan_left", "Text back", "left h", "Moves long text back."),
    _list("pan_right", "More text", "right l", "Shows the rest of long text."),
    _list("select", "Open", "enter", "Opens what is under the cursor."),
    Action(
        "close_scope", "Close scope", ("left", "h"), "tree", _NODES, "Closes the scope, or goes to the one around it."
    ),
    Action("open_scope", "Open scope", ("right", "l"), "tree", _NODES, "Opens the scope, or goes to its first entry."),
    Action("open_all", "Open all below", ("*",), "tree", _NODES, "Opens or closes everything below the cursor."),
    # -- view
    *(
        Action(f"pane_{pane}", title, (str(number),), "global", _VIEW, f"Goes to the {title.lower()} pane.")
        for number, (pane, title) in enumerate(PANES, 1)
    ),
    Action("next_pane", "Next pane", ("tab",), "global", _VIEW, "Goes to the next pane.", palette=False),
    Action(
        "previous_pane", "Previous pane", ("shift+tab",), "global", _VIEW, "Goes to the previous pane.", palette=False
    ),
    Action("zoom", "Zoom", ("z",), "global", _VIEW, "Gives the whole screen to the focused pane, and back.", foot=80),
    Action(
        "search",
        "Search",
        ("/",),
        "global",
        _VIEW,
        "Searches in the focused pane; a leading ~ means a regular expression.",
        foot=20,
    ),
    Action(
        "back",
        "Back",
        ("escape",),
        "global",
        _VIEW,
        "Cancels what is running, else goes back one level; never destroys anything.",
    ),
    # -- steps
    Action(
        "step",
        "Go to step",
        ("s",),
        "global",
        _STEP,
        "Goes to a step; the prompt knows the dumped steps and the run history.",
        foot=30,
    ),
    Action("step_back", "Step back", ("[",), "global", _STEP, "One dumped step back.", foot=31),
    Action("step_forward", "Step forward", ("]",), "global", _STEP, "One dumped step forward.", foot=32),
    Action(
        "forward",
        "N steps forward",
        ("F",),
        "global",
        _STEP,
        "N dumped steps forward, stopping at the first step with a hit.",
    ),
    Action("continue", "Continue", ("c",), "global", _STEP, "Goes on to the next step with a hit.", foot=33),
    Action("pause", "Pause", ("p",), "global", _STEP, "Stops what is running; what was finished stands."),
    Action("rank_back", "Previous rank", ("<",), "global", _STEP, "One rank back."),
    Action("rank_forward", "Next rank", (">",), "global", _STEP, "One rank forward."),
    Action(
        "graph_back", "Previous graph", ("{",), "global", _STEP, "One graph back; before the first one come all graphs."
    ),
    Action("graph_forward", "Next graph", ("}",), "global", _STEP, "One graph forward."),
    Action(
        "history", "Run history", ("y",), "global", _STEP, "Lists which graphs ran at which step; Enter goes there."
    ),
    # -- checking
    Action("recheck", "Recheck", ("r",), "global", _CHECK, "Checks the watchpoints at this step.", foot=40),
    Action("recheck_all", "Check everything", ("R",), "global", _CHECK, "Checks every step of every rank.", foot=41),
    Action("next_hit", "Next hit", ("n",), "global", _CHECK, "Goes to the next hit, from any pane.", foot=42),
    Action("previous_hit", "Previous hit", ("N",), "global", _CHECK, "Goes to the previous hit, from any pane."),
    Action("origin", "Origin", ("o",), "global", _CHECK, "Goes to the next origin: bad output, clean inputs."),
    Action(
        "new_watchpoint",
        "New watchpoint",
        ("w",),
        "global",
        _WATCH,
        "Makes a watchpoint from the condition table.",
        foot=50,
    ),
    Action(
        "add_recommended",
        "Add recommended",
        ("a",),
        "global",
        _WATCH,
        "Adds the recommended watchpoints that are not in the list yet.",
    ),
    # -- nodes
    Action(
        "toggle_watch",
        "Watch",
        ("space",),
        "nodes",
        _NODES,
        "Adds the node or the whole scope to the selected watchpoint, or takes it out.",
        foot=10,
    ),
    Action(
        "filter_nodes",
        "Filter",
        ("f",),
        "nodes",
        _NODES,
        "Filters by graph, category, operator type, watched, hit.",
        foot=11,
    ),
    Action(
        "clear_filter",
        "Clear filter",
        ("backspace",),
        "nodes",
        _NODES,
        "Removes search, filters and the restriction to a source line.",
        foot=12,
    ),
    # -- stack
    Action(
        "stack_mode",
        "Run or node",
        ("m",),
        "stack",
        _STACK,
        "Changes between all lines of the run and the selected node's own stack.",
        foot=10,
    ),
    Action("source", "Source", ("v",), "global", _STACK, "Shows the source lines around the frame.", foot=60),
    # -- watchpoints
    Action(
        "edit_watchpoint",
        "Edit",
        ("W",),
        "watchpoints",
        _WATCH,
        "Edits the watchpoint under the cursor (Enter does the same).",
        foot=10,
    ),
    Action(
        "toggle_enabled",
        "Enable",
        ("x", "space"),
        "watchpoints",
        _WATCH,
        "Enables or disables the watchpoint.",
        foot=11,
    ),
    Action(
        "delete_watchpoint",
        "Delete",
        ("d",),
        "watchpoints",
        _WATCH,
        "Deletes the watchpoint; u brings it back.",
        foot=12,
    ),
    Action(
        "undelete_watchpoint",
        "Undo delete",
        ("u",),
        "watchpoints",
        _WATCH,
        "Brings back what was deleted last.",
        foot=14,
    ),
    Action(
        "clear_watchpoints",
        "Delete all",
        ("D",),
        "watchpoints",
        _WATCH,
        "Deletes all watchpoints; u brings them back.",
        foot=13,
    ),
    Action(
        "show_covered",
        "Covered nodes",
        ("m",),
        "watchpoints",
        _WATCH,
        "Shows only the nodes this watchpoint covers.",
        foot=15,
    ),
    # -- hits
    Action("filter_hits", "Filter", ("f",), "hits", _HITS, "Filters by watchpoint, graph and rank.", foot=10),
    Action(
        "show_quiet", "All rows", ("m",), "hits", _HITS, "Shows or hides rows where nothing could be compared.", foot=11
    ),
    Action("clear_hit_filter", "Clear filter", ("backspace",), "hits", _HITS, "Removes search and filters.", foot=12),
    Action("export_hit", "Export .npy", ("e",), "hits", _HITS, "Writes the tensor under the cursor as .npy.", foot=13),
    # -- tensors
    Action(
        "export", "Export .npy", ("e",), "tensors", _TENSORS, "Writes the tensor under the cursor as .npy.", foot=10
    ),
    Action("producer", "To producer", ("u",), "tensors", _TENSORS, "Goes to the node that made this input.", foot=11),
    Action("consumers", "To consumers", ("m",), "tensors", _TENSORS, "Goes to a node that uses this output.", foot=12),
    # -- general
    Action("notices", "Notices", ("!",), "global", _GENERAL, "Lists what was missing or odd in the dump."),
    Action("help", "Help", ("?", "f1"), "global", _GENERAL, "Shows this page.", foot=90),
    Action(
        "palette",
        "Commands",
        ("ctrl+p", ":"),
        "global",
        _GENERAL,
        "Finds an action by its name.",
        foot=95,
        palette=False,
    ),
    Action("redraw", "Redraw", ("ctrl+l",), "global", _GENERAL, "Draws the screen again.", palette=False),
    Action("quit", "Quit", ("q", "ctrl+c"), "global", _GENERAL, "Leaves at once.", foot=99),
)

BY_ID: dict[tuple[str, str], Action] = {(action.where, action.id): action for action in ACTIONS}


def bindings_for(where: str) -> Iterator[Binding]:
    """Textual bindings of one group.

    Actions of lists are methods of the list; all others go through the screen's ``act``.
    """
    for action in ACTIONS:
        if action.where == where:
            call = action.id if where in {"list", "tree"} else f"screen.act('{action.id}')"
            yield Binding(",".join(action.keys), call, action.title, show=False)


def reachable(pane: str) -> list[Action]:
    """Actions whose keys work in a pane, without those that a more specific group takes over."""
    taken: dict[str, Action] = {}
    for where in WHERE[pane]:
        for action in ACTIONS:
            if action.where == where:
                taken |= dict.fromkeys(action.keys, action)
    return [action for action in ACTIONS if any(taken.get(key) is action for key in action.keys)]


def footer(pane: str) -> list[Action]:
    """What the footer of a pane shows, most useful first."""
    return sorted((action for action in reachable(pane) if action.foot), key=lambda action: action.foot)


def groups() -> dict[str, list[Action]]:
    """Actions by heading, in the order of the table."""
    found: dict[str, list[Action]] = {}
    for action in ACTIONS:
        found.setdefault(action.group, []).append(action)
    return found


def key_table() -> str:
    """The README's key table, in Markdown."""
    lines: list[str] = []
    for group, actions in groups().items():
        lines += [f"| {group} | |", "|---|---|"] if not lines else [f"| **{group}** | |"]
        for action in actions:
            keys = " ".join(f"`{key}`" for key in action.label.split(" "))
            lines.append(f"| {keys} | {action.help} |".replace("`|`", "`\\|`"))
    return "\n".join(lines)
