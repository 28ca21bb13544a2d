"""``tdbg listen --no-screen`` against trainings in processes of their own, with our own clients."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import Answer, run
from tests.live.networks import Networks, NetworksTraining
from tests.live.torch.forks import Fork, parent
from tests.patience import PATIENCE
from tests.thorough import few
from tui_debugger.cli import listen as listen_common
from tui_debugger.demo.live import RecordedTraining, SavedTraining, demo_dump
from tui_debugger.session.live import LiveSession
from tui_debugger.sources.registry import open_source

ROOT = Path(__file__).resolve().parents[2]
NODES = 5
"""Of ``recorder_program``: three operators, a weight, and what changes it."""
Listen = Callable[..., Answer]


@pytest.fixture
def listen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    """Listens with some options, and starts a training (module, arguments) as soon as the server does."""
    started: list[subprocess.Popen[str] | Fork] = []
    open_live = listen_common.open_live

    def listened(training: Sequence[object], *options: object) -> Answer:
        def opened(arguments: argparse.Namespace) -> LiveSession:
            session = open_live(arguments)
            module, *given = (str(each).replace("ADDRESS", session.address) for each in training)
            if module.startswith("tests.live.torch"):
                started.append(parent().fork(module, given))
            else:
                started.append(subprocess.Popen([sys.executable, "-m", module, *given], cwd=ROOT, text=True))
            return session

        monkeypatch.setattr(listen_common, "open_live", opened)
        with tempfile.TemporaryDirectory(prefix="tdbg") as directory:
            where = ("--host", f"unix:{directory}/s", "--timeout", 30)
            answer = run(capsys, "listen", "--no-screen", *where, *options)
        assert started[-1].wait(PATIENCE) == 0
        return answer

    yield listened
    for process in started:
        process.kill()
        process.wait(PATIENCE)


@pytest.mark.parametrize("bad", [0, 3])
def test_a_node_that_reads_a_weight_is_saved_with_the_weight_of_before_the_step(
    listen: Listen, tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: int
) -> None:
    directory = tmp_path / "dump"
    options = ("--watch", "TO", "--stop-on-hit", "--save", directory, "--json")
    listen(recorder(6, bad=bad, begin=1, product=1), *options)
    found = json.loads(run(capsys, "origin", directory, "--json").out)
    assert sorted(origin["node"] for origin in found["origins"]) == ["net/log", "net/product"]
    assert found["not_judged"] == []


def test_what_a_recorded_training_of_mindspore_saves_names_the_two_true_origins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_live = listen_common.open_live
    with ExitStack() as stack:

        def opened(arguments: argparse.Namespace) -> LiveSession:
            session = open_live(arguments)
            source = open_source(demo_dump())
            stack.callback(source.close)
            training = RecordedTraining(SavedTraining(source), session.address, pace=0, missing=lambda _: None)
            stack.callback(training.close)
            training.start()
            return session

        monkeypatch.setattr(listen_common, "open_live", opened)
        directory = tmp_path / "dump"
        options = ("--recommended", "--stop-on-hit", "--save", directory)
        answer = run(capsys, "listen", "--no-screen", "--port", 0, "--timeout", 30, *options)
    assert answer.code == 1
    assert [line.rpartition("/")[2] for line in answer.lines if "◆" in line] == ["Log-op415:out:0", "Div-op419:out:0"]
    assert answer.lines[0].startswith("step 3  rank 0  TO  ◆ -Inf 1 of 4  ")
    assert [line for line in answer.lines if "◆" not in line] == ["step 3  rank 0  314 findings in 349 tensors: TO 314"]
    found = json.loads(run(capsys, "origin", directory, "--json").out)
    assert [origin["node"].rpartition("/")[2] for origin in found["origins"]] == ["Log-op415", "Div-op419"]
    assert found["not_judged"] == []


@pytest.mark.parametrize("steps", [3, None], ids=["as long as it is healthy", "to its end"])
def test_a_gan_whose_networks_come_one_after_the_other_is_judged_and_saved_as_one_run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    dumps: Callable[[str], Path],
    tmp_path: Path,
    steps: int | None,
) -> None:
    open_live, path = listen_common.open_live, dumps("mindspore-2.0-multi-gan")
    with ExitStack() as stack:

        def opened(arguments: argparse.Namespace) -> LiveSession:
            session = open_live(arguments)
            source = open_source(path)
            stack.callback(source.close)
            training = NetworksTraining(Networks(path, source), session.address)
            stack.callback(training.close)
            training.start()
            return session

        monkeypatch.setattr(listen_common, "open_live", opened)
        directory = tmp_path / "dump"
        limit = () if steps is None else ("--steps", steps)
        options = ("--recommended", "--save", directory, "--json", *limit)
        _, summary = rows(run(capsys, "listen", "--no-screen", "--port", 0, "--timeout", 30, *options))
    assert summary["exit_code"] == (0 if steps else 1)
    saved = run(capsys, "ls", "--steps", directory, "--no-cache", "--json").json
    ran = [(each["step"], each["root_graph"]) for each in saved["runs"] if each["has_data"]]
    assert {root for _, root in ran} == ({1} if steps else {0, 1}), "of a healthy run the last step is kept"
    assert all((step in (0, 1, 3, 5, 7)) == (root == 0) for step, root in ran)
    found = run(capsys, "origin", directory, "--json", "--no-cache").json["origins"]
    assert sorted(origin["node"].rpartition("/")[2] for origin in found) == (
        [] if steps else ["Log-op153", "Reciprocal-op157"]
    )
    assert all((origin["step"], origin["graph"]) == (3, "kernel_graph_0") for origin in found)


def recorder(steps: int, **options: object) -> list[object]:
    given = [f"{name}={value}" for name, value in options.items()]
    return ["tests.cli.recorder_program", "ADDRESS", steps, *given]


def torch_program(name: str, **options: object) -> list[object]:
    given = [f"--{key}={value}" for key, value in options.items()]
    return ["tests.live.torch.programs", name, "--address=ADDRESS", *given]


def rows(answer: Answer) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The hits, and the summary at the end: with ``--json`` nothing else is on stdout."""
    *hits, summary = [json.loads(line) for line in answer.lines]
    assert {hit["event"] for hit in hits} <= {"hit"}
    assert (summary["event"], summary["exit_code"]) == ("summary", answer.code)
    return hits, summary


@pytest.mark.covering
@pytest.mark.parametrize("begin", [{}, {"begin": 1}], ids=["attached-after-the-first-step", "before-it"])
@pytest.mark.parametrize("bad", few(["", "0", "3", "5", "0,1,2,3,4,5"], 2))
def test_every_step_is_judged_once(listen: Listen, begin: dict[str, int], bad: str) -> None:
    hits, summary = rows(listen(recorder(6, bad=bad, **begin), "--watch", "TO", "--json"))
    wrong = [int(step) for step in bad.split(",") if step]
    assert [(hit["step"], hit["node"]) for hit in hits] == [
        (step, node) for step in wrong for node in ("net/log", "net/sum")
    ]
    assert summary["steps"] == [{"rank": 0, "steps": 6}]
    assert summary["coverage"]["checked"] == 6 * NODES
    assert summary["verdict"] == ("finding" if bad else "clean")
    assert [origin["node"] for origin in summary["origins"]] == ["net/log"] * len(wrong)


@pytest.mark.parametrize("bad", ["", "1"])
def test_two_recorders_of_a_process_at_once_are_two_ranks(listen: Listen, bad: str) -> None:
    hits, summary = rows(listen(recorder(3, beside=bad), "--watch", "TO", "--json"))
    assert [(hit["step"], hit["node"]) for hit in hits] == [(int(step), "other/x") for step in bad]
    assert summary["steps"] == [{"rank": 0, "steps": 3}, {"rank": 1, "steps": 3}]
    assert summary["coverage"]["checked"] == 3 * NODES + 3
    assert (summary["verdict"], summary["reasons"]) == ("finding" if bad else "clean", [])


@pytest.mark.parametrize("bad", ["", "1"])
def test_a_recorder_that_is_closed_before_the_next_one_begins_is_the_training(listen: Listen, bad: str) -> None:
    hits, summary = rows(listen(recorder(3, before=bad), "--watch", "TO", "--json"))
    assert [(hit["step"], hit["node"]) for hit in hits] == [(int(step), "other/x") for step in bad]
    assert summary["steps"] == [{"rank": 0, "steps": 3}]
    assert (summary["verdict"], summary["reasons"]) == ("finding" if bad else "clean", [])


def test_the_step_that_brings_a_new_tensor_is_judged_with_it(listen: Listen) -> None:
    """A list names nodes; of one that comes later nobody could name it before."""
    for watch in (("--watch", "TO"), ("--recommended",)):
        hits, summary = rows(listen(recorder(6, bad="3", grow=3, begin=1), *watch, "--json"))
        assert [(hit["step"], hit["node"]) for hit in hits if hit["node"] != "fc.weight"] == [
            (3, name) for name in ("net/log", "net/sum", "net/late")
        ]
        assert summary["steps"] == [{"rank": 0, "steps": 6}]
        assert summary["coverage"]["unreadable"] == 0


@pytest.mark.parametrize("steps", [1, 3])
def test_a_comparison_with_the_step_before_needs_two_steps(listen: Listen, steps: int) -> None:
    _, summary = rows(listen(recorder(steps, begin=1), "--watch", "EX norm > 1e6*prev.norm", "--json"))
    assert (summary["verdict"], summary["exit_code"]) == (("cannot_judge", 2) if steps == 1 else ("clean", 0))
    assert summary["coverage"]["not_comparable"] == NODES
    assert summary["coverage"]["checked"] == (steps - 1) * NODES


@pytest.mark.thorough
def test_every_step_is_judged_once_operator_by_operator(listen: Listen) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    _, clean = rows(listen(torch_program("plain", level="op", steps=3), "--watch", "TO", "--json"))
    assert (clean["verdict"], clean["steps"]) == ("clean", [{"rank": 0, "steps": 3}])
    for spoil in (0, 2):
        answer = listen(torch_program("plain", level="op", steps=3, spoil=spoil), "--watch", "TO", "--json")
        hits, summary = rows(answer)
        assert summary["steps"] == [{"rank": 0, "steps": 3}]
        assert {hit["step"] for hit in hits} == set(range(spoil, 3))
        assert len(hits) > 5 * (3 - spoil), "each operator is reported, not the first one of a step only"
        keys = [(hit["step"], hit["node"], hit["slot"]) for hit in hits]
        assert len(keys) == len(set(keys))
        assert summary["findings"] == len(hits)


@pytest.mark.parametrize("bad", few([0, 2, 3], 1))
def test_an_operator_by_operator_run_has_one_origin_whatever_is_changed_in_place(
    listen: Listen, tmp_path: Path, bad: int
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    options = ("--watch", "TO", "--json", "--save", tmp_path / "dump")  # values are asked for, also at the end
    hits, summary = rows(listen(torch_program("filled", level="op", steps=3, bad=bad), *options))
    assert [(origin["step"], origin["node"]) for origin in summary["origins"]] == [(bad, "LiftFresh")]
    assert summary["unrecorded"] == []
    assert {hit["step"] for hit in hits} == {bad}
    nodes = {hit["node"] for hit in hits}
    assert {"LiftFresh", "Copy", "inputs.input", "0/Addmm", "1/Relu", "2/Addmm", "Mean", "Gradients/0/Mm"} <= nodes
    assert not nodes & {"Randn", "0/T", "2/T", "0.weight", "2.weight"}, "they were clean when they were made"
    assert not [name for name in nodes if "Detach" in name or "Clone" in name]


@pytest.mark.parametrize(
    "kind", ["logsumexp", "softmax", "where", "triu", "topk", "sdpa", "buckets", "nothing", "logarithm"]
)
def test_a_line_of_a_finding_is_a_finding_of_the_summary(listen: Listen, kind: str) -> None:
    """A mask is reported before the operators that absorb it: only at the end of the step it is by design."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    answer = listen(torch_program("masked", level="op", kind=kind, steps=4), "--watch", "TO", "--json")
    hits, summary = rows(answer)
    assert len(hits) == summary["findings"]
    assert summary["steps"] == [{"rank": 0, "steps": 4}]
    if kind in {"nothing", "logarithm"}:
        first = {"nothing": "MaskedFill", "logarithm": "Log"}[kind]
        assert {(hit["step"], hit["node"]) for hit in hits} >= {(step, first) for step in range(4)}
        assert (answer.code, summary["verdict"]) == (1, "finding")
    else:
        assert (answer.code, summary["verdict"], hits) == (0, "clean", [])
        assert summary["by_design"].startswith("-Inf by design: ")


def test_a_mask_that_is_absorbed_is_no_reason_to_end(listen: Listen) -> None:
    """The first report of every step looks like a finding."""
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install tui_debugger[torch-tests]")
    program = torch_program("masked", level="op", kind="logsumexp", steps=4)
    hits, summary = rows(listen(program, "--watch", "TO", "--json", "--stop-on-hit"))
    assert (summary["verdict"], summary["steps"], hits) == ("clean", [{"rank": 0, "steps": 4}], [])


def test_one_nan_is_an_origin_and_a_line_a_step(listen: Listen) -> None:
    """What the NaN makes of everything after it is counted, and listed where that is asked for."""
    program = ("tests.live.torch.programs", "overflowing", "--address=ADDRESS", "--bad=3")
    lines = listen(program, "--watch", "TO").lines
    assert [line.split("  ")[:3] for line in lines if "◆" in line] == [["step 3", "rank 0", "TO"]]
    steps = [line for line in lines if "◆" not in line]
    counts = [re.match(r"step (\d)  rank 0  (\d+) findings in \d+ tensors: TO \2", line) for line in steps]
    assert [each and each[1] for each in counts] == ["3", "4"]
    assert [line.partition("  first: ")[2].partition(" (")[0] for line in steps] == ["", "norm/LayerNorm"]
    every = listen(program, "--watch", "TO", "--all-hits").lines
    assert [line for line in every if " findings in " in line] == [line.partition("  first: ")[0] for line in steps]
    assert len(every) == sum(int(each[2]) for each in counts if each) + len(steps)


def test_findings_are_summed_up_in_one_line_a_step(listen: Listen) -> None:
    answer = listen(recorder(6, bad="2,4", begin=1), "--watch", "TO")
    assert [line for line in answer.lines if "◆" not in line] == [
        f"step {step}  rank 0  2 findings in {NODES} tensors: TO 2" for step in (2, 4)
    ]


def test_what_is_saved_are_values_and_names_the_true_origin(
    listen: Listen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "dump"
    answer = listen(recorder(6, bad="3", begin=1), "--watch", "TO", "--stop-on-hit", "--save", directory, "--json")
    _, summary = rows(answer)
    # Statistics: that the two others were clean, the model's input of the step before among them.
    assert ": 4 tensors, statistics of 2 more" in summary["saved"]
    found = json.loads(run(capsys, "origin", directory, "--json").out)
    assert [origin["node"] for origin in found["origins"]] == ["net/log"]


def test_what_overflowed_in_a_layer_is_saved_with_the_weights_and_the_bias_that_it_read(
    listen: Listen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "dump"
    program = ("tests.live.torch.programs", "overflowing", "--address=ADDRESS", "--bad=3")
    answer = listen(program, "--recommended", "--stop-on-hit", "--save", directory, "--json")
    hits, _ = rows(answer)
    first = next(hit["node"] for hit in hits if hit.get("origin"))
    found = json.loads(run(capsys, "origin", directory, "--json").out)
    assert [origin["node"] for origin in found["origins"]] == [first]
    assert first == "last/Linear"
    assert found["not_judged"] == []


def test_notes_come_with_the_hit_and_are_saved(listen: Listen, tmp_path: Path) -> None:
    directory = tmp_path / "dump"
    hits, _ = rows(listen(recorder(6, bad=3, note="warm-up"), "--watch", "TO", "--json", "--save", directory))
    assert [hit["notes"] for hit in hits] == 2 * [{"loss": "-inf", "batch": 3, "phase": "warm-up"}]
    assert [hit["recognised"] for hit in hits] == 2 * [{}]
    source = open_source(directory)
    try:
        notes = source.notes(0)
        assert notes.curve("batch") == ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5])
        assert notes.at(3)["loss"] == float("-inf")
        assert source.steps(0)
        assert not source.unreadable()
    finally:
        source.close()


def test_a_line_of_a_hit_has_the_notes_of_its_step(listen: Listen) -> None:
    answer = listen(recorder(4, bad=2, note="warm-up"), "--watch", "TO", "--all-hits")
    assert [line.partition("  loss ")[2] for line in answer.lines[:-1]] == 2 * ["-Inf  batch 2  phase warm-up"]


def test_only_tensors_that_are_recorded_are_counted(listen: Listen) -> None:
    """What updates a weight is drawn in the graph, and has no values of its own."""
    program = ("tests.live.torch.programs", "overflowing", "--address=ADDRESS", "--bad=99")
    hits, summary = rows(listen(program, "--watch", "EX count >= 0", "--json"))
    assert summary["coverage"]["checked"] == len(hits) > 0
