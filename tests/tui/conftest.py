"""The whole screen on a real dump, driven by keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest
from textual._styles_cache import StylesCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

from tests.tui import idle
from tests.tui.driver import Driver, opened


class OpenScreen(Protocol):
    def __call__(
        self, name: str | Path, *, size: tuple[int, int] = ..., recommended: bool | None = ..., **options: Any
    ) -> AbstractAsyncContextManager[Driver]: ...


@pytest.fixture
def open_screen(dumps: Callable[[str], Path]) -> OpenScreen:
    """``async with open_screen("mindspore-2.0-nan") as screen``: opened, checked and idle.

    What is given by its name nobody may change: see ``Measured``. ``measured=False``: nobody has seen it before.
    """

    def open_(
        name: str | Path, *, size: tuple[int, int] = (200, 50), recommended: bool | None = True, **options: Any
    ) -> AbstractAsyncContextManager[Driver]:
        path = name if isinstance(name, Path) else dumps(name)
        options.setdefault("measured", not isinstance(name, Path))
        return opened(path, size=size, recommended=recommended, **options)

    return open_


@pytest.fixture(autouse=True)
def _own_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of the screen are written into the working directory, and some tests press every key.

    The terminal has all colours, whatever terminal the tests run in.
    """
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _waits_on_conditions() -> Iterator[None]:
    with idle.waiting_on_conditions():
        yield


_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}
_parse = Stylesheet._parse_rules


def _parse_once(self: Stylesheet, *args: Any, **kwargs: Any) -> list[RuleSet]:
    """Each app parses the styles of Textual and of ours, always the same; nobody changes what comes of it."""
    key = (args, *sorted(kwargs.items()), frozenset(self._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse(self, *args, **kwargs)
    return _parsed[key]


@pytest.fixture(autouse=True, scope="session")
def _styles_are_parsed_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", _parse_once)
        yield


@pytest.fixture(autouse=True)
def _nothing_stays_of_what_was_drawn() -> Iterator[None]:
    """Textual keeps the lines of the last thousand widgets, those of closed screens too: hundreds of megabytes."""
    yield
    StylesCache.get_inner_outer.cache_clear()
