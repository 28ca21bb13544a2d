"""Layouts without values: what each column answers is judged, what it leaves open is a doubt, never "clean"."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.msprobe.written import forward, write
from tests.sources.writer import DumpWriter, write_dump
from tests.tui.driver import opened
from tui_debugger.session import Session
from tui_debugger.sources.registry import (
    HASHES_ONLY,
    NO_VALUES,
    READERS,
    STATISTICS_ONLY,
    Has,
    limits,
    open_source,
    own_reader,
    shows_of,
)

Capsys = pytest.CaptureFixture[str]
Writer = Callable[[Path], Path]
STEPS: Final = (0, 1)
X: Final = np.array([[-2.0, -1.0, 0.5], [1.0, 2.5, 3.0]], np.float32)
"""The one tensor of every dump here, the same at both steps."""
NUMBERS: Final = {
    "min": float(X.min()),
    "max": float(X.max()),
    "mean": float(X.mean()),
    "norm": float(np.linalg.norm(X)),
    "l1": float(np.abs(X).sum()),
    "std": float(X.std()),
}
NEWER: Final = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "L2Norm Value"),
)


# -- one dump of each layout -----------------------------------------------------------------------


def counted(root: Path) -> Path:
    """``statistic.csv`` of MindSpore 2.0: extremes, mean, counts of every kind; no norm."""
    writer = DumpWriter(root)
    for step in STEPS:
        writer.statistics(step, [("Log", "Default/Log-op1", "output", 0, X)])
    return root


def configured(root: Path) -> Path:
    """``statistic.csv`` of MindSpore 2.3 with three categories: extremes and norm; no mean, no counts."""
    writer = DumpWriter(root)
    for step in STEPS:
        rows = [("Log", "Default/Log-op1", "output", 0, X)]
        path = writer.statistics(step, rows, columns=NEWER[:-1], trailing_comma=False)
        head, line = path.read_text().splitlines()
        path.write_text(f"{head},L2Norm Value\n{line},{NUMBERS['norm']}\n")
    return root


def extremes_only(root: Path) -> Path:
    """``statistic.csv`` with extremes alone, which before 2.4 leave NaN and Inf out."""
    writer = DumpWriter(root)
    for step in STEPS:
        writer.statistics(step, [("Log", "Default/Log-op1", "output", 0, X)], columns=NEWER[:-1], trailing_comma=True)
    return root


def msprobe(root: Path, task: str = "statistics", **digest: str) -> Path:
    found = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(X.shape), "requires_grad": False}
    names = {"Max": "max", "Min": "min", "Mean": "mean", "Norm": "norm"}
    numbers = {} if "xor" in digest else {title: NUMBERS[name] for title, name in names.items()}
    found |= numbers | ({"md5": next(iter(digest.values()))} if digest else {})
    calls = {"Torch.log.0.forward": forward([], [found])} if task == "statistics" else {}
    for step in STEPS:
        write(root, calls, step=step, task=task)
    return root


def torchtitan(root: Path) -> Path:
    for step in STEPS:
        directory = root / f"step_{step}/numerics"
        directory.mkdir(parents=True)
        lines = [
            "Total captured activations: 1",
            "=" * 80,
            "",
            "[energy/op_0_log]",
            "  Shape: torch.Size([2, 3]), Dtype: torch.float32",
            f"  L2 norm: {NUMBERS['norm']:e}",
            f"  Min: {NUMBERS['min']:e}",
            f"  Max: {NUMBERS['max']:e}",
            f"  Mean: {NUMBERS['mean']:e}",
            f"  Output hash: {NUMBERS['l1']:e}",
            "  Input hashes: ",
            "  Input producers: ",
            "  Location: model.py:7",
        ]
        (directory / "rank_0_activations.log").write_text("\n".join(lines) + "\n")
    return root


def debug_mode(root: Path) -> Path:
    root.mkdir(parents=True)
    for step in STEPS:
        call = {
            "type": "op",
            "call_depth": 1,
            "op_name": "aten.log.default",
            "stack_trace": None,
            "args_str": "(t$0: f32[2, 3])",
            "kwargs_str": "",
            "output_str": "t$1: f32[2, 3]",
            "fwd_stack_trace": None,
            "tensor_hash_leaves": None,
            "log": {"type": "dict", "items": [["hash", NUMBERS["l1"]], ["input_hash", None]]},
        }
        content = {"format": "torch.utils._debug_mode.DebugMode.logs", "version": 1, "logs": [call]}
        (root / f"step{step}.json").write_text(json.dumps(content))
    return root


def te_logs(root: Path) -> Path:
    directory = root / "nvdlfw_inspect_statistics_logs"
    directory.mkdir(parents=True)
    names = {"min": "min", "max": "max", "mean": "mean", "std": "std", "l1_norm": "l1", "l2_norm": "norm"}
    lines = [
        f"2026-11-22 03:34:28,650 - INFO - layers.0.fc1_activation_{title} \t\t\t\t iteration={step:06d} "
        f"\t\t\t\t value={NUMBERS[name]:.4f}"
        for step in STEPS
        for title, name in names.items()
    ]
    (directory / "nvdlfw_inspect_globalrank-0.log").write_text("\n".join(lines) + "\n")
    return root


def _csv(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def monitor_1(root: Path) -> Path:
    numbers = {name: round(NUMBERS[name], 6) for name in ("min", "max", "mean", "norm")}
    about = {"nans": 0, "shape": "[2, 3]", "dtype": "torch.float32"}
    rows = [{"vpp_stage": 0, "name": "fc1.output", "step": step, "micro_step": 0, **numbers, **about} for step in STEPS]
    _csv(root / "Nov22_11-36-49-rank0-e684e570/actv_0-1.csv", rows)
    return root


def monitor_2(root: Path) -> Path:
    numbers = {name: NUMBERS[name] for name in ("min", "max", "mean", "norm")}
    rows = [
        {"vpp_stage": -1, "step": step, "module_name": "fc1.output.0", "scope": "forward", **numbers, "nans": 0.0}
        for step in STEPS
    ]
    _csv(root / "rank_0/module_step0-1.csv", rows)
    return root


def trend(root: Path) -> Path:
    root.mkdir(parents=True)
    with sqlite3.connect(root / "dump_data.trend.db") as database:
        database.executescript("""
            CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL,
                vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0);
            CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT, metric_name TEXT NOT NULL);
            CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL,
                metric_id INTEGER NOT NULL, norm REAL, max REAL, min REAL, mean REAL,
                PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID;
            INSERT INTO monitoring_targets VALUES (1, 'Torch.log.0.output.0', 0, 0);
            INSERT INTO monitoring_metrics VALUES (1, 'forward');
        """)
        for step in STEPS:
            numbers = [NUMBERS[name] for name in ("norm", "max", "min", "mean")]
            database.execute("INSERT INTO trend_data VALUES (0, ?, 1, 1, ?, ?, ?, ?)", (step, *numbers))
    database.close()
    return root


LAYOUTS: Final[dict[str, Writer]] = {
    "statistic.csv with counts": counted,
    "statistic.csv with a norm": configured,
    "msprobe statistics": msprobe,
    "msprobe md5": lambda root: msprobe(root, md5="cc3b331b"),
    "msprobe xor": lambda root: msprobe(root, xor="0x7f5e013c071b49f9"),
    "msprobe structure": lambda root: msprobe(root, "structure"),
    "torchtitan": torchtitan,
    "DebugMode": debug_mode,
    "TE logs": te_logs,
    "monitor V1": monitor_1,
    "monitor V2": monitor_2,
    "trend.db": trend,
}

# -- what each condition finds ---------------------------------------------------------------------

CLEAN, FINDING, DOUBT = 0, 1, 2
WORDS: Final = {"c": CLEAN, "F": FINDING, "?": DOUBT}
EXPECTED: Final = {
    # in the order of LAYOUTS: c clean, F finding, ? cannot judge
    "TO": "cccc??cccccc",
    "WO": "cccc??cccccc",
    "GE": "cccc??cccccc",
    "TZ": "cccc??cccccc",  # one extreme, mean or norm that is not 0 is enough
    "TZ zero_percentage_ge=50": "c???????????",
    "TL abs_mean_gt=1": "?FFF??FF?F??",  # an L1 norm and a size; or a norm, extremes and a size that leave one answer
    "WL max_gt=2": "FFFF??F?FFFF",
    "GL min_gt=0": "cccc??c?cccc",
    "TS mean_lt=1": "F?FF??F?FFFF",
    "WS max_lt=2": "cccc??c?cccc",
    "GV abs_mean_lt=0.000001": "cccc??cccccc",
    "TR max_min_gt=4": "FFFF??F?FFFF",
    "TR range_start_inclusive=-9 range_end_inclusive=9 range_percentage_lt=50": "cccc??c?cccc",
    "AR range_start_inclusive=4 range_end_inclusive=9 range_percentage_lt=50": "FFFF??F?FFFF",
    "AR range_start_inclusive=0 range_end_inclusive=9 range_percentage_lt=50": "????????????",
    "WCL": "????????????",
    "WCS": "????????????",
    "WNC": "????????????",
    "OO": "????????????",
    "EX nan > 0": "cccc??cccccc",
    "EX norm > 4": "?FFF??F?FFFF",
    "EX zero_pct < 10": "F???????????",
    "EX count > 5": "FFFF??FF?F??",
    "EX std > 1": "????????F???",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("statistics")
    return {name: writer(base / str(number)) for number, (name, writer) in enumerate(LAYOUTS.items())}


@pytest.mark.covering
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("watch", EXPECTED)
def test_what_the_columns_hold_decides(capsys: Capsys, written: dict[str, Path], watch: str, layout: str) -> None:
    expected = WORDS[EXPECTED[watch][list(LAYOUTS).index(layout)]]
    said = run(capsys, "check", written[layout], "--watch", f"{watch} @ category=tensor", "--json")
    assert said.code == expected, said.out[-2_000:]
    verdicts = {result["verdict"] for hit in said.json["hits"] for result in hit["results"]}
    if expected == CLEAN:
        assert verdicts <= {"not_comparable"}
    elif expected == FINDING:
        assert verdicts == {"finding"}
    else:
        assert "finding" not in verdicts


# -- what every verdict says of it -----------------------------------------------------------------

LIMITS: Final = {"msprobe xor": HASHES_ONLY, "msprobe structure": NO_VALUES}
"""What cannot be told, where that is more than the values."""


class TestLimits:
    """It depends on the dump, not only on its layout: MindSpore and msprobe record values, too, where they are told."""

    @pytest.mark.covering
    @pytest.mark.parametrize("layout", LAYOUTS)
    @pytest.mark.parametrize("command", ["check", "origin", "report"])
    def test_every_verdict_says_that_there_are_no_values(
        self, capsys: Capsys, written: dict[str, Path], layout: str, command: str
    ) -> None:
        limit = LIMITS.get(layout, STATISTICS_ONLY)
        said = run(capsys, command, written[layout], "--json").json
        if layout == "msprobe structure" and command != "origin":  # nothing can be watched
            assert limit in said["error"]["what"]
            return
        assert limit in said["limits"]
        assert limit in run(capsys, command, written[layout]).out

    @pytest.mark.parametrize("layout", LAYOUTS)
    async def test_the_header_says_it_in_short(self, written: dict[str, Path], layout: str) -> None:
        limit = LIMITS.get(layout, STATISTICS_ONLY).partition(":")[0]
        async with opened(written[layout], size=(160, 40)) as screen:
            await screen.until(lambda: limit in screen.text)

    def test_with_values_beside_the_statistics_it_says_nothing(self, capsys: Capsys, tmp_path: Path) -> None:
        writer = write_dump(tmp_path / "dump", steps=(0,))
        writer.statistics(0, [("Log", "Default/Log-op1", "output", 0, X)])
        assert run(capsys, "check", tmp_path / "dump", "--json").json["limits"] == []

    def test_before_anything_is_listed_the_configuration_of_the_dump_says_it(self, tmp_path: Path) -> None:
        writer = DumpWriter(counted(tmp_path))
        writer.metadata()
        assert STATISTICS_ONLY not in limits(open_source(tmp_path))
        settings = tmp_path / "rank_0/.dump_metadata/data_dump.json"
        settings.write_text(settings.read_text().replace('"tensor"', '"statistic"'))
        assert STATISTICS_ONLY in limits(open_source(tmp_path))


class TestAdvice:
    """How a recorder records more is said in its own terms."""

    @pytest.mark.parametrize("text", READERS)
    def test_every_reader_says_how_its_recorder_writes_more(self, text: str) -> None:
        shows = shows_of(own_reader(text))
        assert shows.tensors_advice
        if shows.values is not Has.YES:
            assert shows.values_advice
            assert shows.recorded_in

    @pytest.mark.parametrize(
        ("layout", "words"),
        [
            ("statistic.csv with counts", "MindSpore: in data_dump.json saved_data tensor"),
            ("msprobe statistics", '"task": "tensor"'),
            ("torchtitan", "torchtitan's log never holds values"),
            ("TE logs", "DumpTensors in stats.yaml"),
            ("monitor V2", "PrecisionDebugger with task tensor"),
        ],
    )
    def test_what_needs_values_says_how_to_record_them(
        self, capsys: Capsys, written: dict[str, Path], layout: str, words: str
    ) -> None:
        with closing(Session(open_source(written[layout]))) as session:
            session.open()
            (rank,) = session.ranks()
            table = session.source.tensors(rank, 1)
            node = session.nodes(rank).names[int(table.node[0])]
        watch = ("--watch", "TR range_start_inclusive=0 range_percentage_lt=50 range_end_inclusive=9 @ category=tensor")
        said = run(capsys, "explain", written[layout], node, "--step", 1, *watch)
        assert "Dump values (" in said.out
        assert words in " ".join(said.out.split())
        assert "data_dump" not in said.out or layout.startswith("statistic.csv")

    def test_where_a_tensor_s_input_was_not_recorded_origin_says_how_to(self, capsys: Capsys, tmp_path: Path) -> None:
        bad = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
        bad |= {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
        write(tmp_path, {"Torch.log.0.forward": forward([], [bad])})
        said = run(capsys, "origin", tmp_path, "--json")
        advice = said.json["first_known"]["to_know_more"]
        assert advice.startswith("dump the inputs of")
        assert '(msprobe: in config.json "level": "mix"' in advice


class TestLowerBounds:
    def test_json_names_the_counts_that_are_lower_bounds(self, capsys: Capsys, tmp_path: Path) -> None:
        numbers = {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
        bad = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], **numbers}
        write(tmp_path, {"Torch.log.0.forward": forward([], [bad])})
        (hit,) = run(capsys, "check", tmp_path, "--watch", "TO", "--json").json["hits"]
        assert hit["stats"]["nan"] == 1
        assert set(hit["stats"]["at_least"]) >= {"nan", "pos_inf", "neg_inf"}
        assert "count" not in hit["stats"]["at_least"], "the shape says how many elements there are"
        assert "NaN ≥ 1 of 6" in run(capsys, "check", tmp_path, "--watch", "TO").out

    def test_of_values_every_count_is_exact(self, capsys: Capsys, tmp_path: Path) -> None:
        write_dump(tmp_path / "dump", steps=(0,))
        rows = run(capsys, "stat", tmp_path / "dump", "--json").json["tensors"]
        assert rows
        assert not any("at_least" in row for row in rows)

    @pytest.mark.parametrize("layout", ["TE logs", "monitor V2", "trend.db"])
    def test_a_tensor_of_unknown_shape_is_no_scalar_and_has_no_number_of_elements(
        self, capsys: Capsys, written: dict[str, Path], layout: str
    ) -> None:
        (row, *_) = run(capsys, "stat", written[layout], "--json").json["tensors"]
        assert row["shape"] is None
        assert set(row["at_least"]) >= {"count", "zero", "negative", "positive"}
        shown = run(capsys, "stat", written[layout]).out
        assert "scalar" not in shown

    def test_a_count_that_nobody_made_is_a_dash_not_zero(self, capsys: Capsys, written: dict[str, Path]) -> None:
        shown = run(capsys, "show", written["msprobe statistics"], "log", "--distribution", "--step", 1).out
        assert "negative ≥ 1 · zero – · positive ≥ 1" in shown

    def test_a_trend_tells_lower_bounds_from_counts(self, capsys: Capsys, tmp_path: Path) -> None:
        numbers = {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
        about = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3]}
        good = dict(zip(numbers, (3.0, -2.0, 0.5, 4.0), strict=True))
        for step, each in enumerate((good, numbers)):
            write(tmp_path, {"Torch.log.0.forward": forward([], [about | each])}, step=step)
        first, second = run(capsys, "trend", tmp_path, "log", "--json").json["tensors"][0]["steps"]
        assert (first["nan"], first["inf"], first.get("at_least")) == (0, 0, None)
        assert (second["nan"], second["inf"], second["at_least"]) == (1, None, ["inf", "nan"])
        assert "≥ 1" in run(capsys, "trend", tmp_path, "log").out

    def test_extremes_that_leave_nan_out_do_not_say_that_there_is_none(self, capsys: Capsys, tmp_path: Path) -> None:
        said = run(capsys, "check", extremes_only(tmp_path), "--watch", "TO", "--json")
        assert said.code == 2
        results = [result for hit in said.json["hits"] for result in hit["results"]]
        assert {(each["verdict"], *each["reasons"]) for each in results} == {("cannot_judge", "needs counts")}
        assert run(capsys, "check", tmp_path, "--watch", "TL max_gt=2").code == 1, "the extremes are known"

    def test_nan_in_a_norm_of_finite_extremes_is_nan(self, capsys: Capsys, tmp_path: Path) -> None:
        """MindSpore 2.3 leaves NaN out of the extremes."""
        path = configured(tmp_path) / "rank_0/Net/0/1/statistic.csv"
        path.write_text(path.read_text().replace(str(NUMBERS["norm"]), "nan"))
        said = run(capsys, "check", tmp_path, "--watch", "TO")
        assert said.code == 1
        assert "NaN ≥ 1 of 6" in said.out

    def test_conversion_keeps_them(self, capsys: Capsys, tmp_path: Path) -> None:
        numbers = {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan}
        bad = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], **numbers}
        write(tmp_path / "dump", {"Torch.log.0.forward": forward([], [bad])})
        assert run(capsys, "convert", tmp_path / "dump", "-o", tmp_path / "out").code in {0, 1, 2}
        said = run(capsys, "check", tmp_path / "out", "--watch", "TO")
        assert "NaN ≥ 1 of 6" in said.out, said.err
