"""Reads environment variables. An invalid one counts as not set; ``wrong`` texts tell the user."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

_SIZE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE)
_UNITS: Final = " kmgt"


class Size(NamedTuple):
    """A number of bytes, and the error in its variable, if any."""

    bytes: int
    wrong: str = ""


class EnvironmentSwitch(NamedTuple):
    """Whether something is off, and the error in its variable, if any."""

    off: bool
    wrong: str = ""


def size_of(variable: str, default: int) -> Size:
    """Reads a number of bytes such as ``500M`` or ``2 GiB``."""
    text = os.environ.get(variable, "").strip()
    if not text:
        return Size(default)
    match = _SIZE.fullmatch(text)
    if match is None:
        instead = f"{default / 10**9:g} GB"
        todo = "set it to a size such as 500M, or unset it"
        return Size(default, f"{variable} is no size: {text!r}. {instead} is used instead; {todo}")
    base = 1024 if match[3] else 1000
    return Size(int(float(match[1]) * base ** _UNITS.index((match[2] or " ").lower())))


def switch_of(variable: str) -> EnvironmentSwitch:
    text = os.environ.get(variable, "").strip()
    if text.lower() in {"", "on", "off"}:
        return EnvironmentSwitch(text.lower() == "off")
    return EnvironmentSwitch(
        False, f"{variable} is neither on nor off: {text!r}. On is used instead; set it to off, or unset it"
    )


class Command(NamedTuple):
    """A program with its options, and the error in its variable, if any."""

    words: list[str]
    wrong: str = ""


def command_of(variable: str, default: str) -> Command:
    import shlex  # only few commands need it

    text = os.environ.get(variable, default)
    try:
        return Command(shlex.split(text))
    except ValueError as error:
        todo = "set it to a program with its options, or unset it"
        return Command([], f"{variable} is no command: {text!r} ({error}). None is run; {todo}")


def user_directory(variable: str, below_home: str) -> Path:
    """Returns this program's directory below an XDG variable, or below home; RuntimeError: home is unknown.

    A relative XDG path is ignored, as the specification demands: the place must not move with the working directory.
    """
    named = Path(os.environ.get(variable) or "")
    return (named if named.is_absolute() else Path.home() / below_home) / "tdbg"
