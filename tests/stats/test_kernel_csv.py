"""Lines of a table, taken apart by the kernel: its numbers are those of Python, and what is odd is left to others."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence

import numpy as np
import pytest

from tests.stats.kernels import needs_kernel
from tui_debugger.stats.kernel.csv_columns import NAME, NUMBER, QUOTED_WORD, SKIPPED, WHOLE, WORD, CsvCells, columns_of

pytestmark = needs_kernel
UNKNOWN = -1.5e300


def taken(content: bytes, roles: Sequence[int], longest: int = 1000) -> tuple[CsvCells | None, list[list[float]]]:
    """What the kernel makes of lines; the numbers of each beside."""
    places = [sum(role == NUMBER for role in roles[:at]) for at in range(len(roles))]
    numbers = np.full((content.count(b"\n"), max(sum(role == NUMBER for role in roles), 1)), UNKNOWN)
    found = columns_of(content, roles, places, numbers, longest)
    return found, numbers.tolist()


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def any_number(chosen: random.Random) -> str:
    """A number as programs write it: short, long, tiny, huge, with and without a point, a sign, an exponent."""
    value = struct.unpack("<d", chosen.randbytes(8))[0]
    near = chosen.uniform(-1, 1) * 10 ** chosen.randint(-30, 30)
    return chosen.choice(
        (
            repr(value), repr(near), f"{near:.6g}", f"{near:f}", f"{near:.30f}", f"{near:e}", f"{near:.20E}",
            f"{near:+.9g}", f"{np.float32(near)}", f"000{abs(near):.3f}", str(chosen.randrange(10**18)),
            str(chosen.randrange(10**25)),
            f"{chosen.randrange(1 << 54)}e{chosen.randint(-25, 25)}", f".{chosen.randrange(1000)}",
            f"{chosen.randrange(99)}.",
            f"{chosen.randrange(9)}e{chosen.randint(-400, 400)}", "0", "-0", "0e999", "-0.000", "inf", "-Infinity",
            "+nan",
        )
    )  # fmt: skip


def test_numbers_are_those_that_python_reads() -> None:
    chosen = random.Random(1)  # noqa: S311 - a test
    texts = [any_number(chosen) for _ in range(20_000)]
    found, numbers = taken("".join(f"{text}\n" for text in texts).encode(), [NUMBER])
    assert found is not None
    assert not found.odd
    wrong = [text for text, (number,) in zip(texts, numbers, strict=True) if bits(float(text)) != bits(number)]
    assert not wrong


@pytest.mark.parametrize(
    "text",
    ["1_0", " 1", "1 ", "0x10", "1e", "1e+", "--1", "+-1", "1.2.3", "e5", ".", "-", "infin", "nan(1)", "1e9999999"],
)
def test_what_python_may_see_more_in_is_told(text: str) -> None:
    found, numbers = taken(f"a,{text},b\n".encode(), [SKIPPED, NUMBER, SKIPPED])
    assert found is not None
    assert found.odd == [(0, 0, text)]
    assert numbers == [[UNKNOWN]]


@pytest.mark.parametrize("text", ["", "null", "NULL"])
def test_what_was_not_recorded_stays_unknown(text: str) -> None:
    found, numbers = taken(f"a,{text},b\n".encode(), [SKIPPED, NUMBER, SKIPPED])
    assert found is not None
    assert not found.odd
    assert numbers == [[UNKNOWN]]


def test_columns_have_their_roles() -> None:
    lines = b'MatMul,fc1,7,x,float32,"(2, 3)",1.5,\nRelu,act,12,y,float16,"()",-2,\nRelu,act,0,y,float32,(4),null,\n'
    found, numbers = taken(lines, [NAME, NAME, WHOLE, SKIPPED, WORD, QUOTED_WORD, NUMBER])
    assert found is not None
    assert found.names == b"MatMul.fc1\nRelu.act\nRelu.act\n"
    assert found.wholes.tolist() == [[7], [12], [0]]
    assert found.texts == [["float32", "float16"], ["(2, 3)", "()", "(4)"]]
    assert found.words.tolist() == [[0, 0], [1, 1], [0, 2]]
    assert numbers == [[1.5], [-2.0], [UNKNOWN]]
    assert found.cells == 8


def test_thousands_of_texts_have_numbers_of_their_own() -> None:
    texts = [f"t{at % 4096}" for at in range(9000)]
    found, _ = taken("".join(f"{text}\n" for text in texts).encode(), [WORD])
    assert found is not None
    assert [found.texts[0][number] for number in found.words[:, 0].tolist()] == texts
    assert taken("".join(f"t{at}\n" for at in range(4097)).encode(), [WORD])[0] is None


@pytest.mark.parametrize(
    "lines",
    [
        b"a,1\na,1,2\n", b"a,1\na\n", b"a,1\n\n", b"\n", b" a,1\n", b"a,1 \n", b"a,1\r\n", b"a,\xc3\xa9\n", b"a,1\0\n",
        b"a,1,x\n", b'"a",1\n', b'a,"1"\n', b'a,"1\n', b'a,1"2\n', b",1\n", b"a ,1\n", b"a,12345678901234567890\n",
        b"a,-1\n",
        b"a,\n", b"a," + b"1" * 18 + b"," * 1000 + b"\n",
    ],
)  # fmt: skip
def test_lines_that_are_odd_are_not_taken(lines: bytes) -> None:
    assert taken(lines, [NAME, WHOLE])[0] is None


def test_a_last_line_without_its_end_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="make no sense"):
        taken(b"a,1\nb,2", [NAME, WHOLE])
    with pytest.raises(ValueError, match="make no sense"):
        columns_of(b"1\n", [NUMBER], [3], np.zeros((1, 2)), 1000)


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_bytes_nothing_beyond_them_is_read(seed: int) -> None:
    """Damaged lines are refused, or have what stands in them."""
    chosen = random.Random(seed)  # noqa: S311 - a test
    lines = bytearray(b'MatMul,fc1,7,float32,"(2, 3)",1.5,\n' * 20)
    for _ in range(chosen.randrange(4)):
        lines[chosen.randrange(len(lines))] = chosen.choice(b'",\n 019.eE-+\x00\xff')
    lines[-1:] = b"\n"
    content = bytes(lines)
    found, numbers = taken(content, [NAME, NAME, WHOLE, WORD, QUOTED_WORD, NUMBER])
    if found is not None:
        assert len(found.names.splitlines()) == len(numbers) == content.count(b"\n")
        assert all(0 <= number < len(found.texts[0]) for number in found.words[:, 0].tolist())
