"""The keys of the tensor view, as actions: bindings, hints and the help page are made from this one table."""

from __future__ import annotations

from tui_debugger.tui.actions import LOOK_AGAIN, Action, view_action

GROUP = "Values (Enter on a tensor)"


def _action(id_: str, title: str, keys: str, text: str) -> Action:
    return view_action(id_, title, keys, text, GROUP)


def moves(group: str) -> tuple[Action, ...]:
    """The keys that move the cursor in every view with a window of a tensor, under a heading."""
    return (
        view_action("move(-1,0)", "Up", "up k", "One row up.", group),
        view_action("move(1,0)", "Down", "down j", "One row down.", group),
        view_action("move(0,-1)", "Left", "left h", "One column to the left.", group),
        view_action("move(0,1)", "Right", "right l", "One column to the right.", group),
        view_action("page(-1,0)", "Page up", "pageup", "One page of rows up.", group),
        view_action("page(1,0)", "Page down", "pagedown", "One page of rows down.", group),
        view_action("page(0,-1)", "Page left", "<", "One page of columns to the left.", group),
        view_action("page(0,1)", "Page right", ">", "One page of columns to the right.", group),
        view_action("to_end(1,False)", "First column", "home 0", "To the first column.", group),
        view_action("to_end(1,True)", "Last column", "end $", "To the last column.", group),
        view_action("to_end(0,False)", "First row", "g", "To the first row.", group),
        view_action("to_end(0,True)", "Last row", "G", "To the last row.", group),
    )


def slicing(group: str) -> tuple[Action, ...]:
    """The keys for which part of a tensor shows."""
    return (
        view_action("slice", "Slice", "s /", "Edits the slice: at most two dimensions with a colon.", group),
        view_action("fixed(-1)", "Previous index", "[", "Previous index of the chosen fixed dimension.", group),
        view_action("fixed(1)", "Next index", "]", "Next index of the chosen fixed dimension.", group),
        view_action("choose(-1)", "Previous dimension", "{", "Chooses the fixed dimension before.", group),
        view_action("choose(1)", "Next dimension", "}", "Chooses the next fixed dimension.", group),
    )


def digits(group: str) -> tuple[Action, ...]:
    """The keys for how the numbers are written."""
    return (
        view_action(
            "finer(1)", "More digits, zoom in", "+ =", "One digit more, up to 10; in the heat map, larger cells.", group
        ),
        view_action(
            "finer(-1)",
            "Fewer digits, zoom out",
            "-",
            "One digit less, down to 0; in the heat map, smaller cells.",
            group,
        ),
        view_action("scientific", "Scientific", "f", "Scientific notation on and off.", group),
    )


def fine(group: str) -> Action:
    """The key for the size of the cells of a heat map."""
    return view_action(
        "fine", "Fine cells", "d", "Heat map: the smallest cells; over a slow line, larger ones cost less.", group
    )


VALUE_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
    *moves(GROUP),
    _action("heat", "Table or heat map", "t", "Table or heat map: the cursor stays on its element."),
    _action("element", "Element", "enter", "From a cell of the heat map to its element in the table."),
    fine(GROUP),
    *slicing(GROUP),
    _action("bad(1)", "Next NaN/Inf", "n", "To the next NaN or Inf of the whole tensor (in the heat map: cell)."),
    _action("bad(-1)", "Previous NaN/Inf", "N", "To the previous NaN or Inf of the whole tensor."),
    _action("bad(1,'NaN')", "Next NaN", "a", "To the next NaN of the whole tensor."),
    _action("bad(-1,'NaN')", "Previous NaN", "A", "To the previous NaN of the whole tensor."),
    _action("bad(1,'Inf')", "Next Inf", "i", "To the next Inf of the whole tensor."),
    _action("bad(-1,'Inf')", "Previous Inf", "I", "To the previous Inf of the whole tensor."),
    _action("extreme(True)", "Largest", "x", "To the largest finite value (of complex numbers: magnitude)."),
    _action("extreme(False)", "Smallest", "m", "To the smallest finite value (of complex numbers: magnitude)."),
    *digits(GROUP),
    _action("bits", "Bytes", "B", "The bytes of the value under the cursor, its sign, exponent, mantissa and ULP."),
    _action("previous", "Previous step", "p", "The same place at the previous step, and back."),
)
TABLE_HINTS: tuple[tuple[str, str], ...] = (
    ("t", "map"),
    ("s", "slice"),
    ("[ ]", "index"),
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
    ("d", "fine"),
    ("n", "NaN/Inf"),
    ("?", "keys"),
    ("Esc", "back"),
)
