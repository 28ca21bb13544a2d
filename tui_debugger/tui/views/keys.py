"""The keys that every view has, as actions: bindings and help pages are made from this table and from the views."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding

from tui_debugger.tui.actions import Action
from tui_debugger.tui.views.kinds import VIEWS

WHERE = "view"
GROUP = "Every view (Enter on a tensor, or one of the keys above)"


def view_action(id_: str, title: str, keys: str, text: str, group: str = GROUP) -> Action:
    """An action of views: ``keys`` separated by blanks."""
    return Action(id_, title, tuple(keys.split()), WHERE, group, text)


VIEW_ACTIONS: tuple[Action, ...] = (
    view_action("cancel", "Back", "escape q", "Stops what is running, else goes back to where one came from."),
    view_action("copy", "Copy", "Y", "Copies what is under the cursor to the clipboard, through the terminal."),
    view_action("copy_all", "Copy all", "U", "Copies everything that the view says."),
    view_action("export", "Export", "e", "Writes the view to a file: .npy, .csv, .txt or .svg, by its name."),
    view_action("screenshot", "Screenshot", "P", "Writes a picture (.svg) of the screen into the working directory."),
    view_action("keys", "Keys", "? f1", "All keys of this view."),
)
"""Keys of every view besides those that open another one."""
LOOK_AGAIN = view_action("look_again", "Look again", "r", "Works all of it out anew, from the run as it is now.")
"""The key of the views that only say when they are outdated; the others follow the run, and check with it."""


def bindings(actions: Iterable[Action]) -> list[Binding]:
    """Textual bindings; an action's id is what is called."""
    return [Binding(",".join(action.keys), action.id, action.title, show=False) for action in actions]


def opening_bindings() -> list[Binding]:
    """The keys that open a view from another one."""
    return [Binding(view.key, f"open('{view.id}')", view.title, show=False) for view in VIEWS]


def opening_actions() -> tuple[Action, ...]:
    """The keys that open a view from another one, for help pages."""
    return tuple(view_action(f"open('{view.id}')", view.title, view.key, view.help) for view in VIEWS)
