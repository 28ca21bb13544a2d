"""The configuration: what it says is what happens, and every mistake is told with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tui_debugger.config import THEMES, Config, column_names, config_path, load, parse, tables
from tui_debugger.errors import ConfigError
from tui_debugger.watch.recommended import NO_CHANGES, built_in

FILE = Path("config.toml")


def read(text: str) -> Config:
    return parse(text.encode(), FILE)


def mistake(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    return caught.value


# -- where it lies ---------------------------------------------------------------------------------


def test_it_lies_in_the_configuration_directory_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert config_path() == Path("/x/tdbg/config.toml")
    monkeypatch.setenv("HOME", "/home/somebody")
    for not_meant in ("", "relative"):  # as XDG says
        monkeypatch.setenv("XDG_CONFIG_HOME", not_meant)
        assert config_path() == Path("/home/somebody/.config/tdbg/config.toml")


def test_a_variable_names_another_file_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDBG_CONFIG", "/y/z.toml")
    assert config_path() == Path("/y/z.toml")
    monkeypatch.setenv("TDBG_CONFIG", "")
    assert config_path() is None


def test_without_a_file_every_setting_has_its_default(tmp_path: Path) -> None:
    missing = load(tmp_path / "config.toml")
    assert (missing.found, missing.theme, missing.mouse, missing.keys, missing.columns) == (False, "dark", True, {}, {})
    assert load(None) == Config()
    empty = read("")
    assert empty.found
    assert (empty.theme, empty.mouse, empty.recommended) == ("dark", True, None)


# -- files that cannot be read ----------------------------------------------------------------------


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="a FIFO in place of a file"):
        load(tmp_path / "pipe")


def test_a_directory_a_dangling_link_and_a_huge_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 30)
    for path, why in (
        (tmp_path, "a directory in place of a file"),
        (tmp_path / "link", "a dangling link"),
        (tmp_path / "huge", "1,073,741,824 bytes"),
    ):
        with pytest.raises(ConfigError, match=why) as caught:
            load(path)
        assert caught.value.where == str(path)
        assert "--no-config" in caught.value.hint


def test_what_is_no_text_or_no_toml_is_told_with_its_line() -> None:
    with pytest.raises(ConfigError, match="no UTF-8 text") as caught:
        parse(b'theme = "dark"\nmouse = \xff\n', FILE)
    assert caught.value.where == "config.toml, line 2"
    assert mistake('theme = "dark"\nmouse = = true\n').where == "config.toml, line 2"
    assert mistake("\n\nmouse = [").where == "config.toml, line 3"
    assert "TOML" in mistake("a = " + "[" * 5000).what


# -- settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_is_chosen_by_its_name(theme: str) -> None:
    assert read(f'theme = "{theme}"').theme == theme


def test_keys_are_one_or_several_and_spelled_as_people_do() -> None:
    config = read('[keys]\nrecheck = "B"\nquit = ["Q", "F10", ",", " ", "Ctrl+D", "PageUp"]\n')
    assert config.keys == {"recheck": ("B",), "quit": ("Q", "f10", "comma", "space", "ctrl+d", "pageup")}


@pytest.mark.parametrize(
    "key", ["alt+1", "ctrl+shift+a", "super+k", "ctrl+1", "f13", "", "xy", "\\u0007", "ctrl+i", "ctrl+m", "ctrl+h"]
)
def test_a_key_that_terminals_cannot_send_is_refused(key: str) -> None:
    error = mistake(f'[keys]\n\nrecheck = "{key}"\n')
    assert error.where == "config.toml, line 3"
    assert error.what.startswith("the key ")


@pytest.mark.parametrize("value", ["3", "[3]", "true", "{}"])
def test_keys_are_texts(value: str) -> None:
    error = mistake(f"[keys]\nrecheck = {value}\n")
    assert (error.what, error.where) == (
        "the keys of recheck are neither a key nor a list of keys",
        "config.toml, line 2",
    )


def test_columns_are_chosen_and_ordered() -> None:
    config = read('[columns]\nstat = ["max", "nan"]\n')
    assert column_names(config.table("stat")) == ["max", "nan"]
    assert config.table("tensors") == tables()["tensors"].default


@pytest.mark.parametrize("table", tables())
def test_every_statistic_that_a_table_knows_can_be_chosen(table: str) -> None:
    names = list(tables()[table].known)
    assert column_names(read(f"[columns]\n{table} = {names}").table(table)) == names


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ('theme = "pink"', "no theme is called 'pink'", 1),
        ("theme = 3", "no theme is called 3", 1),
        ('mouse = "no"', "mouse is neither true nor false", 1),
        ("\ncolour = 1", "no setting is called 'colour'", 2),
        ("keys = 3", "keys is no table", 1),
        ('[columns]\nhits = ["nan"]', "no table is called 'hits'", 2),
        ('[columns]\nstat = ["nan", "mim"]', "no statistic is called 'mim'", 2),
        ('[columns]\nstat = ["inf"]', "no statistic is called 'inf'", 2),
        ('[columns]\nstat = ["nan", "nan"]', "the columns of stat name a statistic twice", 2),
        ('[keys]\nrecheck = ["r", "f5", "r"]', "the keys of recheck name r twice", 2),
        ('[keys]\nrecheck = [" ", "space"]', "the keys of recheck name space twice", 2),
        ("[recommended]\nalso = ['TO', 'TL max_gt=1', 'TO']", "also names TO twice", 2),
        ("[columns]\nstat = []", "the columns of stat are no list of statistics", 2),
        ("[recommended]\nnothing = false", "no recommended watchpoint is called 'nothing'", 2),
        ("recommended = 'never'", "recommended is no table", 1),
        ("[recommended]\nask = 'yes'", "ask is neither true nor false", 2),
        ("[recommended]\n\ntensor_overflow = 1", "tensor_overflow is neither true nor false nor a table", 3),
        ("[recommended.gradient_vanishing]\nfoo = 1", "gradient_vanishing has no parameter 'foo'", 1),
        ("[recommended]\ngradient_vanishing = {abs_mean_lt = 'x'}", "abs_mean_lt", 2),
        ("[recommended]\nalso = 'TO'", "also is no list of watchpoints", 2),
        ("[recommended]\nalso = ['XX']", "no condition is called 'XX'", 2),
        ("[recommended]\nalso = ['TO @ ~(']", "not a regular expression", 2),
    ],
)
def test_a_mistake_says_what_and_where(text: str, what: str, line: int) -> None:
    error = mistake(text)
    assert what in error.what
    assert error.where.startswith(f"config.toml, line {line}")


def test_a_name_that_commands_a_terminal_is_shown_and_not_obeyed() -> None:
    error = mistake('"the\\u001b[31m" = 1')
    assert error.what.startswith("no setting is called 'the")
    assert "\x1b" not in str(error)
    assert error.where == "config.toml"


def test_a_name_that_is_nearly_right_is_recognised() -> None:
    assert "did you mean theme?" in mistake('them = "dark"').hint
    assert "did you mean abs_mean" in mistake('[columns]\nstat = ["abs_maen"]').hint


# -- the recommended watchpoints ---------------------------------------------------------------------


def test_a_watchpoint_is_left_out_changed_or_added() -> None:
    config = read(
        "[recommended]\nweight_not_changed = false\ntensor_overflow = true\n"
        "also = ['TL abs_mean_gt=100 @ category=gradient']\n"
        "[recommended.weight_change_too_large]\nabs_mean_update_ratio_gt = 2\n"
    )
    assert config.recommended
    found = list(config.recommended.apply(built_in().values()))
    usual = list(built_in().values())
    assert [each.name for each in found] == [
        *(each.name for each in usual if "not_changed" not in each.name),
        "recommend_tensor_too_large_watchpoint",
    ]
    changed = dict(found[0].params)
    assert changed == {**dict(usual[0].params), "abs_mean_update_ratio_gt": 2.0}
    assert found[1:-1] == usual[2:]


def test_no_changes_change_nothing() -> None:
    assert list(NO_CHANGES.apply(built_in().values())) == list(built_in().values())
    assert not NO_CHANGES
    assert not read("[recommended]\ntensor_overflow = true").recommended


@pytest.mark.parametrize("text", ['recommended = "ask"', "[recommended]\nask = true"])
def test_the_screen_may_ask_before_it_adds_them(text: str) -> None:
    config = read(text)
    assert config.asks
    assert not config.recommended, "the set is the usual one"
    assert not read("[recommended]\nask = false").asks


def test_a_set_of_nothing_is_a_mistake() -> None:
    lines = "\n".join(f"{name} = false" for name in built_in())
    assert mistake(f"[recommended]\n{lines}").what == "no recommended watchpoint is left"
    assert read(f"[recommended]\n{lines}\nalso = ['TO']").recommended


def test_the_ends_of_a_range_are_still_checked_together() -> None:
    error = mistake("[recommended]\nrelu_activation_range = { range_start_inclusive = 5 }")
    assert error.what == "the range starts above its end"
    assert error.where == "config.toml, line 2"
