"""Where a dump has several graphs, or a step several runs, the output of the commands says which one it means."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.session.opened import opened
from tui_debugger.cli.listen_log import FindingsLog

Capture = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]
GAN, ORDER, ONE_GRAPH = "mindspore-2.10-multi-gan", "mindspore-2.10-multi-order", "mindspore-2.0-nan"
LOG = "kernel_graph0/Default/network-DiscLoss/Log-op0"
PLAIN = ("--no-cache", "--jobs", "1")


def test_an_origin_says_its_graph_and_its_run(dumps: Dumps, capsys: Capture) -> None:
    lines = run(capsys, "origin", dumps(GAN), *PLAIN).lines
    assert lines[0] == "origin: rank 0, step 1#2, kernel_graph0  (Log)"
    assert "also independent: rank 0, step 1#2, kernel_graph0  (Div)" in lines
    assert "    -Inf 1 of 1  kernel_graph0/Default/network-DiscLoss/ReduceMean-op0:out:0#2" in lines
    assert lines[-1].startswith("FOUND: 2 independent origins at step 1#2, kernel_graph0: network-DiscLoss/Log-op0,")


def test_what_ran_after_the_origin_is_no_beginning(dumps: Dumps, capsys: Capture) -> None:
    """Directory 1 holds two runs; graph 1 ran between them at step 2, graph 0 at step 2 after them, and was bad."""
    for name in (GAN, ORDER):
        assert "bad, but no origin" not in run(capsys, "origin", dumps(name), *PLAIN).out
    first = run(capsys, "origin", dumps(GAN), "--json", *PLAIN).json["first_by_rank"]
    assert [(each["first"]["step"], each["first"]["tensors"][0]["round"]) for each in first] == [(1, 2)]


def test_steps_that_were_left_out_are_not_called_later_than_one_that_ran_between_them(
    dumps: Dumps, capsys: Capture
) -> None:
    gan = " ".join(run(capsys, "origin", dumps(GAN), *PLAIN).out.split())
    assert "steps 3-5 not looked at: what ran in them ran after the origin, step 1#2, kernel_graph0" in gan
    assert "the first step that has an origin" not in gan
    one = run(capsys, "origin", dumps(ONE_GRAPH), *PLAIN).out
    assert "not looked at: the search ends with the first step that has an origin" in one


def test_bad_values_without_an_origin_say_the_graph_where_they_are(dumps: Dumps, capsys: Capture) -> None:
    lines = run(capsys, "origin", dumps(GAN), "--graph", "1", *PLAIN).lines
    assert lines[0] == "bad, but no origin: rank 0, step 3, kernel_graph1  (MatMul)"
    assert lines[-1] == "FOUND: bad tensors at step 3, kernel_graph1, but no origin"
    assert "step 3 leaves bad parameters behind" in " ".join(lines)


def test_nodes_that_are_not_judged_say_their_graph(dumps: Dumps, capsys: Capture) -> None:
    lines = run(capsys, "origin", dumps("mindspore-2.10-multi-flow"), *PLAIN).lines
    at = next(number for number, line in enumerate(lines) if line.startswith("not judged:"))
    names = [line for line in lines[at + 1 : at + 11] if not line.startswith("    ")]
    assert names
    assert all(line.startswith("  kernel_graph") for line in names)


def test_a_path_says_graph_and_run_of_every_hop(dumps: Dumps, capsys: Capture) -> None:
    weight = "kernel_graph1/d_opt.disc.fc1.weight"
    lines = run(capsys, "origin", dumps(GAN), "--from", weight, "--step", "3", *PLAIN).lines
    assert lines[0].startswith("path: 10 hops upstream, from step 3 back to step 1#2")
    assert lines[1].split()[:3] == ["step", "graph", "tensor"]
    assert lines[2].split()[:4] == ["✗", "3", "1", "d_opt.disc.fc1.weight:out:0"]
    assert lines[3].strip() == "↑ itself after step 1#2 of kernel_graph0"
    assert any(line.split()[3:4] == ["d_opt.moment1.disc.fc1.weight:out:0#2"] for line in lines), (
        "Adam's state is first"
    )
    end = next(line for line in lines if line.startswith("◆"))
    assert end.split()[:4] == ["◆", "1", "0", "Div-op0:out:0#2"]
    assert lines[-1] == "origin: Div-op0 (Div), step 1#2, kernel_graph0 (-Inf 1 of 5)"
    assert all(len(line) <= 80 for line in lines[1:4])


def test_the_nearest_origin_of_a_clean_tensor_says_its_graph(dumps: Dumps, capsys: Capture) -> None:
    out = run(capsys, "origin", dumps(GAN), "--from", f"{LOG}:out:0#1", "--step", "1", *PLAIN).out
    text = " ".join(out.split())
    assert "the nearest origin is Log-op0:out:0#2, rank 0, step 1, kernel_graph0" in text
    assert "clean: Log-op0:out:0#1 of step 1, kernel_graph0 has no NaN or Inf" in text


def test_a_report_says_graph_and_run_of_each_beginning(dumps: Dumps, capsys: Capture) -> None:
    text = run(capsys, "report", dumps(GAN), "--watch", "TO", *PLAIN).out
    when = r"step 1#&#8203;2, kernel\_graph0, rank 0"  # a number sign before a number would link to an issue
    assert f"### 1. `Default/network-DiscLoss/Log-op0` (Log), {when}" in text


def test_an_explanation_begins_with_the_graph(dumps: Dumps, capsys: Capture) -> None:
    assert run(capsys, "explain", dumps(GAN), LOG, "--step", "1", *PLAIN).lines[0] == f"{LOG}:out:0#2"


def test_relations_name_the_graph_of_every_tensor(dumps: Dumps, capsys: Capture) -> None:
    lines = run(capsys, "relations", dumps(GAN), f"{LOG}:out:0#2", "--step", "1", *PLAIN).lines
    assert lines[0].split()[:3] == ["graph", "tensor", "step"]
    at = lines.index("tensor:")
    assert lines[at + 1].split()[:4] == ["✗", "0", "Log-op0:out:0#2", "1"]
    memory = "kernel_graph0/d_opt.disc.fc1.weight:out:0#2"
    text = run(capsys, "relations", dumps(GAN), memory, "--step", "1", *PLAIN).out
    assert "d_opt.moment1.disc.fc1.weight:out:0#1" in text


def test_a_map_of_nodes_tells_graphs_apart(dumps: Dumps, capsys: Capture) -> None:
    lines = run(capsys, "health", dumps(GAN), "--nodes", "--bad", *PLAIN).lines
    assert any(line.endswith(f"  {LOG}") for line in lines)
    assert any("  kernel_graph1/Default/" in line for line in lines)


def test_one_graph_whose_steps_ran_once_is_never_named(dumps: Dumps, capsys: Capture) -> None:
    node = "Default/network-WithLossCell/_backbone-Net/Log-op381"
    for command in (
        ("origin",),
        ("origin", "--from", node, "--step", "3"),
        ("report", "--watch", "TO"),
        ("explain", node, "--step", "3"),
        ("relations", node, "--step", "3"),
        ("health", "--nodes"),
    ):
        name, *rest = command
        out = run(capsys, name, dumps(ONE_GRAPH), *rest, *PLAIN).out
        assert "Log-op381" in out
        assert "kernel_graph" not in out, command
        assert re.search(r"(step |:)\d+#\d", out) is None, command


@pytest.mark.parametrize(("graphs", "place"), [(True, f"{LOG}:out:0#2"), (False, LOG.partition("/")[2] + ":out:0#2")])
def test_hits_of_a_training_say_graph_and_run(dumps: Dumps, capsys: Capture, graphs: bool, place: str) -> None:
    with contextlib.closing(opened(dumps(GAN), "TO")) as session:
        result = session.check([(0, 1)])
    log = FindingsLog(argparse.Namespace(json=False, all_hits=False))
    log.take((0, 1), result, graphs=graphs)
    log.ended(0, 1)
    log.flush()
    assert f"step 1  rank 0  TO  ◆ -Inf 1 of 5  {place}" in capsys.readouterr().out.splitlines()
