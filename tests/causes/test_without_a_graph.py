"""Masks and other infinities in dumps without a graph, where no node made an input from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.cli.running import Answer, run
from tests.sources.msprobe.written import Arrays, write_values

Array = npt.NDArray[Any]
Calls = dict[str, tuple[Arrays, Arrays]]
SCORES = np.random.default_rng(7).normal(size=(3, 5)).astype(np.float32)
MASK = np.zeros((3, 5), np.float32)
MASK[:, 4] = -np.inf
WHOLE_ROW = MASK.copy()
WHOLE_ROW[1] = -np.inf


def softmax(values: Array) -> Array:
    with np.errstate(invalid="ignore"):
        weights = np.exp(values - values.max(-1, keepdims=True))
        result: Array = (weights / weights.sum(-1, keepdims=True)).astype(values.dtype)
    return result


def masked(mask: Array, scores: Array = SCORES) -> Calls:
    """A mask of the data is laid over scores, and a softmax reads the sum."""
    total = scores + mask
    return {
        "Torch.neg.0.forward": ([-scores], [scores]),
        "Torch.add.0.forward": ([scores, mask], [total]),
        "Functional.softmax.0.forward": ([total], [softmax(total)]),
    }


def selected() -> Calls:
    """``where`` puts the -Inf of a tensor of the data in the place of some scores."""
    condition = MASK == 0
    lowest = np.full((3, 5), -np.inf, np.float32)
    lowest[0, 0] = 0  # not read
    result = np.where(condition, SCORES, lowest)
    return {
        "Torch.neg.0.forward": ([-SCORES], [SCORES]),
        "Torch.where.0.forward": ([condition, SCORES, lowest], [result]),
        "Functional.softmax.0.forward": ([result], [softmax(result)]),
    }


def filled() -> Calls:
    """``masked_fill`` writes the -Inf of a tensor of the data."""
    result = SCORES + MASK
    return {
        "Torch.neg.0.forward": ([-SCORES], [SCORES]),
        "Tensor.masked_fill.0.forward": ([SCORES, MASK < 0, np.array(-np.inf, np.float32)], [result]),
        "Functional.softmax.0.forward": ([result], [softmax(result)]),
    }


def cut() -> Calls:
    """A causal mask is made larger than it has to be, and shown in part."""
    part = MASK[:2]
    total = SCORES[:2] + part
    return {
        "Torch.neg.0.forward": ([-SCORES[:2]], [SCORES[:2]]),
        "Tensor.__getitem__.0.forward": ([MASK], [part]),
        "Torch.add.0.forward": ([SCORES[:2], part], [total]),
        "Functional.softmax.0.forward": ([total], [softmax(total)]),
    }


def findings(answer: Answer) -> list[dict[str, Any]]:
    """The hits of ``check --json`` that are not by design."""
    return [hit for hit in answer.json["hits"] if hit["verdict"] != "by_design"]


class TestMasksFromOutside:
    @pytest.mark.parametrize("files", [True, False], ids=["values", "statistics"])
    @pytest.mark.parametrize("calls", [masked(MASK), selected(), filled(), cut()], ids=["add", "where", "fill", "cut"])
    def test_absorbed_ones_are_by_design(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, calls: Calls, files: bool
    ) -> None:
        write_values(tmp_path, calls, files=files)
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert (answer.code, findings(answer)) == (0, [])
        assert "softmax" in answer.json["by_design"]
        assert run(capsys, "origin", tmp_path, "--json").code == 0

    @pytest.mark.parametrize("files", [True, False], ids=["values", "statistics"])
    def test_where_it_becomes_nan_what_reads_the_mask_is_the_origin(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, files: bool
    ) -> None:
        write_values(tmp_path, masked(MASK), files=files)
        write_values(tmp_path, masked(WHOLE_ROW), step=1, files=files)
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        origins = {(hit["step"], hit["node"]) for hit in findings(answer) if hit["origin"]}
        assert (answer.code, origins) == (1, {(1, "Functional.softmax")})
        assert {hit["step"] for hit in findings(answer)} == {1}
        found = run(capsys, "origin", tmp_path, "--json")
        assert [(each["step"], each["node"]) for each in found.json["origins"]] == [(1, "Functional.softmax")]
        path = run(capsys, "origin", tmp_path, "--from", "Functional.softmax", "--step", 1, "--json")
        assert path.json["ending"] == "origin"
        assert [hop["tensor"]["tensor"]["node"] for hop in path.json["hops"]] == ["Functional.softmax"]

    @pytest.mark.parametrize("what", ["read by no softmax", "read by a softmax and something else", "read by nothing"])
    def test_what_goes_on_is_a_finding(self, capsys: pytest.CaptureFixture[str], tmp_path: Path, what: str) -> None:
        calls = masked(MASK)
        if what != "read by a softmax and something else":
            del calls["Functional.softmax.0.forward"]
        if what != "read by nothing":
            total = SCORES + MASK
            calls["Torch.mean.0.forward"] = ([total], [np.array(total.mean())])
        write_values(tmp_path, calls)
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == 1
        assert "Torch.add" in {hit["node"].removesuffix(".0") for hit in findings(answer)}

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_mask_holds_neither_nan_nor_inf(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, value: float
    ) -> None:
        mask = MASK.copy()
        mask[0, 0] = value
        write_values(tmp_path, masked(mask))
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == 1
        assert ("Torch.add", "input", 1) in {
            (hit["node"].removesuffix(".0"), hit["side"], hit["slot"]) for hit in findings(answer)
        }

    def test_a_sum_that_is_infinite_though_its_operands_are_not_is_no_mask(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        calls = masked(MASK)
        calls["Torch.add.0.forward"] = ([SCORES, np.where(np.isinf(MASK), 1, MASK)], calls["Torch.add.0.forward"][1])
        write_values(tmp_path, calls)
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == 1
        assert [hit["node"] for hit in findings(answer) if hit["origin"]] == ["Torch.add"]

    def test_infinite_data_is_no_mask(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """As of a logarithm that was not dumped; a product and a norm read it."""
        data = np.where(np.isinf(MASK), MASK, SCORES)
        result = data * 0.5
        normed = np.full((3, 5), 0.25, np.float32)
        normed[0] = SCORES[0]
        calls: Calls = {
            "Torch.mul.0.forward": ([data], [result]),
            "Functional.layer_norm.0.forward": ([result], [normed]),
        }
        write_values(tmp_path, calls)
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == 1
        assert {hit["verdict"] for hit in findings(answer)} == {"finding"}

    @pytest.mark.parametrize(("slot", "code"), [(0, 1), (1, 1), (2, 1), (3, 0)], ids=["query", "key", "value", "mask"])
    def test_attention_has_its_mask_behind_its_data(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, slot: int, code: int
    ) -> None:
        inputs = [SCORES, SCORES + 1, SCORES + 2, SCORES + 3]
        inputs[slot] = inputs[slot] + MASK
        write_values(tmp_path, {"Functional.scaled_dot_product_attention.0.forward": (inputs, [SCORES])})
        assert run(capsys, "check", tmp_path, "--watch", "TO").code == code

    @pytest.mark.parametrize(
        ("key", "code"), [("Torch.add", 0), ("Torch.sub", 1)], ids=["an added mask", "a mask that is subtracted"]
    )
    def test_a_mask_keeps_its_sign(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, key: str, code: int
    ) -> None:
        total = SCORES + MASK if key == "Torch.add" else SCORES - MASK
        result = softmax(SCORES + MASK)  # as if the softmax could
        calls: Calls = {
            f"{key}.0.forward": ([SCORES, MASK], [total]),
            "Functional.softmax.0.forward": ([total], [result]),
        }
        write_values(tmp_path, calls)
        assert run(capsys, "check", tmp_path, "--watch", "TO").code == code

    @pytest.mark.parametrize("bad", [False, True], ids=["healthy", "a whole row of the second"])
    def test_each_micro_batch_has_its_own_mask(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, bad: bool
    ) -> None:
        calls: Calls = {}
        construct: dict[str, str | None] = {}
        for at in range(2):
            scores = SCORES + at
            mask = WHOLE_ROW if bad and at else MASK
            total = scores + mask
            module = f"Module.net.Net.forward.{at}"
            calls[f"Torch.neg.{at}.forward"] = ([-scores], [scores])
            calls[f"Torch.add.{at}.forward"] = ([scores, mask], [total])
            calls[f"Functional.softmax.{at}.forward"] = ([total], [softmax(total)])
            calls[module] = ([-scores], [softmax(total)])
            construct |= dict.fromkeys(
                [f"Torch.neg.{at}.forward", f"Torch.add.{at}.forward", f"Functional.softmax.{at}.forward"], module
            )
            construct[module] = None
        write_values(tmp_path, calls, construct=construct, level="mix")
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == int(bad)
        assert {(hit["node"], hit["round"]) for hit in findings(answer) if hit["origin"]} == (
            {("net/Functional.softmax", 2)} if bad else set()
        )

    @pytest.mark.parametrize(
        ("given", "inside", "code"),
        [(MASK, MASK, 0), (WHOLE_ROW, MASK, 1), (MASK, np.zeros_like(MASK), 1)],
        ids=["handed on", "another one is read inside", "nothing reads it inside"],
    )
    def test_a_module_hands_its_mask_on(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, given: Array, inside: Array, code: int
    ) -> None:
        module = "Module.block.Block.forward.0"
        calls = masked(inside)
        _, (result,) = calls["Functional.softmax.0.forward"]
        construct: dict[str, str | None] = {**dict.fromkeys(calls, module), module: None}
        write_values(tmp_path, calls | {module: ([-SCORES, given], [result])}, construct=construct, level="mix")
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == code
        assert [hit["node"] for hit in findings(answer)] == ["block/Block"] * code


class TestInputsWithoutTheirFile:
    """The statistics of an input remain where its file was deleted: they tell that there are -Inf, not how many."""

    LOST = "Functional.softmax.0.forward.input.0.npy"

    def calls(self, result: Array) -> Calls:
        calls = filled()
        given, _ = calls["Functional.softmax.0.forward"]
        return calls | {"Functional.softmax.0.forward": (given, [result])}

    @pytest.mark.parametrize("lost", [(), (LOST,)], ids=["there", "lost"])
    def test_the_reader_is_the_origin_with_and_without_the_file(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, lost: tuple[str, ...]
    ) -> None:
        result = softmax(SCORES + MASK)
        result[0, 1] = np.nan
        write_values(tmp_path, self.calls(result), lost=lost)
        found = run(capsys, "origin", tmp_path, "--json").json
        assert [(each["node"], each["start"]) for each in found["origins"]] == [("Functional.softmax", "made")]
        path = run(capsys, "origin", tmp_path, "--from", "Functional.softmax", "--json").json
        assert path["ending"] == "origin"
        assert [hop["tensor"]["tensor"]["node"] for hop in path["hops"]] == ["Functional.softmax"]

    def test_an_input_that_is_finite_again_is_by_design_without_its_file_too(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        write_values(tmp_path, self.calls(softmax(SCORES + MASK)), lost=(self.LOST,))
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert (answer.code, findings(answer)) == (2, [])  # a file that is named is gone: that is a doubt
        assert len(answer.json["hits"]) == 3

    def test_an_infinity_of_another_sign_is_a_finding(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        calls = self.calls(softmax(SCORES + MASK))
        (given,), result = calls["Functional.softmax.0.forward"]
        other = given.copy()
        other[2, 2] = np.inf
        write_values(tmp_path, self.calls(softmax(SCORES + MASK)))
        write_values(tmp_path, calls | {"Functional.softmax.0.forward": ([other], result)}, step=1, lost=(self.LOST,))
        answer = run(capsys, "check", tmp_path, "--watch", "TO", "--json")
        assert answer.code == 1
        assert ("Functional.softmax", "input", 0, 1) in {
            (hit["node"], hit["side"], hit["slot"], hit["step"]) for hit in findings(answer)
        }


def with_nan(values: Array, *places: int) -> Array:
    """A copy with NaN at some places."""
    copy: Array = values.copy()
    copy.reshape(-1)[list(places)] = np.nan
    return copy


def chain(data: Array, given: Array | None = None) -> Calls:
    """What a net makes of data in its first layers; ``given``: what the second one was given instead of the first's."""
    doubled = data * 2
    second = doubled if given is None else given
    result = np.maximum(second, 0)
    return {
        "Torch.mul.0.forward": ([data], [doubled]),
        "Functional.relu.0.forward": ([second], [result]),
        "Torch.sum.0.forward": ([result], [result.sum(-1)]),
    }


class TestPathsOfNanInOneStep:
    """One NaN hides the statistics by which an edge is found: the values tell what a tensor was made from."""

    def path(self, capsys: pytest.CaptureFixture[str], root: Path, node: str) -> list[str]:
        answer = run(capsys, "origin", root, "--from", node, "--json")
        nodes = [hop["tensor"]["tensor"]["node"] for hop in answer.json["hops"] if hop["tensor"]]
        return list(dict.fromkeys(nodes))

    def first_known(self, capsys: pytest.CaptureFixture[str], root: Path) -> str:
        return str(run(capsys, "origin", root, "--json").json["first_known"]["node"])

    def test_the_path_ends_where_the_search_says(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        write_values(tmp_path, chain(with_nan(SCORES, 3)))
        assert self.path(capsys, tmp_path, "Torch.sum") == ["Torch.sum", "Functional.relu", "Torch.mul"]
        assert self.first_known(capsys, tmp_path) == "Torch.mul"

    def test_a_view_that_was_not_recorded_changes_the_shape_only(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        data = with_nan(SCORES, 3)
        write_values(tmp_path, chain(data, (data * 2).reshape(5, 3)))
        assert self.path(capsys, tmp_path, "Torch.sum") == ["Torch.sum", "Functional.relu", "Torch.mul"]

    @pytest.mark.parametrize("given", [with_nan(SCORES, 3), with_nan(SCORES * 2, 3, 4)], ids=["others", "more NaN"])
    def test_other_values_with_nan_are_not_made_there(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, given: Array
    ) -> None:
        write_values(tmp_path, chain(with_nan(SCORES, 3), given))
        assert self.path(capsys, tmp_path, "Torch.sum") == ["Torch.sum", "Functional.relu"]

    def test_tensors_of_nothing_but_nan_need_not_be_the_same(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        write_values(tmp_path, chain(np.full_like(SCORES, np.nan)))
        assert self.path(capsys, tmp_path, "Functional.relu") == ["Functional.relu"]

    def test_values_that_are_not_there_tell_nothing(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        calls = chain(with_nan(SCORES, 3))
        write_values(tmp_path, calls, lost=("Torch.mul.0.forward.output.0.npy",))
        assert self.path(capsys, tmp_path, "Functional.relu") == ["Functional.relu"]
        write_values(tmp_path / "statistics", calls, files=False)
        assert self.path(capsys, tmp_path / "statistics", "Functional.relu") == ["Functional.relu"]

    def test_nothing_is_read_of_a_healthy_step(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        """Not even a file that cannot be read, of a step that is only listed."""
        write_values(tmp_path, chain(SCORES))
        for file in tmp_path.rglob("*.npy"):
            file.write_bytes(b"no numbers")
        answer = run(capsys, "relations", tmp_path, "Functional.relu", "--step", 0, "--json")
        assert "Torch.mul" in answer.out


class TestExplained:
    """``explain`` asks the same rule: an input that is infinite by design is no bad input."""

    BAD_INPUT, BY_DESIGN = "it does not start here: an input is bad already", "it is by design"

    def causes(self, capsys: pytest.CaptureFixture[str], root: Path, *place: object) -> dict[str, str]:
        answer = run(capsys, "explain", root, *place, "--json")
        (tensor,) = answer.json["tensors"]
        return {each["title"]: each["standing"] for part in tensor["sections"] for each in part["causes"]}

    @pytest.mark.parametrize("calls", [masked(WHOLE_ROW), selected(), filled()], ids=["add", "where", "fill"])
    def test_nan_of_a_softmax_behind_a_mask_starts_there(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, calls: Calls
    ) -> None:
        (given, (result,)) = calls["Functional.softmax.0.forward"]
        write_values(tmp_path, calls | {"Functional.softmax.0.forward": (given, [with_nan(result, 5)])})
        found = self.causes(capsys, tmp_path, "Functional.softmax")
        assert self.BAD_INPUT not in found
        assert "likely" in found.values()

    def test_what_writes_a_mask_was_told_to(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        write_values(tmp_path, filled())
        assert self.causes(capsys, tmp_path, "Tensor.masked_fill") == {self.BY_DESIGN: "likely"}

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_an_input_that_is_bad_beside_its_mask_is_one(
        self, capsys: pytest.CaptureFixture[str], tmp_path: Path, value: float
    ) -> None:
        scores = SCORES.copy()
        scores[1, 1] = value
        write_values(tmp_path, masked(MASK, scores))
        assert self.causes(capsys, tmp_path, "Functional.softmax")[self.BAD_INPUT] == "likely"
