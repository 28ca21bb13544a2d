"""The keys of the distribution view alone."""

from __future__ import annotations

from tui_debugger.tui.actions import Action
from tui_debugger.tui.views.keys import LOOK_AGAIN, view_action

_GROUP = "Distribution"


def _action(id_: str, title: str, keys: str, text: str) -> Action:
    return view_action(id_, title, keys, text, _GROUP)


DISTRIBUTION_ACTIONS: tuple[Action, ...] = (
    LOOK_AGAIN,
    _action("move(-1)", "Bin to the left", "left h", "To the bin on the left; the line below says its edges."),
    _action("move(1)", "Bin to the right", "right l", "To the bin on the right."),
    _action("move(-10)", "Ten bins left", "pageup", "Ten bins to the left."),
    _action("move(10)", "Ten bins right", "pagedown", "Ten bins to the right."),
    _action("end(False)", "First bin", "home g", "To the first bin."),
    _action("end(True)", "Last bin", "end G", "To the last bin."),
    _action("zoom_in", "Zoom in", "+ up k", "Shows the third of the range around the cursor in finer bins."),
    _action("zoom_out", "Zoom out", "- down j", "Back to the wider range before."),
    _action("zoom_all", "Whole range", "0", "Shows all finite values."),
    _action("bins", "Bins by magnitude", "x", "Bins of equal width, or by powers of two on both sides of 0."),
    _action("counts", "Log counts", "y", "The height of the bars: the count, or its logarithm."),
    _action("numbers", "Numbers", "d", "Hides the numbers above, which makes the bars higher, or shows them again."),
    _action("percentiles", "Percentiles", "t", "Finds the percentiles of a large tensor: exact, with several passes."),
    _action("previous", "Previous step", "p", "The previous step below it, in the same bins, or not."),
    _action("step(-1)", "Step back", "[", "The same tensor one dumped step back."),
    _action("step(1)", "Step forward", "]", "The same tensor one dumped step forward."),
    _action("values", "Values", "enter", "The values themselves."),
)
