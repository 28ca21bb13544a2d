"""Places of dumps where the operating system has no directories: a tar, a URL.

``reached`` registers a mount for such a place with ``opener``, under a path that no file has: that of the tar itself,
or ``/s3:/bucket`` for ``s3://bucket``. Readers of dumps call ``opener`` and need not know. Imports what a place needs
only when there is one.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from tui_debugger import opener
from tui_debugger.errors import NotADumpError, TdbgError, reason_of
from tui_debugger.mounts.refusals import ElsewhereError

_TAR: Final = ".tar"
_COMPRESSED: Final = {
    ".tar.gz": "tar xzf", ".tgz": "tar xzf", ".tar.xz": "tar xJf", ".txz": "tar xJf", ".tar.bz2": "tar xjf",
    ".tbz2": "tar xjf", ".tbz": "tar xjf", ".tar.zst": "tar --zstd -xf", ".tzst": "tar --zstd -xf",
    ".tar.lz4": "tar -I lz4 -xf",
}  # fmt: skip
"""Compressed tars by suffix, with the command that unpacks one."""
_ANY: Final = re.compile(r"\.(?:tar|tgz|txz|tbz2?|tzst)(?:\.\w+)?(?:/|$)", re.IGNORECASE)


_URL: Final = re.compile(r"/?([a-z][a-z0-9+.-]+):/{1,2}([^/].*)")
"""A URL, also as ``Path`` writes it (``s3:/bucket``), and as the path of its mount (``/s3:/bucket``)."""
SCHEMES: Final = ("s3", "hf", "http", "https", "ssh", "sftp", "memory")


def is_url(path: str) -> bool:
    """Whether a path is a URL in any spelling; asks no server."""
    return _URL.fullmatch(path) is not None and not os.path.lexists(path)


def reached(path: Path, *, anew: bool = False) -> Path:
    """Registers a mount where a path needs one, and returns the path for its files; a directory is returned as it is.

    With ``anew`` earlier answers of a store about the path do not count.

    Raises:
        NotADumpError: a tar that is damaged, compressed or hostile; nothing lies at a URL.
        TdbgError: a package for such URLs is not installed; the store cannot be reached, or not with these rights.
    """
    text = os.fspath(path)
    url = _URL.fullmatch(text)
    if url is not None and is_url(text):
        return _at_url(url[1], url[2].rstrip("/"), anew=anew)
    if _ANY.search(text) is not None:
        return _in_tar(path, text)
    return path


def _in_tar(path: Path, text: str) -> Path:
    """Registers the tar that a path is, or lies in."""
    absolute = os.path.abspath(text)  # noqa: PTH100 - keeps links
    place, inside = absolute, ""
    while place:
        suffix = next((each for each in _COMPRESSED if place.lower().endswith(each)), "")
        if (suffix or place.lower().endswith(_TAR)) and os.path.isfile(place):  # noqa: PTH113 - never raises
            if suffix:
                raise NotADumpError(
                    "a compressed tar cannot be read where it lies",
                    where=text,
                    hint=f"unpack it: {_COMPRESSED[suffix]} {os.path.basename(place)}",  # noqa: PTH119 - text
                )
            if _was_saved_by_torch(place):
                return path  # checkpoint.pth.tar
            from tui_debugger.mounts.tar import TarMount

            known = opener.mount_at(place)
            if isinstance(known, TarMount) and known.is_current():
                mount = known
            else:
                opener.forget(place)  # the path means the file itself now
                mount = TarMount.read(place)
                opener.register(place, mount)
            return Path(absolute) if inside else Path(place, mount.folder)
        place, _, name = place.rpartition("/")
        inside = f"{name}/{inside}"
    return path


def _was_saved_by_torch(path: str) -> bool:
    """Recognises a file of ``torch.save`` (a zip archive, a pickle) that is named like a tar."""
    try:
        head = opener.first_bytes(path, 4)
    except OSError:
        return False
    return head.startswith((b"PK\3\4", b"\x80\2", b"\x80\3", b"\x80\4", b"\x80\5"))


def _at_url(scheme: str, rest: str, *, anew: bool) -> Path:
    """Registers the host or bucket of a URL."""
    url = f"{scheme}://{rest}"
    if scheme not in SCHEMES:
        known = ", ".join(f"{each}://" for each in SCHEMES[:-1])
        raise TdbgError(f"{scheme}:// is not read", where=url, hint=f"{known} are; or copy the dump to this machine")
    authority, _, inside = rest.partition("/")
    if ":" in authority.rpartition("@")[0]:
        raise TdbgError(
            "a password in a URL would stand in lists and reports",
            where=f"{scheme}://{authority.partition(':')[0]}:…@{authority.rpartition('@')[2]}",
            hint="give it as other programs take it: ~/.netrc, ~/.ssh/config, ~/.aws/credentials, HF_TOKEN",
        )
    from tui_debugger.mounts.remote import RemoteMount

    point = f"/{scheme}:/{authority}"
    mount = opener.mount_at(point)
    if not isinstance(mount, RemoteMount):
        mount = RemoteMount(f"{scheme}://{authority}")
        opener.register(point, mount)
    elif anew:
        mount.forget(inside)
    try:
        mount.stat(inside)
    except OSError as error:
        raise NotADumpError(f"cannot be read: {reason_of(error)}", where=url, hint=_what_to_do(error)) from error
    return Path(point, inside)


def _what_to_do(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "nothing lies there: check the URL, with its directories"
    if isinstance(error, PermissionError):
        return "the store wants other credentials, or they lack the right to list and read it"
    if isinstance(error, ElsewhereError):
        return f"if {error.host} is to be trusted, add --redirect-to {error.host}; in Python redirect_to"
    return "check the address, the network, and that the server answers other programs"
