"""What a web server may send that means no good, or is broken: answers for ``WebServer.answers``."""

from __future__ import annotations

import gzip
import itertools
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler

Answer = Callable[[BaseHTTPRequestHandler], None]
MEGABYTE = 1 << 20


def sends(
    pieces: Callable[[], Iterable[bytes]], *, pause: float = 0.0, status: int = 200, **headers: str
) -> Answer:
    """Sends pieces one after the other until there are no more, or nobody listens."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content_Type": "text/html", **headers}.items():
            request.send_header(name.replace("_", "-"), value.format(range=request.headers.get("Range", "")[6:]))
        request.end_headers()
        if request.command == "HEAD":
            return
        for piece in pieces():
            request.wfile.write(piece)
            time.sleep(pause)

    return answer


def bomb(megabytes: int) -> bytes:
    """Some megabytes of zeros, in a thousandth of that."""
    one = gzip.compress(bytes(16 * MEGABYTE))
    return one * (megabytes // 16)


def text(whole: str) -> Answer:
    """Sends a page."""
    return sends(lambda: [whole.encode()], Content_Length=str(len(whole.encode())))


def page(names: Iterable[str]) -> str:
    """A list of names as servers write them."""
    return "<html><body><ul>" + "".join(f'<li><a href="{name}">{name}</a></li>\n' for name in names) + "</ul></body></html>"


def redirect(target: str) -> Answer:
    """Sends the client elsewhere, with the same path."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", f"{target}{request.path}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def endless_headers(request: BaseHTTPRequestHandler) -> None:
    """A header after the other."""
    request.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        request.wfile.write(b"X-%d: %s\r\n" % (number, b"x" * 4000))


OF_LISTINGS: dict[str, Answer] = {
    "bomb": sends(lambda: [bomb(4096)], Content_Encoding="gzip"),
    "bomb without a word": sends(lambda: [bomb(4096)]),
    "deflate": sends(lambda: [bomb(64)], Content_Encoding="deflate"),
    "endless text": sends(lambda: itertools.repeat(b"x" * MEGABYTE)),
    "endless names": sends(
        lambda: ("".join(f"<a href={n}-{k}>" for k in range(10_000)).encode() for n in itertools.count())
    ),
    "endless empty lines": sends(lambda: itertools.repeat(b"\n" * MEGABYTE)),
    "drips": sends(lambda: itertools.repeat(b"<"), pause=0.02),
    "drips names": sends(lambda: (f'<a href="{n}.npy">x</a>'.encode() for n in itertools.count()), pause=0.02),
    **{f"300 KB of {tag}": text(tag * (300_000 // len(tag))) for tag in ("<a ", '<a href="', "<a", "<!--", "<![", "<a <", "</a ")},
    "a long tag": text(f"<a {'x=y ' * 100_000}>"),
    "JSON": sends(lambda: [b"{}"], Content_Type="application/json"),
    "endless headers": endless_headers,
    "headers of a megabyte": sends(lambda: [b""], X_Long="x" * MEGABYTE),
    "redirects to itself": redirect(""),
    "redirects to a file": redirect("file:///etc"),
    "redirects to nothing": redirect("http://[::"),
}
OF_PARTS: dict[str, Answer] = {
    "bomb": sends(lambda: [bomb(4096)], status=206, Content_Encoding="gzip", Content_Range="bytes {range}/208"),
    "endless": sends(lambda: itertools.repeat(bytes(MEGABYTE)), status=206, Content_Range="bytes {range}/208"),
    "endless whole": sends(lambda: itertools.repeat(bytes(MEGABYTE)), Content_Length="528"),
    "drips": sends(lambda: itertools.repeat(b"x"), pause=0.02, status=206, Content_Range="bytes {range}/528"),
    "endless headers": endless_headers,
}
