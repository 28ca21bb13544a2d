"""Logs with statistics or hashes and no values: real ones of torchtitan, PyTorch's DebugMode, Transformer Engine."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.linked import linked
from tests.sources.conformance import asked
from tests.unreadable import wound
from tui_debugger.errors import NotADumpError, TdbgError, UnreadableTensorError
from tui_debugger.graph.table import NodeFlag, NodeTable, real_inputs
from tui_debugger.model import Category, Side, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Capability, Source, TensorTable
from tui_debugger.sources.logs import debug_mode, te_logs, torchtitan
from tui_debugger.sources.logs.entries import LogNumbers
from tui_debugger.stats.npy import open_array

Dumps = Callable[[str], Path]
NUMERICS, HASHES, TE = "torchtitan-numerics", "pytorch-debugmode", "te-logs"


def expected(dump: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((dump / "expected.json").read_text())["expected"]
    return found


def stats_of(source: Source, step: int, name: str, side: Side = Side.OUTPUT, *, rank: int = 0) -> TensorStats:
    table = source.tensors(rank, step)
    stats = table.recorded(table.find(source.nodes(rank).find(name), side, 0))
    assert stats is not None
    return stats


def made_by(nodes: NodeTable, name: str) -> list[str]:
    return [nodes.names[row] if row >= 0 else "" for row, _ in real_inputs(nodes, nodes.find(name))]


def everything(source: Source) -> list[tuple[TensorTable, int]]:
    return [
        (table, index)
        for rank in source.ranks()
        for step in source.steps(rank)
        for table in (source.tensors(rank, step),)
        for index in range(len(table))
    ]


class TestNumbers:
    """What follows from what a log has."""

    def test_a_finite_norm_says_that_every_element_is_and_their_mean_magnitude(self) -> None:
        stats = LogNumbers(l1=12.0).stats(8)
        assert (stats.count, stats.bad, stats.abs_mean) == (8, False, 1.5)
        assert stats.minimum is stats.maximum is stats.mean is stats.norm is None

    def test_a_norm_of_zero_says_that_all_are(self) -> None:
        stats = LogNumbers(l1=0.0).stats(8)
        assert (stats.zero, stats.minimum, stats.maximum, stats.abs_mean) == (8, 0.0, 0.0, 0.0)

    @pytest.mark.parametrize("name", ["minimum", "maximum", "mean", "l1", "l2", "peak"])
    def test_a_nan_anywhere_is_a_nan(self, name: str) -> None:
        stats = LogNumbers(**{name: math.nan}).stats(8)
        assert (stats.nan, stats.inf) == (1, 0)

    def test_an_infinite_norm_is_an_inf_unless_the_extremes_say_that_only_the_norm_is(self) -> None:
        assert LogNumbers(l1=math.inf).stats(8).inf == 1
        assert LogNumbers(minimum=-3e38, maximum=3e38, mean=0.0, l2=math.inf).stats(8).bad is False

    def test_infs_of_both_signs_make_the_mean_nan_and_are_no_nan(self) -> None:
        stats = LogNumbers(minimum=-math.inf, maximum=math.inf, mean=math.nan, l1=math.inf).stats(8)
        assert (stats.nan, stats.pos_inf, stats.neg_inf) == (0, 1, 1)

    def test_nothing_known_is_nothing_said(self) -> None:
        assert not LogNumbers(std=1.0).known
        assert LogNumbers(tiny=True).known

    def test_one_finite_extreme_does_not_tell_that_all_is_finite(self) -> None:
        assert not LogNumbers(minimum=1.0).known
        assert not LogNumbers(maximum=1.0).known
        assert not LogNumbers.rounded({"minimum": 0.0}).known
        assert LogNumbers(minimum=-1.0, maximum=1.0).known
        assert LogNumbers.rounded({"minimum": 0.0, "maximum": 1.0}).known
        assert LogNumbers.rounded({"mean": 0.0}).known
        assert LogNumbers(maximum=math.inf).known


class TestTorchtitan:
    @pytest.fixture
    def dump(self, dumps: Dumps) -> Path:
        return dumps(NUMERICS)

    @pytest.fixture(params=["good", "bad"])
    def source(self, request: pytest.FixtureRequest, dump: Path) -> Iterator[Source]:
        with closing(open_source(dump / request.param)) as source:
            yield source

    def test_all_operations_are_there_in_the_order_in_which_they_ran(self, source: Source, dump: Path) -> None:
        nodes = source.nodes(0)
        assert (source.ranks(), source.steps(0)) == ([0], [0])
        assert len(nodes) == expected(dump)["captures"]
        assert [nodes.names[row] for row in np.argsort(nodes.order)[:3]] == [
            "embedding/op_0_embedding",
            "energy/op_0_abs",
            "energy/op_1_sum",
        ]
        assert source.unreadable() == ()
        assert source.capabilities & Capability.GRAPH

    def test_what_is_not_in_the_log_is_said(self, source: Source) -> None:
        told = " ".join(source.info.notices)
        for words in ("counts as step 0", "no values", "min_numel", "inferred"):
            assert words in told

    def test_numbers_edges_and_lines_are_those_of_the_blocks(self, dump: Path) -> None:
        with closing(open_source(dump / "bad")) as source:
            nodes = source.nodes(0)
            for title, lines in expected(dump)["blocks"].items():
                name, said = title.strip("[]"), dict(line.strip().split(": ", 1) for line in lines if ": " in line)
                stats = stats_of(source, 0, name)
                low, high = float(said["Min"]), float(said["Max"])
                assert stats.minimum == (low if math.isfinite(low) else None)
                assert stats.maximum == high
                assert (stats.neg_inf, stats.nan) == (int(low == -math.inf), 0)
                assert stats.norm == pytest.approx(float(said["L2 norm"])) or said["L2 norm"] == "inf"
                row = nodes.find(name)
                producers = [each for each in said["Input producers"].split(";") if each]
                assert [each for each in made_by(nodes, name) if each] == producers
                (frame,) = nodes.stacks[int(nodes.stack_id[row])]
                assert f"{frame.path}:{frame.line}" == said["Location"]

    def test_equal_hashes_join_what_no_name_does_and_are_marked(self, dump: Path) -> None:
        with closing(open_source(dump / "good")) as source:
            nodes = source.nodes(0)
            assert made_by(nodes, "<none>/op_0_mul") == ["energy/op_2_log"]
            assert nodes.flags[nodes.find("<none>/op_0_mul")] & NodeFlag.INFERRED
            assert not nodes.flags[nodes.find("energy/op_1_sum")] & NodeFlag.INFERRED

    def test_backward_operations_are_gradients(self, source: Source) -> None:
        nodes = source.nodes(0)
        row = nodes.find("output_layer/op_1_mm")
        assert nodes.category_of(row) is Category.GRADIENT
        assert nodes.paths[row].startswith("Gradients/output_layer/")

    def test_directories_of_steps_are_steps_of_one_run(self, dump: Path, tmp_path: Path) -> None:
        linked(dump / "good", tmp_path / "run/step_2")
        linked(dump / "bad", tmp_path / "run/step_3")
        for where, steps in (("run", [2, 3]), (".", [2, 3]), ("run/step_3/numerics", [3])):
            with closing(open_source(tmp_path / where)) as source:
                assert source.steps(0) == [2, 3]
                assert asked(source) == {0: steps}
                assert stats_of(source, 3, "energy/op_2_log").neg_inf == 1
                assert stats_of(source, 2, "energy/op_2_log").bad is False

    def test_two_runs_are_not_one(self, dump: Path) -> None:
        with pytest.raises(NotADumpError, match="Several dumps"):
            open_source(dump)

    def test_a_log_that_ends_early_says_so(self, dump: Path, tmp_path: Path) -> None:
        linked(dump / "good", tmp_path / "run")
        log = tmp_path / "run/numerics/rank_0_activations.log"
        text = log.read_text()
        log.unlink()
        log.write_text(text[: len(text) // 2])
        with closing(open_source(tmp_path)) as source:
            assert len(source.tensors(0, 0)) > 100
            assert any("of 352 captured operations" in part.why for part in source.unreadable())
            assert {part.step for part in source.unreadable()} == {0}

    def test_a_block_with_a_broken_number_is_one_unreadable_tensor(self, tmp_path: Path) -> None:
        log = tmp_path / "rank_3_activations.log"
        block = (
            "[net/op_{}_mul]\n  Shape: torch.Size([4]), Dtype: torch.float32\n  Min: {}\n  Max: 2\n  Output hash: 3\n"
        )
        log.write_text("Total captured activations: 2\n\n" + block.format(0, "1.0") + "\n" + block.format(1, "1.x0"))
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(3, 0)
            assert [table.recorded(index) is None for index in range(2)] == [False, True]


class TestDebugMode:
    @pytest.fixture
    def dump(self, dumps: Dumps) -> Path:
        return dumps(HASHES)

    @pytest.fixture(params=["good", "bad"])
    def source(self, request: pytest.FixtureRequest, dump: Path) -> Iterator[Source]:
        with closing(open_source(dump / request.param)) as source:
            yield source

    def test_every_operation_is_a_node_of_its_module(self, source: Source, dump: Path) -> None:
        nodes = source.nodes(0)
        operators = [row for row in range(len(nodes)) if nodes.category_of(row) is not Category.CONSTANT]
        assert source.steps(0) == expected(dump)["steps"]
        assert len(operators) == expected(dump)["types"]["op"]
        assert nodes.paths[nodes.find("TinyLM.energy/log.0")] == "TinyLM/energy/log.0"
        assert source.unreadable() == ()

    def test_hashes_are_norms_of_outputs_and_inputs(self, dump: Path) -> None:
        with closing(open_source(dump / "bad/step3.json")) as source:
            assert asked(source) == {0: [3]}
            put, taken = (
                stats_of(source, 3, "TinyLM.energy/abs.0"),
                stats_of(source, 3, "TinyLM.energy/log.0", Side.INPUT),
            )
            assert put.abs_mean == 638.4081205250695 / 1024
            assert taken.abs_mean == 638.4080963134766 / 4
            assert (taken.bad, stats_of(source, 3, "TinyLM.energy/log.0").inf) == (False, 1)
            table, row = source.tensors(0, 3), source.nodes(0).find("TinyLM.energy/log.0")
            assert table.recorded_meta(table.find(row, Side.OUTPUT, 0)) == ("float32", (4,))

    def test_numbers_of_tensors_are_edges_and_scalars_are_constants(self, source: Source) -> None:
        nodes = source.nodes(0)
        fill = "TinyLM.layers.0.self_attention/masked_fill.0"
        assert made_by(nodes, "TinyLM.energy/log.0") == ["TinyLM.energy/sum.0"]
        assert made_by(nodes, fill)[-1] == "scalar -inf"
        assert not (nodes.flags & int(NodeFlag.INFERRED)).any()

    def test_stacks_begin_with_the_innermost_frame_and_those_of_the_forward_follow(self, source: Source) -> None:
        nodes = source.nodes(0)
        frames = nodes.stacks[int(nodes.stack_id[nodes.find("TinyLM.energy/log.0")])]
        assert (frames[0].path, frames[0].line, frames[0].framework) == ("/home/user/model.py", 7, False)
        assert frames[0].code == "return torch.log(x.abs().sum((1, 2)))"
        backward = next(row for row in range(len(nodes)) if nodes.op_type(row) == "gelu_backward")
        assert any(frame.forward for frame in nodes.stacks[int(nodes.stack_id[backward])])
        assert nodes.category_of(backward) is Category.GRADIENT

    def test_without_numbers_of_tensors_edges_are_inferred_from_hashes(self, dump: Path, tmp_path: Path) -> None:
        text = (dump / "bad/step3.json").read_text()
        (tmp_path / "step3.json").write_text(re.sub(r"t\$\d+", "t", text))
        with closing(open_source(tmp_path)) as source:
            nodes = source.nodes(0)
            assert made_by(nodes, "TinyLM.energy/log.0") == ["TinyLM.energy/sum.0"]
            assert nodes.flags[nodes.find("TinyLM.energy/log.0")] & NodeFlag.INFERRED

    def test_checksums_and_calls_without_hashes_say_nothing_of_values(self, dump: Path, tmp_path: Path) -> None:
        document = json.loads((dump / "good/step3.json").read_text())
        for number, record in enumerate(document["logs"]):
            record["log"] = (
                {"type": "dict", "items": [["hash", {"type": "scalar", "value": 12}]]} if number % 2 else None
            )
        (tmp_path / "a.json").write_text(json.dumps(document))
        with closing(open_source(tmp_path)) as source:
            table = source.tensors(0, 0)
            assert len(table) > 300
            assert all(table.recorded(index) is None for index in range(len(table)))

    def test_of_several_hashes_the_norm_counts(self, tmp_path: Path) -> None:
        both = {"type": "list", "items": [{"type": "scalar", "value": 99}, {"type": "scalar", "value": 6.0}]}
        record = {"type": "op", "call_depth": 0, "op_name": "aten::relu", "args_str": "t$0: bf16[3]", "kwargs_str": ""}
        record |= {"log": {"type": "dict", "items": [["hash", both]]}, "output_str": "  ->  t$1: bf16[3]"}
        (tmp_path / "a.json").write_text(json.dumps({"format": debug_mode.FORMAT, "version": 1, "logs": [record]}))
        with closing(open_source(tmp_path)) as source:
            stats = stats_of(source, 0, "relu.0")
            assert (stats.abs_mean, stats.bad) == (2.0, False)

    def test_kernels_and_redistributions_are_operations(self, tmp_path: Path) -> None:
        scalar = {"type": "scalar", "value": 6.0}
        redistribute = {"type": "redistribute", "call_depth": 0, "arg_str": "dt$0: f32[6]| S(0)", "log": None}
        redistribute |= {"output_str": "  ->  dt$1: f32[6]| R"}
        kernel = {"type": "triton_kernel", "call_depth": 0, "kernel_name": "fused_mul", "log": None}
        kernel |= {"kwargs_str": "in_ptr=t$1: f32[6], out_ptr=t$2: f32[6], xnumel=6"}
        kernel |= {
            "pre_hashes": {"in_ptr": scalar},
            "post_hashes": {"in_ptr": scalar, "out_ptr": {**scalar, "value": 12.0}},
        }
        document = {"format": debug_mode.FORMAT, "version": 1, "logs": [redistribute, kernel]}
        (tmp_path / "a.json").write_text(json.dumps(document))
        with closing(open_source(tmp_path)) as source:
            nodes = source.nodes(0)
            assert made_by(nodes, "fused_mul.0") == ["redistribute.0"]
            table, row = source.tensors(0, 0), nodes.find("fused_mul.0")
            written = table.recorded(table.find(row, Side.OUTPUT, 1))
            assert written is not None
            assert written.abs_mean == 2.0
            assert source.unreadable() == ()

    def test_logs_of_one_step_are_refused_together_and_open_one_by_one(self, dump: Path, tmp_path: Path) -> None:
        for name in ("good", "bad"):
            shutil.copy(dump / name / "step3.json", tmp_path / f"{name}.json")
        with pytest.raises(NotADumpError, match="Several logs of rank 0, step 0"):
            open_source(tmp_path)
        with closing(open_source(tmp_path / "bad.json")) as source:
            assert source.steps(0) == [0]
            assert stats_of(source, 0, "TinyLM.energy/log.0").inf == 1

    def test_other_json_is_no_log(self, tmp_path: Path) -> None:
        (tmp_path / "step3.json").write_text('{"format": "another"}')
        with pytest.raises(NotADumpError):
            open_source(tmp_path)

    @pytest.mark.parametrize("name", ["step4.json", "step_5/log.json"])
    def test_a_log_of_zeros_beside_a_good_one_is_a_doubt(self, dump: Path, tmp_path: Path, name: str) -> None:
        shutil.copy(dump / "good/step3.json", tmp_path)
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        for content, doubts in ((b'{"lr": 1}', 0), (b"", 1), (bytes(5000), 1)):
            file.write_bytes(content)
            with closing(open_source(tmp_path)) as source:
                source.tensors(0, 3)
                assert len(source.unreadable()) == doubts

    def test_a_cut_log_is_a_part_that_cannot_be_read(self, dump: Path, tmp_path: Path) -> None:
        text = (dump / "good/step3.json").read_text()
        (tmp_path / "step3.json").write_text(text[:5000])
        with closing(open_source(tmp_path)) as source:
            assert len(source.tensors(0, 3)) == 0
            (part,) = source.unreadable()
            assert "incomplete" in part.why


class Quantized:
    """Tells how it is made again as Transformer Engine's ``Float8Tensor`` does: by a method of its class."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @classmethod
    def made(cls, *parts: Any) -> Quantized:
        """Makes one of its parts."""
        return cls(*parts)

    def __reduce__(self) -> Any:
        return Quantized.made, self.parts


class TestTransformerEngine:
    @pytest.fixture
    def dump(self, dumps: Dumps) -> Path:
        return dumps(TE)

    @pytest.fixture
    def source(self, dump: Path) -> Iterator[Source]:
        with closing(open_source(dump)) as source:
            yield source

    def test_steps_ranks_and_every_line_are_there(self, source: Source, dump: Path) -> None:
        said = expected(dump)
        assert list(source.ranks()) == said["ranks"]
        assert [list(source.steps(rank)) for rank in source.ranks()] == [said["steps"]] * 2
        rows = [row for rank in (0, 1) for step in range(5) for row in source.recorded_rows(rank, step) or ()]
        logged = {"min", "max", "mean", "std", "l1_norm", "l2_norm", "cur_amax", "dynamic_range"}
        logged |= {"fp8_current_scaling_mse", "fp8_current_scaling_underflows%"}
        assert sum(len(logged & row.keys()) for row in rows) == said["lines"]
        assert source.unreadable() == ()
        assert not source.capabilities & Capability.GRAPH

    def test_numbers_are_those_of_the_lines(self, source: Source, dump: Path) -> None:
        pattern = re.compile(
            r"rank (\d) it (\d+) (.+)_(activation|weight|gradient|wgrad)_(max|l2_norm|cur_amax|std|mean)"
        )
        seen = 0
        for line, text in expected(dump)["stats"].items():
            match = pattern.fullmatch(line)
            if match is None:
                continue
            rank, step, layer, tensor, statistic = match.groups()
            name = f"{layer}.weight" if tensor == "weight" else f"{layer}/{tensor}"
            stats = stats_of(source, int(step), name, rank=int(rank))
            value = float(text)
            found = {"max": stats.maximum, "l2_norm": stats.norm, "mean": stats.mean}.get(statistic, value)
            if math.isnan(value):
                assert stats.nan == 1
            elif value == 0:
                assert found is None
            else:
                assert found == pytest.approx(value)
            seen += 1
        assert seen == 20

    def test_four_decimals_of_zero_are_no_zero(self, source: Source) -> None:
        stats = stats_of(source, 0, "layers.0.mlp.linear_fc1/dgrad")
        assert (stats.mean, stats.zero, stats.bad) == (None, 0, False)
        assert stats.minimum == -0.0027
        assert any("±5e-5" in notice for notice in source.info.notices)
        for table, index in everything(source):
            found = table.recorded(index)
            assert found is not None
            assert found.zero == 0

    def test_layers_come_in_the_order_of_the_messages(self, source: Source) -> None:
        nodes = source.nodes(0)
        names = [nodes.names[row] for row in np.argsort(nodes.order)]
        assert names[:4] == [
            "layers.0.self_attention.linear_qkv/activation",
            "layers.0.self_attention.linear_qkv/output",
            "layers.0.self_attention.linear_proj/activation",
            "layers.0.self_attention.linear_proj/output",
        ]
        assert nodes.category_of(nodes.find("layers.0.mlp.linear_fc1.weight")) is Category.WEIGHT
        assert nodes.category_of(nodes.find("layers.0.mlp.linear_fc1/wgrad")) is Category.GRADIENT

    @pytest.mark.parametrize("kind", ["dangling", "loop", "fifo"])
    def test_messages_that_cannot_be_read_are_a_doubt(self, dump: Path, tmp_path: Path, kind: str) -> None:
        run = tmp_path / "run"
        linked(dump, run)
        name = "nvdlfw_inspect_logs/nvdlfw_inspect_globalrank-1.log"
        why = wound(run / name, kind).replace("a directory", "a file")
        with closing(open_source(run)) as source:
            everything(source)
            unread = [(part.rank, part.step, part.why) for part in source.unreadable()]
        assert unread == [(1, step, f"{name}: {why}: the order of layers is not known") for step in source.steps(1)]

    def test_dumped_tensors_have_their_values(self, source: Source, dump: Path) -> None:
        seen = 0
        for place, said in expected(dump)["stats"].items():
            if not place.startswith("tensor_dumps"):
                continue
            _, rank, _, file = place.split("/")
            layer = re.sub(r"layers_(\d)_self_attention_(\w+)_activation.pt", r"layers.\1.self_attention.\2", file)
            table = source.tensors(int(rank[-1]), 3)
            index = table.find(source.nodes(int(rank[-1])).find(f"{layer}/activation"), Side.OUTPUT, 0)
            values = np.asarray(open_array(table.spec(index)), np.float64)
            assert list(values.shape) == said["shape"]
            assert np.isnan(values).sum() == said["nan"]
            assert np.nanmax(values) == said["finite_max"]
            seen += 1
        assert seen == 4

    def test_a_quantized_tensor_is_unreadable_beside_what_it_was_made_of(self, dump: Path, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
        run = linked(dump, tmp_path / "run")
        both, alone = (
            run / f"tensor_dumps/rank_0/iter_000003/{name}.pt"
            for name in ("output_layer_gradient", "layers_0_mlp_linear_fc1_activation")
        )
        for path, whole in ((both, {"high_precision": torch.arange(3.0)}), (alone, {})):
            path.unlink(missing_ok=True)  # files of a copy are links
            torch.save({**whole, "quantized": Quantized(torch.ones(4, dtype=torch.uint8), torch.ones(1))}, path)
        with closing(open_source(run)) as source:
            table, nodes = source.tensors(0, 3), source.nodes(0)
            gradient = nodes.find("output_layer/gradient")
            values = open_array(table.spec(table.find(gradient, Side.OUTPUT, 0)))
            assert values.tolist() == [0, 1, 2]
            for row in (gradient, nodes.find("layers.0.mlp.linear_fc1/activation")):
                with pytest.raises(UnreadableTensorError, match=r"went into .*Quantized\.made, which is not known"):
                    open_array(table.spec(table.find(row, Side.OUTPUT, 1)))

    def test_a_log_that_grows_has_new_steps(self, dump: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        linked(dump, run)
        log = run / "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-1.log"
        text = log.read_text()
        log.unlink()
        log.write_text(text)
        with closing(open_source(run)) as source:
            before = [source.tensors(1, step) for step in range(5)]
            assert not source.refresh()
            more = re.sub(r"iteration=000004", "iteration=000005", "".join(text.splitlines(keepends=True)[-450:]))
            log.write_text(text + more)
            changes = source.refresh()
            assert changes.new_steps == ((1, 5),)
            assert changes.grown_steps == ()
            assert list(source.steps(1)) == [0, 1, 2, 3, 4, 5]
            assert all(old is source.tensors(1, step) for step, old in enumerate(before))
            assert len(source.tensors(1, 5)) == len(before[4])

    def test_lines_that_are_no_statistics_are_said(self, tmp_path: Path) -> None:
        log = tmp_path / "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-0.log"
        log.parent.mkdir()
        line = "2026-11-22 03:34:28,650 - INFO - fc_weight_mean \t\t\t\t iteration=000007 \t\t\t\t value=-0.5000\n"
        log.write_text(line + line[:-4])
        with closing(open_source(tmp_path)) as source:
            assert source.steps(0) == [7]
            assert stats_of(source, 7, "fc.weight").mean == -0.5
            assert ["1 line without a statistic" in part.why for part in source.unreadable()] == [True]


LOGS = (
    (NUMERICS, "bad/numerics/rank_0_activations.log"),
    (HASHES, "bad/step3.json"),
    (TE, "nvdlfw_inspect_statistics_logs/nvdlfw_inspect_globalrank-0.log"),
)


class TestBadLogs:
    """Whatever a file holds: an answer or an error in words, soon."""

    @pytest.mark.parametrize(("name", "file"), LOGS)
    def test_what_is_no_file_is_a_part_that_cannot_be_read(
        self, name: str, file: str, dumps: Dumps, tmp_path: Path
    ) -> None:
        target = tmp_path / name / file
        target.parent.mkdir(parents=True)
        shutil.copy(dumps(name) / file, target)
        root = tmp_path / name if name == TE else tmp_path / name / "bad"
        with closing(open_source(root)) as source:
            target.unlink()
            os.mkfifo(target)
            assert not everything(source)
            assert any("FIFO" in part.why for part in source.unreadable())

    @pytest.mark.parametrize(("name", "file"), LOGS)
    def test_changed_bytes_never_raise_what_is_no_answer(
        self, name: str, file: str, dumps: Dumps, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        whole = (dumps(name) / file).read_bytes()
        cut = whole[: 60_000 if name != HASHES else len(whole)]
        if name == HASHES:  # the first forty records
            document = json.loads(whole)
            cut = json.dumps({**document, "logs": document["logs"][:40]}).encode()
        root = tmp_path / "run"
        target = root / file.partition("/")[2] if name != TE else root / file
        target.parent.mkdir(parents=True)
        number = 10_000 // 3 if request.config.getoption("--thorough") else 30
        for seed in range(number):
            target.write_bytes(mutated(cut, random.Random(seed)))  # noqa: S311 - chance, no secret
            try:
                with closing(open_source(root)) as source:
                    for table, index in everything(source):
                        table.recorded(index)
                        table.recorded_meta(index)
                    for rank in source.ranks():
                        source.nodes(rank)
                        for step in source.steps(rank):
                            assert list(source.recorded_rows(rank, step) or ()) is not None
                    assert source.unreadable() is not None
            except TdbgError:
                pass  # it is none of its layout any more

    @pytest.mark.parametrize("text", ["[" * 100_000, '{"format": 1e999}', "[]", "{", "9" * 100_000])
    def test_hostile_json_is_refused_in_words(self, text: str, tmp_path: Path) -> None:
        path = tmp_path / "a.json"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"."):
            debug_mode.read(str(path))

    def test_deep_trees_and_absurd_shapes_are_no_tensors(self, tmp_path: Path) -> None:
        tree: Any = {"type": "scalar", "value": 1.0}
        for _ in range(300):
            tree = {"type": "list", "items": [tree]}
        shape = ", ".join(["9" * 18] * 5)
        record = {"type": "op", "call_depth": 0, "op_name": "aten::mul", "args_str": "", "kwargs_str": ""}
        record |= {"log": {"hash": tree}, "output_str": f"  ->  t$1: f32[{shape}]"}
        path = tmp_path / "a.json"
        path.write_text(json.dumps({"format": debug_mode.FORMAT, "version": 1, "logs": [record]}))
        (entry,) = debug_mode.read(str(path)).operations[0].tensors
        assert (entry.shape, entry.stats()) == (None, None)

    def test_empty_files_hold_no_operation(self, tmp_path: Path) -> None:
        path = tmp_path / "empty"
        path.touch()
        assert torchtitan.read(str(path)).problems
        assert te_logs.read([str(path)]) == {}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A few bytes changed, removed, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at, length = chance.randrange(len(changed)), chance.randint(1, 40)
        how = chance.randrange(5)
        if how == 0:
            changed[at] = chance.randrange(256)
        elif how == 1:
            del changed[at : at + length]
        elif how == 2:
            changed[at:at] = changed[at : at + length] * chance.randint(1, 50)
        elif how == 3:
            changed[at : at + 1] = chance.choice(
                [b"nan", b"-inf", b"1e999", b"[", b"]", b"\n", b"\0", b"$", b'"', b"9" * 30]
            )
        elif chance.random() < 0.2:
            del changed[max(at, 1) :]
    return bytes(changed)
