"""The keys of the comparison, as actions."""

from __future__ import annotations

from tui_debugger.tui.actions import Action
from tui_debugger.tui.views.keys import view_action

GROUP = "Compare (C on a tensor)"


def _action(id_: str, title: str, keys: str, text: str) -> Action:
    return view_action(id_, title, keys, text, GROUP)


COMPARE_ACTIONS: tuple[Action, ...] = (
    _action("other", "Compare with", "w", "Chooses the other side: a step, rank, tensor, .npy file or another run."),
    _action("other_step(-1)", "Other's step before", "comma", "The other side one dumped step earlier."),
    _action("other_step(1)", "Other's next step", ".", "The other side one dumped step later."),
    _action("other_rank(-1)", "Other's rank before", "(", "The other side in the rank before."),
    _action("other_rank(1)", "Other's next rank", ")", "The other side in the next rank."),
    _action("again", "Compare all", "c", "Compares the whole tensors, after that was stopped."),
    _action("show('ALL')", "Both and difference", "1", "Each element as three numbers: here, there, difference."),
    _action("show('DIFFERENCE')", "Difference", "2", "The difference alone."),
    _action("show('HERE')", "This tensor", "3", "The values of this tensor."),
    _action("show('THERE')", "The other one", "4", "The values of the other tensor."),
    _action("heat", "Heat map", "t", "The difference as a heat map, and back to numbers."),
    _action("tolerance", "Tolerance", "T", "Relative and absolute tolerance, or percent of the greatest difference."),
    _action("slide(1)", "Allow more", "a", "A higher percentage of the greatest difference counts as equal."),
    _action("slide(-1)", "Allow less", "A", "A lower percentage of the greatest difference counts as equal."),
    _action("measure", "Order", "u", "Lists the largest differences by absolute error, relative error, or ULP."),
    _action("largest(1)", "Next largest", "n", "To the next one of the largest differences, in the table."),
    _action("largest(-1)", "Previous largest", "N", "To the one before."),
    _action("switch", "Numbers, table", "tab", "Between the table and the list of the largest differences."),
    _action("table('move',-1,0)", "Up", "up k", "One row up."),
    _action("table('move',1,0)", "Down", "down j", "One row down."),
    _action("table('move',0,-1)", "Left", "left h", "One column to the left."),
    _action("table('move',0,1)", "Right", "right l", "One column to the right."),
    _action("table('page',-1,0)", "Page up", "pageup", "One page of rows up."),
    _action("table('page',1,0)", "Page down", "pagedown", "One page of rows down."),
    _action("table('page',0,-1)", "Page left", "<", "One page of columns to the left."),
    _action("table('page',0,1)", "Page right", ">", "One page of columns to the right."),
    _action("table('end',1,False)", "First column", "home 0", "To the first column."),
    _action("table('end',1,True)", "Last column", "end $", "To the last column."),
    _action("table('end',0,False)", "First row", "g", "To the first row."),
    _action("table('end',0,True)", "Last row", "G", "To the last row."),
    _action("slice", "Slice", "s /", "Edits the slice: at most two dimensions with a colon."),
    _action("table('step',-1)", "Previous index", "[", "Previous index of the chosen fixed dimension."),
    _action("table('step',1)", "Next index", "]", "Next index of the chosen fixed dimension."),
    _action("table('choose',-1)", "Previous dimension", "{", "Chooses the fixed dimension before."),
    _action("table('choose',1)", "Next dimension", "}", "Chooses the next fixed dimension."),
    _action(
        "table('finer',1)", "More digits, zoom in", "+ =", "One digit more, up to 10; in the heat map, larger cells."
    ),
    _action("table('finer',-1)", "Fewer digits, zoom out", "-", "One digit less, down to 0; smaller cells."),
    _action("table('scientific')", "Scientific", "f", "Scientific notation on and off."),
    _action("table('fine')", "Fine cells", "d", "Heat map: the smallest cells, which a slow line takes longer for."),
    _action("values", "Element, values", "enter", "From list or heat map to the element, from there to the values."),
)
MAP_HINTS: tuple[tuple[str, str], ...] = (
    ("w , .", "with"),
    ("2-4", "show"),
    ("t", "table"),
    ("+ -", "zoom"),
    ("Enter", "element"),
    ("d", "fine"),
    ("?", "keys"),
    ("Esc", "back"),
)
HINTS: tuple[tuple[str, str], ...] = (
    ("w , .", "with"),
    ("1-4", "show"),
    ("t", "heat"),
    ("T", "allow"),
    ("n", "next"),
    ("Tab", "list"),
    ("?", "keys"),
    ("Esc", "back"),
)
