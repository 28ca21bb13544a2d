"""Tells by their names which numbers in saved objects are settings, which are values, and which may be infinite."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

LOG: Final = "log_history"
"""The key of a training log: an entry for each logged step."""


@lru_cache(1024)
def is_of_settings(key: Any) -> bool:
    """Tells whether a key, or a part of it between dots or slashes, is as a whole a word for settings.

    The sigma of a noise_scheduler is a tensor of a model: "scheduler" is only a fragment of that part.
    """
    return type(key) is str and any(_SETTINGS.fullmatch(part) is not None for part in _PARTS.split(key))


def is_class_of_settings(name: str) -> bool:
    """Tells whether a class holds settings, or the state of schedulers, early stopping and the like."""
    return _SETTINGS_CLASS.search(name) is not None


def is_value(name: str) -> bool:
    """Tells whether a number of that name was computed, so that Inf is a finding; bounds may be infinite."""
    return _VALUE.search(name) is not None and _BOUND.search(name) is None


def is_norm_of_gradients(name: str) -> bool:
    """Tells whether a number of that name is a gradient norm: loss scaling skips steps where it is not finite."""
    return _NORM_OF_GRADIENTS.search(name) is not None


_SETTINGS: Final = re.compile(
    r"(?:(?:(?:lr|learning_rate|opt|optim|optimizer)_?)?sched(?:uler)?s?|param_groups"
    r"|\w*?callbacks?|\w*?early_?stop(?:ping|per)?|\w*?(?:hparam|hyper_?param(?:eter)?|config|setting)s?"
    r"|(?:\w+_)?(?:args?|arguments|cfg|options|defaults|kwargs))(?:_(?:states?|state_dicts?|dict|name|type))?",
    re.IGNORECASE,
)
"""Keys of settings, and of the states of schedulers, early stopping and the like."""
_PARTS: Final = re.compile(r"[./]")
_SETTINGS_CLASS: Final = re.compile(
    r"(?:Config|Configuration|Args|Arguments|Settings|Options|Param(?:eter)?s|Scheduler|LR|Callback"
    r"|EarlyStopping|ReduceLROnPlateau|ModelCheckpoint)$"
)
"""Classes of such settings and states."""
_NORM_OF_GRADIENTS: Final = re.compile(r"grad\w*norm|gnorm", re.IGNORECASE)
_VALUE: Final = re.compile(
    r"loss|norm|scale|grad|metric|perplex|ppl|acc(?:uracy)?(?:$|_)|score|error|entropy|reward|logit|(?:^|_)kl(?:$|_)",
    re.IGNORECASE,
)
"""Names of computed numbers: an infinite one is a finding."""
_BOUND: Final = re.compile(
    r"(?:^|_)(?:best|worst|min|max|lowest|highest|limit|clip|thresh\w*|bound|target|patience)", re.IGNORECASE
)
"""Names of bounds of computed numbers, which may be infinite."""
