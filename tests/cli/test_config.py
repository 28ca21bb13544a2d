"""``tdbg config``, and what the configuration changes about other commands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.running import run
from tui_debugger.cli.config import example
from tui_debugger.cli.help import PAGES
from tui_debugger.config import column_names, config_path, parse, tables
from tui_debugger.tui.settings import ADJUSTABLE, check_keys
from tui_debugger.watch.recommended import built_in

Capsys = pytest.CaptureFixture[str]
SETTING = re.compile(r"^#(?=[a-z])", re.MULTILINE)
"""The ``#`` before a setting of the example; words have a blank behind it."""


def written(text: str) -> Path:
    path = config_path()
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


# -- tdbg config ----------------------------------------------------------------------------------------


def test_without_a_file_everything_is_the_default(capsys: Capsys) -> None:
    answer = run(capsys, "config")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0] == f"file  {config_path()}  (not there; tdbg config --init writes an example)"
    assert {line.split()[-1] for line in answer.lines[3:] if line.startswith(("theme", "mouse", "columns", "rec"))} == {
        "default"
    }


def test_each_value_says_where_it_is_from(capsys: Capsys) -> None:
    path = written(
        'theme = "light"\nmouse = false\n[keys]\nrecheck = "B"\n[recommended]\nweight_not_changed = false\n'
        "also = ['TO @ type=Log']\n[columns]\nstat = ['nan', 'max']\n"
    )
    answer = run(capsys, "config", "--mouse")
    assert answer.code == 0
    assert answer.lines[0] == f"file  {path}"
    rows = {line.split()[0]: line.split()[1:] for line in answer.lines[3:] if line}
    assert rows["theme"] == ["light", "file"]
    assert rows["mouse"] == ["on", "option"]
    assert rows["columns.stat"] == ["nan", "max", "file"]
    assert rows["columns.tensors"][-1] == "default"
    assert rows["recommended.weight_not_changed"] == ["off", "file"]
    assert rows["recommended.tensor_overflow"] == ["on", "default"]
    assert rows["recommended.also"] == ["TO", "@", "type=Log", "file"]
    assert rows["keys.recheck"] == ["B", "file"]
    assert f"{len(ADJUSTABLE) - 1} actions have their usual keys" in answer.out


def test_a_document_has_every_setting(capsys: Capsys) -> None:
    written('[keys]\nrecheck = "B"\n')
    document = run(capsys, "config", "--json").json
    rows = {row["setting"]: (row["value"], row["from"]) for row in document["settings"]}
    assert (document["found"], document["path"], document["exit_code"]) == (True, str(config_path()), 0)
    assert rows["keys.recheck"] == (["B"], "file")
    assert rows["keys.quit"] == (["q", "ctrl+c"], "default")
    assert len([name for name in rows if name.startswith("keys.")]) == len(ADJUSTABLE)


def test_the_file_can_be_left_out(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    written("theme = [")
    assert run(capsys, "config", "--no-config").lines[0] == "file  none: --no-config"
    monkeypatch.setenv("TDBG_CONFIG", "")
    assert run(capsys, "config").lines[0] == "file  none: TDBG_CONFIG is empty"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("theme = [", "the configuration is no TOML"),
        ("[keys]\nrechek = 'B'", "no action is called 'rechek'"),
        ("[keys]\nrecheck = 'n'", "the key n is taken twice in the pane nodes: Recheck (recheck) and Next (next_hit)"),
        ("[keys]\norigin = 'a'", "the key a is taken twice"),
        ("[keys]\ntoggle_watch = 'z'", "the key z is taken twice in the pane nodes"),
        ("[keys]\nterminate = 'r'", "the key r is taken twice"),
        ("[keys]\nrecheck = 'ctrl+c'", "the key ctrl+c stays with quit"),
        ("[keys]\nrecheck = 'escape'", "the key escape stays with back and cancel"),
        ("[keys]\nzoom = 'ctrl+z'", "the key ctrl+z cannot be used: it belongs to the shell"),
    ],
)
def test_a_mistake_is_an_error(capsys: Capsys, text: str, what: str) -> None:
    path = written(text)
    answer = run(capsys, "config")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"tdbg: {what}")
    assert f"where: {path}, line {1 + text.count(chr(10))}\n" in answer.err
    assert run(capsys, "config", "--json").json["error"]["what"].startswith(what)


def test_a_key_of_a_view_is_taken_too(capsys: Capsys) -> None:
    written("[keys]\norigin = 'B'")
    answer = run(capsys, "config")
    assert "the key B is taken twice in Values: Origin (origin) and Bytes\n" in answer.err


def test_two_actions_may_exchange_their_keys(capsys: Capsys) -> None:
    written("[keys]\nrecheck = 'n'\nnext_hit = 'r'")
    assert run(capsys, "config").code == 0


# -- the example ----------------------------------------------------------------------------------------


def test_the_example_is_written_once(capsys: Capsys) -> None:
    path = config_path()
    assert path is not None
    assert run(capsys, "config", "--init").out == f"{path} is written: take the # away from what you want to change\n"
    assert path.read_text("utf-8") == example()
    path.write_text("# mine\n", "utf-8")
    answer = run(capsys, "config", "--init")
    assert answer.code == 2
    assert "there is a configuration already" in answer.err
    assert path.read_text("utf-8") == "# mine\n"


def test_nothing_is_written_through_a_dangling_link(capsys: Capsys, tmp_path: Path) -> None:
    path = written("")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert run(capsys, "config", "--init").code == 2
    assert not (tmp_path / "elsewhere").exists()


def test_the_example_changes_nothing() -> None:
    config = parse(example().encode(), Path("x"))
    assert (config.theme, config.mouse, config.keys, config.columns) == ("dark", True, {}, {})
    assert not config.recommended


def test_the_example_with_everything_switched_on_is_every_default() -> None:
    config = parse(SETTING.sub("", example()).encode(), Path("x"))
    check_keys(config)
    assert (config.theme, config.mouse) == ("dark", True)
    assert config.keys == {action.setting: action.usual_keys for action in ADJUSTABLE}
    assert {name: column_names(config.table(name)) for name in config.columns} == {
        name: column_names(table.default) for name, table in tables().items()
    }
    assert config.recommended is not None
    assert list(config.recommended.apply(built_in().values())) == list(built_in().values())


# -- commands that judge --------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["check", "report", "health", "stat"])
def test_a_broken_configuration_is_no_clean_check(capsys: Capsys, dump: Path, command: str) -> None:
    written("[recommended]\ntensor_overflo = false")
    answer = run(capsys, command, dump)
    assert answer.code == 2
    assert "no recommended watchpoint is called 'tensor_overflo'" in answer.err
    answer = run(capsys, command, dump, "--no-config")
    assert (answer.code in {0, 1}, answer.err) == (True, "")


def test_a_check_uses_the_chosen_set_and_says_so(capsys: Capsys, dump: Path) -> None:
    usual = run(capsys, "check", dump, "--json").json["watchpoints"]
    written("[recommended]\ntensor_all_zero = false\nalso = ['TL max_gt=1e-30']\n")
    answer = run(capsys, "check", dump, "--json")
    assert answer.code == 1, "values above 1e-30 are everywhere"
    assert "tdbg: the recommended watchpoints are those of the configuration (see tdbg config)\n" in answer.err
    conditions = [each["condition"] for each in answer.json["watchpoints"]]
    assert conditions == [
        *(each["condition"] for each in usual if each["condition"] != "tensor_all_zero"),
        "tensor_too_large",
    ]
    plain = run(capsys, "check", dump, "--json", "--no-config")
    assert (plain.json["watchpoints"], plain.err) == (usual, "")


def test_watchpoints_that_are_given_are_not_those_of_the_configuration(capsys: Capsys, dump: Path) -> None:
    written("[recommended]\nalso = ['TL max_gt=1e-30']\n")
    answer = run(capsys, "check", dump, "--watch", "TO")
    assert (answer.code, answer.err) == (0, "")


def test_the_table_of_statistics_has_the_chosen_columns(capsys: Capsys, dump: Path) -> None:
    written("[columns]\nstat = ['max', 'nan']\n")
    titles = run(capsys, "stat", dump).lines[0].split()
    assert titles == ["step", "rank", "dtype", "shape", "max", "NaN", "tensor"]
    assert "variance" not in run(capsys, "stat", dump, "--json").out
    assert run(capsys, "stat", dump, "--csv").lines[0].count("mean") == 2, "what programs read stays as it is"


def test_a_configuration_that_may_not_be_read_is_an_error(capsys: Capsys, dump: Path) -> None:
    path = written("")
    path.unlink()
    os.mkfifo(path)
    answer = run(capsys, "check", dump)
    assert answer.code == 2
    assert "the configuration cannot be read: a FIFO in place of a file" in answer.err


def test_listening_looks_into_the_configuration_before_it_listens(capsys: Capsys) -> None:
    written("[recommended]\nnothing = false")
    answer = run(capsys, "listen", "--no-screen", "--port", "0", "--timeout", "0.1")
    assert answer.code == 2
    assert "no recommended watchpoint is called 'nothing'" in answer.err


@pytest.mark.parametrize("line", [("open", "PATH"), ("demo",), ("listen", "--port", "0")])
def test_a_screen_does_not_open_with_a_broken_configuration(capsys: Capsys, dump: Path, line: tuple[str, ...]) -> None:
    written("theme = 'pink'")
    answer = run(capsys, *(str(dump) if word == "PATH" else word for word in line))
    assert answer.code == 2
    assert "no theme is called 'pink'" in answer.err


def test_the_example_of_the_manual_is_right() -> None:
    (example_text,) = re.findall(r"```toml\n(.*?)```", (PAGES / "configuration.md").read_text("utf-8"), re.DOTALL)
    config = parse(example_text.encode(), Path("x"))
    check_keys(config)
    assert (config.theme, config.mouse, set(config.keys)) == ("light", False, {"next_hit", "recheck"})
    assert config.recommended
    assert set(config.columns) == {"tensors"}
