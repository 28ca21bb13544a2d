"""Tables and sentences fit a terminal, whatever the names in them are; in a pipe they are whole."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcwidth

from tui_debugger.text.clean import clean
from tui_debugger.text.tables import (
    Column,
    Cut,
    FullWidthLine,
    cut_end,
    cut_middle,
    fold,
    more_columns,
    table_lines,
    width_of,
)
from tui_debugger.text.writer import Line, Meaning, Meant, Pieces, Terminal, line_text, meant

COLUMNS = [
    Column("step", right=True, weight=8),
    Column("", weight=7, label="origin"),
    Column("found", cut=Cut.END, weight=6),
    Column("count", right=True, weight=3),
    Column("tensor", cut=Cut.MIDDLE, weight=9),
]
NAME = "Default/network-WithLossCell/_backbone-Net/norm-RowNorm/Div-op385:out:0"


def drawn(text: str) -> int:
    """Cells that a terminal draws, by the tables of others: character by character, and by what belongs together."""
    return max(sum(max(wcwidth(each), 0) for each in text), cell_len(text))


letters = st.characters(exclude_categories=["Cs", "Cc"])
wide = st.sampled_from("漢字カナ한글😀👍🏽🇩🇪ｗ")
marks = st.sampled_from("\u0301\u0308\u0323\u20dd")
parts = st.text(st.one_of(st.sampled_from("abzAZ_-."), wide, marks, letters), max_size=30).map(
    lambda text: clean(text).replace("/", "_")
)
tails = st.builds(
    "{}{}".format, st.integers(0, 999999).map("-op{}".format), st.sampled_from(["", ":out:0", ":in:12", ":out:3#2"])
)
names = st.builds(
    lambda scopes, last, tail: "/".join([*scopes, last + tail]), st.lists(parts, max_size=6), parts, tails
)
widths = st.integers(20, 250)
rows = st.lists(
    st.tuples(st.integers(0, 99999).map(str), st.sampled_from(["", "◆"]), parts, st.integers(0, 10**9).map(str), names),
    min_size=1,
    max_size=5,
)


# -- the rule --------------------------------------------------------------------------------------


@given(rows, widths)
def test_no_line_is_wider_than_the_terminal_and_every_operator_keeps_its_number(
    rows: list[tuple[str, ...]], width: int
) -> None:
    lines = [line_text(line) for line in table_lines(COLUMNS, rows, Terminal(width))]
    assert max(map(drawn, lines)) <= width
    shown = [line for line in lines[1:] if re.search(r"-op\d", line)]
    for line, row in zip(shown, rows, strict=True):
        found = re.search(r"-op\d+(:\w+:\d+(#\d)?)?$", row[-1])
        assert found is not None
        assert line.endswith(found[0])


@given(rows, widths)
def test_what_is_left_out_is_named(rows: list[tuple[str, ...]], width: int) -> None:
    lines = [line_text(line) for line in table_lines(COLUMNS, rows, Terminal(width))]
    titles = lines[0].split()
    note = " ".join(" ".join(lines[1 + len(rows) :]).split())
    named = note.removeprefix("more columns: ").partition(" (")[0].split(", ")
    for column in COLUMNS:
        if column.title:
            assert (column.title in titles) != (column.title in named)
    assert "tensor" in titles


@given(rows)
def test_in_a_pipe_every_cell_is_whole_and_stands_below_its_title(rows: list[tuple[str, ...]]) -> None:
    head, *lines = (line_text(line) for line in table_lines(COLUMNS, rows))
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert all(clean(cell).rstrip() in line for cell in row)
        before = line[: len(line) - len(clean(row[-1]))]
        assert width_of(before) == width_of(head[: head.index("tensor")])


@given(rows, widths)
def test_meanings_change_no_character(rows: list[tuple[str, ...]], width: int) -> None:
    told = [tuple(meant(cell, Meaning.FINDING) for cell in row) for row in rows]
    for terminal in (None, Terminal(width)):
        plain = [line_text(line) for line in table_lines(COLUMNS, rows, terminal)]
        assert [line_text(line) for line in table_lines(COLUMNS, told, terminal)] == plain


@given(names, widths)
def test_a_cut_name_fits_and_ends_as_the_name_does(name: str, width: int) -> None:
    shorter = cut_middle(name, width)
    assert drawn(shorter) <= width
    assert shorter == name or "…" in shorter
    assert shorter.endswith(name[name.rindex("-op") :])


@given(st.one_of(letters, wide, marks))
def test_a_character_is_never_drawn_wider_than_it_counts(character: str) -> None:
    assert drawn(clean(character)) <= width_of(clean(character))


@given(st.lists(st.one_of(parts, names), min_size=1, max_size=12).map(" ".join), widths)
def test_a_folded_sentence_fits_and_loses_nothing(text: str, width: int) -> None:
    lines = [line_text(line) for line in fold(text, Terminal(width))]
    assert max(map(drawn, lines), default=0) <= width
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert "".join(map(line_text, fold(text, None))) == clean(text)


# -- in particular ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, NAME),
        (70, "Default/…/_backbone-Net/norm-RowNorm/Div-op385:out:0"),
        (40, "Default/…/norm-RowNorm/Div-op385:out:0"),
        (36, "Default/…/Div-op385:out:0"),
        (20, "…/Div-op385:out:0"),
        (14, "D…-op385:out:0"),
    ],
)
def test_whole_parts_of_a_name_are_left_out_where_that_is_enough(width: int, shown: str) -> None:
    assert cut_middle(NAME, width) == shown


def test_a_long_operator_loses_its_own_middle() -> None:
    name = "Default/_loss_fn/SparseSoftmaxCrossEntropyWithLogits-op441:out:0"
    assert cut_middle(name, 30) == "SparseSoft…hLogits-op441:out:0"


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("blocks.1.attn.o.weight", 21, "…ocks.1.attn.o.weight"),
        ("layers.0.self_attention.linear_qkv.weight", 22, "…0…n.linear_qkv.weight"),
        ("rank 1 layers.0.self_attention.linear_qkv.weight", 23, "rank 1 …0…ar_qkv.weight"),
        ("Functional.layer_norm.12:out:0", 24, "Function…r_norm.12:out:0"),
    ],
)
def test_a_name_with_dots_keeps_the_numbers_of_its_layers_and_its_rank(name: str, width: int, short: str) -> None:
    assert cut_middle(name, width) == short


def test_text_is_cut_at_its_end() -> None:
    assert cut_end("max > 6 → 7.25, mean > 1", 12) == "max > 6 → 7…"
    assert cut_end("漢字漢字", 6) == "漢字…"


def test_a_wide_character_takes_two_cells_and_a_mark_none() -> None:
    assert [width_of(text) for text in ("abc", "漢字", "e\u0301", "é", "◆–…", "😀")] == [3, 4, 1, 1, 3, 2]


def test_a_sentence_is_broken_at_blanks_and_a_path_after_a_slash() -> None:
    shown = fold("  cannot judge: /data/run/tensors/step_3/x.npy is broken", Terminal(24))
    assert list(map(line_text, shown)) == [
        "  cannot judge:",
        "    /data/run/tensors/",
        "    step_3/x.npy is",
        "    broken",
    ]


def test_a_cell_of_which_nothing_may_be_lost_goes_on_below() -> None:
    columns = [Column("tensors", right=True, weight=8), Column("watchpoint", cut=Cut.FOLD)]
    lines = table_lines(columns, [["12", "weights: did not change since the previous step"]], Terminal(32))
    assert list(map(line_text, lines)) == [
        "tensors  watchpoint",
        "     12  weights: did not change",
        "           since the previous",
        "           step",
    ]


def test_lines_between_rows_keep_to_no_column() -> None:
    rows = [["1", "a"], FullWidthLine("a line that is longer than both columns")]
    columns = [Column("n"), Column("name")]
    assert list(map(line_text, table_lines(columns, rows))) == ["n  name", "1  a", line_text(rows[1].line)]  # type: ignore[union-attr]
    assert max(width_of(line_text(line)) for line in table_lines(columns, rows, Terminal(20))) <= 20


def test_left_out_columns_are_named_with_how_to_see_them() -> None:
    lines = table_lines(COLUMNS, [["3", "◆", "NaN 128 of 512", "512", NAME]], Terminal(44))
    assert line_text(lines[0]).split() == ["step", "tensor"]
    assert " ".join(line_text(line).strip() for line in lines[2:]) == more_columns(["found", "count"])
    assert more_columns(["median", "std"]) == "more columns: median, std (wider terminal or --json)"


def test_an_important_column_stays_where_a_shorter_name_makes_room_for_it() -> None:
    def shown(weight: int) -> list[str]:
        columns = [Column("NaN", right=True, weight=weight), Column("tensor", cut=Cut.MIDDLE, weight=9)]
        return [line_text(line) for line in table_lines(columns, [["128", NAME]], Terminal(30))]

    assert shown(8) == ["NaN  tensor", "128  Default/…/Div-op385:out:0"]
    assert shown(6) == ["tensor", "Default/…/Div-op385:out:0", "more columns: NaN (wider", "  terminal or --json)"]


def test_a_cut_cell_keeps_its_meaning() -> None:
    (_, line) = table_lines([Column("tensor", cut=Cut.MIDDLE)], [[meant(NAME, Meaning.FINDING)]], Terminal(30))
    (piece,) = line
    assert isinstance(piece, Meant)
    assert (piece, piece.meaning) == ("Default/…/Div-op385:out:0", Meaning.FINDING)


def test_a_folded_line_keeps_its_meanings() -> None:
    line: Line = ("cannot judge: ", meant("three tensors", Meaning.DOUBT))
    found: list[Pieces] = fold(line, Terminal(20))
    assert [[(piece, getattr(piece, "meaning", None)) for piece in pieces] for pieces in found] == [
        [("cannot judge: ", None), ("three", Meaning.DOUBT)],
        [("  ", None), ("tensors", Meaning.DOUBT)],
    ]


def test_a_terminal_without_the_sign_of_a_cut_gets_another_one() -> None:
    latin = Terminal(30, encoding="iso-8859-1")
    (_, line) = table_lines([Column("tensor", cut=Cut.MIDDLE)], [[NAME]], latin)
    assert line_text(line) == "Default/../Div-op385:out:0"
    (_, spelled) = table_lines([Column("name", cut=Cut.MIDDLE)], [["漢字" * 20 + "-op1"]], latin)
    assert line_text(spelled).isascii()
    assert width_of(line_text(spelled)) <= 30


def test_names_that_would_be_cut_alike_begin_where_they_differ() -> None:
    names = [
        f"model.layers.{layer}.{norm}_layernorm.weight" for layer in (0, 1) for norm in ("input", "post_attention")
    ]
    for width in (20, 24, 30):
        rows = table_lines([Column("tensor", cut=Cut.MIDDLE)], [[name] for name in names], Terminal(width))
        shown = [line_text(row) for row in rows[1:]]
        assert len(set(shown)) == len(names), shown
        assert all(width_of(text) <= width for text in shown)
