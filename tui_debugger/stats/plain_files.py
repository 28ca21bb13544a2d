"""Recognizes files without tensors by their first bytes: text, pictures, programs, files of loggers."""

from __future__ import annotations

from typing import Final

_MARKS: Final = (
    *(b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"\0\0\1\0"),
    *(b"%PDF", b"%!PS", b"OggS", b"fLaC", b"ID3", b"\x1aE\xdf\xa3", b"{\\rtf", b"\xd0\xcf\x11\xe0"),
    *(b"\0\1\0\0\0", b"OTTO", b"ttcf", b"wOFF", b"wOF2"),
    *(b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"!<arch>\n", b"#!"),
    *(b"SQLite format 3\0", b"PAR1", b"ARROW1", b"ORC", b"Obj\1"),
    *(b"PACK\0", b"DIRC\0", b"\xfftOc", b":W&B", b"\0\5\x16\7"),
    *(b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"),
)
"""Pictures, papers, sounds, fonts, programs, tables, files of version control, loggers and macOS, other encodings."""
_EVENTS: Final = b"brain.Event:"


def is_marked(head: bytes) -> bool:
    film = head.startswith(b"ftyp", 4) or head.startswith(b"\r\n\0\0", 2)
    return film or head.startswith(_MARKS) or _EVENTS in head[:64]


_CONTROL: Final = bytes(code for code in range(32) if code not in b"\t\n\r\f\b\x1b")


def is_text(head: bytes) -> bool:
    """Tells whether bytes are text in UTF-8; the last character may be cut."""
    if len(head.translate(None, _CONTROL)) < len(head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 8
    return True
