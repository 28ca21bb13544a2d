"""The keys of the values screen, as actions: bindings, hints and the help page are made from this one table."""

from __future__ import annotations

from tui_debugger.tui.actions import Action

WHERE = "values"
GROUP = "Values (Enter on a tensor)"


def _action(id_: str, title: str, keys: str, text: str) -> Action:
    return Action(id_, title, tuple(keys.split()), WHERE, GROUP, text)


VALUE_ACTIONS: tuple[Action, ...] = (
    _action("move(-1,0)", "Up", "up k", "One row up."),
    _action("move(1,0)", "Down", "down j", "One row down."),
    _action("move(0,-1)", "Left", "left h", "One column to the left."),
    _action("move(0,1)", "Right", "right l", "One column to the right."),
    _action("page(-1,0)", "Page up", "pageup", "One page of rows up."),
    _action("page(1,0)", "Page down", "pagedown", "One page of rows down."),
    _action("page(0,-1)", "Page left", "H", "One page of columns to the left."),
    _action("page(0,1)", "Page right", "L", "One page of columns to the right."),
    _action("column_first", "First column", "home 0", "To the first column."),
    _action("column_last", "Last column", "end $", "To the last column."),
    _action("row_first", "First row", "g", "To the first row."),
    _action("row_last", "Last row", "G", "To the last row."),
    _action("slice", "slice", "s /", "Edits the slice: at most two dimensions with a colon."),
    _action("fixed(-1)", "Index down", "[", "Previous index of the chosen fixed dimension."),
    _action("fixed(1)", "index", "]", "Next index of the chosen fixed dimension."),
    _action("choose(-1)", "Dimension before", "{", "Chooses the fixed dimension before."),
    _action("choose(1)", "dimension", "}", "Chooses the next fixed dimension."),
    _action("bad(1)", "NaN/Inf", "n", "To the next NaN or Inf of the whole tensor."),
    _action("bad(-1)", "Previous NaN/Inf", "N", "To the previous NaN or Inf of the whole tensor."),
    _action("extreme(True)", "max", "x", "To the largest finite value (of complex numbers: magnitude)."),
    _action("extreme(False)", "min", "m", "To the smallest finite value (of complex numbers: magnitude)."),
    _action("precision(1)", "digits", "+ =", "One digit more, up to 10."),
    _action("precision(-1)", "Fewer digits", "-", "One digit less, down to 0."),
    _action("scientific", "sci", "e", "Scientific notation on and off."),
    _action("keys", "keys", "? f1", "All keys of this screen."),
    _action("previous", "previous step", "p", "The same place at the previous step, and back."),
)
HINTS: tuple[tuple[str, str], ...] = (
    ("Esc", "back"),
    ("?", "keys"),
    ("s", "slice"),
    ("[ ]", "index"),
    ("n", "NaN/Inf"),
    ("x", "max"),
    ("m", "min"),
    ("e", "sci"),
    ("p", "prev"),
)
