"""The keys of a history, and its footer."""

from __future__ import annotations

from typing import Final

from tui_debugger.tui.actions import Action
from tui_debugger.tui.views.keys import view_action

ACTIONS: Final[tuple[Action, ...]] = tuple(
    view_action(id_, title, keys, text, "Through the steps")
    for id_, keys, title, text in (
        ("next_plot", "m", "Next plot", "Another statistic comes first: norm, NaN and Inf, mean |x|, σ, zeros."),
        ("log", "y", "Logarithmic", "A logarithmic axis, symmetric for values of both signs, and back."),
        ("dots", "d", "Dots", "Braille dots, or quarter blocks."),
        ("over('any')", "a", "Add a tensor", "Lays another tensor over these, found by name."),
        ("over('node')", "s", "Of this node", "Lays another input, output or parameter of this node over these."),
        ("over('related')", "w", "What belongs to it", "Lays the weight, gradient or optimizer state over it."),
        ("over('rank')", "> <", "Another rank", "Lays the same tensor of another rank over it."),
        ("remove", "x", "Remove", "Takes the tensor whose table is shown away."),
        ("turn", "tab", "Next tensor", "The table shows the next tensor."),
        ("bad(1)", "n", "Next bad step", "To the next step with a finding, NaN or Inf."),
        ("bad(-1)", "N", "Bad step before", "To the bad step before."),
        ("check", "r", "Check", "Checks all steps that were not checked with the enabled watchpoints."),
        ("zoom", "z", "Zoom", "The whole room for the plots, or for the table, and back."),
    )
)
HINTS: Final = (
    ("← →", "steps"),
    ("Enter", "values"),
    ("m", "statistic"),
    ("y", "log"),
    ("a", "add"),
    ("w", "weight/gradient"),
    ("r", "check"),
    ("?", "keys"),
    ("Esc", "back"),
)
