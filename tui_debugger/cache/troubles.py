"""What can go wrong with an index, by what is to be done about it."""

from __future__ import annotations

from enum import Enum


class Trouble(Enum):
    """What follows from an error."""

    BUSY = "busy"
    """Somebody else is writing: it will work later."""
    DAMAGED = "damaged"
    """This file will never work again: away with it."""
    GONE = "gone"
    """The file was removed while it was used: look again."""
    REFUSED = "refused"
    """The system says no: no room, no permission, no such device ..."""


class DamagedError(Exception):
    """A file that is an index by its name, but not by what it says."""


_BUSY = ("is locked", "locking protocol", "schema has changed")
_DAMAGED = (
    "no such table",
    "no such column",
    "has no column",
    "malformed",
    "could not decode",
    "unsupported file format",
)


def expected() -> tuple[type[Exception], ...]:
    """What opening and using an index may raise; everything else is a mistake of ours.

    SQLite is imported for it: ask when something was raised.
    """
    # ValueError: a path that no file can have.
    ours = (OSError, MemoryError, ImportError, ValueError, DamagedError)
    try:
        import sqlite3
    except ImportError:
        return ours
    return (*ours, sqlite3.Error)


def trouble_of(error: Exception) -> Trouble:
    """Judges one of the expected errors, by its words where need be: Python 3.10 does not tell SQLite's number."""
    if isinstance(error, (DamagedError, UnicodeDecodeError)):  # SQLite's own words about a damaged file may be damaged
        return Trouble.DAMAGED
    if isinstance(error, (OSError, MemoryError, ImportError, ValueError)):
        return Trouble.REFUSED
    import sqlite3

    if isinstance(error, sqlite3.OperationalError):
        text = str(error).lower()
        if any(words in text for words in _BUSY):
            return Trouble.BUSY
        return Trouble.DAMAGED if any(words in text for words in _DAMAGED) else Trouble.REFUSED
    # Two rows of one key, or SQLite's "malformed" and "not a database", which have no class of their own.
    damaged = isinstance(error, sqlite3.IntegrityError) or type(error) is sqlite3.DatabaseError
    return Trouble.DAMAGED if damaged else Trouble.REFUSED


def reason_of(error: Exception) -> str:
    """One line for people."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    return " ".join(text.split())
