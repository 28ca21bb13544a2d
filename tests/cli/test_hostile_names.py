"""Names that command a terminal: no command prints one as it is, on stdout or on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import Answer, run
from tests.hostile import EVIL, LOG, UNSAFE, unsafe, write_hostile_dump
from tui_debugger.cli.main import build_parser
from tui_debugger.session.dumps import LastVerdict, RecentDumps

Capsys = pytest.CaptureFixture[str]

LINES: dict[str, tuple[tuple[str, ...], ...]] = {
    "open": (("PATH",), ()),
    "listen": (
        ("--no-screen", "--timeout", "0.1", "--host", f"unix:{EVIL}"),
        ("--no-screen", "--watch", f"TO @ {EVIL}x("),
    ),
    "check": (
        ("PATH",),
        ("PATH", "--watch", "TO @ type=Log"),
        ("PATH", "--filter", f"{EVIL}("),
    ),
    "audit": (
        ("PATH",),
        ("PATH", "--csv"),
        ("PATH", "--node", "ReLU-op2"),
        ("PATH", "--node", EVIL),
        ("PATH", "--require", EVIL),
        ("PATH", "--markdown", "OUT.md"),
    ),
    "origin": (("PATH",), ("PATH", "--from", "ReLU-op2"), ("PATH", "--from", EVIL)),
    "relations": (
        ("PATH", "ReLU-op2"),
        ("PATH", "ReLU-op2:in:0", "--hops", "3"),
        ("PATH", "Log"),
        ("PATH", EVIL),
        ("PATH", "Log", "--sketch"),
    ),
    "explain": (("PATH", "ReLU-op2"), ("PATH", "Log"), ("PATH",)),
    "report": (("PATH",), ("PATH", "--full-paths")),
    "health": (("PATH",), ("PATH", "--nodes"), ("PATH", "--bad")),
    "ranks": (
        ("PATH",),
        ("PATH", "PATH"),
        ("PATH", "--nodes", "--stat", "norm"),
        ("PATH", "--csv"),
        ("PATH", "--against", "PATH"),
    ),
    "trend": (
        *(("PATH", "ReLU-op2"), ("PATH", LOG, "--log"), ("PATH", "fc"), ("PATH",)),
        *(("PATH", "--remarks"), ("PATH", "--csv"), ("PATH", "--json"), ("PATH", "--filter", EVIL)),
    ),
    "ls": (
        *(("PATH",), ("PATH", "--filter", "."), ("PATH", "--type", EVIL), (), ("--type", EVIL)),
        *(("PATH", "--steps"), ("PATH", "--steps", "--count")),
        *(("PATH", "--formats"), ("--formats",), (EVIL, "--formats"), (f"PATH/{EVIL}", "--formats")),
    ),
    "show": (
        ("PATH", LOG),
        *(("PATH", "Log", option) for option in ("--stat", "--heat", "--distribution")),
        *(("PATH", name) for name in ("Text", "Spoilt", "Lonely", "fc", EVIL)),
    ),
    "diff": (
        ("PATH", "ReLU-op2:0"),
        ("PATH", f"{LOG}:0", "--step", "1"),
        ("PATH", "Spoilt:0"),
        ("PATH", f"{EVIL}:0"),
        ("PATH", "PATH"),
        ("PATH", "PATH", "--csv"),
        ("PATH", "PATH", "--markdown", "OUT.md", "--map-name", f"s/{EVIL}/x/"),
        ("PATH", "PATH", "--map-file", f"{EVIL}"),
        ("PATH", f"./{EVIL}"),
    ),
    "stat": (("PATH",), ("PATH", "--csv"), ("PATH", "--category", EVIL)),
    "export": (
        ("PATH", "hits", "-o", "OUT.csv"),
        ("PATH", "graph", "-o", "OUT.json"),
        ("PATH", "graph", "-o", "OUT.dot"),
        ("PATH", "graph", "-o", "OUT.gv", "--around", EVIL, "--scope", EVIL),
        ("PATH", "hits", "-o", f"OUT{EVIL}"),
    ),
    "convert": (("PATH", "-o", "OUT"), ("PATH", "-o", f"OUT{EVIL}"), ("PATH", "-o", "OUT2", "--filter", f"{EVIL}(")),
    "config": (
        *((), ("--theme", EVIL), ("--no-config",), ("--completion", "fish"), ("--completion", EVIL)),
        *(("--cache",), ("--cache", "clear"), ("--cache", EVIL), ("--cache", "verify", EVIL)),
    ),
    "dump-config": (
        ("--yes", "--path", "/d", "-o", "OUT.json"),
        ("--yes", "--path", f"/{EVIL}", "-o", "OUT.json"),
        ("--yes", "--path", "/d", "-o", f"OUT{EVIL}.json"),
        ("--yes", "--path", "/d", "--force", "-o", "OUT.json", "--device", "gpu", "--jit-level", "O0"),
        ("--yes", "--path", "/d", "-o", "-", "--mindspore", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--net-name", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--iteration", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--dump-mode", "kernels", "--kernel", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--statistic-category", EVIL, "--save", "full"),
        ("--yes", "--path", "/d", "-o", "-", "--input-output", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--support-device", EVIL, "--op-debug-mode", "3"),
        ("--yes", "--path", "/d", "-o", "-", "--asynchronous", "--file-format", "bin", "--sample-num", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--parameters", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--parameters", "1", "--activations", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--ranks", "2", "--steps", EVIL),
        ("--yes", "--path", "/d", "-o", "-", "--like", "PATH"),
        ("--yes", "--path", "/d", "-o", "-", "--like", EVIL, "--json"),
        ("--yes", "--msprobe", "--framework", "pytorch", "-o", "-", "--task", EVIL),
        ("--yes", "--msprobe", "-o", "-", "--level", EVIL),
        ("--yes", "--msprobe", "-o", "-", "--scope", EVIL, EVIL, "--rank", "0"),
        ("--yes", "--msprobe", "-o", "-", "--summary-mode", EVIL),
        ("--check", EVIL),
        ("--check", "PATH/rank_0/.dump_metadata/data_dump.json"),
    ),
    "help": ((), ("keys",), (EVIL,), ("--search", EVIL)),
    "demo": (("--unpack",), ("--pytorch", "--unpack"), (f"--rank={EVIL}",)),
}
"""Command lines of every command, also those that end in an error."""


WITHOUT_A_DUMP = {"open", "listen", "demo", "config", "dump-config", "help"}


def commands() -> Iterator[str]:
    """The commands of the program, from its parser."""
    yield from build_parser().commands


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hostile_dump(tmp_path_factory.mktemp("hostile"))


def run_line(capsys: Capsys, command: str, line: tuple[str, ...], dump: Path, out: Path) -> Answer:
    return run(capsys, command, *(word.replace("PATH", str(dump)).replace("OUT", str(out)) for word in line))


@pytest.mark.parametrize("command", list(commands()))
def test_no_command_prints_what_commands_a_terminal(
    capsys: Capsys, hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(hostile.parent)
    RecentDumps().judged(str(hostile), LastVerdict(f"Begins at {EVIL}", "finding", 1, 1e9))
    assert command in LINES, f"give {command} command lines here"
    said = ""
    for number, line in enumerate((*LINES[command], (f"--no-such={EVIL}",), ("--help",))):
        answer = run_line(capsys, command, line, hostile, tmp_path / f"out{number}")
        assert not unsafe(answer.out), line
        assert not unsafe(answer.err), line
        assert "Traceback" not in answer.err, line
        said += answer.out + answer.err
    assert "aGFjaw==" in said, "the attack was never met"


@pytest.mark.parametrize("command", sorted(set(LINES) - WITHOUT_A_DUMP))
def test_a_document_is_exact_and_plain_ascii(capsys: Capsys, hostile: Path, tmp_path: Path, command: str) -> None:
    line = (*LINES[command][0], "--json")
    answer = run_line(capsys, command, line, hostile, tmp_path / "out")
    assert answer.out.isascii()
    assert not UNSAFE.search(answer.out)
    assert answer.json["path"] == str(hostile)
    assert next(iter(answer.json)) == "schema"
    assert answer.json["schema"] == 1
    assert not unsafe(answer.err)


def test_a_name_as_it_is_printed_finds_its_node(capsys: Capsys, hostile: Path) -> None:
    (row,) = [line for line in run(capsys, "ls", hostile).lines if line.startswith("Log")]
    printed = row[row.index("Default/") :]
    assert run(capsys, "show", hostile, printed, "--json").json["node"] == LOG
