"""Makes foreign text safe: shows characters that control a terminal, reorder text or are invisible."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: they command the terminal (ESC, CSI, OSC, BEL ...)
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidi controls: they reorder what stands around them
    "\u2028\u2029"  # separators of lines and paragraphs
    "\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"  # invisible
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # invisible, and annotations
    "\U000e0000-\U000e0fff"  # tag characters and variation selectors: whole hidden texts are made of them
    "\ud800-\udfff"  # lone surrogates: bytes of file names that are no UTF-8
    "]"
)
"""Private-use characters stay: fonts for terminals draw them, and they do nothing."""
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
_TAB: Final = 4


def clean(text: str) -> str:
    r"""Returns the text as one line that is safe to print and to paste.

    Unsafe characters become visible escapes: ESC ``\x1b``, a line break ``\n``, a bidi override ``\u202e``, a tag
    ``\U000e0041``; a byte of a file name that is no UTF-8 becomes ``\xff``. Cleaning twice is cleaning once.
    """
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(_escape, text)


def clean_lines(text: str) -> str:
    """Returns the text safe to print with its line breaks; not for names, which could fake further lines."""
    return "\n".join(clean(line.replace("\t", " " * _TAB)) for line in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
