"""An uncompressed tar as a directory, whose files are read at their offsets. Nothing is unpacked.

Read as ``tar -x`` would have it: ustar, GNU and pax; of a name that occurs twice the last one counts; links are
followed within the tar. A tar that nobody who packs a dump would make is refused as a whole, with the member that it is
refused for: names that lead out, links that lead out or nowhere, one name for a file and a directory, no end, or
anything but zeros behind that.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat as modes
import weakref
import zlib
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, reason_of
from tui_debugger.opener import open_regular

BLOCK: Final = 512
LONGEST_NAME: Final = 4096
"""Bytes of a name: no system has longer paths."""
MOST_MEMBERS: Final = 8_000_000
MOST_DIRECTORIES: Final = 200_000
"""Each name may have thousands of them, and each of these is kept by its whole path."""
MOST_LINKS: Final = 10_000
_MOST_PARTS: Final = 2048
"""Names that are looked at on the way through links: far more than any path has, so that circles end."""
_PIECE: Final = 1 << 20
_EXTENDED: Final = 1 << 20
"""Bytes of a pax header."""
_ENDS: Final = bytes(BLOCK)
_ABOUT_OTHERS: Final = frozenset({b"L", b"K", b"x", b"g", b"M", b"V"})
_WITHOUT_BYTES: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
_DIRECTORY, _LINK = -1, -2
"""In the place of the number of a file."""

Children = dict[str, int]
"""Names in a directory to numbers of files."""


class TarMount:
    """The directories of a tar: an ``opener.Mount``.

    Attributes:
        path: the tar.
        folder: the one directory that everything lies in; else empty.
        waits: see ``opener.Mount``.
    """

    waits = False

    def __init__(self, path: str, descriptor: int, status: os.stat_result) -> None:
        """Takes over the descriptor; see ``read``."""
        self.path = path
        self._descriptor = descriptor
        self._finalizer = weakref.finalize(self, os.close, descriptor)
        self._status = status
        self._directories: dict[str, tuple[int, Children]] = {"": (1, {})}
        self._starts, self._sizes, self._modes = array("q"), array("q"), array("l")
        self._links: dict[str, str] = {}

    @staticmethod
    def read(path: str) -> TarMount:
        """Reads the headers of a tar.

        Raises:
            NotADumpError: it is none, or is refused.
        """
        try:
            descriptor, status = open_regular(path)
        except OSError as error:
            raise NotADumpError(
                f"the tar cannot be read: {reason_of(error)}", where=path, hint="check its rights"
            ) from error
        mount = TarMount(path, descriptor, status)
        try:
            for member in Headers(descriptor, status.st_size, path):
                mount._add(*member)
            mount._check_links()
        except OSError as error:
            raise _refused(path, f"cannot be read: {reason_of(error)}") from error
        return mount

    @property
    def folder(self) -> str:
        """The one directory that everything lies in; else empty."""
        top = self._directories[""][1]
        (name, number) = next(iter(top.items()), ("", 0))
        return name if len(top) == 1 and number == _DIRECTORY else ""

    def is_current(self) -> bool:
        """Tells whether the tar at the path is still the one that was read."""
        try:
            now = os.stat(self.path)  # noqa: PTH116 - text all the way
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self._status.st_dev, self._status.st_ino) and self._is_untouched(now)

    def stat(self, path: str) -> os.stat_result:
        """See ``opener.Mount``."""
        number, place = self._look_up(path)
        if number == _DIRECTORY:
            return self._state(modes.S_IFDIR | 0o555, self._directories[place][0], 0)
        return self._state(self._modes[number], MOST_DIRECTORIES + 2 + number, self._sizes[number])

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        """See ``opener.Mount``."""
        number, place = self._look_up(path)
        if number != _DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), f"{self.path}/{path}")
        start = f"{path}/" if path else ""
        return [
            (name, self._look_up(start + name)[0] == _DIRECTORY if number == _LINK else number == _DIRECTORY)
            for name, number in self._directories[place][1].items()
        ]

    def open(self, path: str) -> TarMember:
        """See ``opener.Mount``."""
        if not self._is_untouched(os.fstat(self._descriptor)):
            raise OSError(errno.ESTALE, "the tar was written to meanwhile: open it again")
        number, _ = self._look_up(path)
        if self._starts[number] < 0:
            raise OSError(errno.EINVAL, "a sparse file in a tar is not read: unpack the tar")
        return TarMember(self, self._descriptor, self._starts[number], self.stat(path))

    def _is_untouched(self, now: os.stat_result) -> bool:
        return (now.st_size, now.st_mtime_ns) == (self._status.st_size, self._status.st_mtime_ns)

    def _state(self, mode: int, number: int, size: int) -> os.stat_result:
        """Returns a state that changes with the tar: what is remembered of its files goes when it is written anew."""
        now = self._status
        seconds = int(now.st_mtime)
        known = (mode, number, now.st_dev ^ (now.st_ino << 20), 1, now.st_uid, now.st_gid, size, *(seconds,) * 3)
        times = {"st_mtime": now.st_mtime, "st_mtime_ns": now.st_mtime_ns}
        return os.stat_result(known, times | {"st_ctime": now.st_ctime, "st_ctime_ns": now.st_ctime_ns})

    def _look_up(self, path: str) -> tuple[int, str]:
        """Returns the number of what lies at a path, and where it is without links."""
        if path in self._directories:
            return _DIRECTORY, path
        place = self._real(path) if self._links else path
        if place in self._directories:
            return _DIRECTORY, place
        folder, _, name = place.rpartition("/")
        found = self._directories.get(folder)
        number = found[1].get(name) if found is not None else None
        if number is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.path}/{path}")
        return number, place

    def _real(self, path: str) -> str:
        """Follows links.

        Raises:
            OSError: they lead in a circle, or out.
        """
        done, rest, steps = "", path.split("/")[::-1], 0
        while rest:
            steps += 1
            if steps > _MOST_PARTS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), f"{self.path}/{path}")
            part = rest.pop()
            if part == ".." and not done:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.path}/{path}")
            if part in {"..", ".", ""}:
                done = done.rpartition("/")[0] if part == ".." else done
                continue
            here = f"{done}/{part}" if done else part
            target = self._links.get(here)
            if target is None:
                done = here
            else:
                rest += target.split("/")[::-1]
        return done

    # -- what the headers say ------------------------------------------------------------------------

    def _add(self, name: str, kind: bytes, start: int, size: int, target: str) -> None:
        """Takes a member in.

        Args:
            name: as it stands there.
            kind: its type, one byte; ``S`` for a sparse file.
            start: first byte.
            size: number of bytes.
            target: of a link.
        """
        if len(name) > LONGEST_NAME or len(target) > LONGEST_NAME:
            raise _refused(self.path, f"has a member whose name is longer than {LONGEST_NAME:,} characters")
        folder, _, last = name.rstrip("/").rpartition("/") if name.endswith("/") else name.rpartition("/")
        children = self._directories.get(folder)
        if children is None or last in {"", ".", ".."} or name.startswith("/"):
            parts = self._parts(name)
            if not parts:
                return  # the directory that was packed itself
            folder, last = "/".join(parts[:-1]), parts[-1]
            children = self._directory(folder, name)
        inside = children[1]
        before = inside.get(last)
        if kind == b"5":
            self._directory(f"{folder}/{last}" if folder else last, name)
            return
        if before == _DIRECTORY:
            raise self._both(name)
        if before == _LINK:
            del self._links[f"{folder}/{last}" if folder else last]
        if kind == b"2":
            self._links[f"{folder}/{last}" if folder else last] = target
            inside[last] = _LINK
            if len(self._links) > MOST_LINKS:
                raise _refused(self.path, f"has more than {MOST_LINKS:,} links")
        elif kind == b"1":
            inside[last] = self._linked(name, target)
        else:
            inside[last] = len(self._starts)
            self._starts.append(-1 if kind == b"S" else start)
            self._sizes.append(size)
            self._modes.append({b"3": modes.S_IFCHR, b"4": modes.S_IFBLK, b"6": modes.S_IFIFO}.get(kind, modes.S_IFREG))
            if len(self._starts) > MOST_MEMBERS:
                raise _refused(self.path, f"has more than {MOST_MEMBERS:,} members")

    def _parts(self, name: str) -> list[str]:
        parts = [part for part in name.split("/") if part not in {"", "."}]
        if name.startswith("/") or ".." in parts:
            raise _refused(self.path, f"has a member whose name leads out of it: {name[:200]!r}")
        return parts

    def _directory(self, path: str, name: str) -> tuple[int, Children]:
        """Returns a directory, which is made with those above it when it is not there yet."""
        found = self._directories.get(path)
        if found is not None:
            return found
        folder, _, last = path.rpartition("/")
        missing = [last]
        while folder not in self._directories:
            folder, _, last = folder.rpartition("/")
            missing.append(last)
        found = self._directories[folder]
        for part in reversed(missing):
            if found[1].setdefault(part, _DIRECTORY) != _DIRECTORY:
                raise self._both(name)
            folder = f"{folder}/{part}" if folder else part
            found = self._directories[folder] = (len(self._directories) + 1, {})
        if len(self._directories) > MOST_DIRECTORIES:
            raise _refused(self.path, f"has more than {MOST_DIRECTORIES:,} directories")
        return found

    def _linked(self, name: str, target: str) -> int:
        """Returns the number of the file that a hard link is another name of."""
        folder, _, last = "/".join(self._parts(target)).rpartition("/")
        found = self._directories.get(folder)
        number = found[1].get(last, _LINK) if found is not None else _LINK
        if number < 0:
            raise _refused(self.path, f"has a link to what is not in it: {name[:200]!r} to {target[:200]!r}")
        return number

    def _check_links(self) -> None:
        """Refuses links that lead out or nowhere: what they name was to be looked at, and cannot be."""
        for path, target in self._links.items():
            try:
                found = not target.startswith("/") and self._look_up(path)[0] != _LINK
            except OSError:
                found = False
            if not found:
                raise _refused(self.path, f"has a link to what is not in it: {path[:200]!r} to {target[:200]!r}")

    def _both(self, name: str) -> NotADumpError:
        return _refused(self.path, f"has one name for a directory and for something else: {name[:200]!r}")


class TarMember:
    """A file of a tar: an ``opener.MountedFile``.

    Attributes:
        status: its size, and the times of the tar.
        waits: see ``opener.MountedFile``.
    """

    waits = False

    def __init__(self, tar: TarMount, descriptor: int, start: int, status: os.stat_result) -> None:
        """``start`` is its first byte in the tar, whose descriptor it shares."""
        self._tar, self._descriptor, self._start = tar, descriptor, start  # the tar stays open as long as this is
        self.status = status

    def read(self, first: int, size: int) -> bytes:
        """See ``opener.MountedFile``."""
        left = self.status.st_size - first
        return opener.pread(self._descriptor, min(size, left), self._start + first) if left > 0 else b""

    def mapped(self, first: int, size: int) -> tuple[mmap.mmap, int]:
        """See ``opener.MountedFile``."""
        return opener.mapped(self._descriptor, self._start + first, size)

    def close(self) -> None:
        """The tar stays open for the others."""


Member = tuple[str, bytes, int, int, str]
"""Name, type, first byte, number of bytes, target of a link."""


class Headers:
    """The members of a tar, from their headers, in the order of the file."""

    def __init__(self, descriptor: int, size: int, path: str) -> None:
        """``path`` is what errors call it."""
        self._descriptor, self._size, self._path = descriptor, size, path
        self._piece, self._from = b"", 0
        self._name = self._target = ""
        self._headers: dict[str, str] = {}

    def __iter__(self) -> Iterator[Member]:
        """Yields the members.

        Raises:
            NotADumpError: it is no tar, damaged or cut.
            OSError: it cannot be read.
        """
        at = 0
        while (head := self._bytes(at, BLOCK)) != _ENDS:
            if len(head) < BLOCK:
                raise self._cut()
            if not _is_header(head):
                raise _refused(self._path, f"is damaged at byte {at:,}" if at else "is no tar, whatever its name says")
            kind, size = head[156:157], self._number(head[124:136], at)
            start = self._after_map(head, at) if kind == b"S" else at + BLOCK
            if kind in _ABOUT_OTHERS:
                self._extend(kind, start, size, at)
                at = start + _padded(size)
                continue
            name, kind, size, target = self._described(head, kind, size)
            at = start + _padded(size)
            if at > _padded(self._size):
                raise self._cut()
            yield name, kind, start, size, target
            self._name = self._target = ""
            self._headers = {}
        self._check_end(at)

    def _check_end(self, at: int) -> None:
        """Refuses a tar with anything but zeros from its end mark on: a header that was lost looks like one.

        Raises:
            NotADumpError: there is more.
            OSError: it cannot be read.
        """
        for first in range(at, self._size, _PIECE):
            if self._bytes(first, min(_PIECE, self._size - first)).strip(b"\0"):
                raise _refused(
                    self._path,
                    f"is damaged at byte {at:,}: there is an end mark, and more behind it",
                    "copy it again, or unpack it with tar --ignore-zeros and name the directory",
                )

    def _after_map(self, head: bytes, at: int) -> int:
        """Returns where the bytes of a sparse file begin: its header may go on."""
        start = at + BLOCK
        if head[482]:
            while self._bytes(start, BLOCK)[504:505] not in {b"\0", b""}:
                start += BLOCK
            start += BLOCK
        return start

    def _extend(self, kind: bytes, start: int, size: int, at: int) -> None:
        """Takes in what is said of the next member, or of the tar."""
        if kind == b"M":
            raise _refused(self._path, "is one of several volumes")
        if kind == b"V":
            return
        text = self._extended(start, size, at)
        if kind == b"L":
            self._name = _text(text)
        elif kind == b"K":
            self._target = _text(text)
        elif kind == b"x":
            self._headers = self._pax(text, at)
        elif {"path", "linkpath", "size"} & self._pax(text, at).keys():
            raise _refused(self._path, "has a header that gives one name or size to all members")

    def _described(self, head: bytes, kind: bytes, size: int) -> tuple[str, bytes, int, str]:
        """Returns name, type, size and target of a link, from its header and what was said before that."""
        name, target = self._headers.get("path", self._name), self._headers.get("linkpath", self._target)
        if not name:
            name = _text(head[:100])
            if head[257:263] == b"ustar\0" and head[345]:
                name = f"{_text(head[345:500])}/{name}"
        size = int(self._headers.get("size", size))
        if kind == b"\0" and name.endswith("/"):  # as tars of before 1988 have it
            kind = b"5"
        elif kind == b"D":  # what GNU tar lists of a directory
            return name, b"5", size, ""
        elif any(key.startswith("GNU.sparse") for key in self._headers):
            kind = b"S"
        if kind in _WITHOUT_BYTES:
            return name, kind, 0, target or _text(head[157:257])
        return name, kind, size, ""

    def _bytes(self, at: int, size: int) -> bytes:
        """Returns some bytes; headers of small files lie close together, and are read many at a time."""
        here = at - self._from
        if here < 0 or here + size > len(self._piece):
            self._piece, self._from, here = opener.pread(self._descriptor, max(_PIECE, size), at), at, 0
        return self._piece[here : here + size]

    def _extended(self, start: int, size: int, at: int) -> bytes:
        if size > _EXTENDED:
            raise _refused(self._path, f"has a header of {size:,} bytes at byte {at:,}: it is damaged")
        found = self._bytes(start, size)
        if len(found) < size:
            raise self._cut()
        return found

    def _pax(self, text: bytes, at: int) -> dict[str, str]:
        found: dict[str, str] = {}
        here = 0
        try:
            while here < len(text) and text[here]:
                length = int(text[here : text.index(b" ", here)])
                record = text[here : here + length]
                key, equals, value = record[record.index(b" ") + 1 : -1].partition(b"=")
                if length < 5 or len(record) < length or not equals:
                    raise ValueError
                found[os.fsdecode(key)] = os.fsdecode(value)
                here += length
            if int(found.get("size", 0)) < 0 or "\0" in found.get("path", "") + found.get("linkpath", ""):
                raise ValueError
        except ValueError:
            raise _refused(self._path, f"has a damaged header at byte {at:,}") from None
        return found

    def _number(self, field: bytes, at: int) -> int:
        try:
            if field[0] & 0x80:  # more than 8 GiB, in base 256
                found = int.from_bytes(field[1:], "big")
                return found if field[0] == 0x80 and found < 1 << 62 else int("damaged")
            return int(field.rstrip(b"\0 ").lstrip(b" ") or b"0", 8)
        except ValueError:
            raise _refused(self._path, f"has a damaged header at byte {at:,}") from None

    def _cut(self) -> NotADumpError:
        return _refused(
            self._path, f"is cut: it ends at byte {self._size:,}, before its end mark", "copy it again, or pack it anew"
        )


def _is_header(head: bytes) -> bool:
    """Compares the checksum: the sum of all bytes, its own as blanks. Adler-32 knows the sum, but for multiples."""
    try:
        stated = int(head[148:156].rstrip(b"\0 ").lstrip(b" ") or b"-1", 8)
    except ValueError:
        return False
    return (zlib.adler32(head[:148] + b"        " + head[156:]) & 0xFFFF) == (stated + 1) % 65521


def _text(field: bytes) -> str:
    return os.fsdecode(field.partition(b"\0")[0])


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _refused(path: str, why: str, hint: str = "unpack it, and name the directory") -> NotADumpError:
    return NotADumpError(f"the tar {why}", where=path, hint=hint)
