"""What a web server may send that is broken or means no good: answers for ``WebServer.answers``."""

from __future__ import annotations

import gzip
import itertools
import socket
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler

Answer = Callable[[BaseHTTPRequestHandler], None]
MEGABYTE = 1 << 20


def sends(pieces: Callable[[], Iterable[bytes]], *, pause: float = 0.0, status: int = 200, **headers: str) -> Answer:
    """Sends pieces one after the other until there are no more, or nobody listens."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        part = request.headers.get("Range", "")[len("bytes=") :]
        request.send_response(status)
        for name, value in {"Content_Type": "text/html", **headers}.items():
            request.send_header(name.replace("_", "-"), value.format(part=part))
        request.end_headers()
        if request.command != "HEAD":
            for piece in pieces():
                request.wfile.write(piece)
                time.sleep(pause)

    return answer


def text(whole: str) -> Answer:
    """Sends a page."""
    return sends(lambda: [whole.encode()], Content_Length=str(len(whole.encode())))


def page(names: Iterable[str]) -> str:
    """A list of names as servers write them."""
    links = "".join(f'<li><a href="{name}">{name}</a></li>' for name in names)
    return f"<html><body><ul>{links}</ul></body></html>"


def redirect(target: str) -> Answer:
    """Sends the client elsewhere, with the same path."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", f"{target}{request.path}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def _endless_headers(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        request.wfile.write(b"X-%d: %s\r\n" % (number, b"x" * 4000))


def _bomb() -> list[bytes]:
    """Four gigabytes of zeros in four megabytes."""
    return [gzip.compress(bytes(16 * MEGABYTE)) * 256]


def _half_closed(request: BaseHTTPRequestHandler) -> None:
    """Promises more than it sends, and ends its side of the connection."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 500\r\n\r\n<a")
    request.connection.shutdown(socket.SHUT_WR)


def _no_answer(request: BaseHTTPRequestHandler) -> None:
    """Says that it goes on, and goes."""
    request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def _names() -> Iterable[bytes]:
    for number in itertools.count():
        yield "".join(f"<a href={number}-{each}>" for each in range(10_000)).encode()


COMPRESSED, TAG, NO_HTML = "compressed (gzip)", "a tag in the list", "is no HTML"
LARGE, LATE = "more than 67,108,864 bytes", "no whole answer within"
OF_LISTINGS: dict[str, tuple[Answer, str]] = {
    "bomb": (sends(_bomb, Content_Encoding="gzip"), COMPRESSED),
    **{
        f"bomb-{how}": (sends(_bomb, Content_Encoding=how), f"compressed ({how})")
        for how in ("br", "deflate", "zstd", "gzip, gzip")
    },
    "bomb-on-its-way": (sends(_bomb, Transfer_Encoding="gzip"), COMPRESSED),
    "half-closed": (_half_closed, "lost before all bytes came"),
    "no-answer": (_no_answer, "without an answer"),
    "length-of-nothing": (sends(lambda: [b"<a href=x>"], Content_Length="-5"), "answers 400"),
    "one-name": (text(page(["x" * 10_000_000])), TAG),
    "redirects-to-another-port": (redirect("http://127.0.0.1:1"), "another host, 127.0.0.1:1"),
    "endless": (sends(lambda: itertools.repeat(b"x" * MEGABYTE)), LARGE),
    "endless-names": (sends(_names), LATE),
    "drips": (sends(lambda: itertools.repeat(b"<"), pause=0.02), LATE),
    "one-tag": (text("<a " * 100_000), TAG),
    "one-tag-quoted": (text('<a href="' * 30_000), TAG),
    "one-tag-closed": (text("<a <a>" * 50_000), "no array"),
    "comments": (text("<!--" * 75_000), TAG),
    "sections": (text("<![" * 100_000), NO_HTML),
    "long-tag": (text(f"<a {'x=y ' * 75_000}>"), TAG),
    "json": (sends(lambda: [b"{}"], Content_Type="application/json"), "but application/json"),
    "headers": (_endless_headers, "answers 400"),
    "redirects": (redirect(""), "redirects more than"),
    "redirects-to-a-file": (redirect("file:///etc"), "no address of the web"),
    "redirects-to-nothing": (redirect("http://[::"), "no address of the web"),
}
"""Answers for a list of names, each with what is said of it."""
SIZE = 128 + 20 * 5 * 4
"""Bytes of the file."""
OF_PARTS: dict[str, tuple[Answer, str]] = {
    "bomb": (
        sends(_bomb, status=206, Content_Encoding="gzip", Content_Range=f"bytes {{part}}/{SIZE}"),
        COMPRESSED,
    ),
    "another-part": (sends(lambda: [bytes(9)], status=206, Content_Range=f"bytes 5-13/{SIZE}"), "another part"),
    "another-size": (sends(lambda: [bytes(SIZE)], status=206, Content_Range="bytes {part}/99999"), "another part"),
    "no-part": (sends(lambda: [bytes(SIZE)], status=206), "another part"),
    "half-closed": (_half_closed, "another size"),
    "no-answer": (_no_answer, "without an answer"),
    "endless": (
        sends(lambda: itertools.repeat(bytes(MEGABYTE)), status=206, Content_Range=f"bytes {{part}}/{SIZE}"),
        f"more than {SIZE} bytes",
    ),
    "endless-whole": (sends(lambda: itertools.repeat(bytes(MEGABYTE))), f"more than {SIZE} bytes"),
    "drips": (
        sends(lambda: itertools.repeat(b"x"), pause=0.02, status=206, Content_Range=f"bytes {{part}}/{SIZE}"),
        LATE,
    ),
    "headers": (_endless_headers, "answers 400"),
}
"""Answers for a part of a file, each with what is said of it."""
