"""A URL as a directory, whose files are read in ranges through fsspec. Nothing is downloaded whole.

Listings are asked for once and kept until the place is opened again. Bytes come in blocks, of which the last ones are
kept; who reads on gets more at once. Whatever a store or a network does wrong is an OSError that says so, within
``PATIENCE``, so that a tensor that cannot be had is an unreadable tensor.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat as modes
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from tui_debugger.errors import TdbgError

PATIENCE: Final = 30.0
"""Seconds that an answer may take."""
BLOCK: Final = 1 << 17
"""Bytes that are asked for at least: a request takes as long as the transfer of so many."""
MOST_AHEAD: Final = 1 << 22
"""The most bytes that are fetched ahead, while a file is read in order."""
KEPT: Final = 1 << 26
"""Bytes of blocks that are kept, of all stores together."""
AT_ONCE: Final = 16
"""Files of a directory whose sizes are asked for at the same time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """A file or a directory of a store.

    Attributes:
        directory: it is a directory.
        size: bytes; -1 where the listing does not say.
        changed: nanoseconds that change when it is written anew: its time, or a number made of its tag.
    """

    directory: bool
    size: int
    changed: int


class Blocks:
    """The blocks that were fetched last, of all files, by any thread."""

    def __init__(self, limit: int) -> None:
        """``limit`` bytes are kept at most."""
        self._limit = limit
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self.size = 0

    def get(self, key: tuple[Any, ...]) -> bytes | None:
        """Returns a block that is there."""
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
            return found

    def put(self, key: tuple[Any, ...], block: bytes) -> None:
        """Keeps a block, and drops those that were asked for longest ago."""
        with self._lock:
            self.size += len(block) - len(self._blocks.pop(key, b""))
            self._blocks[key] = block
            while self.size > self._limit:
                self.size -= len(self._blocks.popitem(last=False)[1])


BLOCKS: Final = Blocks(KEPT)


class RemoteMount:
    """The directories of a store: an ``opener.Mount``.

    Attributes:
        waits: see ``opener.Mount``.
        root: its URL, without a slash at its end.
        fetched: bytes of files that came over the network so far.
    """

    waits = True

    def __init__(self, root: str) -> None:
        """Asks nothing yet.

        Raises:
            TdbgError: what reads such URLs is not installed.
        """
        self.root = root
        self.scheme = root.partition(":")[0]
        self.fetched = 0
        self._web = self.scheme in {"http", "https"}
        self._fs = _file_system(root)
        self._listings: dict[str, dict[str, Found] | OSError] = {}
        self._infos: dict[str, Found | OSError] = {}
        self._number = _number(root)

    def forget(self, path: str) -> None:
        """Asks the store again for what lies at and below a path."""
        for known in (self._listings, self._infos):
            for each in [each for each in known if each == path or each.startswith(f"{path}/") or not path]:
                known.pop(each, None)
        self._fs.invalidate_cache()

    def stat(self, path: str) -> os.stat_result:
        """See ``opener.Mount``."""
        return self._state(path, self._look_up(path))

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        """See ``opener.Mount``."""
        return [(name, found.directory) for name, found in self._listing(path).items()]

    def open(self, path: str) -> RemoteFile:
        """See ``opener.Mount``."""
        found = self._look_up(path)
        if found.size < 0:
            raise OSError(errno.EIO, "the server does not say how large the file is")
        return RemoteFile(self, self._url(path), found, self._state(path, found))

    def fetch(self, url: str, first: int, end: int, size: int) -> bytes:
        """Returns bytes of a file.

        Raises:
            OSError: they cannot be had, all of them.
        """
        found: bytes = self.ask(lambda: self._bytes(url, first, end, size), url)
        self.fetched += len(found)
        if len(found) != end - first:
            raise OSError(errno.EIO, f"{len(found):,} of {end - first:,} bytes came: the connection was lost")
        return found

    def _bytes(self, url: str, first: int, end: int, size: int) -> bytes:
        if not self._web:
            return bytes(self._fs.cat_file(url, start=first, end=end))
        from fsspec.asyn import sync

        return bytes(sync(self._fs.loop, _range, self._fs, url, first, end, size))

    def ask(self, question: Callable[[], T], url: str) -> T:
        """Returns what the store answers. A request that fails is made once more.

        Raises:
            OSError: no answer in time, or an error; ``strerror`` says what.
        """
        try:
            try:
                return _in_time(question)
            except (TimeoutError, FileNotFoundError, PermissionError, ValueError):
                raise
            except Exception:  # noqa: BLE001 - whatever libraries of stores raise
                return _in_time(question)
        except Exception as error:
            raise _as_os_error(error, url) from error

    def _url(self, path: str) -> str:
        if not path:
            return self.root
        return f"{self.root}/{quote(path) if self._web else path}"

    def _state(self, path: str, found: Found) -> os.stat_result:
        mode = modes.S_IFDIR | 0o555 if found.directory else modes.S_IFREG | 0o444
        seconds = found.changed // 10**9
        known = (mode, _number(f"{self.root}/{path}"), self._number, 1, 0, 0, max(found.size, 0), *(seconds,) * 3)
        times = {"st_mtime": found.changed / 1e9, "st_mtime_ns": found.changed}
        return os.stat_result(known, times | {"st_ctime": found.changed / 1e9, "st_ctime_ns": found.changed})

    def _look_up(self, path: str) -> Found:
        if not path:
            return Found(True, 0, 0)
        folder, _, name = path.rpartition("/")
        if isinstance(self._listings.get(folder), dict) or self._web:
            try:
                return self._listed(folder, name)
            except FileNotFoundError:
                if isinstance(self._listings.get(folder), dict):
                    raise
            except OSError:
                pass  # many may see what is in a directory, and not what lies beside it
        return self._by_itself(path)

    def _listed(self, folder: str, name: str) -> Found:
        """Returns what the listing of a directory says of a name, with its size."""
        listing = self._listing(folder)
        found = listing.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.root}/{folder}/{name}")
        if found.directory or found.size >= 0:
            return found
        unknown = [each for each, about in listing.items() if not about.directory and about.size < 0]
        if len(unknown) > 1 and f"{folder}/{unknown[-1]}" not in self._infos:  # all at once, and each only once
            with ThreadPoolExecutor(AT_ONCE, "tdbg sizes") as pool:
                list(pool.map(lambda each: self._info(f"{folder}/{each}" if folder else each, fails=False), unknown))
        return self._info(f"{folder}/{name}" if folder else name)

    def _by_itself(self, path: str) -> Found:
        """Returns what the store says of a path whose directory it does not list."""
        if self._web:  # what can be listed with a slash behind it is a directory
            try:
                self._listing(path)
            except OSError:
                return self._info(path)
            return Found(True, 0, time.time_ns())
        return self._info(path)

    def _info(self, path: str, *, fails: bool = True) -> Found:
        known = self._infos.get(path)
        if known is None:
            url = self._url(path)
            try:
                known = _found(self.ask(lambda: self._fs.info(url), url))
            except OSError as error:
                known = error
            self._infos[path] = known
        if isinstance(known, OSError):
            if fails:
                raise known
            return Found(False, -1, 0)
        return known

    def _listing(self, path: str) -> dict[str, Found]:
        known = self._listings.get(path)
        if known is None:
            folder, _, name = path.rpartition("/")
            beside = self._listings.get(folder) if path else None
            try:
                if isinstance(beside, dict) and name in beside and not beside[name].directory:
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._url(path))
                known = self._names(path)
            except OSError as error:
                known = error
            self._listings[path] = known
        if isinstance(known, OSError):
            raise known
        return known

    def _names(self, path: str) -> dict[str, Found]:
        url = self._url(path) + "/" * self._web
        found: dict[str, Found] = {}
        base = str(self._fs._strip_protocol(url)).rstrip("/")  # noqa: SLF001 - how listings name files
        for entry in self.ask(lambda: self._fs.ls(url, detail=True), url):
            name, about = str(entry["name"]).rstrip("/"), _found(entry)
            if not name.startswith(f"{base}/") or any(mark in name for mark in "?#" * self._web):
                continue  # a link to elsewhere, or to another order of the same listing
            name = unquote(name[len(base) + 1 :]) if self._web else name[len(base) + 1 :]
            if name and "/" not in name and name not in {".", ".."} and "\0" not in name:
                found[name] = about
        if not found and not self._web and not self._info(path).directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), url)
        return found


class RemoteFile:
    """A file of a store: an ``opener.MountedFile``.

    Attributes:
        status: size, and what changes with it.
        waits: see ``opener.MountedFile``.
    """

    waits = True

    def __init__(self, mount: RemoteMount, url: str, found: Found, status: os.stat_result) -> None:
        """Asks nothing yet."""
        self.status = status
        self._mount, self._url = mount, url
        self._key = (url, found.size, found.changed)
        self._next, self._ahead = -1, 0

    def read(self, first: int, size: int) -> bytes:
        """See ``opener.MountedFile``."""
        end = min(first + size, self.status.st_size)
        if first >= end:
            return b""
        self._ahead = min(max(2 * self._ahead, BLOCK), MOST_AHEAD) if first == self._next else 0
        self._next = end
        numbers = range(first // BLOCK, -(-end // BLOCK))
        blocks = [BLOCKS.get((*self._key, number)) for number in numbers]
        missing = [number for number, block in zip(numbers, blocks, strict=True) if block is None]
        if missing:
            fresh = self._fetched(missing[0], missing[-1] + 1 + self._ahead // BLOCK)
            blocks = [
                block if block is not None else fresh[number - missing[0]]
                for number, block in zip(numbers, blocks, strict=True)
            ]
        whole = b"".join(block for block in blocks if block is not None)
        return whole[first - numbers[0] * BLOCK :][: end - first]

    def _fetched(self, start: int, stop: int) -> list[bytes]:
        """Fetches blocks, and keeps them unless they are more than should be kept of one file."""
        size = self.status.st_size
        content = self._mount.fetch(self._url, start * BLOCK, min(stop * BLOCK, size), size)
        found = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
        if len(content) <= KEPT // 4:
            for number, block in enumerate(found, start):
                BLOCKS.put((*self._key, number), block)
        return found

    def mapped(self, first: int, size: int) -> tuple[mmap.mmap, int]:
        """See ``opener.MountedFile``. The stretch comes into a temporary file that goes with the map."""
        with tempfile.TemporaryFile() as file:
            for at in range(first, first + size, MOST_AHEAD):
                file.write(self.read(at, min(MOST_AHEAD, first + size - at)))
            file.flush()
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), 0

    def close(self) -> None:
        """Nothing is open."""


NEEDS: Final = {
    "s3": "s3fs", "hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp", "ssh": "paramiko",
    "sftp": "paramiko", "memory": "fsspec",
}  # fmt: skip
"""The schemes that are read, with the package that each needs besides fsspec."""


def _file_system(root: str) -> Any:
    """Returns what fsspec has for a URL."""
    scheme = root.partition(":")[0]
    options: dict[str, Any] = {"client_kwargs": {"trust_env": True}} if scheme in {"http", "https"} else {}
    try:
        from fsspec.core import url_to_fs

        if NEEDS[scheme] == "paramiko":
            # fsspec trusts any server by itself; one that is too old for the option refuses to connect.
            options["host_key_policy"] = _known_servers()
        return _in_time(lambda: url_to_fs(root, **options)[0])
    except ImportError as error:
        raise TdbgError(
            f"reading {scheme}:// needs a package that is not installed: {NEEDS[scheme]} ({error})",
            where=root,
            hint="pip install 'tui-debugger[remote]'",
        ) from error
    except Exception as error:
        problem = _as_os_error(error, root)
        what = f"the store cannot be reached: {problem.strerror}"
        raise TdbgError(what, where=root, hint="check the address and your credentials") from error


async def _range(fs: Any, url: str, first: int, end: int, size: int) -> bytes:
    """Returns bytes of a file of a web server; what fsspec takes for them need not be those that were asked for.

    Raises:
        OSError: another part came, or one of a file of another size.
        ValueError: the server sends no ranges; that is noticed before it sends the whole file.
    """
    session = await fs.set_session()
    headers = {**fs.kwargs.get("headers", {}), "Range": f"bytes={first}-{end - 1}", "Accept-Encoding": "identity"}
    options = {name: value for name, value in fs.kwargs.items() if name != "headers"}
    async with session.get(fs.encode_url(url), headers=headers, **options) as answer:
        answer.raise_for_status()
        if answer.status == HTTPStatus.PARTIAL_CONTENT:
            content_range = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if content_range is None or int(content_range[1]) != first or content_range[2] not in {str(size), "*"}:
                raise OSError(errno.EIO, "another part came than was asked for: the file was written anew meanwhile")
        elif first or end != size:
            raise ValueError("no range requests")
        elif answer.headers.get("Content-Length", str(size)) != str(size):
            raise OSError(errno.EIO, "the file has another size than the server said")
        return bytes(await answer.read())


_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)", re.IGNORECASE)


def _known_servers() -> Any:
    """Returns the policy of paramiko that trusts those servers only whose keys ``ssh`` knows."""
    paramiko = import_module("paramiko")

    def missing_host_key(_self: Any, _client: Any, host: str, key: Any) -> None:
        known = paramiko.HostKeys()
        for path in (Path("/etc/ssh/ssh_known_hosts"), Path.home() / ".ssh" / "known_hosts"):
            with contextlib.suppress(OSError):
                known.load(str(path))
        if not known.check(host, key):
            raise paramiko.SSHException(f"{host} shows a key that is not in ~/.ssh/known_hosts; connect with ssh once")

    return type("KnownServers", (paramiko.MissingHostKeyPolicy,), {"missing_host_key": missing_host_key})()


def _in_time(question: Callable[[], T]) -> T:
    """Returns an answer, or stops to wait for it."""
    answers: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def asking() -> None:
        try:
            answers.put((True, question()))
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
            answers.put((False, error))

    threading.Thread(target=asking, name="tdbg request", daemon=True).start()
    try:
        good, answer = answers.get(timeout=PATIENCE)
    except Empty:
        raise TimeoutError(errno.ETIMEDOUT, f"no answer within {PATIENCE:g} seconds") from None
    if not good:
        raise answer
    found: T = answer
    return found


_CLASSES: Final = (
    (FileNotFoundError, (404, 410), errno.ENOENT),
    (PermissionError, (401, 403), errno.EACCES),
    (NotADirectoryError, (), errno.ENOTDIR),
)


def _as_os_error(error: Exception, url: str) -> OSError:
    """Returns an error of a library as one that says what happened in ``strerror``."""
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__  # fsspec says so of whatever went wrong on the web
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    for kind, statuses, number in _CLASSES:
        if isinstance(error, kind) or status in statuses:
            return kind(number, os.strerror(number), url)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, error.strerror or f"no answer within {PATIENCE:g} seconds", url)
    if isinstance(status, int):
        words = f"the server answers {status}"
    elif isinstance(error, ValueError) and "range requests" in str(error):
        words = "the server sends files only as a whole"
    elif type(error).__name__ == "ClientPayloadError":  # of aiohttp, which is imported where it is needed
        words = "the connection was lost before all bytes came"
    elif type(error) is OSError and error.errno == errno.EIO and error.strerror:
        words = error.strerror  # our own
    else:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    return OSError(errno.EIO, words, url)


_TAGS: Final = ("ETag", "etag", "blob_id", "md5", "sha256")
_TIMES: Final = ("LastModified", "last_modified", "Last-Modified", "mtime", "modified", "created")


def _found(entry: dict[str, Any]) -> Found:
    """Returns what a store says of a file: names of its facts differ."""
    directory = entry.get("type") == "directory"
    size = entry.get("size")
    tag = next((str(entry[key]) for key in _TAGS if entry.get(key)), "")
    times = (entry.get(key) for key in _TIMES)
    when = next(filter(None, map(_nanoseconds, times)), 0)
    if directory or not (tag or when):
        return Found(directory, size if isinstance(size, int) else -1, time.time_ns())  # nothing is remembered of it
    changed = when - when % 10**9 + _number(tag) % 10**9 if tag else when
    return Found(False, size if isinstance(size, int) else -1, changed)


def _nanoseconds(when: Any) -> int:
    if isinstance(when, str):
        try:
            when = parsedate_to_datetime(when)
        except ValueError:
            return 0
    if isinstance(when, datetime):
        when = when.timestamp()
    return int(when * 10**9) if isinstance(when, (int, float)) else 0


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=7).digest(), "big")
