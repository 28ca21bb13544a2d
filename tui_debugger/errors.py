"""The exceptions people may see: each says what happened, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

_NAMED: Final = 8
"""Most dumps that are named in an error."""


def reason_of(error: BaseException, *, within: bool = False) -> str:
    """Returns the message of the system or library, else the error's class; ``within`` a sentence in lower case."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if within:
        said = said[:1].lower() + said[1:]
    return said or type(error).__name__


class TdbgError(Exception):
    """Base of every error that tdbg raises on purpose.

    Attributes:
        what: one sentence, no trailing full stop needed.
        where: path, node, or text position; may be empty.
        hint: what the user can do; may be empty.
        exit_code: the process exit code a command ends with (2: cannot judge or cannot work).
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return "\n".join(
            part
            for part in (
                self.what,
                self.where and f"  where: {self.where}",
                self.hint and "  do:    " + self.hint.replace("\n", "\n         "),
            )
            if part
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``did you mean max or mean?`` with similar known names, or ""."""
    import difflib

    alike = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(alike)}?" if alike else ""


class NotADumpError(TdbgError):
    """Nothing recognisable at the given path."""


class SeveralDumpsError(NotADumpError):
    """A directory with several ``dumps`` below it, none of which was named."""

    def __init__(self, directory: Path, dumps: Sequence[Path]) -> None:
        names = [str(dump.relative_to(directory)) for dump in dumps[:_NAMED]] + ["…"] * (len(dumps) > _NAMED)
        super().__init__(f"Several dumps here: {', '.join(names)}", where=str(directory), hint="name one of them")
        self.dumps = tuple(dumps)


class UnreadableTensorError(TdbgError):
    """A tensor file that is missing, truncated, empty, pickled or otherwise not an array."""


class BadGraphError(TdbgError):
    """A graph file that cannot be parsed."""


class RenumberedError(TdbgError):
    """A rank's nodes were reread during a query about them: ask again."""


class LostError(TdbgError):
    """A training went away during a query."""


class NotStoppedError(TdbgError):
    """The training can do this only while it waits at a stop."""


class UnsupportedError(TdbgError):
    """This training's side of the protocol cannot do this."""


class BadWatchpointError(TdbgError, ValueError):
    """A watchpoint whose condition, parameters or node selection break a rule."""


class ConfigError(TdbgError):
    """The configuration cannot be read, or a setting in it is wrong."""


class BadSliceError(TdbgError, ValueError):
    """Slice text that does not fit the tensor."""


class BadQueryError(TdbgError, ValueError):
    """A search text or regular expression that cannot be used."""


class DebuggerParamTypeError(TdbgError, TypeError):
    """An argument of the Python API has the wrong type; ``error_code`` is MindInsight's."""

    error_code = "5054B080"


class DebuggerParamValueError(TdbgError, ValueError):
    """An argument of the Python API has a value that is not allowed; ``error_code`` is MindInsight's."""

    error_code = "5054B081"


class VersionNotMatchError(TdbgError):
    """Exists only for scripts that catch it: dumps of every version are read."""


class CancelledError(TdbgError):
    """The user pressed Esc or Ctrl-C, or a signal ended the process; finished work stays."""

    exit_code = 130
