"""An uncompressed tar as a directory, whose files are read at their offsets. Nothing is unpacked.

Read like ``tar -x``: ustar, GNU and pax; the last one of equal names counts; links are followed within the tar. A tar
that no dump packer would make is refused as a whole, with the member that it is refused for: names that lead out, links
that lead out or nowhere, one name for a file and a directory, no end, or anything but zeros after the end.
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
"""Limit of a name in bytes: no system has longer paths."""
MOST_MEMBERS: Final = 8_000_000
MOST_DIRECTORIES: Final = 200_000
"""Each name may have thousands of directories, and each directory is kept by its whole path."""
MOST_LINKS: Final = 10_000
_MOST_PARTS: Final = 2048
"""Number of names on the way through links: far more than any path has, so that circles end."""
_PIECE: Final = 1 << 20
_EXTENDED: Final = 1 << 20
"""Limit of a pax header in bytes."""
_ENDS: Final = bytes(BLOCK)
_ABOUT_OTHERS: Final = frozenset({b"L", b"K", b"x", b"g", b"M", b"V"})
_WITHOUT_BYTES: Final = frozenset({b"1", b"2", b"3", b"4", b"5", b"6"})
_DIRECTORY, _LINK = -1, -2
"""In the place of the number of a file."""

Children = dict[str, int]
"""Numbers of files by name in a directory."""


class TarMount:
    """The directories of a tar: an ``opener.Mount``."""

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
        """Reads the headers of a tar; raises NotADumpError when it is none, or is refused."""
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
        """Whether the tar at the path is still the one that was read."""
        try:
            now = os.stat(self.path)  # noqa: PTH116 - text all the way
        except OSError:
            return False
        return (now.st_dev, now.st_ino) == (self._status.st_dev, self._status.st_ino) and self._is_untouched(now)

    def stat(self, path: str) -> os.stat_result:
        number, place = self._look_up(path)
        if number == _DIRECTORY:
            return self._state(modes.S_IFDIR | 0o555, self._directories[place][0], 0)
        return self._state(self._modes[number], MOST_DIRECTORIES + 2 + number, self._sizes[number])

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        number, place = self._look_up(path)
        if number != _DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), f"{self.path}/{path}")
        start = f"{path}/" if path else ""
        return [
            (name, self._look_up(start + name)[0] == _DIRECTORY if number == _LINK else number == _DIRECTORY)
            for name, number in self._directories[place][1].items()
        ]

    def open(self, path: str) -> TarMember:
        if not self._is_untouched(os.fstat(self._descriptor)):
            raise OSError(errno.ESTALE, "the tar was written to meanwhile: open it again")
        number, _ = self._look_up(path)
        if self._starts[number] < 0:
            raise OSError(errno.EINVAL, "a sparse file in a tar is not read: unpack the tar")
        return TarMember(self, self._descriptor, self._starts[number], self.stat(path))

    def _is_untouched(self, now: os.stat_result) -> bool:
        return (now.st_size, now.st_mtime_ns) == (self._status.st_size, self._status.st_mtime_ns)

    def _state(self, mode: int, number: int, size: int) -> os.stat_result:
        """A state that changes with the tar, so that caches of its files become invalid when it is rewritten."""
        now = self._status
        seconds = int(now.st_mtime)
        known = (mode, number, now.st_dev ^ (now.st_ino << 20), 1, now.st_uid, now.st_gid, size, *(seconds,) * 3)
        times = {"st_mtime": now.st_mtime, "st_mtime_ns": now.st_mtime_ns}
        return os.stat_result(known, times | {"st_ctime": now.st_ctime, "st_ctime_ns": now.st_ctime_ns})

    def _look_up(self, path: str) -> tuple[int, str]:
        """The number of the entry at a path, and its path without links."""
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
        """Follows links; raises OSError when they lead in a circle, or out."""
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
        """Adds a member: its type (one byte, ``S``: sparse file), first byte, size in bytes, target of a link."""
        if len(name) > LONGEST_NAME or len(target) > LONGEST_NAME:
            raise _refused(self.path, f"has a member whose name is longer than {LONGEST_NAME:,} characters")
        folder, _, last = name.rstrip("/").rpartition("/") if name.endswith("/") else name.rpartition("/")
        children = self._directories.get(folder)
        if children is None or last in {"", ".", ".."} or name.startswith("/"):
            parts = self._parts(name)
            if not parts:
                return  # the packed directory itself
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
        """Returns a directory; makes it and those above it when missing."""
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
        """The number of the file that a hard link names."""
        folder, _, last = "/".join(self._parts(target)).rpartition("/")
        found = self._directories.get(folder)
        number = found[1].get(last, _LINK) if found is not None else _LINK
        if number < 0:
            raise _refused(self.path, f"has a link to what is not in it: {name[:200]!r} to {target[:200]!r}")
        return number

    def _check_links(self) -> None:
        """Refuses links that lead out or nowhere: their targets should be looked at, and cannot be."""
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
    """A file of a tar: an ``opener.MountedFile``."""

    waits = False

    def __init__(self, tar: TarMount, descriptor: int, start: int, status: os.stat_result) -> None:
        """``start`` is its first byte in the tar, whose descriptor it shares."""
        self._tar, self._descriptor, self._start = tar, descriptor, start  # the tar stays open as long as this member
        self.status = status
        """Size of the file, and the times of the tar."""

    def read(self, first: int, size: int) -> bytes:
        left = self.status.st_size - first
        return opener.pread(self._descriptor, min(size, left), self._start + first) if left > 0 else b""

    def mapped(self, first: int, size: int) -> tuple[mmap.mmap, int]:
        return opener.mapped(self._descriptor, self._start + first, size)

    def close(self) -> None:
        """The tar stays open for the others."""


Member = tuple[str, bytes, int, int, str]
"""Name, type, first byte, number of bytes, target of a link."""


class Headers:
    """The members of a tar, from their headers, in the order of the file."""

    def __init__(self, descriptor: int, size: int, path: str) -> None:
        """``path`` is for error messages."""
        self._descriptor, self._size, self._path = descriptor, size, path
        self._piece, self._from = b"", 0
        self._name = self._target = ""
        self._headers: dict[str, str] = {}

    def __iter__(self) -> Iterator[Member]:
        """Yields the members; raises NotADumpError for no tar, damage or a cut, OSError when it cannot be read."""
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
        """Refuses a tar with anything but zeros from its end mark on: a lost header looks like an end mark.

        Raises NotADumpError for such a tar, OSError when it cannot be read.
        """
        for first in range(at, self._size, _PIECE):
            if self._bytes(first, min(_PIECE, self._size - first)).strip(b"\0"):
                raise _refused(
                    self._path,
                    f"is damaged at byte {at:,}: there is an end mark, and more behind it",
                    "copy it again, or unpack it with tar --ignore-zeros and name the directory",
                )

    def _after_map(self, head: bytes, at: int) -> int:
        """First data byte of a sparse file, whose header may go on."""
        start = at + BLOCK
        if head[482]:
            while self._bytes(start, BLOCK)[504:505] not in {b"\0", b""}:
                start += BLOCK
            start += BLOCK
        return start

    def _extend(self, kind: bytes, start: int, size: int, at: int) -> None:
        """Takes a header about the next member, or about the tar."""
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
        """Name, type, size and link target of a member, from its header and the extended ones before it."""
        name, target = self._headers.get("path", self._name), self._headers.get("linkpath", self._target)
        if not name:
            name = _text(head[:100])
            if head[257:263] == b"ustar\0" and head[345]:
                name = f"{_text(head[345:500])}/{name}"
        size = int(self._headers.get("size", size))
        if kind == b"\0" and name.endswith("/"):  # as in tars from before 1988
            kind = b"5"
        elif kind == b"D":  # GNU tar's list of a directory
            return name, b"5", size, ""
        elif any(key.startswith("GNU.sparse") for key in self._headers):
            kind = b"S"
        if kind in _WITHOUT_BYTES:
            return name, kind, 0, target or _text(head[157:257])
        return name, kind, size, ""

    def _bytes(self, at: int, size: int) -> bytes:
        """Returns some bytes; reads many headers of small files at a time, which lie close together."""
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
    """Compares the checksum: the sum of all bytes, its own as blanks. Adler-32 gives the sum modulo 65521, plus 1."""
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
