"""Every answer that MindInsight 2.0.0 recorded on two real dumps, against ours, file by file.

Only analysis is involved: files are found by their names, nodes matched by the last component of their full name
(unique in a MindSpore 2.0 dump), and the previous step is the step before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.old_tool import CONDITIONS, DUMPS, INF_BECAME_FINITE, WRONG
from tests.sources.file_names import parse_name
from tests.stats.requests import requests_for
from tui_debugger.model import ReadSpec, Side, Verdict, Watchpoint, WatchResult
from tui_debugger.stats.measure import read_all
from tui_debugger.stats.npy import open_array
from tui_debugger.stats.records import Record, Records, RequiredStats
from tui_debugger.watch.condition_table import validate
from tui_debugger.watch.evaluate import ColumnEvaluator, needs

pytestmark = pytest.mark.usefixtures("measured_by")

Place = tuple[str, int, int]
"""(last component of the node's name, output slot, step)."""
Files = dict[Place, ReadSpec]


def short(place: Place) -> Place:
    """The place of a node by its full name, by the last component of that."""
    node, slot, step = place
    return node.rpartition("/")[2], slot, step


def watchpoint(key: str, threshold: dict[str, float]) -> Watchpoint:
    condition = CONDITIONS[key]
    return Watchpoint(1, condition, validate(condition, threshold))


@pytest.fixture(scope="module")
def outputs(dumps: Callable[[str], Path]) -> Callable[[str], Files]:
    def find(name: str) -> Files:
        files: Files = {}
        for path in dumps(name).glob("rank_0/*/0/[0-9]*/*.npy"):
            parsed = parse_name(path.name)
            assert parsed is not None, path
            place = (parsed.op_name, parsed.slot, int(path.parent.name))
            if parsed.side is Side.OUTPUT:
                assert place not in files
                files[place] = ReadSpec(str(path))
        return files

    return find


@pytest.fixture(scope="module")
def records(
    outputs: Callable[[str], Files], golden: Callable[[str], dict[str, Any]]
) -> Callable[[str], dict[Place, Record]]:
    known: dict[str, dict[Place, Record]] = {}

    def make(name: str) -> dict[Place, Record]:
        if name not in known:
            need = RequiredStats()
            for key in CONDITIONS:
                need |= needs(watchpoint(key, golden(name)["hits"][key]["threshold"]))
            files = outputs(name)
            places = list(files)
            numbers = {place: number for number, place in enumerate(places)}
            before = [numbers.get((node, slot, step - 1), -1) for node, slot, step in places]
            found = read_all(requests_for([files[place] for place in places], before, need))
            known[name] = {place: record for place in places if (record := found.get(numbers[place])) is not None}
        return known[name]

    return make


def old_hits(answers: dict[str, Any]) -> dict[Place, dict[str, Any]]:
    return {short((hit["id"][2], hit["id"][3], hit["id"][4])): hit for hit in answers["hits"]}


def our_hits(records: dict[Place, Record], watch: Watchpoint) -> dict[Place, WatchResult]:
    evaluator = ColumnEvaluator(Records.of(list(records.values())), np.arange(len(records)))
    results = evaluator.results(watch, np.array([step == 0 for _, _, step in records]))
    return {place: result for place, result in zip(records, results, strict=True) if result is not None}


def test_no_answer_is_left_out(golden: Callable[[str], dict[str, Any]]) -> None:
    for name in DUMPS:
        assert {key for key in golden(name)["hits"] if not key.endswith("+enov")} == set(CONDITIONS)


@pytest.mark.parametrize("name", DUMPS)
@pytest.mark.parametrize("key", CONDITIONS)
def test_hits_equal_the_old_tool_s(
    name: str, key: str, records: Callable[[str], dict[Place, Record]], golden: Callable[[str], dict[str, Any]]
) -> None:
    answers = golden(name)["hits"][key]
    theirs = old_hits(answers)
    ours = our_hits(records(name), watchpoint(key, answers["threshold"]))
    assert ours.keys() - theirs.keys() == set()
    assert theirs.keys() - ours.keys() == {short(place) for place in WRONG.get((name, key), ())}
    for place, result in ours.items():
        assert int(result.error) == theirs[place]["error_code"], place
        if place[2] == 0 and int(result.error) == 4:
            assert result.verdict is Verdict.NOT_COMPARABLE
        check_parameters(place, result, theirs[place]["params"], records(name)[place])


def check_parameters(place: Place, result: WatchResult, old: dict[str, list[Any]], record: Record) -> None:
    ours = {param.name: param for param in result.params}
    assert old.keys() <= ours.keys()
    for name, (value, hit, actual) in old.items():
        param = ours[name]
        assert (param.value, param.hit) == (value, hit), (place, name)
        # A running mean of values that cancel is off by some 1e-16 of their magnitude.
        magnitude = record.stats.abs_mean if name.startswith("mean") and record.stats is not None else 0.0
        found = param.actual or 0.0
        assert found == pytest.approx(actual, rel=1e-9, abs=1e-12 * (magnitude or 0.0)), (place, name)


@pytest.mark.parametrize("name", DUMPS)
def test_where_means_differ_in_the_last_digits_ours_are_closer(
    name: str,
    outputs: Callable[[str], Files],
    records: Callable[[str], dict[Place, Record]],
    golden: Callable[[str], dict[str, Any]],
) -> None:
    answers = golden(name)["hits"]["too_small_multi"]
    files = outputs(name)
    compared = 0
    for place, old in old_hits(answers).items():
        theirs, ours = old["params"]["mean_lt"][2], records(name)[place].stats
        if old["error_code"] or ours is None or ours.mean is None or math.isclose(theirs, ours.mean, rel_tol=1e-9):
            continue
        values = open_array(files[place]).astype(np.float64).reshape(-1)
        exact = math.fsum(values) / len(values)
        assert abs(ours.mean - exact) <= abs(theirs - exact), place
        compared += 1
    assert compared


def test_the_one_difference_is_an_inf_that_became_finite(outputs: Callable[[str], Files]) -> None:
    files = outputs("mindspore-2.0-nan")
    node, slot, step = short(INF_BECAME_FINITE)
    assert np.isneginf(open_array(files[node, slot, step - 1])).all()
    assert np.isfinite(open_array(files[node, slot, step])).all()
