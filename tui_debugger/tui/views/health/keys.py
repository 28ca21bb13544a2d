"""The keys of the health map, and its footer."""

from __future__ import annotations

from typing import Final

from tui_debugger.tui.actions import Action
from tui_debugger.tui.views.keys import view_action

ACTIONS: Final[tuple[Action, ...]] = tuple(
    view_action(id_, title, keys, text, "Health map")
    for id_, keys, title, text in (
        ("check", "r", "Check", "Checks what was not checked yet, with the enabled watchpoints (none: NaN, Inf)."),
        ("deeper", "+ =", "Deeper", "Opens the scopes one level deeper."),
        ("shallower", "-", "Less deep", "Closes the deepest level of scopes."),
        ("open_close", "space", "Open, close", "Opens or closes the scope; Enter does so, too."),
        ("open_all", "*", "Open all below", "Opens or closes everything below the cursor."),
        ("findings", "x", "Findings only", "Only rows in which something was found or could not be judged."),
        ("nodes", "t", "Nodes", "A row per node in execution order, or scopes again."),
        ("fit", "f", "Fit", "All steps at once, several in a column, or one in each."),
        ("next", "n", "Next finding", "To the next finding of this row."),
        ("previous", "N", "Finding before", "To the finding before in this row."),
        ("steps_back", "{ [", "Page back", "A screenful of steps back."),
        ("steps_on", "} ]", "Page on", "A screenful of steps on."),
        ("rank_back", "<", "Previous rank", "One rank back; before the first one come all, merged."),
        ("rank_on", ">", "Next rank", "One rank on."),
    )
)
HINTS: Final = (
    ("Enter", "go there"),
    ("r", "check"),
    ("+ -", "depth"),
    ("x", "findings"),
    ("f", "fit"),
    ("< >", "rank"),
    ("?", "keys"),
    ("Esc", "back"),
)
