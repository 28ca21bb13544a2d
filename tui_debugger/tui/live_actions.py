"""What keys do while a training is attached: additions to the registry, and entries of it that mean more there."""

from __future__ import annotations

from textual.binding import Binding

from tui_debugger.tui.actions import ACTIONS, BY_ID, Action, footer, reachable

GROUP = "Live training (tdbg listen)"

LIVE_ACTIONS: tuple[Action, ...] = tuple(
    Action(id_, title, tuple(keys.split()), "global", GROUP, text)
    for id_, keys, title, text in (
        ("step_forward", "]", "Run a step", "At the newest step runs one step; before it goes one kept step forward."),
        ("forward", "F", "Run N steps", "Runs N steps, stopping early at a hit."),
        ("continue", "c", "Continue", "Runs until a watchpoint hits."),
        ("pause", "p", "Pause", "Stops trainings at the end of their step, or what is being fetched."),
        ("recheck", "r", "Recheck", "The trainings that wait check the watchpoints on the values they hold now."),
        ("run_to_node", "t", "Run to node", "Runs to the selected node, where the training can stop inside a step."),
        ("next_node", ".", "Next node", "Runs to the next node, where the training can stop inside a step."),
        ("all_ranks", "A", "All ranks", "Commands go to all ranks, or to this one only."),
        ("save_dump", "S", "Save as dump", "Writes what was kept as a dump directory that tdbg open reads."),
        ("terminate", "T", "Terminate", "Ends the training processes, after a question."),
        ("quit", "q ctrl+c", "Quit", "Leaves; asks what becomes of trainings that wait."),
    )
)
"""Those that ``ACTIONS`` has as well keep their keys there."""

_BY_ID = {action.id: action for action in LIVE_ACTIONS}
_ADDED = tuple(action for action in LIVE_ACTIONS if ("global", action.id) not in BY_ID)
_FOOTER = ("step_forward", "continue", "pause", "recheck", "next_hit", "forward", "search", "terminate", "save_dump")


def added_bindings() -> list[Binding]:
    """Keys that do nothing without a training."""
    return [Binding(",".join(action.keys), f"screen.act('{action.id}')", action.title, show=False) for action in _ADDED]


def live_help() -> tuple[Action, ...]:
    """Every action, those about the training first."""
    return (*LIVE_ACTIONS, *(action for action in ACTIONS if action.where != "global" or action.id not in _BY_ID))


def live_reachable(pane: str) -> list[Action]:
    """What the keys of a pane reach."""
    return [*_ADDED, *(_meant(action) for action in reachable(pane))]


def live_footer(pane: str) -> list[Action]:
    """The pane's own keys, those that drive the training, the others."""
    usual = [_meant(action) for action in footer(pane)]
    own = [action for action in usual if action.where == pane]
    first = [_BY_ID.get(id_) or BY_ID["global", id_] for id_ in _FOOTER]
    return [*first[:3], *own, *first[3:], *(each for each in usual if each not in own and each not in first)]


def _meant(action: Action) -> Action:
    return _BY_ID.get(action.id, action) if action.where == "global" else action
