"""What runs every time, and what runs only with ``pytest --thorough``: nothing is left out of both.

Of a long list of parameters a few run every time, spread over the list; properties are tried with fewer examples.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

SHARE = 8
"""How many times as many examples a thorough run tries."""
_thorough = False


def choose(thorough: bool) -> None:
    """Called before any module of tests is imported. No example has a deadline: machines are slow at times."""
    global _thorough  # noqa: PLW0603 - decorators of tests, which know no configuration, ask for it
    _thorough = thorough
    for name, count in (("everyday", 20), ("thorough", 100)):
        settings.register_profile(name, max_examples=count, deadline=None)
    settings.load_profile("thorough" if thorough else "everyday")


def examples(count: int, **others: Any) -> settings:
    """Settings of a property: so many examples in a thorough run, an eighth of them (but 10) every time."""
    return settings(max_examples=count if _thorough else min(count, max(10, count // SHARE)), deadline=None, **others)


def few(values: Iterable[Any], count: int) -> list[Any]:
    """Parameters: ``count`` of them, spread evenly from first to last, run every time; all do in a thorough run."""
    every = list(values)
    kept = {round(i * (len(every) - 1) / max(count - 1, 1)) for i in range(count)} if every else set()
    return [value if i in kept else _later(value) for i, value in enumerate(every)]


def later(*values: Any, id: str | None = None) -> Any:  # noqa: A002 - as pytest.param has it
    """A parameter that runs in a thorough run only."""
    return pytest.param(*values, marks=pytest.mark.thorough, id=id)


def _later(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "marks"):  # made by pytest.param
        return pytest.param(*value.values, marks=[*value.marks, pytest.mark.thorough], id=value.id)
    return later(*value) if isinstance(value, tuple) else later(value)
