"""``tdbg show --distribution``: how values are spread, for people and as JSON; expected numbers from plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import file_of, run
from tests.sources.writer import MLP, DumpWriter, Generation

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
NAN = "mindspore-2.0-nan"
PERCENTILES = (
    "0.1 %: 4.476  1 %: 4.478  5 %: 4.486  25 %: 4.525  50 %: 4.573  75 %: 4.587  95 %: 4.598  99 %: 4.6  99.9 %: 4.601"
)
LEAST = "least |x| above 0, 4.476, is 4e38× its least normal"


def finite(dump: Path) -> np.ndarray:
    values = np.load(file_of(dump, "rank_0/*/0/3/Div.Div-op385.*.output.0.*")).astype(np.float64)
    found: np.ndarray = values[np.isfinite(values)]
    return found


def test_people_get_numbers_headroom_and_bars(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381:0", "--step", "3", "--distribution", "--bins", "4")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[2:] == [
        "",
        "step 3  out:0  float32 4",
        "  4 elements: NaN 0 · -Inf 1 (25.0 %) · negative 0 · zero 0 · positive 3 (75.0 %) · +Inf 0",
        "  min 4.476 · max 4.6006 · mean 4.55 · σ 0.053513 · mean |x| 4.55 · norm 7.8815",
        f"  exact percentiles: {PERCENTILES}",
        f"  max |x| 4.601 is 7e37× below float32's greatest, 3.403e38 · {LEAST}",
        "  in float16, bfloat16, float8_e4m3fn, float8_e5m2: all in normal range or 0",
        "  4 bins of equal width",
        "  values              count   share",
        "  [4.47601, 4.50716)      1  25.0 %  ████████████████████",
        "  [4.50716, 4.53832)      0     0 %",
        "  [4.53832, 4.56947)      0     0 %",
        "  [4.56947, 4.60063]      2  50.0 %  ████████████████████████████████████████",
    ]


@pytest.mark.parametrize("log", [(), ("--log",)])
def test_json_holds_all_of_it_with_all_digits(log: tuple[str, ...], capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Div-op385:0", "--step", "3", "--distribution", "--json", *log)
    (tensor,) = answer.json["tensors"]
    found, good = tensor["distribution"], finite(dumps(NAN))
    assert tensor["stats"]["nan"] == 128
    assert {each["percent"]: each["value"] for each in found["percentiles"]} == {
        percent: float(np.percentile(good, percent)) for percent in (0.1, 1, 5, 25, 50, 75, 95, 99, 99.9)
    }
    assert found["exact"]
    assert found["headroom"]["max_abs"] == np.abs(good).max()
    assert found["headroom"]["least_abs"] == np.abs(good).min()
    assert [each["dtype"] for each in found["headroom"]["types"]][:2] == ["float32", "float16"]
    assert found["log_bins"] is bool(log)
    for each in found["bins"]:
        above = good >= each["low"] if each["low_included"] else good > each["low"]
        below = good <= each["high"] if each["high_included"] else good < each["high"]
        assert each["count"] == (above & below).sum()
    assert sum(each["count"] for each in found["bins"]) == len(good)


def test_several_steps_and_tensors_stand_below_each_other(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381", "--step", "2,3", "--distribution")
    heads = [line for line in answer.lines if line.startswith("step ")]
    assert heads == [f"step {step}  {slot}  float32 4" for slot in ("in:0", "out:0") for step in (2, 3)]


def test_statistics_without_values_say_what_is_missing(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    writer.statistics(0, [("MatMul", "MatMul-op1", "output", 0, np.array([1.0, -2.5]))])
    answer = run(capsys, "show", tmp_path, "MatMul-op1:0", "--distribution")
    assert answer.code == 0
    assert "  only statistics are known, no values: no percentiles, no shares, no bars" in answer.lines
    (tensor,) = run(capsys, "show", tmp_path, "MatMul-op1:0", "--distribution", "--json").json["tensors"]
    assert tensor["distribution"]["values_known"] is False
    assert tensor["distribution"]["bins"] == []
    assert tensor["distribution"]["headroom"] is None


def test_a_broken_file_is_no_result(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path, Generation.V2_0)
    writer.metadata()
    writer.graph(MLP)
    writer.tensor(0, "MatMul", MLP.nodes[0].name, np.ones(9)).write_bytes(b"nothing")
    answer = run(capsys, "show", tmp_path, f"{MLP.nodes[0].name}:0", "--distribution")
    assert answer.code == 2
    assert "is not a .npy file" in answer.out
    assert "nothing of what was asked for can be shown" in answer.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("[0]", "--distribution"), "--distribution is about whole tensors"),
        (("--stat", "--distribution"), "two answers"),
        (("--distribution", "--bins", "0"), "not a number from 1 to 10000"),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: tuple[str, ...], why: str, capsys: Capsys, dumps: Dumps
) -> None:
    answer = run(capsys, "show", dumps(NAN), "Log-op381:0", *arguments)
    assert answer.code == 2
    assert why in answer.err


def test_a_norm_that_was_not_recorded_is_not_0(capsys: Capsys, tmp_path: Path) -> None:
    DumpWriter(tmp_path).statistics(0, [("Add", "Add-op1", "output", 0, np.ones(3, np.float32))])
    assert "norm –" in run(capsys, "show", tmp_path, "Add-op1", "--distribution").out
    (tensor,) = run(capsys, "show", tmp_path, "Add-op1", "--stat", "--json").json["tensors"]
    assert tensor["stats"]["norm"] is None


def test_whole_numbers_beyond_what_doubles_tell_apart_are_counted_all_the_same(capsys: Capsys, tmp_path: Path) -> None:
    writer = DumpWriter(tmp_path)
    writer.tensor(0, "Parameter", "ids", np.arange(7, dtype=np.int64) + (1 << 60))
    writer.tensor(0, "Parameter", "wide", (np.arange(7, dtype=np.int64) << 10) + (1 << 60))
    for name in ("ids", "wide"):
        answer = run(capsys, "show", tmp_path, name, "--distribution", "--json")
        (tensor,) = answer.json["tensors"]
        assert sum(each["count"] for each in tensor["distribution"]["bins"]) == 7, name
