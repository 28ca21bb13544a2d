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
    _action("slice", "Slice", "s /", "Edits the slice: at most two dimensions with a colon."),
    _action("fixed(-1)", "Previous index", "[", "Previous index of the chosen fixed dimension."),
    _action("fixed(1)", "Next index", "]", "Next index of the chosen fixed dimension."),
    _action("choose(-1)", "Previous dimension", "{", "Chooses the fixed dimension before."),
    _action("choose(1)", "Next dimension", "}", "Chooses the next fixed dimension."),
    _action("bad(1)", "Next NaN/Inf", "n", "To the next NaN or Inf of the whole tensor."),
    _action("bad(-1)", "Previous NaN/Inf", "N", "To the previous NaN or Inf of the whole tensor."),
    _action("extreme(True)", "Largest", "x", "To the largest finite value (of complex numbers: magnitude)."),
    _action("extreme(False)", "Smallest", "m", "To the smallest finite value (of complex numbers: magnitude)."),
    _action("precision(1)", "More digits", "+ =", "One digit more, up to 10."),
    _action("precision(-1)", "Fewer digits", "-", "One digit less, down to 0."),
    _action("scientific", "Scientific", "e", "Scientific notation on and off."),
    _action("keys", "Keys", "? f1", "All keys of this screen."),
    _action("previous", "Previous step", "p", "The same place at the previous step, and back."),
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
