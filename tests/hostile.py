"""A run whose every name tries to command the terminal, to reorder what stands around it, or to hide text."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from tests.sources.writer import DumpWriter, Generation, Graph, Node

OSC_52 = "\x1b]52;c;aGFjaw==\x07"
"""Would put a text of its own into the clipboard."""
ATTACKS = {
    "OSC 52": OSC_52,
    "CSI": "\x1b[31m\x1b[2J",
    "C1": "\x9b31m\x9d0;x\x9c",
    "bell and backspace": "\x07\x08\x7f",
    "bidi": "\u202egnp\u2066\u061c",
    "tags": "\U000e0041\U000e0042\U000e007f",
    "zero width": "\u200b\u200d\u180e\ufeff\ufff9\ufffb",
    "separators": "\u2028\u2029",
    "carriage return": "\rtdbg: clean",
    "line break": "\nclean: all elements",
}
EVIL = "".join(ATTACKS.values())
"""What stands in names of a graph."""
EVIL_FILE = EVIL.replace("/", "") + "\udcff\udc9b"
"""What stands in names of files: bytes that are no UTF-8, too, as Python shows them."""
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
"""Every character that no output for people may have; a line break is one only where it stands within a name."""
FORGED = re.compile(r"^clean: all elements|^tdbg: clean", re.MULTILINE)
"""A line that a name made."""

LOG = f"Default/net-Net{EVIL}/Log{EVIL}-op1"
RELU = "Default/net-Net/ReLU-op2"
MUL = f"Default/net-Net/Mul{OSC_52}-op3"
WEIGHT = f"fc{EVIL}.weight"
SOURCE = (
    f"#0 In file /root/{EVIL}/train.py:12/        x = ops.log(y) # {EVIL}/\n"
    f"In file /root/train{OSC_52}.py(14)/        return {OSC_52}/\n"
)


def unsafe(text: str) -> list[str]:
    """What of a text is not safe to print, with what stands around it; empty when all is well."""
    found = [match.start() for pattern in (UNSAFE, FORGED) for match in pattern.finditer(text)]
    return [ascii(text[max(at - 30, 0) : at + 10]) for at in found]


def write_hostile_dump(parent: Path) -> Path:
    """Writes a dump with NaN in it, below a directory with such a name; returns its path."""
    root = Path(os.fsdecode(os.fsencode(parent)) + f"/dump{EVIL_FILE}")
    writer = DumpWriter(root, Generation.V2_0, net="Net")
    graph = Graph(
        nodes=(
            Node(LOG, "Log", (("x", 0), (WEIGHT, 0)), source=SOURCE),
            Node(RELU, "ReLU", ((LOG, 0),), source=SOURCE),
            Node(MUL, f"Mul{OSC_52}", ((RELU, 0), ("cst1", 0))),
        ),
        parameters=("x", WEIGHT),
        constants={"cst1": f"Default--data-{EVIL}"},
    )
    writer.metadata(device=f"CPU{EVIL}")
    writer.graph(graph)
    good, bad = np.ones((2, 3), np.float32), np.full((2, 3), np.nan, np.float32)
    for step in (0, 1, 2):
        value = bad if step else good
        for slot in (0, 1):
            writer.tensor(step, "Log", LOG, good, at=("input", slot))
        writer.tensor(step, "Log", LOG, value)
        writer.tensor(step, "ReLU", RELU, value, at=("input", 0))
        writer.tensor(step, "ReLU", RELU, value)
        writer.tensor(step, "Parameter", "x", good)
        writer.tensor(step, "Parameter", WEIGHT, good * step)
        _only_a_file(writer, step, f"Add.Lonely{EVIL_FILE}", value)
        _spoilt_header(writer, step, f"Sub.Spoilt{EVIL_FILE}")
        _text(writer, step, f"Str.Text{EVIL_FILE}")
    writer.history((0, 1, 2))
    return root


def _path(writer: DumpWriter, step: int, name: str) -> bytes:
    writer.clock += 100
    return os.fsencode(writer.step(step) / f"{name}.0.0.{writer.clock}.output.0.DefaultFormat.npy")


def _only_a_file(
    writer: DumpWriter, step: int, name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    with open(_path(writer, step, name), "wb") as file:  # noqa: PTH123 - a path of bytes
        np.save(file, values)


def _spoilt_header(writer: DumpWriter, step: int, name: str) -> None:
    """A header whose element type and shape are attacks."""
    header = f"{{'descr': '<f4{OSC_52}', 'fortran_order': False, 'shape': ('{EVIL}', 3), }}\n".encode()
    with open(_path(writer, step, name), "wb") as file:  # noqa: PTH123 - a path of bytes
        file.write(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header)


def _text(writer: DumpWriter, step: int, name: str) -> None:
    """A tensor whose elements are attacks."""
    with open(_path(writer, step, name), "wb") as file:  # noqa: PTH123 - a path of bytes
        np.save(file, np.array([EVIL.rstrip("\0"), "plain"]))
