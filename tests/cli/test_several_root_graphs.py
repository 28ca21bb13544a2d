"""Seven real dumps with several root graphs: what ran before what, where something bad began, and what is no finding.

The expected answers are those of the training scripts (which say at which iteration they put something bad in) and of
the time stamps in the names of the files.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.running import Answer, run
from tui_debugger.session.session import Session, open_dump

Dumps = Callable[[str], Path]
Run = tuple[int, int, int]
"""(number of the root graph, step, round)."""


def runs(text: str) -> list[Run]:
    """``0:1 0:1#2``: root graph, step, round."""
    found = [re.fullmatch(r"(\d+):(\d+)(?:#(\d+))?", each) for each in text.split()]
    return [(int(match[1]), int(match[2]), int(match[3] or 0)) for match in found if match]


class Expected(NamedTuple):
    """What one dump holds: the runs of its root graphs in their order, and where something bad began."""

    order: list[Run]
    step: int
    graph: int
    origins: Sequence[str]
    round: int = 0


LOG, RECIPROCAL = "Default/network-DiscLoss/Log-op", "Gradients/Default/network-DiscLoss/"
EXPECTED = {
    "mindspore-2.0-multi-eval": Expected(
        runs("0:0 0:1 1:2 1:3 0:4 0:5 1:6 1:7 0:8 0:9 1:10 1:11"), 6, 1, ["Default/network-Eval/Log-op191"]
    ),
    "mindspore-2.10-multi-eval": Expected(
        runs("0:0 0:1 1:2 1:1 0:2 0:3 1:4 1:3 0:4 0:5 1:6 1:5"), 4, 1, ["Default/network-Eval/Log-op0"]
    ),
    "mindspore-2.0-multi-gan": Expected(
        runs("0:0 0:1 1:2 0:3 1:4 0:5 1:6 0:7 1:8"),
        *(3, 0),
        [f"{LOG}153", f"{RECIPROCAL}gradLog-expand/Reciprocal-op157"],
    ),
    "mindspore-2.10-multi-gan": Expected(
        runs("0:0 0:1#1 1:2 0:1#2 1:3 0:2 1:4 0:3 1:5"), 1, 0, [f"{LOG}0", f"{RECIPROCAL}Grad_Log/Div-op0"], 2
    ),
    "mindspore-2.0-multi-flow": Expected([], 3, 18, ["Sqrt"]),
    "mindspore-2.10-multi-flow": Expected([], 3, 18, ["Sqrt"]),
    "mindspore-2.10-multi-order": Expected(runs("0:0 0:1 1:2 1:1 0:2 0:3 1:4 1:3 0:4 0:5 1:6 1:5"), 4, 1, ["inputs0"]),
}
ORDERED = [name for name, expected in EXPECTED.items() if expected.order]
FLOW = [name for name in EXPECTED if name.endswith("flow")]


@pytest.fixture(params=EXPECTED)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def session_on(dumps: Dumps, name: str) -> contextlib.closing[Session]:
    return contextlib.closing(open_dump(dumps(name), remember=False))


def by_time_stamps(dump: Path) -> list[Run]:
    """The order of runs from the names of all files alone: the k-th writing of a tensor belongs to the k-th run."""
    began: dict[Run, int] = {}
    for directory in dump.glob("rank_0/*/[0-9]*/[0-9]*"):
        written: dict[str, list[int]] = {}
        for path in directory.iterdir():
            match = re.fullmatch(r"(.+)\.\d+\.\d+\.(\d+)\.((?:in|out)put\.\d+)\..*", path.name)
            if match and not path.name.startswith("Parameter."):
                written.setdefault(match[1] + match[3], []).append(int(match[2]))
        for stamps in map(sorted, written.values()):
            for number, stamp in enumerate(stamps, 1):
                at = (int(directory.parent.name), int(directory.name), number if len(stamps) > 1 else 0)
                began[at] = min(stamp, began.get(at, stamp))
    return sorted(began, key=began.__getitem__)


@pytest.mark.parametrize("name", ORDERED)
def test_the_expected_order_is_that_of_the_time_stamps(dumps: Dumps, name: str) -> None:
    assert by_time_stamps(dumps(name)) == EXPECTED[name].order


@pytest.mark.parametrize("name", ORDERED)
def test_runs_are_in_the_order_in_which_they_ran(dumps: Dumps, name: str) -> None:
    with session_on(dumps, name) as session:
        for step in session.steps(0):
            session.source.tensors(0, step)
        history = [(each.root_graph, each.step, each.round) for each in session.history(0) if each.has_data]
    assert history == EXPECTED[name].order


@pytest.mark.parametrize("name", ORDERED)
def test_the_run_before_is_the_one_of_the_same_graph_that_ran_before(dumps: Dumps, name: str) -> None:
    with session_on(dumps, name) as session:
        for step in session.steps(0):
            session.source.tensors(0, step)
        for root in (0, 1):
            of_graph = [(step, number) for graph, step, number in EXPECTED[name].order if graph == root]
            before = [session.source.previous_run(0, root, *each) for each in of_graph]
            assert before == [None, *of_graph[:-1]]


def origins(answer: Answer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer.json["origins"]
    return found


def test_the_origins_are_the_true_ones_and_no_others(
    dumps: Dumps, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = EXPECTED[name]
    answer = run(capsys, "origin", dumps(name), "--json", "--no-cache", "--jobs", "1")
    found = origins(answer)
    assert answer.code == 1
    assert [each["node"] for each in found if not is_like(each["node"], expected.origins)] == []
    assert len(found) == len(expected.origins)
    for each in found:
        tensor = each["tensors"][0]
        assert (each["step"], int(re.sub(r"\D", "", each["graph"]))) == (expected.step, expected.graph)
        assert tensor["round"] == expected.round
        assert each["starts_here"]


def is_like(node: str, names: Sequence[str]) -> bool:
    """Whether a node is one of some; of control flow only the kind of operator is known beforehand."""
    return any(node == name or ("/" not in name and re.search(rf"(^|/){name}(-op\d+)?$", node)) for name in names)


def test_check_marks_the_same_origins_among_its_findings(
    dumps: Dumps, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    document = run(capsys, "check", dumps(name), "--watch", "TO", "--json", "--no-cache", "--jobs", "1").json
    first = [each for each in document["origins"] if each["step"] == EXPECTED[name].step]
    assert document["exit_code"] == 1
    assert first
    assert all(is_like(each["node"], EXPECTED[name].origins) for each in first)


def test_a_generator_is_told_which_run_of_the_discriminator_spoilt_it(
    dumps: Dumps, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights of the discriminator are shared: its own graph turned them NaN a run before."""
    for name, step in (("mindspore-2.0-multi-gan", 4), ("mindspore-2.10-multi-gan", 3)):
        dump = dumps(name)
        document = run(capsys, "origin", dump, "--graph", "1", "--json", "--no-cache", "--jobs", "1").json
        assert document["origins"] == []
        bad = [each for each in document["bad_tensors"] if each["tensors"]]
        assert bad[0]["step"] == step
        key = first_bad(capsys, dump, step)
        path = run(capsys, "origin", dump, "--from", key, "--step", str(step), "--json", "--no-cache", "--jobs", "1")
        last = path.json["hops"][-1]["tensor"]["tensor"]
        assert last["step"] == EXPECTED[name].step
        assert int(re.sub(r"\D", "", last["graph"])) == 0
        assert is_like(last["node"], EXPECTED[name].origins)


def first_bad(capsys: pytest.CaptureFixture[str], dump: Path, step: int) -> str:
    """A weight of the generator that is NaN."""
    asked = ("--watch", "TO @ category=weight", "--graph", "1", "--step", str(step))
    hits = run(capsys, "check", dump, *asked, "--json", "--no-cache", "--jobs", "1").json["hits"]
    key = next(each for each in hits if each["verdict"] == "finding" and each["side"] == "output")
    return f"{key['graph']}/{key['node']}:out:{key['slot']}"


def test_the_generator_is_clean_as_long_as_it_ran_before_the_bad_run(
    dumps: Dumps, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("mindspore-2.0-multi-gan", "mindspore-2.10-multi-gan"):
        asked = ("--graph", "1", "--step", "2", "--watch", "TO", "--no-cache", "--jobs", "1")
        assert run(capsys, "check", dumps(name), *asked).code == 0


def test_the_first_of_two_runs_of_a_number_is_looked_at_too(dumps: Dumps, capsys: pytest.CaptureFixture[str]) -> None:
    dump = dumps("mindspore-2.10-multi-gan")
    files = len(list((dump / "rank_0" / "Net" / "0" / "1").iterdir()))
    asked = ("--watch", "TO", "--graph", "0", "--step", "1", "--json", "--no-cache", "--jobs", "1")
    document = run(capsys, "check", dump, *asked).json
    coverage = document["coverage"]
    assert coverage["checked"] + coverage["skipped"] >= files
    assert {hit["round"] for hit in document["hits"]} == {2}


@pytest.mark.parametrize("name", FLOW)
def test_sub_graphs_of_control_flow_are_no_roots(dumps: Dumps, name: str) -> None:
    with session_on(dumps, name) as session:
        graphs = session.nodes(0).graphs
    assert [info.name for info in graphs if info.is_root] == [graphs[0].name]


@pytest.mark.parametrize("name", FLOW)
def test_graphs_of_control_flow_follow_the_time_stamps(dumps: Dumps, name: str) -> None:
    order = by_time_stamps(dumps(name))
    with session_on(dumps, name) as session:
        for step in session.steps(0):
            session.source.tensors(0, step)
        history = [(each.root_graph, each.step, each.round) for each in session.history(0) if each.has_data]
    assert history == order
    assert [graph for graph, step, _ in dict.fromkeys(order) if step == 3][-6:] != sorted(
        graph for graph, step, _ in order if step == 3
    )[-6:]


def test_evaluation_does_not_change_weights_and_that_is_no_finding(
    dumps: Dumps, capsys: pytest.CaptureFixture[str]
) -> None:
    """A weight that never changes although training ran between is one: fc2, whose learning rate is 0."""
    for name in ("mindspore-2.0-multi-eval", "mindspore-2.10-multi-eval"):
        asked = ("--watch", "WNC @ category=weight", "--json", "--no-cache", "--jobs", "1")
        hits = run(capsys, "check", dumps(name), *asked).json["hits"]
        unchanged = {each["node"] for each in hits if each["verdict"] == "finding"}
        assert unchanged
        assert all("fc2" in node for node in unchanged), unchanged


@pytest.mark.parametrize("name", FLOW)
def test_the_first_hit_of_control_flow_is_where_it_began(
    dumps: Dumps, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parameters of a graph that calls others are written after those ran."""
    hits = run(capsys, "check", dumps(name), "--watch", "TO", "--json", "--no-cache", "--jobs", "1").json["hits"]
    assert is_like(hits[0]["node"], EXPECTED[name].origins)


def test_what_is_fed_in_bad_has_the_mark_of_an_origin_in_its_path_too(
    dumps: Dumps, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--from", "kernel_graph1/inputs0", "--step", "4", "--no-cache", "--jobs", "1")
    answer = run(capsys, "origin", dumps("mindspore-2.10-multi-order"), *asked)
    assert [line.split()[:4] for line in answer.lines if "◆" in line] == [["◆", "4", "1", "inputs0:out:0"]]
