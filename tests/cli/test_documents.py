"""The documents of all commands, as they are printed: NaN and Inf as texts at any depth, names that are no UTF-8.

``python -m tests.cli.test_documents`` writes the golden file anew: look at what changed.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from tests.cli.every import COMMANDS, words
from tests.sources.writer import DumpWriter, Generation, Graph, Node
from tui_debugger.cli.main import main

GOLDEN = Path(__file__).with_name("documents.golden.jsonl")
"""A line for each command: its name, its exit code, its document."""
NAME = "no utf-8 \udcff"
MORE = {"check": ("--watch", "TO"), "report": ("--watch", "TO"), "convert": ("--force",), "export": ("--force",)}
_PASSED = re.compile(r'("(?:seconds|version)": )[^,\n]+')
"""What is different each time."""


def written(parent: Path) -> Path:
    """Writes a dump of three operators, the values of the second step bad, and a file of which only its name tells."""
    writer = DumpWriter(parent / f"dump {NAME}", Generation.V2_0, net="Net")
    log, relu = "Default/net-Net/Log-op1", "Default/net-Net/ReLU-op2"
    nodes = Node(log, "Log", (("x", 0), ("w", 0))), Node(relu, "ReLU", ((log, 0),))
    writer.metadata()
    writer.graph(Graph(nodes, parameters=("x", "w")))
    good, bad = np.array([0.5, 1, 2], np.float32), np.array([np.nan, np.inf, -np.inf], np.float32)
    for step in (0, 1):
        value = bad if step else good
        writer.tensor(step, "Log", log, good, at=("input", 0))
        writer.tensor(step, "Log", log, value)
        writer.tensor(step, "ReLU", relu, value, at=("input", 0))
        writer.tensor(step, "ReLU", relu, value)
        writer.tensor(step, "Parameter", "x", good)
        writer.tensor(step, "Add", f"Lonely {NAME}", value)
    writer.history((0, 1))
    return writer.root


def printed(command: str, dump: Path) -> tuple[int, str]:
    """What a command prints, but for places, times and the version."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        try:
            code = main([*words(command, dump, *MORE.get(command, ())), "--json", "--no-cache"])
        except SystemExit as left:
            code = int(left.code or 0)
    return code, _PASSED.sub(r"\1null", out.getvalue().replace(json.dumps(str(dump.parent))[1:-1], "PLACE"))


def line(command: str, dump: Path) -> str:
    """The line of a command."""
    code, text = printed(command, dump)
    return json.dumps({"command": command, "code": code, "document": json.loads(text)})


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("documents"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_document_is_what_it_was(command: str, dump: Path) -> None:
    (golden,) = [each for each in map(json.loads, GOLDEN.read_text("utf-8").splitlines()) if each["command"] == command]
    found = json.loads(line(command, dump))
    assert found == golden
    assert json.dumps(found) == json.dumps(golden), "the order of keys, and numbers that are equal to others"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        place = written(Path(folder))
        GOLDEN.write_text("".join(f"{line(command, place)}\n" for command in COMMANDS), "utf-8")
