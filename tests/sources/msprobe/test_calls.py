"""Names, micro-batches, arguments and edges of calls, on small dumps that are written here."""

from __future__ import annotations

import json
import math
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.sources.msprobe.written import Calls, backward, forward, scalar, tensor, write
from tui_debugger.graph.categories import is_collective, plain_type
from tui_debugger.model import AtLeast, Side, TensorMeta, TensorStats
from tui_debugger.sources import open_source
from tui_debugger.sources.base import Source
from tui_debugger.sources.msprobe.call_names import operator_type
from tui_debugger.sources.msprobe.calls import StepCalls, read_calls
from tui_debugger.sources.msprobe.edges import infer_edges
from tui_debugger.stats.records import Record, Records, RequiredStats


def rounds(step: StepCalls) -> dict[str, list[int]]:
    """The rounds of every node that has tensors."""
    return {
        info.name: sorted(set(step.round[step.node == node].tolist()))
        for node, info in enumerate(step.nodes)
        if (step.node == node).any()
    }


def edges(step: StepCalls) -> set[tuple[str, int, str, int]]:
    """(node, input, producer, its output); ``?`` where that is not known."""
    found = infer_edges(step)
    names = [info.name for info in step.nodes]
    return {
        (names[node], position, names[producer] if producer >= 0 else "?", slot)
        for node, position, producer, slot in zip(
            *(each.tolist() for each in (found.node, found.position, found.producer, found.slot)), strict=True
        )
    }


def micro_batches(count: int, summed: int = 0) -> tuple[Calls, dict[str, str | None]]:
    """A net that runs several times in a step: before it, in it, after it, backward, and sums at the end."""
    calls: dict[str, Any] = {}
    construct: dict[str, str | None] = {}
    for at in range(count):
        calls[f"Tensor.to.{at}.forward"] = forward([tensor(at)], [tensor(at + 0.1)])
        calls[f"Functional.linear.{at}.forward"] = forward([tensor(at + 0.1)], [tensor(at + 0.2)])
        calls[f"Module.net.fc.Linear.forward.{at}"] = forward([tensor(at + 0.1)], [tensor(at + 0.2)])
        calls[f"Functional.cross_entropy.{at}.forward"] = forward([tensor(at + 0.2)], [tensor(at + 0.3)])
        calls[f"Functional.cross_entropy.{at}.backward"] = backward([tensor(at + 0.4)], [tensor(at + 0.5)])
        construct |= {f"{kind}.{at}.forward": None for kind in ("Tensor.to", "Functional.cross_entropy")}
        construct[f"Functional.linear.{at}.forward"] = f"Module.net.fc.Linear.forward.{at}"
        construct[f"Module.net.fc.Linear.forward.{at}"] = None
    for at in range(summed):
        calls[f"Distributed.all_reduce.{at}.forward"] = forward([tensor(at + 50.0)], [tensor(at + 70.0)])
        construct[f"Distributed.all_reduce.{at}.forward"] = None
    return calls, construct


class TestNames:
    @pytest.mark.parametrize(
        ("prefix", "plain"),
        [
            ("Torch.log", "log"),
            ("Tensor.__add__", "add"),
            ("Tensor.__iadd__", "add"),
            ("Tensor.__rmul__", "mul"),
            ("Tensor.__truediv__", "div"),
            ("Tensor.__rtruediv__", "rdiv"),
            ("Tensor.masked_fill_", "maskedfill"),
            ("Functional.softmax", "softmax"),
            ("Primitive.norm.LayerNorm", "layernorm"),
            ("NPU.npu_fusion_attention", "npufusionattention"),
        ],
    )
    def test_types_are_those_of_the_rules(self, prefix: str, plain: str) -> None:
        assert plain_type(operator_type(prefix)) == plain

    @pytest.mark.parametrize("name", ["all_reduce", "_reduce_scatter_base", "_all_gather_base", "all_to_all_single"])
    def test_what_exchanges_values_between_ranks(self, name: str) -> None:
        assert is_collective(operator_type(f"Distributed.{name}"))

    def test_calls_are_named_by_the_module_around_them(self, tmp_path: Path) -> None:
        calls = {
            "Torch.log.0.forward": forward([tensor(1)], [tensor(2)]),
            "Torch.log.1.forward": forward([tensor(2)], [tensor(3)]),
            "Module.a.0.b.Net.forward.0": forward([tensor(1)], [tensor(3)]),
            "Torch.log.2.forward": forward([tensor(3)], [tensor(4)]),
        }
        construct = dict.fromkeys(list(calls)[:2], "Module.a.0.b.Net.forward.0") | {
            "Module.a.0.b.Net.forward.0": None,
            "Torch.log.2.forward": None,
        }
        step = read_calls(str(write(tmp_path, calls, construct)))
        assert [info.name for info in step.nodes] == ["a/0/b/Torch.log", "a/0/b/Torch.log.1", "a/0/b/Net", "Torch.log"]

    def test_without_modules_calls_keep_their_numbers(self, tmp_path: Path) -> None:
        calls = {f"Torch.log.{at}.forward": forward([tensor(at)], [tensor(at + 10)]) for at in (0, 1, 2)}
        step = read_calls(str(write(tmp_path, calls, level="L1")))
        assert [info.name for info in step.nodes] == ["Torch.log.0", "Torch.log.1", "Torch.log.2"]
        assert set(step.round.tolist()) == {0}

    def test_what_runs_again_for_the_backward_pass_is_apart(self, tmp_path: Path) -> None:
        again = {"is_recompute": True}
        calls = {
            "Functional.gelu.0.forward": forward([tensor(1)], [tensor(2)]),
            "Module.act.GELU.forward.0": forward([tensor(1)], [tensor(2)]),
            "Functional.gelu.1.forward": forward([tensor(1)], [tensor(2)], **again),
            "Module.act.GELU.forward.1": forward([tensor(1)], [tensor(2)], **again),
            "Functional.gelu.1.backward": backward([tensor(3)], [tensor(4)]),
            "Module.act.GELU.backward.1": backward([tensor(3)], [tensor(4)]),
        }
        construct: dict[str, str | None] = {
            f"Functional.gelu.{at}.forward": f"Module.act.GELU.forward.{at}" for at in (0, 1)
        }
        construct |= {f"Module.act.GELU.forward.{at}": None for at in (0, 1)}
        source = open_source(write(tmp_path, calls, construct))
        assert list(source.nodes(0).names)[:6] == [
            *("act/Functional.gelu", "act/GELU", "Recomputed/act/Functional.gelu", "Recomputed/act/GELU"),
            *("Gradients/act/Functional.gelu", "Gradients/act/GELU"),
        ]
        assert any("Recomputed/" in notice for notice in source.info.notices)
        assert set(source.tensors(0, 0).round.tolist()) == {0}

    def test_a_key_of_no_known_form_is_a_node_all_the_same(self, tmp_path: Path) -> None:
        step = read_calls(str(write(tmp_path, {"optimizer step": forward([tensor(1)], [tensor(2)])})))
        assert [info.name for info in step.nodes] == ["optimizer step"]
        assert len(step) == 2


class TestMicroBatches:
    def test_each_is_a_round_of_what_runs_in_it(self, tmp_path: Path) -> None:
        found = rounds(read_calls(str(write(tmp_path, *micro_batches(3)))))
        names = {"Tensor.to", "net/fc/Functional.linear", "net/fc/Linear", "Functional.cross_entropy"}
        assert found == {name: [1, 2, 3] for name in names | {"Gradients/Functional.cross_entropy"}}

    def test_as_many_sums_at_the_end_are_nodes_of_their_own(self, tmp_path: Path) -> None:
        found = rounds(read_calls(str(write(tmp_path, *micro_batches(2, summed=4)))))
        sums = [name for name in found if name.startswith("Distributed.")]
        assert sums == ["Distributed.all_reduce", *(f"Distributed.all_reduce.{at}" for at in (1, 2, 3))]
        assert all(found[name] == [0] for name in sums)

    def test_one_has_no_rounds(self, tmp_path: Path) -> None:
        assert set(map(tuple, rounds(read_calls(str(write(tmp_path, *micro_batches(1))))).values())) == {(0,)}

    def test_steps_of_different_numbers_of_them_have_the_same_nodes(self, tmp_path: Path) -> None:
        write(tmp_path, *micro_batches(2), step=0)
        write(tmp_path, *micro_batches(3), step=1)
        write(tmp_path, *micro_batches(1), step=2)
        source = open_source(tmp_path)
        sizes = [len(source.tensors(0, step)) for step in source.steps(0)]
        assert sizes == [20, 30, 10]
        assert len([name for name in source.nodes(0).names if not name.startswith("scalar")]) == 5

    def test_the_step_before_is_that_of_the_same_micro_batch(self, tmp_path: Path) -> None:
        write(tmp_path, *micro_batches(2), step=4)
        write(tmp_path, *micro_batches(2), step=7)
        source = open_source(tmp_path)
        assert source.previous_run(0, 0, 7, 2) == (4, 2)
        assert source.previous_run(0, 0, 7) == (4, 0)
        assert source.previous_run(0, 0, 4, 1) is None


class TestArguments:
    def step(self, tmp_path: Path, call: dict[str, Any]) -> StepCalls:
        return read_calls(str(write(tmp_path, {"Torch.f.0.forward": call})))

    def places(self, step: StepCalls) -> list[tuple[int, int, float]]:
        return [
            (int(side), int(slot), float(mean))
            for side, slot, mean in zip(step.side.tolist(), step.slot.tolist(), step.mean.tolist(), strict=True)
        ]

    def test_nested_and_named_ones_are_inputs_one_after_the_other(self, tmp_path: Path) -> None:
        call = forward([[tensor(1), {"a": tensor(2)}], scalar(3), None], [[tensor(5)], {"b": tensor(6)}])
        call["input_kwargs"] = {"weight": tensor(4), "eps": scalar(1e-5)}
        step = self.step(tmp_path, call)
        assert self.places(step) == [(0, 0, 1), (0, 1, 2), (0, 4, 4), (1, 0, 5), (1, 1, 6)]
        assert step.scalars == [(0, 2, "…"), (0, 3, "None"), (0, 5, "…")]

    def test_infinite_scalars_are_told(self, tmp_path: Path) -> None:
        values = [scalar(-math.inf), scalar(math.inf), scalar(math.nan)]
        step = self.step(tmp_path, forward([tensor(1), *values], []))
        assert [text for _, _, text in step.scalars] == ["-inf", "inf", "nan"]

    def test_lists_in_lists_without_end(self, tmp_path: Path) -> None:
        nested: Any = tensor(1)
        for _ in range(200):
            nested = [nested]
        assert len(self.step(tmp_path, forward([nested], [tensor(2)]))) == 1


class TestRecorded:
    def stats(self, tmp_path: Path, **record: object) -> Any:
        write(tmp_path, {"Torch.f.0.forward": forward([], [{**tensor(1, (4,)), **record}])})
        table = open_source(tmp_path).tensors(0, 0)
        return table.recorded(0)

    def test_one_nan_hides_all_numbers(self, tmp_path: Path) -> None:
        stats = self.stats(tmp_path, Max=math.nan, Min=math.nan, Mean=math.nan, Norm=math.nan)
        assert (stats.nan, stats.minimum, stats.maximum, stats.mean, stats.norm) == (1, None, None, None, None)

    @pytest.mark.parametrize(
        ("mean", "norm"), [(math.nan, math.nan), (math.nan, 3.0), (1.0, math.nan), (math.nan, None), (None, math.nan)]
    )
    def test_a_mean_or_norm_tells_of_nan_that_the_extremes_passed_over(
        self, tmp_path: Path, mean: float | None, norm: float | None
    ) -> None:
        """Those of MindSpore do."""
        stats = self.stats(tmp_path, Max=2.0, Min=-1.0, Mean=mean, Norm=norm)
        assert (stats.nan, stats.minimum, stats.maximum) == (1, -1.0, 2.0)
        assert self.stats(tmp_path / "twin", Max=2.0, Min=-1.0, Mean=1.0, Norm=3.0).nan == 0

    @pytest.mark.parametrize(
        "record",
        [
            {"Max": 3e38, "Min": -3e38, "Mean": math.nan, "Norm": math.inf},  # both sums overflowed
            {"Max": 3e38, "Min": 1.0, "Mean": math.inf, "Norm": math.inf},
            {"Max": 6e4, "Min": 0.0, "Mean": 1.0, "Norm": math.inf},
            {"Max": 2, "Min": 1, "Mean": None, "Norm": None},
        ],
    )
    def test_an_overflow_of_mean_and_norm_is_no_nan(self, tmp_path: Path, record: dict[str, float]) -> None:
        stats = self.stats(tmp_path, **record)
        assert (stats.nan, stats.pos_inf, stats.neg_inf) == (0, 0, 0)

    @pytest.mark.parametrize("extremes", [None, math.nan])
    def test_an_empty_tensor_holds_no_nan(self, tmp_path: Path, extremes: float | None) -> None:
        stats = self.stats(tmp_path, shape=[0, 4], Max=extremes, Min=extremes, Mean=math.nan, Norm=0.0)
        assert (stats.count, stats.nan) == (0, 0)

    @pytest.mark.parametrize("said", ["?", [1], None, {}])
    def test_an_extreme_that_is_no_number_tells_nothing(self, tmp_path: Path, said: object) -> None:
        assert self.stats(tmp_path, Max=said) is None

    def test_infinities_show_in_the_extremes(self, tmp_path: Path) -> None:
        stats = self.stats(tmp_path, Max=math.inf, Min=-math.inf, Mean=math.nan, Norm=math.inf)
        assert (stats.nan, stats.pos_inf, stats.neg_inf) == (0, 1, 1)

    def test_all_elements_are_the_same_infinity(self, tmp_path: Path) -> None:
        stats = self.stats(tmp_path, Max=-math.inf, Min=-math.inf, Mean=-math.inf, Norm=math.inf)
        assert (stats.pos_inf, stats.neg_inf, stats.count) == (0, 4, 4)

    def test_the_norm_of_a_scalar_may_be_negative(self, tmp_path: Path) -> None:
        stats = self.stats(tmp_path, shape=[], Max=-2.5, Min=-2.5, Mean=-2.5, Norm=-2.5)
        assert (stats.norm, stats.negative, stats.counted) == (2.5, 1, True)

    def test_flags_have_extremes_only(self, tmp_path: Path) -> None:
        stats = self.stats(tmp_path, dtype="torch.bool", Max=True, Min=False, Mean=None, Norm=None)
        assert (stats.minimum, stats.maximum, stats.mean, stats.norm) == (0, 1, None, None)

    def test_only_what_the_extremes_tell_is_counted(self, tmp_path: Path) -> None:
        assert self.stats(tmp_path, Max=0.0, Min=0.0, Mean=0.0, Norm=0.0).zero == 4
        assert not self.stats(tmp_path / "some", Max=2.0, Min=0.0).counted
        assert self.stats(tmp_path / "positive", Max=2.0, Min=1.0).positive == 4

    def test_without_statistics_there_are_none(self, tmp_path: Path) -> None:
        assert self.stats(tmp_path, Max=None, Min=None, Mean=None, Norm=None) is None


class TestEdges:
    def test_the_nearest_output_that_is_equal_made_it(self, tmp_path: Path) -> None:
        calls = {
            "Torch.a.0.forward": forward([tensor(1)], [tensor(2)]),
            "Torch.b.0.forward": forward([tensor(2)], [tensor(2)]),
            "Torch.c.0.forward": forward([tensor(2)], [tensor(3)]),
        }
        assert edges(read_calls(str(write(tmp_path, calls)))) == {
            ("Torch.b.0", 0, "Torch.a.0", 0),
            ("Torch.c.0", 0, "Torch.b.0", 0),
        }

    @pytest.mark.parametrize(
        "alike",
        [
            tensor(0) | {"Max": 0.0, "Min": 0.0, "Mean": 0.0, "Norm": 0.0},
            tensor(0) | {"Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 2.0},
            tensor(0) | {"Max": math.nan, "Min": math.nan, "Mean": math.nan, "Norm": math.nan},
            tensor(0, dtype="torch.bool") | {"Max": True, "Min": False, "Mean": None, "Norm": None},
            tensor(0, ()) | {"Max": 1.0, "Min": 1.0, "Mean": 1.0, "Norm": 1.0},
        ],
    )
    def test_what_many_tensors_look_like_says_nothing(self, tmp_path: Path, alike: dict[str, Any]) -> None:
        calls = {
            "Torch.a.0.forward": forward([tensor(1)], [alike]),
            "Torch.b.0.forward": forward([alike], [tensor(2)]),
        }
        assert edges(read_calls(str(write(tmp_path, calls)))) == set()

    def test_a_digest_that_differs_speaks_against_it(self, tmp_path: Path) -> None:
        calls = {
            "Torch.a.0.forward": forward([tensor(1, md5="00000001")], [tensor(2, (2, 3), md5="11111111")]),
            "Torch.b.0.forward": forward([tensor(2, (3, 2), md5="11111111")], [tensor(3, md5="22222222")]),
        }
        assert edges(read_calls(str(write(tmp_path, calls)))) == {("Torch.b.0", 0, "Torch.a.0", 0)}

    def test_modules_without_calls_inside_are_made_of_their_inputs_only(self, tmp_path: Path) -> None:
        calls = {
            "Module.a.A.forward.0": forward([tensor(1)], [tensor(2)]),
            "Module.b.B.forward.0": forward([tensor(2)], [tensor(3)]),
        }
        found = edges(read_calls(str(write(tmp_path, calls, dict.fromkeys(calls), level="L0"))))
        assert found == {("b/B", 0, "a/A", 0)}

    def test_sums_over_micro_batches_may_be_bad_because_of_an_earlier_one(self, tmp_path: Path) -> None:
        calls: dict[str, Any] = {}
        for at in (0, 1):
            own = {"parameters": {"weight": tensor(9, (3, 3))}}
            calls[f"Module.fc.Linear.forward.{at}"] = forward([tensor(at + 0.1)], [tensor(at + 0.2)], **own)
            calls[f"Module.fc.Linear.parameters_grad.{at}"] = {"weight": [tensor(at + 0.3, (3, 3))]}
            calls[f"Module.fc.Linear.backward.{at}"] = backward([tensor(at + 0.4)], [tensor(at + 0.5)])
        construct = {key: None for key in calls if "parameters_grad" not in key}
        found = edges(read_calls(str(write(tmp_path, calls, construct))))
        assert ("Gradients/fc/weight", 1, "?", 0) in found or ("Gradients/fc/weight", 2, "?", 0) in found
        assert ("fc/Linear", 1, "fc.weight", 0) in found


class TestHostile:
    """Whatever stands in the files: what is wrong is said, the rest works."""

    def source(self, tmp_path: Path, calls: Calls) -> Source:
        write(tmp_path, calls, level="L1")
        return open_source(tmp_path)

    @pytest.mark.parametrize("name", ["../../secret.pt", "/etc/passwd", "a\0b.pt", "..", "\ud800.pt"])
    def test_no_name_leads_out_of_the_dump(self, tmp_path: Path, name: str) -> None:
        source = self.source(tmp_path, {"Torch.f.0.forward": forward([], [tensor(1, data_name=name)])})
        (tmp_path / "step0/rank0/dump_tensor_data").mkdir()
        table = source.tensors(0, 0)
        assert table.recorded(0) is not None
        assert int(table.flags[0]) & 2
        assert any("lead elsewhere" in part.why for part in source.unreadable())

    def test_two_tensors_of_one_place(self, tmp_path: Path) -> None:
        calls = {"Torch.f.0.forward": forward([], [tensor(1)]), "Torch.f.00.forward": forward([], [tensor(2)])}
        source = self.source(tmp_path, calls)
        table = source.tensors(0, 0)
        assert len(table) == len({*zip(table.node.tolist(), table.slot.tolist(), strict=True)})
        assert len(source.unreadable()) == (len(table) < 2)

    @pytest.mark.parametrize("shape", [[-1], ["x"], None, 3, [2**70], [[1]], [1.5], [True]])
    def test_a_shape_that_is_none(self, tmp_path: Path, shape: object) -> None:
        record = {**tensor(1), "shape": shape}
        source = self.source(tmp_path, {"Torch.f.0.forward": forward([], [record, tensor(2)])})
        table = source.tensors(0, 0)
        assert table.recorded(len(table) - 1) is not None

    @pytest.mark.parametrize("number", ["12", "x", [1], {}, 10**400, True, None])
    def test_a_number_that_is_none(self, tmp_path: Path, number: object) -> None:
        source = self.source(tmp_path, {"Torch.f.0.forward": forward([], [{**tensor(1), "Max": number}, tensor(2)])})
        table = source.tensors(0, 0)
        table.recorded(0)
        assert table.recorded(1) is not None

    @pytest.mark.parametrize("call", [None, 3, "x", [], {"input_args": 3}, {"output": "x"}, {"parameters": [1]}])
    def test_a_call_that_is_none(self, tmp_path: Path, call: object) -> None:
        source = self.source(tmp_path, {"Torch.f.0.forward": call, "Torch.g.0.forward": forward([], [tensor(1)])})
        assert source.nodes(0).find("Torch.g.0") >= 0
        assert len(source.tensors(0, 0)) == 1

    def test_modules_in_a_circle(self, tmp_path: Path) -> None:
        calls = {f"Module.{name}.M.forward.{at}": forward([], [tensor(at)]) for name in "ab" for at in (0, 1)}
        construct: dict[str, str | None] = {
            f"Module.{name}.M.forward.{at}": f"Module.{other}.M.forward.{at}"
            for name, other in ("ab", "ba")
            for at in (0, 1)
        }
        step = read_calls(str(write(tmp_path, calls, construct)))
        assert len(step) == 4

    def test_files_beside_the_calls_may_be_missing_or_damaged(self, tmp_path: Path) -> None:
        directory = write(tmp_path, {"Torch.f.0.forward": forward([], [tensor(1)])})
        (directory / "stack.json").write_text("{")
        (directory / "construct.json").unlink()
        source = open_source(tmp_path)
        assert len(source.tensors(0, 0)) == 1
        assert [(part.where, part.graph) for part in source.unreadable()] == [("step0/rank0/stack.json", True)]

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "no JSON"),
            ("[]", "no object"),
            ("{}", "no calls in it"),
            ('{"data": 3}', "no calls in it"),
            ("[" * 100_000, "nested too deeply"),
            ('{"data": {', "incomplete"),
        ],
    )
    def test_a_broken_dump_json_is_one_unreadable_step(self, tmp_path: Path, text: str, why: str) -> None:
        write(tmp_path, {"Torch.f.0.forward": forward([], [tensor(1)])}, step=0)
        write(tmp_path, {"Torch.f.0.forward": forward([], [tensor(1)])}, step=1)
        (tmp_path / "step0/rank0/dump.json").write_text(text)
        source = open_source(tmp_path)
        assert len(source.tensors(0, 0)) == 0
        assert len(source.tensors(0, 1)) == 1
        (part,) = source.unreadable()
        assert (part.where, part.rank, part.step, part.graph) == ("step0/rank0/dump.json", 0, 0, False)
        assert why in part.why

    def test_a_huge_dump_json_is_not_read(self, tmp_path: Path) -> None:
        directory = write(tmp_path, {})
        with (directory / "dump.json").open("r+b") as file:
            file.truncate(1 << 40)
        source = open_source(tmp_path)
        source.tensors(0, 0)
        assert "plausible" in source.unreadable()[0].why


def test_the_order_of_steps_is_that_of_their_numbers(tmp_path: Path) -> None:
    for step in (10, 2, 0):
        write(tmp_path, {"Torch.f.0.forward": forward([], [tensor(1)])}, step=step)
    assert list(open_source(tmp_path).steps(0)) == [0, 2, 10]


def test_columns_of_a_step_are_arrays(tmp_path: Path) -> None:
    step = read_calls(str(write(tmp_path, *micro_batches(2))))
    columns = (step.node, step.side, step.slot, step.round, step.call, step.largest, step.dtype, step.shape)
    assert {len(column) for column in columns} == {len(step)}
    assert np.all(step.side[step.call == 0] == [int(Side.INPUT), int(Side.OUTPUT)])
    assert json.loads(json.dumps(step.dtypes)) == ["float32"]


def test_many_calls_open_nearly_as_fast_as_their_json_is_parsed(tmp_path: Path) -> None:
    calls: dict[str, Any] = {}
    construct: dict[str, str | None] = {}
    for at in range(7_000):
        module = f"Module.layers.{at}.fc.Linear.forward.0"
        own = {"parameters": {"weight": tensor(at + 0.7, (3, 3))}}
        calls[f"Functional.linear.{at}.forward"] = forward([tensor(at), tensor(at + 0.7, (3, 3))], [tensor(at + 1)])
        calls[module] = forward([tensor(at)], [tensor(at + 1)], **own)
        calls[f"Functional.linear.{at}.backward"] = backward([tensor(-at - 1)], [tensor(-at - 0.5)])
        construct |= {f"Functional.linear.{at}.forward": module, module: None}
    directory = write(tmp_path, calls, construct)
    parsing = opening = math.inf
    for _ in range(3):
        began = time.process_time()
        for file in directory.glob("*.json"):
            json.loads(file.read_bytes())
        parsed = time.process_time()
        nodes = open_source(tmp_path).nodes(0)
        parsing, opening = min(parsing, parsed - began), min(opening, time.process_time() - parsed)
    assert len(nodes) == 4 * 7_000
    assert opening < 6 * parsing


def said_by(record: dict[str, Any]) -> TensorStats:
    """The rules for one record of ``dump.json``, which the columns are held against; one of the extremes is there."""
    count = math.prod(record["shape"])
    largest, smallest, mean, norm = (
        math.nan if record[name] is None else float(record[name]) for name in ("Max", "Min", "Mean", "Norm")
    )
    said = [float(record[name]) for name in ("Max", "Min") if record[name] is not None]
    finite = not any(map(math.isinf, said))
    met = (largest, smallest) == (math.inf, -math.inf) or (norm == math.inf and largest > 0 and smallest < 0)
    hidden = (finite and record["Norm"] == "nan") or (record["Mean"] == "nan" and not met)
    nan = int(count != 0 and (any(map(math.isnan, said)) or hidden))
    pos_inf = 0 if largest != math.inf else count if smallest == math.inf else 1
    neg_inf = 0 if smallest != -math.inf else count if largest == -math.inf else 1
    bad = nan or pos_inf or neg_inf
    return TensorStats(
        count=count,
        nan=nan,
        pos_inf=pos_inf,
        neg_inf=neg_inf,
        zero=count if largest == smallest == 0 else int(largest == 0 or smallest == 0),
        negative=count if largest < 0 and not bad else int(-math.inf < smallest < 0),
        positive=count if smallest > 0 and not bad else int(0 < largest < math.inf),
        minimum=smallest if math.isfinite(smallest) else None,
        maximum=largest if math.isfinite(largest) else None,
        mean=mean if math.isfinite(mean) else None,
        abs_mean=None if bad or not math.isfinite(mean) or smallest < 0 < largest else abs(mean),
        variance=None,
        sum_squares=norm * norm if math.isfinite(norm) else 0.0,
        at_least=(AtLeast.NAN | AtLeast.INF if 0 < nan < count else AtLeast.NONE)
        | (AtLeast.INF if 0 < pos_inf + neg_inf < count else AtLeast.NONE),
    )


def test_rows_together_are_the_rows_one_by_one(tmp_path: Path) -> None:
    values = [None, "nan", "inf", "-inf", 0, -0.0, 3.5, -3.5, 1e200]
    shapes: list[list[int]] = [[2, 3], [1], [0, 4], [], [1 << 31, 1 << 31]]
    kinds = ["torch.float32", "torch.bfloat16"]
    records = [
        {**tensor(1.0, shape, kind), "Max": top, "Min": low, "Mean": mean, "Norm": norm}
        for at, (top, low, mean, norm) in enumerate(product(values, values, values[:5:2], values[1:6:2]))
        for shape, kind in [(shapes[at % 5], kinds[at % 2])]
    ]
    records[7].pop("shape")
    write(tmp_path, {f"Torch.relu.{at}.forward": forward([], [each]) for at, each in enumerate(records)})
    source = open_source(tmp_path)
    source.nodes(0)
    table = source.tensors(0, 0)
    rows = np.arange(len(table))[::-1].copy()
    found = table.recorded_columns(rows)
    assert found is not None
    kept, need = Records(len(table)), RequiredStats(change=True)
    right = found.right
    assert 0 < right.sum() < len(table)
    told = found._replace(rows=found.rows[right], right=right[right])
    kept.put_recorded_columns(rows[right], told, np.zeros(int(right.sum()), np.bool_), need)
    for row in rows[right].tolist():
        meta = table.recorded_meta(row)
        assert meta is not None
        at = int(source.nodes(0).names[int(table.node[row])].split(".")[2])
        stats = said_by(records[at])
        assert (kept.get(row), table.recorded(row)) == (Record(TensorMeta(*meta, 0), stats, need=need), stats)
    for row in rows[~right].tolist():
        assert table.recorded(row) is None or table.recorded_meta(row) is None or 1 << 31 in table.recorded_meta(row)[1]
