"""Untrusted web servers: lists of names, sizes, and parts of files.

No body is larger than asked for, none is decompressed, every answer has a time limit, and no redirect leads to another
host unless the user allowed that.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import weakref
from collections.abc import AsyncIterator, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from html.parser import HTMLParser
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import aiohttp
from yarl import URL

from tui_debugger.mounts.refusals import ElsewhereError, RefusedError, may_redirect_to

LISTING: Final = 1 << 26
"""Limit of a list of names in bytes."""
NAMES: Final = 1 << 20
"""Limit of a list of names in names."""
REDIRECTS: Final = 5
"""Limit of successive redirects."""
_PIECE: Final = 1 << 14
_TAG: Final = 1 << 16
"""Limit of a tag in characters: with each piece the parser reads an incomplete tag again."""
_REDIRECTED: Final = {301, 302, 303, 307, 308}
_STATUSES: Final = ((FileNotFoundError, {404, 410}), (PermissionError, {401, 403}))
_PLAIN: Final = {"", "identity", "chunked"}
_SIZE: Final = re.compile(r"\d{1,18}", re.ASCII)
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.IGNORECASE | re.ASCII)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)

T = TypeVar("T")


class Web:
    """One web server. Thread-safe. ``patience`` of its methods: seconds in which nothing may come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """``loop`` runs in another thread."""
        self._loop = loop
        self._session: aiohttp.ClientSession | None = None

    def names(self, url: str, patience: float) -> Future[dict[str, bool]]:
        """Asks for the names in a directory, and whether each is one; RefusedError for no list, or one too long."""
        return self._started(self._names(url, patience))

    def about(self, url: str, patience: float) -> Future[dict[str, Any]]:
        """Asks about a file: values of its headers, and ``size`` where known."""
        return self._started(self._about(url, patience))

    def part(self, url: str, first: int, end: int, size: int, patience: float) -> Future[bytes]:
        """Asks for bytes of a file of a known size.

        RefusedError: another part came, or the file has another size, or the server sends no parts; noticed before it
        sends the whole file.
        """
        return self._started(self._part(url, first, end, size, patience))

    def _started(self, answer: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(answer, self._loop)

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str, patience: float, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Makes a request, and follows allowed redirects."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                auto_decompress=False,
                trust_env=True,
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            weakref.finalize(self, _close, self._session, self._loop)
        time = aiohttp.ClientTimeout(total=None, sock_connect=patience, sock_read=patience)
        start = target = URL(url)
        for _ in range(REDIRECTS + 1):
            asked = self._session.request(method, target, headers=headers, allow_redirects=False, timeout=time)
            async with asked as answer:
                location = answer.headers.get("Location") if answer.status in _REDIRECTED else None
                if location is None:
                    for kind, statuses in _STATUSES:  # these are not asked for once more
                        if answer.status in statuses:
                            raise kind
                    answer.raise_for_status()
                    yield answer
                    return
            target = _redirected(start, target, location)
        raise RefusedError(f"the server redirects more than {REDIRECTS} times")

    async def _names(self, url: str, patience: float) -> dict[str, bool]:
        async with self._answer("GET", url, patience) as answer:
            kind = answer.headers.get("Content-Type", "text/html").partition(";")[0].strip().lower()
            if kind not in {"text/html", "application/xhtml+xml"}:
                raise RefusedError(f"the server sends no list of names, but {kind[:50]}")
            links, text = _Links(answer.url), codecs.getincrementaldecoder("utf-8")("replace")
            async for piece in _pieces(answer, LISTING):
                links.take(text.decode(piece))
            return links.names

    async def _about(self, url: str, patience: float) -> dict[str, Any]:
        with suppress(aiohttp.ClientResponseError, PermissionError):  # some servers answer GET only
            async with self._answer("HEAD", url, patience) as answer:
                about = _about(answer)
            if "size" in about:
                return about
        async with self._answer("GET", url, patience, {"Range": "bytes=0-0"}) as answer:  # the body is not read
            return _about(answer)

    async def _part(self, url: str, first: int, end: int, size: int, patience: float) -> bytes:
        async with self._answer("GET", url, patience, {"Range": f"bytes={first}-{end - 1}"}) as answer:
            if answer.status == HTTPStatus.PARTIAL_CONTENT:
                said = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", ""))
                if said is None or (int(said[1]), int(said[2])) != (first, end - 1) or said[3] not in {str(size), "*"}:
                    raise RefusedError("another part came than was asked for: the file was written anew meanwhile")
            elif first or end != size:
                raise RefusedError("the server sends files only as a whole")
            elif answer.headers.get("Content-Length", str(size)) != str(size):
                raise RefusedError("the file has another size than the server said")
            found = bytearray()
            async for piece in _pieces(answer, end - first):
                found += piece
            return bytes(found)


async def _pieces(answer: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
    """Yields a body as it comes; raises RefusedError when it is compressed, or larger than ``most``."""
    encoding = _encoding(answer)
    if encoding:
        raise RefusedError(f"the server sends it compressed ({encoding[:20]}), which was not asked for")
    size = 0
    async for piece in answer.content.iter_chunked(_PIECE):
        size += len(piece)
        if size > most:
            raise RefusedError(f"the server sends more than {most:,} bytes")
        yield piece


def _encoding(answer: aiohttp.ClientResponse) -> str:
    """The compression of a body, in transfer or as stored; empty without."""
    said = ",".join(answer.headers.get(name, "") for name in ("Content-Encoding", "Transfer-Encoding"))
    return ", ".join(each for part in said.lower().split(",") if (each := part.strip()) not in _PLAIN)


def _about(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    about: dict[str, Any] = {name: answer.headers.get(name) for name in ("ETag", "Last-Modified")}
    said = answer.headers.get("Content-Length", "")
    if answer.status == HTTPStatus.PARTIAL_CONTENT:
        said = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if _SIZE.fullmatch(said) and not _encoding(answer):
        about["size"] = int(said)
    return about


def _redirected(start: URL, source: URL, location: str) -> URL:
    """The target of a redirect; raises ElsewhereError for another host than that of the first request."""
    try:
        target = source.join(URL(location))
        host, port = target.host, target.port
    except ValueError:
        host = None
    if host is None or target.scheme not in {"http", "https"}:
        raise RefusedError("the server redirects to what is no address of the web")
    same = target.scheme == start.scheme and port == start.port
    safer = (start.scheme, start.port, target.scheme, port) == ("http", 80, "https", 443)
    if host == start.host and (same or safer):
        return target
    there = host if target.is_default_port() else f"{host}:{port}"
    if not (may_redirect_to(host) or may_redirect_to(there)):
        raise ElsewhereError(there)
    return target


def _close(session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop) -> None:
    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(session.close(), loop).result(0.1)


class _Links(HTMLParser):
    """The names directly below a page that its links lead to."""

    def __init__(self, page: URL) -> None:
        super().__init__()
        self.names: dict[str, bool] = {}
        """Whether each name is a directory."""
        self._host, self._path = page.authority, page.path.rstrip("/") + "/"

    def take(self, text: str) -> None:
        """Reads on; raises RefusedError when the text is no list of names."""
        try:
            self.feed(text)
        except AssertionError:  # the parser's answer to invalid markup
            raise RefusedError("the list of names is no HTML") from None
        if len(self.rawdata) > _TAG:
            raise RefusedError(f"a tag in the list of names has more than {_TAG:,} characters")
        if len(self.names) > NAMES:
            raise RefusedError(f"the list has more than {NAMES:,} names")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = next((value for key, value in attrs if key == "href" and value), "") if tag == "a" else ""
        if _SCHEME.match(href):
            try:
                parts = urlsplit(href)
            except ValueError:
                return
            if parts.netloc != self._host or parts.scheme not in {"", "http", "https"}:
                return
            href = href[href.index(parts.netloc) + len(parts.netloc) :]
        if "?" in href or "#" in href:
            return  # another order of the same list, or a place in it
        name = unquote(href).removeprefix("./")
        if name.startswith("/"):
            if not name.startswith(self._path):
                return
            name = name[len(self._path) :]
        directory = name.endswith("/")
        name = name.rstrip("/")
        if name and "/" not in name and name not in {".", ".."} and "\0" not in name:
            self.names[name] = directory or self.names.get(name, False)
