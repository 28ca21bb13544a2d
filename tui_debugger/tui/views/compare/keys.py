"""The keys of the comparison, as actions."""

from __future__ import annotations

from tui_debugger.tui.actions import Action
from tui_debugger.tui.values.keys import digits, fine, moves, slicing
from tui_debugger.tui.views.keys import LOOK_AGAIN, view_action

GROUP = "Compare (C on a tensor)"


def _action(id_: str, title: str, keys: str, text: str) -> Action:
    return view_action(id_, title, keys, text, GROUP)


COMPARE_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
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
    *moves(GROUP),
    *slicing(GROUP),
    *digits(GROUP),
    fine(GROUP),
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
