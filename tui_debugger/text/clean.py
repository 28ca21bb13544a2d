"""Text that came from somebody else, made safe to print."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: str) -> str:
    r"""One line of the user's data, safe to print.

    Control characters become their pictures (ESC → ``␛``), undecodable bytes of file names become ``\xNN``,
    and characters that reorder or hide text become ``�``.
    """
    return _CONTROL.sub(_visible, text) if not (text.isascii() and text.isprintable()) else text


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return "␡" if code == 0x7F else "�"
