"""The user's configuration on screen: which keys can be chosen, and whether each key has one meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tui_debugger.config import Config, near, use
from tui_debugger.errors import ConfigError
from tui_debugger.text.clean import clean
from tui_debugger.tui.actions import (
    ACTIONS,
    FIXED_KEYS,
    LIVE_ACTIONS,
    LIVE_ONLY,
    LOOK_AGAIN,
    START_ACTIONS,
    VALUE_ACTIONS,
    VIEW_ACTIONS,
    WHERE,
    Action,
    opening_actions,
    start_actions,
)
from tui_debugger.tui.views.registry import VIEWS

ADJUSTABLE: tuple[Action, ...] = (
    *(action for action in ACTIONS if action.setting),
    *(action for action in LIVE_ACTIONS if action.id in LIVE_ONLY),
    *(action for action in (*VIEW_ACTIONS, LOOK_AGAIN) if action.id not in {each.id for each in ACTIONS}),
    *START_ACTIONS,
)
"""Actions whose keys can be chosen, each once."""


def apply(config: Config) -> Mapping[str, str]:
    """Checks a configuration, puts it into use, and returns Textual's keymap: keys joined by commas, by binding id.

    Raises:
        ConfigError: see ``check_keys``.
    """
    check_keys(config)
    use(config)
    settings = {action.setting: action for action in ADJUSTABLE}
    return {name: ",".join(settings[name].keys) for name in config.keys}


def check_keys(config: Config) -> None:
    """Checks that every key of the configuration has one meaning wherever it can be pressed.

    Raises:
        ConfigError: an action does not exist, or two actions of one place would have the same key.
    """
    known = [action.setting for action in ADJUSTABLE]
    for name in config.keys:
        if name not in known:
            raise ConfigError(
                f"no action is called {clean(name)!r}", where=config.where(f"keys.{name}"), hint=near(name, known)
            )
    if not config.keys:
        return
    _check_fixed(config)
    for place, together in _places(config):
        usual = {clash[:2] for clash in _clashes(together, {})}
        for one, other, key in _clashes(together, config.keys):
            if (one, other) not in usual:
                raise _taken(config, place, one, other, key)


def _check_fixed(config: Config) -> None:
    """Refuses keys that always stay with another action, such as Ctrl-C."""
    owners = {key: [name for name, keys in FIXED_KEYS.items() if key in keys] for key in sum(FIXED_KEYS.values(), ())}
    for name, keys in config.keys.items():
        for key in keys:
            if key in owners and name not in owners[key]:
                raise ConfigError(
                    f"the key {key} stays with {' and '.join(owners[key])}",
                    where=config.where(f"keys.{name}"),
                    hint=f"choose another key for {name}",
                )


def _taken(config: Config, place: str, one: str, other: str, key: str) -> ConfigError:
    changed, stays = (one, other) if key in config.keys.get(one, ()) else (other, one)
    every = {action.setting or action.id: action for _, actions in _places(config) for action in actions}

    def named(name: str) -> str:
        return every[name].title + (f" ({name})" if every[name].setting else "")

    return ConfigError(
        f"the key {key} is taken twice {place}: {named(changed)} and {named(stays)}",
        where=config.where(f"keys.{changed}"),
        hint="choose another key for one of them; `tdbg help keys` lists all",
    )


def _places(config: Config) -> Iterator[tuple[str, list[Action]]]:
    """Yields (name, actions) of every place where keys are pressed; views only if their keys are configured."""
    live = [action for action in LIVE_ACTIONS if action.id in LIVE_ONLY]
    for pane, groups in WHERE.items():
        yield f"in the pane {pane}", [*(action for action in ACTIONS if action.where in groups), *live]
    yield "on the start page", [*(action for action in ACTIONS if action.where == "list"), *start_actions()]
    common = [*opening_actions(), *VIEW_ACTIONS]
    if config.keys.keys().isdisjoint(action.setting for action in (*common, LOOK_AGAIN)):
        return
    yield "in Values", [*common, *VALUE_ACTIONS]
    for view in VIEWS:  # imports every view's module
        yield f"in {view.title}", [*common, *view.load().OWN_ACTIONS]


def _clashes(actions: Iterable[Action], chosen: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str, str]]:
    """Yields (action, action, key) for actions that would have the same key; ``chosen`` replaces their usual keys."""
    of_key: dict[str, str] = {}
    for action in actions:
        name = action.setting or action.id
        keys = action.usual_keys
        if action.setting in chosen:
            keys = (*chosen[action.setting], *FIXED_KEYS.get(action.setting, ()))
        for key in dict.fromkeys(keys):
            other = of_key.setdefault(key, name)
            if other != name:
                yield other, name, key
