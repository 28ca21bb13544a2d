"""Known dumps: dumps that the screen opened before, dumps below a directory, and facts about each."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tui_debugger.environment import user_directory
from tui_debugger.errors import CancelledError, TdbgError, reason_of
from tui_debugger.model import ProgressFn, UnreadablePart, no_progress
from tui_debugger.mounts import is_url, reached
from tui_debugger.opener import isdir, read_regular
from tui_debugger.sources.search import DumpFacts, DumpSearch, facts_of
from tui_debugger.text.documents import to_json

if TYPE_CHECKING:
    from tui_debugger.diagnose.headline import Headline


def state_directory() -> Path:
    """``$XDG_STATE_HOME/tdbg`` or ``~/.local/state/tdbg``; raises RuntimeError without a home directory."""
    return user_directory("XDG_STATE_HOME", ".local/state")


def file_number(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def write_state(path: Path, text: str) -> None:
    """Replaces a file as a whole; on OSError the old file is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    try:
        Path(file.name).replace(path)
    except OSError:
        Path(file.name).unlink(missing_ok=True)
        raise


# -- dumps that the screen opened before -------------------------------------------------------------

KEPT: Final = 50
"""Dumps that are remembered; the ones opened longest ago are forgotten first."""
_FILE: Final = "recent-{}.json"
_FILE_LIMIT: Final = 1 << 16
_WORDS: Final = 500
"""Characters of a verdict that are kept."""


@dataclass(frozen=True, slots=True)
class LastVerdict:
    """The answer that the screen showed last; ``outcome`` is a value of ``check.verdicts.Outcome``."""

    words: str
    outcome: str
    exit_code: int
    when: float

    @classmethod
    def of(cls, headline: Headline) -> LastVerdict:
        words = str(headline)[:_WORDS]
        return cls(words, headline.outcome.value, headline.outcome.exit_code, time.time())


@dataclass(frozen=True, slots=True)
class RecentDump:
    """A dump that the screen opened: ``path`` is resolved, ``opened`` is in seconds since 1970."""

    path: str
    opened: float
    verdict: LastVerdict | None = None


class RecentDumps:
    """Remembers the dumps that the screen opened, in the state directory.

    Each dump has one small file, which is replaced as a whole, so that programs that run at the same time do not lose
    each other's dumps. Errors are not raised but noted in ``problems``, one sentence each: only convenience is lost.
    """

    def __init__(self, directory: Path | None = None) -> None:
        """``directory`` is for tests; the default is ``state_directory``."""
        self.problems: list[str] = []
        self._directory = directory
        if directory is None:
            try:
                self._directory = state_directory()
            except RuntimeError as error:
                self.problems.append(f"recent dumps are not remembered: {error}")

    def dumps(self) -> tuple[RecentDump, ...]:
        """Returns the remembered dumps, the one that was opened last first."""
        found: list[RecentDump] = []
        broken: list[str] = []
        for file in self._files():
            try:
                found.append(_parsed(read_regular(file, _FILE_LIMIT)))
            except (OSError, ValueError, RecursionError) as error:  # noqa: PERF203 - each file fails by itself
                if not isinstance(error, FileNotFoundError):  # another program removed it
                    broken.append(f"{file}: {reason_of(error)}")
        if broken:
            more = f" (and {len(broken) - 1:,} more)" if len(broken) > 1 else ""
            self.problems.append(f"a recent dump is left out, its file cannot be used: {broken[0]}{more}")
        return tuple(sorted(found, key=lambda each: -each.opened))

    def opened(self, path: str) -> None:
        real = os.path.realpath(path)
        known = self._read(real)
        self._write(RecentDump(real, time.time(), known.verdict if known is not None else None))
        self._forget_old()

    def judged(self, path: str, verdict: LastVerdict) -> None:
        """Remembers the answer about a dump. An interrupted check does not replace the answer of a finished check."""
        real = os.path.realpath(path)
        known = self._read(real) or RecentDump(real, verdict.when)
        if verdict.outcome != "interrupted" or known.verdict is None or known.verdict.outcome == "interrupted":
            self._write(replace(known, verdict=verdict))

    def forget(self, path: str) -> None:
        if self._directory is None:
            return
        try:
            self._file(path).unlink(missing_ok=True)
        except OSError as error:
            self.problems.append(f"a recent dump could not be forgotten: {reason_of(error)}")

    def _files(self) -> list[Path]:
        if self._directory is None:
            return []
        try:
            return sorted(self._directory.glob(_FILE.format("*")))
        except OSError as error:
            self.problems.append(f"recent dumps cannot be listed: {reason_of(error)}")
            return []

    def _file(self, path: str) -> Path:
        return (self._directory or Path()) / _FILE.format(file_number(path))

    def _read(self, path: str) -> RecentDump | None:
        if self._directory is None:
            return None
        try:
            return _parsed(read_regular(self._file(path), _FILE_LIMIT))
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, dump: RecentDump) -> None:
        if self._directory is None:
            return
        try:  # to_json writes ASCII: bytes of a path that are no UTF-8 survive
            write_state(self._file(dump.path), to_json(asdict(dump)))
        except OSError as error:
            self.problems.append(f"a recent dump could not be remembered: {reason_of(error)}")

    def _forget_old(self) -> None:
        times = []
        for file in self._files():
            with suppress(OSError):
                times.append((file.stat().st_mtime, file))
        for _, file in sorted(times)[:-KEPT]:
            with suppress(OSError):
                file.unlink()


def _parsed(data: bytes) -> RecentDump:
    """Parses a state file; raises ValueError when its content is unusable."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    path, stored_verdict = document.get("path"), document.get("verdict")
    if not isinstance(path, str) or not Path(path).is_absolute() or "\0" in path:
        raise ValueError("it names no directory")
    verdict = None
    if isinstance(stored_verdict, dict):
        words, outcome, code = (
            stored_verdict.get("words"),
            stored_verdict.get("outcome"),
            stored_verdict.get("exit_code"),
        )
        if not isinstance(words, str) or not isinstance(outcome, str) or type(code) is not int:
            raise ValueError("its verdict has no words")
        verdict = LastVerdict(words[:_WORDS], outcome, code, _moment(stored_verdict.get("when")))
    return RecentDump(path, _moment(document.get("opened")), verdict)


def _moment(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11:
        return float(value)
    raise ValueError("it has no time")


# -- all of them -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownDump:
    """A dump that can be opened.

    Attributes:
        recent: None when the screen did not open the dump before.
        here: whether the search found it.
        facts: facts from its file names; None until they were read.
        gone: whether the directory does not exist any more.
    """

    path: str
    recent: RecentDump | None = None
    here: bool = False
    facts: DumpFacts | None = None
    gone: bool = False

    @property
    def outdated(self) -> bool:
        """Whether something was written after the last verdict."""
        written = self.facts.written if self.facts is not None else None
        verdict = self.recent.verdict if self.recent is not None else None
        return written is not None and verdict is not None and written > verdict.when


@dataclass(frozen=True, slots=True)
class Overview:
    """The dumps that are known so far.

    Attributes:
        dumps: recent dumps first, then the others, the nearest first.
        looked: number of directories that were looked at.
        notices: what was not looked at, and which recent dumps could not be read.
        unlisted: directories that could not be listed.
        complete: whether every directory that is not too deep was looked at.
        stopped: whether the search was stopped before its end.
    """

    start: str
    dumps: tuple[KnownDump, ...] = ()
    looked: int = 0
    notices: tuple[str, ...] = ()
    unlisted: tuple[UnreadablePart, ...] = ()
    complete: bool = False
    ended: bool = False
    stopped: bool = False


def overview(
    start: Path, recent: RecentDumps, progress: ProgressFn = no_progress, *, with_recent: bool = True
) -> Iterator[Overview]:
    """Yields what is known whenever it grows; the last overview has ``ended``, even when ``progress`` cancels."""
    search = DumpSearch(start)
    remembered = {each.path: each for each in recent.dumps()}
    known = {path: KnownDump(path, each) for path, each in remembered.items() if with_recent}

    def view(*, ended: bool = False, stopped: bool = False) -> Overview:
        notices = (*(["stopped: not everything was looked at"] if stopped else []), *search.notices, *recent.problems)
        return Overview(
            str(search.start),
            tuple(known.values()),
            search.looked,
            notices,
            tuple(search.unlisted),
            search.complete and not stopped,
            ended,
            stopped,
        )

    def look_at(real: str) -> None:
        path = known[real].path
        if is_url(path):
            return  # a network could delay the list
        if _is_there(path):
            known[real] = replace(known[real], facts=facts_of(Path(path), progress))
        else:
            known[real] = replace(known[real], gone=True)

    yield view()
    try:
        for real in list(known):
            look_at(real)
            yield view()
        for path in search.dumps(progress):
            real = os.path.realpath(path)
            if real in known:
                known[real] = replace(known[real], path=str(path), here=True)
            else:
                known[real] = KnownDump(str(path), remembered.get(real), here=True)
                yield view()
                look_at(real)
            yield view()
    except CancelledError:
        yield view(ended=True, stopped=True)
    else:
        yield view(ended=True)


def _is_there(path: str) -> bool:
    try:
        return isdir(reached(Path(path)))
    except TdbgError:  # a tar file that was replaced
        return False
