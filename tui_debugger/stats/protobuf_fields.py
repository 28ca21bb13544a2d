"""Reads the fields of a protobuf message, perhaps only its first bytes, without its definition."""

from __future__ import annotations

from collections.abc import Iterator


def fields_of(message: bytes, size: int) -> Iterator[tuple[int, int | bytes]]:
    """Yields number and value of the fields of a message of ``size`` bytes, of which ``message`` is the beginning.

    The last value is cut where the known bytes end. Raises ValueError for other data, and for lengths beyond ``size``.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if not 0 < number < 1 << 29 or kind not in (0, 1, 2, 5):
            raise ValueError("no field")
        if kind == 0:
            value, at = varint(message, at)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(kind, 0)
        if kind == 2:
            length, at = varint(message, at)
        if at + length > size:
            raise ValueError("more bytes than there are")
        yield number, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns a varint and its end; raises ValueError when the message ends in it, or it is too long."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("no number")


def first_fields(message: bytes, size: int, most: int = 64) -> list[tuple[int, int | bytes]]:
    """Returns the first fields of a message; empty when it is no message."""
    found: list[tuple[int, int | bytes]] = []
    try:
        for field in fields_of(message, size):
            found.append(field)
            if len(found) == most:
                break
    except ValueError:
        return found if size > len(message) and len(found) > 1 else []
    return found
