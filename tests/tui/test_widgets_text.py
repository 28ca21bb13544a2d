"""Text from somebody else and numbers of any size, in a fixed width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from tui_debugger.text.clean import clean
from tui_debugger.text.numbers import count, number, percent, size
from tui_debugger.tui.widgets.text import ScopedName, fit, shift, shorten, width_of

NO_STYLE = Style.null()


@given(st.text(st.characters(), max_size=50))
def test_clean_text_is_one_printable_line(text: str) -> None:
    cleaned = clean(text)
    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in cleaned)
    assert clean(cleaned) == cleaned
    cleaned.encode()


@given(st.text(max_size=50), st.integers(0, 60))
def test_fit_takes_exactly_the_width(text: str, width: int) -> None:
    for right in (False, True):
        assert width_of(fit([Segment(clean(text), NO_STYLE)], width, NO_STYLE, right=right)) == width


@given(st.text(max_size=50), st.integers(0, 60))
def test_shift_drops_that_many_cells(text: str, cells: int) -> None:
    full = clean(text)
    rest = width_of(shift([Segment(full[:5], NO_STYLE), Segment(full[5:], NO_STYLE)], cells))
    assert rest == pytest.approx(max(cell_len(full) - cells, 0), abs=1)


@given(st.text(max_size=80), st.integers(1, 60))
def test_shorten_fits_and_keeps_both_ends(text: str, width: int) -> None:
    short = shorten(text, width)
    assert cell_len(short) <= width
    if text.isascii() and text.isprintable() and 8 <= width < len(text):
        assert short.endswith(text[-1])


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_numbers_take_at_most_ten_cells_and_stay_close(value: float) -> None:
    text = number(value)
    assert len(text) <= 10
    if abs(value) < 1e308:
        assert float(text) == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (-0.0, "0"),
        (1e-12, "1e-12"),
        (1.25e-24, "1.25e-24"),
        (0.04167, "0.04167"),
        (3.0, "3"),
        (-1.7976931348623157e308, "-1.798e308"),
        (65504.0, "65504"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
    ],
)
def test_numbers_as_people_read_them(value: float | None, text: str) -> None:
    assert number(value) == text


def test_percentages_never_round_to_none_or_all() -> None:
    assert [percent(p) for p in (0.0, 1e-9, 37.51, 99.999, 100.0)] == ["0", "<0.1", "37.5", ">99.9", "100"]


@given(st.integers(0, 10**15 - 1))
def test_counts_take_at_most_six_cells(value: int) -> None:
    assert len(count(value)) <= 6


def test_sizes() -> None:
    assert [size(v) for v in (0, 999, 1500, 8_827_286, 5 * 10**12)] == ["0 B", "999 B", "1.5 kB", "8.827 MB", "5 TB"]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        (
            "Default/network-Net/_backbone-Net/norm-RowNorm/Div-op385",
            48,
            "Default/…/_backbone-Net/norm-RowNorm/Div-op385",
        ),
        ("Default/network-Net/_backbone-Net/norm-RowNorm/Div-op385", 30, "Default/…/Div-op385"),
        ("Default/network-Net/Div-op385", 12, "…/Div-op385"),
        ("MatMulBiasAddFusion-op389", 16, "MatMu…sion-op389"),
    ],
)
def test_shorten_leaves_out_whole_parts_of_a_path(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


def test_a_scope_ends_with_whole_words_where_only_those_are_wanted() -> None:
    def cell(width: int, *, words_only: bool) -> str:
        return ScopedName(Text("Add-op1"), "Default/attn-Attention", words_only=words_only).within(width).plain

    assert cell(40, words_only=True) == "Add-op1  Default/attn-Attention"
    assert cell(26, words_only=True) == "Add-op1  …/attn-Attention"
    assert cell(19, words_only=True) == "Add-op1  …Attention"
    assert cell(17, words_only=True) == "Add-op1"
    assert cell(17, words_only=False) == "Add-op1  …tention"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (40, "Functional.layer_norm  blocks/2/ln.1"),
        (32, "Functional.layer_norm  …/2/ln.1"),
        (26, "Functi…l.layer_norm  …ln.1"),
        (22, "Funct…ayer_norm  …ln.1"),
        (18, "Func…r_norm  …ln.1"),
    ],
)
def test_a_call_leaves_room_for_its_scope(width: int, shown: str) -> None:
    assert ScopedName(Text("Functional.layer_norm"), "blocks/2/ln.1").within(width).plain == shown


def test_a_scope_with_dots_keeps_the_number_of_its_layer() -> None:
    cell = ScopedName(Text("activation"), "layers.1.self_attention.linear_qkv")
    assert cell.within(26).plain == "activation  …1….linear_qkv"
    assert cell.within(18).plain == "activation  …qkv"


def test_a_long_name_keeps_its_number() -> None:
    assert ScopedName(Text("MatMulBiasAddFusion-op389"), "x").within(18).plain == "MatMul…usion-op389"


@pytest.mark.parametrize(
    ("name", "width", "short"),
    [
        ("model.layers.102.self_attention.linear_qkv", 24, "…102…ttention.linear_qkv"),
        ("model.layers.102.self_attention.linear_qkv", 31, "…102.self_attention.linear_qkv"),
        ("layers.0.mlp.linear_fc2.weight", 20, "…0…linear_fc2.weight"),
        ("model.layers.12.mlp.experts.37.down_proj.weight", 24, "…12…37.down_proj.weight"),
        ("moment1.blocks.1.down.weight", 24, "moment1.…s.1.down.weight"),
    ],
)
def test_a_long_name_with_dots_keeps_the_numbers_of_its_layers(name: str, width: int, short: str) -> None:
    assert ScopedName(Text(name)).within(width).plain == short
    assert shorten(name, width) == short


_DOTTED = st.lists(st.from_regex(r"[a-z_]{1,9}|[0-9]{1,4}", fullmatch=True), min_size=1, max_size=9).map(".".join)


@given(_DOTTED, _DOTTED, st.integers(10, 60))
def test_what_matches_in_a_name_with_a_scope_is_marked_where_it_stands(name: str, scope: str, width: int) -> None:
    cell = ScopedName(Text(name), scope)
    drawn, path = cell.within(width).plain, cell.path
    assert len(drawn) <= width
    for at, letter in enumerate(path):
        for first, last in cell.drawn([(at, at + 1)], width):
            assert drawn[first:last] == letter


@given(st.lists(st.from_regex(r"[a-z_]{1,9}|[0-9]{1,4}", fullmatch=True), min_size=1, max_size=9), st.integers(10, 40))
def test_what_matches_in_a_name_that_is_cut_is_marked_where_it_stands(parts: list[str], width: int) -> None:
    name = ".".join(parts)
    cell = ScopedName(Text(name))
    drawn = cell.within(width).plain
    assert len(drawn) <= width
    everything = cell.drawn([(0, len(name))], width)
    assert "".join(drawn[first:last] for first, last in everything) == drawn.replace("…", "")
    for at, letter in enumerate(name):
        for first, last in cell.drawn([(at, at + 1)], width):
            assert drawn[first:last] == letter
