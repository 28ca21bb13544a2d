"""Damage, the same for the same number: bits, cuts, swapped pieces, lengths, numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")
_NUMBERS: Final = (
    *(b"0", b"-1", b"9" * 25, b"1e400", b"-1e400", b"nan", b"null", b"", b"1e-400", b"18446744073709551616", b"[]"),
    *(b"{}", b'"', b"true", b"0x10", b"\xff", b"2147483648", b"9223372036854775807"),
)
_WORDS: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
_HEAD: Final = 4096
"""Most damage is done to the first bytes, where headers are, or to the last, where archives have their tables."""


def _place(content: bytes, dice: random.Random) -> int:
    if len(content) > 2 * _HEAD and dice.random() < 0.8:
        near = dice.randrange(_HEAD)
        return near if dice.random() < 0.6 else len(content) - 1 - near
    return dice.randrange(len(content))


def _flip(content: bytes, dice: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 2, 8, 64))):
        found[_place(content, dice)] ^= 1 << dice.randrange(8)
    return bytes(found)


def _cut(content: bytes, dice: random.Random) -> bytes:
    return content[: _place(content, dice)]


def _remove(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    return content[:start] + content[start + dice.randint(1, 64) :]


def _swap(content: bytes, dice: random.Random) -> bytes:
    a, b = sorted((_place(content, dice), _place(content, dice)))
    size = min(dice.randint(1, 64), b - a)
    return content[:a] + content[b : b + size] + content[a + size : b] + content[a : a + size] + content[b + size :]


def _repeat(content: bytes, dice: random.Random) -> bytes:
    start = _place(content, dice)
    piece = content[start : start + dice.randint(1, 64)]
    return content[:start] + piece * dice.choice((2, 3, 300)) + content[start:]


def _length(content: bytes, dice: random.Random) -> bytes:
    size = dice.choice((1, 2, 4, 8))
    start = _place(content, dice)
    word = (dice.choice(_WORDS) & ((1 << 8 * size) - 1)).to_bytes(size, dice.choice(("little", "big")))
    return content[:start] + word + content[start + size :]


def _number(content: bytes, dice: random.Random) -> bytes:
    found = list(_NUMBER.finditer(content[: 64 * _HEAD]))
    if not found:
        return _length(content, dice)
    match = dice.choice(found)
    return content[: match.start()] + dice.choice(_NUMBERS) + content[match.end() :]


KINDS: Final[tuple[Callable[[bytes, random.Random], bytes], ...]] = (
    *(_flip, _cut, _remove, _swap, _repeat, _length, _number, _number),
)


def mutated(content: bytes, number: int) -> bytes:
    """Damages a file; the same number does the same to the same file. One or two kinds of damage."""
    dice = random.Random(number)  # noqa: S311 - no secret
    for _ in range(dice.choice((1, 1, 1, 2))):
        content = dice.choice(KINDS)(content, dice) if content else b"\0"
    return content
