"""A URL as a directory, whose files are read in ranges through fsspec. Nothing is downloaded whole.

Listings are asked for once and kept until the place is opened again. Bytes come in blocks, the last of which are kept;
reading on fetches more at once, and so does asking for the sizes of one file after the other. Each failure of a store
or a network becomes an OSError that describes it, within ``PATIENCE``, so that the tensor counts as unreadable. The end
of the program waits for no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import mmap
import os
import stat as modes
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from hashlib import blake2b
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

from tui_debugger.errors import TdbgError
from tui_debugger.mounts.refusals import RefusedError

if TYPE_CHECKING:
    from tui_debugger.mounts.web import Web

PATIENCE: Final = 30.0
"""Seconds in which an answer must come, or go on."""
GIVEN_UP: Final = 1024
"""Number of successive failures after which no request is made until the place is opened again."""
SILENT: Final = 32
"""Number of failures that an unanswered request counts as."""
SLOWEST: Final = 1 << 17
"""Bytes per second that are allowed for in the time limit of a large answer."""
BLOCK: Final = 1 << 17
"""Least bytes of a request: it takes as long as the transfer of so many."""
MOST_AHEAD: Final = 1 << 22
"""Most bytes that are fetched ahead, while a file is read in order."""
KEPT: Final = 1 << 26
"""Limit in bytes of the blocks that are kept, of all stores together."""
AT_ONCE: Final = 16
"""Most files of a directory whose sizes are asked for at the same time."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A file or a directory of a store."""

    directory: bool
    size: int
    """In bytes; -1 where the listing does not tell it."""
    changed: int
    """Nanoseconds that change with the content: its time, or a number made of its tag."""


class FetchedBlocks:
    """The blocks of all files that were fetched last, up to ``limit`` bytes, for any thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self.size = 0

    def get(self, key: tuple[Any, ...]) -> bytes | None:
        with self._lock:
            found = self._blocks.get(key)
            if found is not None:
                self._blocks.move_to_end(key)
            return found

    def put(self, key: tuple[Any, ...], block: bytes) -> None:
        """Keeps a block, and drops the least recently used ones."""
        with self._lock:
            self.size += len(block) - len(self._blocks.pop(key, b""))
            self._blocks[key] = block
            while self.size > self._limit:
                self.size -= len(self._blocks.popitem(last=False)[1])


BLOCKS: Final = FetchedBlocks(KEPT)


class RemoteMount:
    """The directories of a store: an ``opener.Mount``."""

    waits = True

    def __init__(self, root: str) -> None:
        """Asks nothing yet; raises TdbgError when the package for such URLs is not installed."""
        self.root = root
        """URL without a slash at its end."""
        self.scheme = root.partition(":")[0]
        self.fetched = 0
        """Bytes of files that came over the network so far."""
        self._web: Web | None = None
        self._fs: Any = None
        if self.scheme in {"http", "https"}:
            self._web = _reached(root, _web)
        else:
            self._fs = _reached(root, lambda: _file_system(root))
        self._listings: dict[str, dict[str, StoreEntry] | OSError] = {}
        self._infos: dict[str, StoreEntry | OSError] = {}
        self._unsized: dict[str, tuple[Iterator[str], int]] = {}
        self._failed = 0
        self._number = _number(root)

    def forget(self, path: str) -> None:
        """Asks the store again about everything at and below a path."""
        for known in (self._listings, self._infos, self._unsized):
            for each in [each for each in known if each == path or each.startswith(f"{path}/") or not path]:
                known.pop(each, None)
        self._failed = 0
        if self._fs is not None:
            self._fs.invalidate_cache()

    def stat(self, path: str) -> os.stat_result:
        return self._state(path, self._look_up(path))

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        return [(name, found.directory) for name, found in self._listing(path).items()]

    def open(self, path: str) -> RemoteFile:
        found = self._look_up(path)
        if found.size < 0:
            raise OSError(errno.EIO, "the server does not say how large the file is")
        return RemoteFile(self, self._url(path), found, self._state(path, found))

    def fetch(self, url: str, first: int, end: int, size: int) -> bytes:
        """Returns all of these bytes of a file, or raises OSError."""
        if self._web is None:
            get = partial(_started, lambda: bytes(self._fs.cat_file(url, start=first, end=end)))
        else:
            get = partial(self._web.part, url, first, end, size, PATIENCE)
        found = self.ask(get, url, end - first)
        self.fetched += len(found)
        if len(found) != end - first:
            raise OSError(errno.EIO, f"{len(found):,} of {end - first:,} bytes came: the connection was lost")
        return found

    def ask(self, question: Callable[[], futures.Future[T]], url: str, size: int = 0) -> T:
        """Returns the store's answer to a question about ``url``, which is asked again after a failure.

        ``size``: bytes of the answer. Raises OSError for an error, or without an answer in time.
        """
        patience = PATIENCE + size / SLOWEST
        if self._failed >= GIVEN_UP:
            raise OSError(errno.EIO, "not asked for: all requests before it failed", url)
        try:
            try:
                found = _in_time(question, patience)
            except (TimeoutError, FileNotFoundError, PermissionError, ValueError, RefusedError, TdbgError):
                raise
            except Exception:  # noqa: BLE001 - whatever libraries of stores raise
                found = _in_time(question, patience)
        except TdbgError:  # Ctrl-C
            raise
        except Exception as error:
            problem = _as_os_error(error, url)
            self._failed += SILENT if isinstance(problem, TimeoutError) else 1
            raise problem from error
        self._failed = 0
        return found

    def _url(self, path: str) -> str:
        if not path:
            return self.root
        return f"{self.root}/{quote(path) if self._web is not None else path}"

    def _state(self, path: str, found: StoreEntry) -> os.stat_result:
        mode = modes.S_IFDIR | 0o555 if found.directory else modes.S_IFREG | 0o444
        seconds = found.changed // 10**9
        known = (mode, _number(f"{self.root}/{path}"), self._number, 1, 0, 0, max(found.size, 0), *(seconds,) * 3)
        times = {"st_mtime": found.changed / 1e9, "st_mtime_ns": found.changed}
        return os.stat_result(known, times | {"st_ctime": found.changed / 1e9, "st_ctime_ns": found.changed})

    def _look_up(self, path: str) -> StoreEntry:
        if not path:
            return StoreEntry(True, 0, 0)
        folder, _, name = path.rpartition("/")
        if isinstance(self._listings.get(folder), dict) or self._web is not None:
            try:
                return self._listed(folder, name)
            except FileNotFoundError:
                if isinstance(self._listings.get(folder), dict):
                    raise
            except OSError:
                pass  # many users may read a file, but not list its directory
        return self._by_itself(path)

    def _listed(self, folder: str, name: str) -> StoreEntry:
        """The entry of a directory's listing for a name, with its size."""
        listing = self._listing(folder)
        found = listing.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.root}/{folder}/{name}")
        if found.directory or found.size >= 0:
            return found
        place = f"{folder}/" * bool(folder)
        if f"{place}{name}" not in self._infos and self._failed < GIVEN_UP:
            self._ask_for_sizes(folder, listing, f"{place}{name}")
        return self._info(f"{place}{name}")

    def _ask_for_sizes(self, folder: str, listing: dict[str, StoreEntry], path: str) -> None:
        """Asks for the size of a file, and at the same time for those of some others in its directory.

        Their number doubles each time: a single question needs one file, a series of questions needs all.
        """
        others, most = self._unsized.get(folder, (iter(list(listing)), 0))
        self._unsized[folder] = others, min(2 * most + 1, AT_ONCE - 1)
        place = path[: len(folder) + 1] if folder else ""
        unknown = (f"{place}{each}" for each in others if not listing[each].directory and listing[each].size < 0)
        paths = [path, *islice((each for each in unknown if each != path and each not in self._infos), most)]
        if len(paths) > 1:
            asked = [_started(partial(self._info, each, fails=False)) for each in paths]
            futures.wait(asked)

    def _by_itself(self, path: str) -> StoreEntry:
        """The store's answer about a path whose directory it does not list."""
        if self._web is not None:  # a URL that can be listed with a slash at its end is a directory
            try:
                self._listing(path)
            except OSError:
                return self._info(path)
            return StoreEntry(True, 0, time.time_ns())
        return self._info(path)

    def _info(self, path: str, *, fails: bool = True) -> StoreEntry:
        known = self._infos.get(path)
        if known is None:
            url = self._url(path)
            try:
                known = _found(self.ask(partial(self._about, url), url))
            except OSError as error:
                known = _bare(error)
            if self._failed < GIVEN_UP:  # answers that were not asked for are not kept: there may be a million
                self._infos[path] = known
        if isinstance(known, OSError):
            if fails:
                raise _bare(known)
            return StoreEntry(False, -1, 0)
        return known

    def _about(self, url: str) -> futures.Future[dict[str, Any]]:
        return _started(partial(self._fs.info, url)) if self._web is None else self._web.about(url, PATIENCE)

    def _listing(self, path: str) -> dict[str, StoreEntry]:
        known = self._listings.get(path)
        if known is None:
            folder, _, name = path.rpartition("/")
            beside = self._listings.get(folder) if path else None
            if isinstance(beside, dict) and name in beside and not beside[name].directory:  # not kept: there are many
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._url(path))
            try:
                known = self._names(path)
            except OSError as error:
                known = _bare(error)
            self._listings[path] = known
        if isinstance(known, OSError):
            raise _bare(known)
        return known

    def _names(self, path: str) -> dict[str, StoreEntry]:
        url = self._url(path)
        if self._web is not None:
            names = self.ask(partial(self._web.names, f"{url}/", PATIENCE), f"{url}/")
            now = time.time_ns()  # nothing is remembered of a directory
            file, folder = StoreEntry(False, -1, now), StoreEntry(True, -1, now)
            return {name: folder if directory else file for name, directory in names.items()}
        found: dict[str, StoreEntry] = {}
        base = str(self._fs._strip_protocol(url)).rstrip("/")  # noqa: SLF001 - how listings name files
        for entry in self.ask(partial(_started, lambda: self._fs.ls(url, detail=True)), url):
            place, _, name = str(entry["name"]).rstrip("/").rpartition("/")
            if place == base and name not in {"", ".", ".."} and "\0" not in name:
                found[name] = _found(entry)
        if not found and not self._info(path).directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), url)
        return found


class RemoteFile:
    """A file of a store: an ``opener.MountedFile``."""

    waits = True

    def __init__(self, mount: RemoteMount, url: str, found: StoreEntry, status: os.stat_result) -> None:
        self.status = status
        """Its size, and a time that changes with the content."""
        self._mount, self._url = mount, url
        self._key = (url, found.size, found.changed)
        self._next, self._ahead = -1, 0

    def read(self, first: int, size: int) -> bytes:
        end = min(first + size, self.status.st_size)
        if first >= end:
            return b""
        self._ahead = min(max(2 * self._ahead, BLOCK), MOST_AHEAD) if first == self._next else 0
        self._next = end
        if end - first > KEPT // 4:  # none of it would be kept
            return self._mount.fetch(self._url, first, end, self.status.st_size)
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
        """Fetches blocks, and keeps them."""
        size = self.status.st_size
        content = self._mount.fetch(self._url, start * BLOCK, min(stop * BLOCK, size), size)
        found = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
        for number, block in enumerate(found, start):
            BLOCKS.put((*self._key, number), block)
        return found

    def mapped(self, first: int, size: int) -> tuple[mmap.mmap, int]:
        """See ``opener.MountedFile``. The bytes are copied into a temporary file that ends with the map."""
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


def _reached(root: str, store: Callable[[], T]) -> T:
    """Makes the reader of such URLs, or raises TdbgError as ``RemoteMount``."""
    scheme = root.partition(":")[0]
    try:
        from fsspec.asyn import get_loop

        get_loop().set_default_executor(_Threads())  # looks up the addresses of hosts
        return _in_time(partial(_started, store), PATIENCE)
    except TdbgError:  # Ctrl-C
        raise
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


def _web() -> Web:
    from fsspec.asyn import get_loop

    from tui_debugger.mounts.web import Web

    return Web(get_loop())


def _file_system(root: str) -> Any:
    from fsspec.core import url_to_fs

    # fsspec trusts any server by default; a version too old for the option refuses to connect.
    ssh = NEEDS[root.partition(":")[0]] == "paramiko"
    return url_to_fs(root, **({"host_key_policy": _known_servers()} if ssh else {}))[0]


def _known_servers() -> Any:
    """The policy of paramiko that trusts only servers whose keys ``ssh`` knows."""
    paramiko = import_module("paramiko")

    def missing_host_key(_self: Any, _client: Any, host: str, key: Any) -> None:
        known = paramiko.HostKeys()
        for path in (Path("/etc/ssh/ssh_known_hosts"), Path.home() / ".ssh" / "known_hosts"):
            with contextlib.suppress(OSError):
                known.load(str(path))
        if not known.check(host, key):
            raise paramiko.SSHException(f"{host} shows a key that is not in ~/.ssh/known_hosts; connect with ssh once")

    return type("KnownServers", (paramiko.MissingHostKeyPolicy,), {"missing_host_key": missing_host_key})()


class _Threads(futures.ThreadPoolExecutor):
    """Gives each question a thread that the end of the program does not wait for; Python's own threads are joined."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        return _started(partial(fn, *args, **kwargs))


def _started(question: Callable[[], T]) -> futures.Future[T]:
    answer: futures.Future[T] = futures.Future()
    answer.set_running_or_notify_cancel()

    def asking() -> None:
        try:
            found = question()
        except BaseException as error:  # noqa: BLE001 - it is raised where it was asked
            answer.set_exception(error)
        else:
            answer.set_result(found)

    threading.Thread(target=asking, name="tdbg request", daemon=True).start()
    return answer


def _in_time(question: Callable[[], futures.Future[T]], patience: float) -> T:
    """Returns an answer, or stops waiting for it with TimeoutError."""
    answer = question()
    try:
        return answer.result(patience)
    except (futures.TimeoutError, asyncio.TimeoutError):  # the same as TimeoutError from Python 3.11 on
        raise TimeoutError(errno.ETIMEDOUT, f"no whole answer within {patience:.3g} seconds") from None
    finally:
        answer.cancel()


def _bare(error: OSError) -> OSError:
    """A copy of an error without its traceback: a kept error would keep all objects of its frames."""
    bare = type(error).__new__(type(error), error.errno, error.strerror, error.filename)
    OSError.__init__(bare, error.errno, error.strerror, error.filename)
    bare.__dict__.update(error.__dict__)
    return bare


_CLASSES: Final = (
    (FileNotFoundError, (404, 410), errno.ENOENT),
    (PermissionError, (401, 403), errno.EACCES),
    (NotADirectoryError, (), errno.ENOTDIR),
)


def _as_os_error(error: Exception, url: str) -> OSError:
    """Converts an error of a library into one whose ``strerror`` tells what happened."""
    if isinstance(error, RefusedError):
        return error
    status = getattr(error, "status", None) or getattr(getattr(error, "response", None), "status_code", None)
    for kind, statuses, number in _CLASSES:
        if isinstance(error, kind) or status in statuses:
            return kind(number, os.strerror(number), url)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, error.strerror or "no answer in time", url)
    if isinstance(status, int):
        words = f"the server answers {status}"
    elif type(error).__name__ == "ServerDisconnectedError":  # of aiohttp, as the next one
        words = "the server ended the connection without an answer"
    elif type(error).__name__ == "ClientPayloadError":  # of aiohttp, which is imported where it is needed
        words = "the connection was lost before all bytes came"
    else:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
    return OSError(errno.EIO, words, url)


_TAGS: Final = ("ETag", "etag", "blob_id", "md5", "sha256")
_TIMES: Final = ("LastModified", "last_modified", "Last-Modified", "mtime", "modified", "created")


def _found(entry: dict[str, Any]) -> StoreEntry:
    """Makes an entry of a store's answer, whose keys differ between stores."""
    directory = entry.get("type") == "directory"
    size = entry.get("size")
    tag = next((str(entry[key]) for key in _TAGS if entry.get(key)), "")
    times = (entry.get(key) for key in _TIMES)
    when = next(filter(None, map(_nanoseconds, times)), 0)
    if directory or not (tag or when):
        return StoreEntry(
            directory, size if isinstance(size, int) else -1, time.time_ns()
        )  # nothing is remembered of it
    changed = when - when % 10**9 + _number(tag) % 10**9 if tag else when
    return StoreEntry(False, size if isinstance(size, int) else -1, changed)


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
