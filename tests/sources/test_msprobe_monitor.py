"""What msprobe's monitor writes (CSV, V1 and V2) and its trend databases (SQLite): real ones, and damaged ones."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.linked import linked
from tests.sources.conformance import asked
from tests.sources.test_logs import everything, made_by, mutated, stats_of
from tui_debugger.errors import NotADumpError, TdbgError
from tui_debugger.graph.table import NodeFlag
from tui_debugger.model import Category, Side, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source, TensorFlag
from tui_debugger.sources.logs import trend_db
from tui_debugger.sources.logs.entries import NO_TRACE, LogNumbers
from tui_debugger.sources.logs.msprobe_monitor import numbers_of

Dumps = Callable[[str], Path]
NAME = "msprobe-monitor"


@pytest.fixture
def dump(dumps: Dumps) -> Path:
    return dumps(NAME)


def expected(dump: Path, which: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dump / "expected.json").read_text())[which]
    return found


def at(source: Source, step: int, name: str, side: Side, round: int = 0) -> TensorStats | None:  # noqa: A002 - the word
    table = source.tensors(0, step)
    index = table.find(source.nodes(0).find(name), side, 0, round)
    return table.recorded(index) if index >= 0 else None


class TestNumbers:
    def test_counted_nan_are_as_many_and_the_extremes_are_of_others(self) -> None:
        stats = LogNumbers(minimum=-1.0, maximum=2.0, mean=math.nan, nan=5504).stats(None)
        assert (stats.count, stats.nan, stats.inf, stats.minimum, stats.maximum) == (5505, 5504, 0, -1.0, 2.0)

    def test_no_nan_does_not_say_that_there_is_no_inf(self) -> None:
        stats = LogNumbers(minimum=-math.inf, maximum=4.0, mean=-math.inf, l2=math.inf, nan=0).stats(4)
        assert (stats.count, stats.nan, stats.neg_inf, stats.pos_inf) == (4, 0, 1, 0)

    def test_a_count_of_nan_or_one_extreme_does_not_tell_that_all_are_finite(self) -> None:
        assert not LogNumbers(nan=0).known
        assert LogNumbers(nan=3).known
        assert numbers_of({"min": 1.0, "nans": 0.0}, rounded=False) is None
        assert numbers_of({"max": math.inf}, rounded=False) is not None
        assert numbers_of({"min": 1.0, "max": 2.0}, rounded=False) is not None


class TestV2:
    def test_ranks_steps_and_rows_are_those_of_the_files(self, dump: Path) -> None:
        said = expected(dump, "v2")
        with closing(open_source(dump / "v2")) as source:
            assert list(source.ranks()) == said["ranks"]
            for rank in said["ranks"]:
                assert list(source.steps(rank)) == said["steps"]  # and no step 5, though a file is named 4-5
                lines = sum(len(path.read_text().splitlines()) - 1 for path in (dump / f"v2/rank_{rank}").iterdir())
                assert sum(len(source.tensors(rank, step)) for step in said["steps"]) == lines
            assert source.unreadable() == ()

    def test_micro_batches_are_rounds_and_numbers_are_those_of_the_rows(self, dump: Path) -> None:
        sides = {
            "energy.input.0": ("energy", Side.INPUT),
            "energy.output.0": ("energy", Side.OUTPUT),
            "energy.grad_input.0": ("Gradients/energy", Side.OUTPUT),
            "energy.grad_output.0": ("Gradients/energy", Side.INPUT),
        }
        with closing(open_source(dump / "v2")) as source:
            for number, row in enumerate(expected(dump, "v2")["rows_energy"]):
                stats = at(source, int(row["step"]), *sides[row["module_name"]], number // 4 + 1)
                assert stats is not None
                assert (stats.minimum, stats.maximum) == (float(row["min"]), float(row["max"]))
                assert (stats.mean, stats.nan) == (float(row["mean"]), 0)
                assert stats.norm == pytest.approx(float(row["norm"]))

    def test_the_first_inf_is_in_the_second_micro_batch_of_energy_and_is_no_nan(self, dump: Path) -> None:
        with closing(open_source(dump / "v2")) as source:
            first, second = (at(source, 3, "energy", Side.OUTPUT, each) for each in (1, 2))
            norm = at(source, 3, "layers.0.input_layernorm", Side.OUTPUT, 2)
            assert first is not None
            assert second is not None
            assert norm is not None
            assert (first.bad, second.neg_inf, second.nan, norm.nan) == (False, 1, 0, 128)

    def test_nodes_have_their_categories(self, dump: Path) -> None:
        with closing(open_source(dump / "v2")) as source:
            nodes = source.nodes(0)
            for name, category in {
                "energy": Category.ACTIVATION,
                "<root>": Category.ACTIVATION,
                "Gradients/energy": Category.GRADIENT,
                "embedding.weight/grad_reduced": Category.GRADIENT,
                "exp_avg.embedding.weight": Category.OPTIMIZER_STATE,
                "exp_avg_sq.embedding.weight": Category.OPTIMIZER_STATE,
                "embedding.weight": Category.WEIGHT,
                "all_reduce/rank0": Category.OTHER,
            }.items():
                assert nodes.category_of(nodes.find(name)) is category, name

    def test_a_module_comes_after_those_inside_it_and_is_made_of_them(self, dump: Path) -> None:
        with closing(open_source(dump / "v2")) as source:
            nodes = source.nodes(0)
            order = [nodes.names[row] for row in np.argsort(nodes.order)]
            assert order.index("energy") < order.index("layers.0.mlp") < order.index("layers.0") < order.index("<root>")
            assert order.index("<root>") < order.index("Gradients/output_layer")
            assert "layers.0.mlp" in made_by(nodes, "layers.0")
            assert made_by(nodes, "exp_avg.embedding.weight") == ["embedding.weight/grad_reduced"]

    def test_a_module_computes_with_the_weights_that_the_step_begins_with(self, dump: Path) -> None:
        for place in ("v1", "v2"):
            with closing(open_source(dump / place)) as source:
                nodes = source.nodes(0)
                norm = "layers.0.input_layernorm"
                assert made_by(nodes, norm)[-2:] == [f"{norm}.{each}/param_origin" for each in ("weight", "bias")]
                flags = nodes.flags[[nodes.find(each) for each in (norm, "energy", "Gradients/energy")]]
                assert (flags & int(NodeFlag.PARTIAL) > 0).tolist() == [False, False, True]

    @pytest.mark.parametrize("others", [(), ("weight_grad",), ("param",)])
    def test_without_the_weights_of_before_a_module_may_be_made_of_more(
        self, others: tuple[str, ...], dump: Path, tmp_path: Path
    ) -> None:
        for kind in ("module", *others):
            for path in (dump / "v2/rank_0").glob(f"{kind}_step*.csv"):
                target = tmp_path / "rank_0" / path.name
                target.parent.mkdir(exist_ok=True)
                lines = path.read_text().splitlines()
                target.write_text("".join(f"{line}\n" for line in lines if "param_updated" not in line))
        with closing(open_source(tmp_path)) as source:
            nodes = source.nodes(0)
            norm, energy = (
                bool(nodes.flags[nodes.find(each)] & int(NodeFlag.PARTIAL))
                for each in ("layers.0.input_layernorm", "energy")
            )
            assert norm
            assert energy == (not others), "nothing tells that it has no weights"

    def test_communication_is_one_row_a_step_and_its_nan_are_counted(self, dump: Path) -> None:
        with closing(open_source(dump / "v2")) as source:
            stats = stats_of(source, 3, "all_reduce/rank0")
            assert (stats.nan, stats.maximum) == (5504, 0.04480018466711044)
            assert any("all its calls" in notice for notice in source.info.notices)

    def test_a_new_file_is_new_steps(self, dump: Path, tmp_path: Path) -> None:
        linked(dump / "v2", tmp_path / "run")
        late = tmp_path / "run/rank_0/module_step4-5.csv"
        text = late.read_text()
        with closing(open_source(tmp_path / "run")) as source:
            assert list(source.steps(0))[-1] == 4
            (late.parent / "module_step6-7.csv").write_text(text.replace("-1,4,", "-1,6,"))
            assert source.refresh().new_steps == ((0, 6),)
            assert len(source.tensors(0, 6)) == len(text.splitlines()) - 1

    def test_a_directory_of_a_rank_opens_the_run_there(self, dump: Path) -> None:
        for place in ("v2/rank_1", "v2/rank_1/module_step0-1.csv"):
            with closing(open_source(dump / place)) as source:
                assert list(source.ranks()) == [0, 1]
                assert asked(source) == {1: list(source.steps(1))}


class TestV1:
    def test_a_row_of_nan_is_no_tensor_and_no_nan(self, dump: Path) -> None:
        with closing(open_source(dump / "v1")) as source:
            assert at(source, 2, "Gradients/<root>", Side.OUTPUT) is None
            assert at(source, 2, "Gradients/<root>", Side.INPUT) is not None
            assert not any(
                stats.bad
                for step in range(3)
                for table in (source.tensors(0, step),)
                for index in range(len(table))
                if (stats := table.recorded(index)) is not None
            )

    def test_every_row_of_a_file_is_there_with_its_shape_and_type(self, dump: Path) -> None:
        seen = 0
        with closing(open_source(dump / "v1")) as source:
            path = next((dump / "v1").glob("*rank0*/actv_2-3.csv"))
            for row in csv.DictReader(path.read_text().splitlines()):
                module, _, side = row["name"].rpartition(".")
                table = source.tensors(0, int(row["step"]))
                index = table.find(source.nodes(0).find(module or "<root>"), Side[side.upper()], 0)
                stats = table.recorded(index)
                assert stats is not None
                assert table.recorded_meta(index) == (
                    row["dtype"].removeprefix("torch."),
                    tuple(json.loads(row["shape"])),
                )
                assert stats.nan == int(row["nans"])
                low = float(row["min"])
                assert stats.minimum == (low if math.isfinite(low) and low else None)
                seen += 1
        assert seen == 92

    def test_six_decimals_of_zero_are_no_zero(self, dump: Path) -> None:
        with closing(open_source(dump / "v1")) as source:
            stats = stats_of(source, 0, "Gradients/energy")
            assert (stats.minimum, stats.mean, stats.zero, stats.bad) == (None, None, 0, False)
            assert all((table.recorded(index) or stats).zero == 0 for table, index in everything(source))
            assert any("six decimals" in notice for notice in source.info.notices)

    def test_two_runs_are_not_one_and_each_opens_by_itself(self, dump: Path, tmp_path: Path) -> None:
        linked(dump / "v1", tmp_path / "run")
        first = next((tmp_path / "run").glob("*rank0*"))
        second = first.with_name("Nov23_01-02-03-rank0-0123abcd")
        shutil.copytree(first, second)
        with pytest.raises(NotADumpError, match="several runs"):
            open_source(tmp_path / "run")
        with closing(open_source(second)) as source:
            assert asked(source) == {0: list(source.steps(0))}


class TestOtherColumns:
    """The statistics that are recorded are a matter of the recorder's settings."""

    @pytest.mark.parametrize(
        ("columns", "cells", "nan"), [("min,max,norm", "nan,nan,nan", 1), ("nans", "3.0", 3), ("norm", "2.5", 0)]
    )
    def test_what_is_there_is_read_and_nan_without_a_count_is_nan(
        self, columns: str, cells: str, nan: int, tmp_path: Path
    ) -> None:
        path = tmp_path / "rank_0/module_step0-1.csv"
        path.parent.mkdir()
        path.write_text(f"vpp_stage,step,module_name,scope,{columns}\n1,0,fc.output.0,forward,{cells}\n")
        with closing(open_source(tmp_path)) as source:
            assert stats_of(source, 0, "vpp1.fc").nan == nan


class TestTrend:
    @pytest.mark.parametrize(("place", "key"), [("dump-db", "db_nomicro"), ("dump-db-parts", "db")])
    def test_rows_of_a_dump_are_tensors_by_the_names_of_columns(self, dump: Path, place: str, key: str) -> None:
        said = expected(dump, "dump")[key]
        with closing(open_source(dump / place)) as source:
            low, high, _ = said["steps"]
            assert list(source.steps(0)) == list(range(low, high + 1))
            assert sum(len(source.tensors(rank, step)) for rank, step in _places(source)) == said["trend_rows"]
            found = [table.recorded(index) for table, index in everything(source)]
            assert sum(stats is not None and stats.nan > 0 for stats in found) == said["null_stats"]
            for _, step, _, call, most, least, mean, norm in said["energy"]:
                stats = stats_of(source, step, f"energy.Energy.{call}")
                assert stats.maximum == most
                assert stats.neg_inf == (least == -1000000001.0)
                assert (stats.minimum, stats.mean) == ((least, mean) if not stats.bad else (None, None))
                assert stats.bad or stats.norm == pytest.approx(norm)

    def test_steps_that_are_nan_all_over_take_no_edge_away_and_give_none(self, dump: Path) -> None:
        nodes = []
        for steps in ((0, 4), (4, 0), (0,)):
            with closing(open_source(dump / "dump-db")) as source:
                for step in steps:
                    source.tensors(0, step)
                nodes.append(source.nodes(0))
        assert [made_by(each, "Torch.softmax.0") for each in nodes] == [["Tensor.masked_fill.0"]] * 3
        last = {each.name: each for each in trend_db.read([str(dump / "dump-db/dump_data.trend.db")], 0)[4].operations}
        assert last["Torch.softmax.0"].inputs == [NO_TRACE]

    def test_edges_are_inferred_from_equal_statistics(self, dump: Path) -> None:
        with closing(open_source(dump / "dump-db")) as source:
            assert made_by(source.nodes(0), "Torch.log.1") == ["Tensor.sum.1"]
            told = " ".join(source.info.notices)
            for words in ("--micro_step false", "NULL", "±1000000001"):
                assert words in told

    def test_a_monitor_s_database_says_what_its_csv_does(self, dump: Path) -> None:
        with closing(open_source(dump / "v1")) as csvs, closing(open_source(dump / "v1-db")) as source:
            assert list(source.steps(0)) == expected(dump, "v1")["steps"]
            for step in source.steps(0):
                table, nodes = source.tensors(0, step), source.nodes(0)
                assert len(table) == len(csvs.tensors(0, step))
                for index in range(len(table)):
                    name, side = nodes.names[int(table.node[index])], Side(int(table.side[index]))
                    mine, other = table.recorded(index), at(csvs, step, name, side)
                    assert mine is not None
                    assert other is not None
                    assert (mine.nan, mine.neg_inf, mine.minimum, mine.maximum, mine.mean) == (
                        *(other.nan, other.neg_inf, other.minimum, other.maximum, other.mean),
                    )

    def test_clamped_numbers_are_said_and_no_type_of_a_value_is_trusted(self, dump: Path, tmp_path: Path) -> None:
        path = tmp_path / "dump_data.trend.db"
        shutil.copy(dump / "dump-db/dump_data.trend.db", path)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE trend_data SET max = 1e9 WHERE step = 1 AND target_id = 1 AND metric_id = 1")
            database.execute("UPDATE trend_data SET max = 'x' WHERE step = 2 AND target_id = 1 AND metric_id = 1")
            database.execute("UPDATE trend_data SET target_id = 99999 WHERE step = 4 AND target_id = 1 AND rank = 0")
        with closing(open_source(path)) as source:
            assert [bool(source.tensors(0, step).flags.all()) for step in (1, 2)] == [True, True]
            table = source.tensors(0, 2)
            assert sum(table.recorded(index) is None for index in range(len(table))) == 1
            whys = " ".join(part.why for part in source.unreadable())
            assert "clamped to ±1e9" in whys
            assert "belong to no tensor" in whys

    @pytest.mark.parametrize(
        "script",
        [
            "CREATE TABLE trend_data (rank, step)",
            "CREATE VIEW trend_data AS WITH RECURSIVE c(rank) AS (SELECT 1 UNION ALL SELECT 1 FROM c) SELECT * FROM c",
            "",
        ],
    )
    def test_other_databases_are_refused_in_words(self, script: str, tmp_path: Path) -> None:
        path = tmp_path / "dump_data.trend.db"
        path.write_bytes(b"")
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(script)
        with pytest.raises(NotADumpError, match="cannot be read"):
            open_source(path)

    def test_it_is_opened_read_only(self, dump: Path) -> None:
        path = dump / "dump-db/dump_data.trend.db"
        before = (path.stat().st_mtime_ns, os.listdir(path.parent))  # noqa: PTH208 - names only
        with closing(open_source(path)) as source:
            assert source.tensors(0, 0).flags[0] & int(TensorFlag.STAT_ONLY)
        assert (path.stat().st_mtime_ns, os.listdir(path.parent)) == before  # noqa: PTH208 - names only


def _places(source: Source) -> list[tuple[int, int]]:
    return [(rank, step) for rank in source.ranks() for step in source.steps(rank)]


class TestBadFiles:
    @pytest.mark.parametrize("which", ["v1", "v2", "db"])
    def test_changed_bytes_never_raise_what_is_no_answer(
        self, which: str, dump: Path, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        whole = {
            "v1": lambda: next((dump / "v1").glob("*rank0*/actv_2-3.csv")).read_bytes(),
            "v2": lambda: (dump / "v2/rank_0/module_step2-3.csv").read_bytes()[:6000],
            "db": lambda: _small_database(dump, tmp_path),
        }[which]()
        names = {"v1": "Nov22_11-36-49-rank0-ab12/actv_2-3.csv", "v2": "rank_0/module_step2-3.csv", "db": "a.trend.db"}
        target = tmp_path / "run" / names[which]
        target.parent.mkdir(parents=True)
        for seed in range(10_000 // 3 if request.config.getoption("--thorough") else 30):
            target.write_bytes(mutated(whole, random.Random(seed)))  # noqa: S311 - chance, no secret
            try:
                with closing(open_source(tmp_path / "run")) as source:
                    for table, index in everything(source):
                        table.recorded(index)
                        table.recorded_meta(index)
                    for rank, step in _places(source):
                        assert list(source.recorded_rows(rank, step) or ()) is not None
                    assert source.unreadable() is not None
            except TdbgError:
                pass  # it is none of its layout any more

    def test_lines_without_sense_are_said_and_the_rest_is_read(self, dump: Path, tmp_path: Path) -> None:
        linked(dump / "v2", tmp_path / "run")
        path = tmp_path / "run/rank_0/module_step2-3.csv"
        text = path.read_text()
        path.unlink()
        path.write_text(
            text + "-1,x,energy.input.0,forward,1,2,3,4,0\n" + text.splitlines()[1].replace("61.0", "6q") + "\n"
        )
        (tmp_path / "run/rank_0/cc_step2-3.csv").unlink()
        os.mkfifo(tmp_path / "run/rank_0/cc_step2-3.csv")
        with closing(open_source(tmp_path / "run")) as source:
            assert len(source.tensors(0, 3)) > 100
            whys = " ".join(part.why for part in source.unreadable())
            assert "1 line without a statistic" in whys
            assert "FIFO" in whys
            table = source.tensors(0, 2)
            assert sum(table.recorded(index) is None for index in range(len(table))) == 1


def _small_database(dump: Path, tmp_path: Path) -> bytes:
    path = tmp_path / "small.db"
    shutil.copy(dump / "dump-db/dump_data.trend.db", path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            "DELETE FROM trend_data WHERE step <> 3 OR rank <> 0 OR target_id > 40; DROP TABLE tag_target_mapping;"
            "DELETE FROM monitoring_targets WHERE target_id > 40; DROP TABLE monitoring_tags; VACUUM;"
        )
    found = path.read_bytes()
    path.unlink()
    return found
