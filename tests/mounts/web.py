"""A real web server on this machine, which sends ranges and listings, and can be told to misbehave."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, unquote


class WebServer(http.server.ThreadingHTTPServer):
    """Serves a directory.

    Attributes:
        host: how its URL names this machine.
        sent: bytes of files that it sent, by path.
        requests: (method, path) of each request.
        answers: what answers for a part of the requests in whatever way, by a pattern of method and path.
        statuses: answers of a part of the paths, by a pattern.
        cut: patterns of paths of which half is sent before the connection ends.
        short: patterns of paths of which half is sent as if that were what was asked for.
        hang: patterns of paths that are not answered until the end.
        ranges: whether it sends parts of files.
        ranges_said: which part it says that it sends.
        tags: whether it says when a file was changed, and which one it is.
    """

    daemon_threads = True
    request_queue_size = 100

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.host = folder, "127.0.0.1"
        self.sent: dict[str, int] = {}
        self.requests: list[tuple[str, str]] = []
        self.answers: dict[str, Callable[[http.server.BaseHTTPRequestHandler], None]] = {}
        self.statuses: dict[str, int] = {}
        self.cut: set[str] = set()
        self.short: set[str] = set()
        self.hang: set[str] = set()
        self.ranges = self.tags = True
        self.ranges_said = "bytes {first}-{last}/{size}"
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none of the test's business."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    server: WebServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else what follows the headers may wait for the client to say that it has them

    def translate_path(self, path: str) -> str:
        return f"{self.server.folder}{unquote(path.partition('?')[0])}"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the class has it
        pass

    def do_HEAD(self) -> None:
        self._answer(content=False)

    def do_GET(self) -> None:
        self._answer(content=True)

    def _answer(self, *, content: bool) -> None:
        server, path = self.server, unquote(self.path)
        server.requests.append((self.command, path))
        for pattern, answer in server.answers.items():
            if re.search(pattern, f"{self.command} {path}"):
                self.close_connection = True
                answer(self)
                return
        for pattern, status in server.statuses.items():
            if re.search(pattern, path):
                self.send_error(status)
                return
        if _named(server.hang, path):
            server.over.wait(30)
            self.close_connection = True
            return
        file = Path(self.translate_path(self.path))
        listed = file.is_dir() and path.endswith("/")
        if not listed and (not file.is_file() or path.endswith("/")):
            super().do_GET() if content else super().do_HEAD()
            return
        whole = self._listing(file) if listed else file.read_bytes()
        first, end, status = 0, len(whole), HTTPStatus.OK
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and server.ranges:
            first, end, status = int(asked[1]), min(int(asked[2]) + 1, end), HTTPStatus.PARTIAL_CONTENT
        if content and _named(server.short, path):
            end = first + (end - first) // 2
        self.send_response(status)
        if status is HTTPStatus.PARTIAL_CONTENT:
            said = server.ranges_said.format(first=first, last=end - 1, size=len(whole))
            self.send_header("Content-Range", said)
        self.send_header("Accept-Ranges", "bytes" if server.ranges else "none")
        self.send_header("Content-Type", "text/html; charset=utf-8" if listed else "application/octet-stream")
        self.send_header("Content-Length", str(end - first))
        if server.tags and not listed:
            self.send_header("ETag", f'"{file.stat().st_mtime_ns:x}-{len(whole):x}"')
            self.send_header("Last-Modified", self.date_time_string(int(file.stat().st_mtime)))
        self.end_headers()
        if content:
            if _named(server.cut, path):
                end = first + (end - first) // 2
                self.close_connection = True
            if not listed:  # counted before it arrives
                server.sent[path] = server.sent.get(path, 0) + end - first
            self.wfile.write(whole[first:end])

    def _listing(self, folder: Path) -> bytes:
        names = sorted(f"{each.name}{'/' * each.is_dir()}" for each in folder.iterdir())
        links = "".join(f'<li><a href="{quote(name)}">{escape(name)}</a></li>\n' for name in names)
        return f"<!DOCTYPE HTML>\n<html>\n<body>\n<ul>\n{links}</ul>\n</body>\n</html>\n".encode()


def _named(patterns: set[str], path: str) -> bool:
    return any(re.search(pattern, path) for pattern in patterns)


@contextmanager
def serving(folder: Path) -> Iterator[WebServer]:
    """Runs a server until the end of the block."""
    server = WebServer(folder)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
