"""Man page and completions: they are those of the command line, and real shells understand them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.shell_files import ABBREVIATIONS, MAKERS
from tui_debugger.cli.completion import FILES, SHARE
from tui_debugger.cli.help import TOPICS
from tui_debugger.cli.main import COMMANDS
from tui_debugger.model import CATEGORY_WORDS

Capsys = pytest.CaptureFixture[str]


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def said(*command: str, cwd: Path | None = None) -> list[str]:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("kind", FILES)
def test_what_ships_is_what_the_tables_say(kind: str) -> None:
    assert (SHARE / FILES[kind]).read_text("utf-8") == MAKERS[kind](), "run: python -m tests.shell_files"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_as_it_ships(capsys: Capsys, shell: str) -> None:
    assert run(capsys, "config", "--completion", shell).out == (SHARE / FILES[shell]).read_text("utf-8")


def test_the_man_page_is_printed_as_it_ships(capsys: Capsys) -> None:
    assert run(capsys, "help", "--man").out == (SHARE / FILES["man"]).read_text("utf-8")


def test_an_unknown_shell_is_an_error(capsys: Capsys) -> None:
    answer = run(capsys, "config", "--completion", "tcsh")
    assert answer.code == 2
    assert "invalid choice: 'tcsh'" in answer.err


# -- the man page ----------------------------------------------------------------------------------------


@needs("groff")
def test_the_man_page_is_set_without_a_warning() -> None:
    lines = said("groff", "-man", "-Tutf8", "-P-c", "-ww", "-rLL=100n", str(SHARE / FILES["man"]))
    text = re.sub(".\b", "", "\n".join(lines))  # bold letters are printed twice
    for name in COMMANDS:
        assert f"tdbg {name}" in text
    assert "[--watch TEXT]" not in text
    assert "dask:tcp://HOST:PORT" in text


def test_the_man_page_names_every_command_and_has_the_usual_sections() -> None:
    page = (SHARE / FILES["man"]).read_text("utf-8")
    assert [line[4:] for line in page.splitlines() if line.startswith(".SH ")] == [
        *("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS")
    ]
    assert page.isascii()
    sections = [line.split()[2].replace("\\-", "-") for line in page.splitlines() if line.startswith(".SS tdbg ")]
    assert sections == list(COMMANDS)


# -- completions -----------------------------------------------------------------------------------------

CASES = {
    "tdbg che": {"check"},
    "tdbg re": {"relations", "report"},
    "tdbg check --rec": {"--recommended"},
    "tdbg check DUMP --watch W": {each for each in ABBREVIATIONS if each.startswith("W")},
    "tdbg check DUMP --fail-on T": {each for each in ABBREVIATIONS if each.startswith("T")},
    "tdbg stat DUMP --category w": {each for each in CATEGORY_WORDS if each.startswith("w")},
    "tdbg help con": {each for each in (*TOPICS, *COMMANDS) if each.startswith("con")},
    "tdbg config --completion ": {"bash", "zsh", "fish"},
    "tdbg open --theme ": {"dark", "light", "high-contrast", "terminal"},
    "tdbg check du": {"dumps"},
    "tdbg check x --watch-file ru": {"rules.toml"},
}
"""What Tab offers after some words, in a directory with ``dumps/`` and ``rules.toml``."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "dumps").mkdir()
    (tmp_path / "rules.toml").touch()
    return tmp_path


@needs("bash")
@pytest.mark.parametrize("line", CASES)
def test_bash_completes(place: Path, line: str) -> None:
    program = (
        'source "$1"; COMP_LINE=$2; COMP_POINT=${#2}; read -ra COMP_WORDS <<< "$2"; '
        '[[ $2 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        "compopt() { :; }; _shtab_tdbg; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    found = said("bash", "--norc", "-c", program, "bash", str(SHARE / FILES["bash"]), line, cwd=place)
    assert set(found) == CASES[line]


@needs("fish")
@pytest.mark.parametrize("line", CASES)
def test_fish_completes(place: Path, line: str) -> None:
    program = f"source '{SHARE / FILES['fish']}'; complete -C '{line}'"
    found = said("fish", "--no-config", "-c", program, cwd=place)
    assert {each.split("\t")[0].rstrip("/") for each in found} == CASES[line]


@needs("zsh")
@pytest.mark.parametrize("line", CASES)
def test_zsh_completes(place: Path, line: str) -> None:
    """A real zsh in its own terminal lists what fits; Tab twice, because one match is put in at once."""
    script = place / "ask.zsh"
    script.write_text(
        "zmodload zsh/zpty zsh/zselect\n"
        "zpty shell zsh -f -i\n"
        f"zpty -w shell 'fpath=({(SHARE / FILES['zsh']).parent} $fpath); autoload -Uz compinit; compinit -u -D'\n"
        'zpty -w shell \'bindkey "^I" complete-word; zstyle ":completion:*" list-prompt ""; setopt no_beep\'\n'
        'zpty -w shell \'show() { compadd() { builtin compadd -A found "$@"; print -rl -- $found >>! found.txt; '
        'builtin compadd "$@" }; _main_complete; unfunction compadd; print >>! done.txt }; zle -C show '
        'complete-word show; bindkey "^T" show; print REA"DY"\'\n'
        "zpty -r shell seen '*READY*'\n"
        f"zpty -n -w shell '{line}'$'\\x14'\n"
        "repeat 400 { [[ -e done.txt ]] && break; zselect -t 5; zpty -rt shell seen }\n"
        "zpty -d shell\n"
        "cat found.txt\n",
        "utf-8",
    )
    ask = ["zsh", "-f", str(script)]
    done = subprocess.run(ask, check=False, capture_output=True, text=True, timeout=60, cwd=place)
    assert {each.rstrip("/") for each in done.stdout.split()} == CASES[line], done.stderr
