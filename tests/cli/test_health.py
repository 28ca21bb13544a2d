"""``tdbg health``: the map of a whole dump."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cli.running import run
from tests.sources.writer import write_dump

Capsys = pytest.CaptureFixture[str]
Dumps = Callable[[str], Path]


def test_one_look_shows_when_and_where(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "health", dumps("mindspore-2.0-nan"), "--depth", "2", "--width", "80")
    assert answer.code == 1
    assert answer.lines[:3] == [
        "0 1 2 3 4 5   step",
        "· · · ◆ N N   Default/",
        "· · · ◆ N N     network-WithLossCell/",
    ]
    assert answer.lines[-2:] == [
        "looked for NaN and Inf in every tensor",
        "2,292 tensors checked in all 6 steps, 910 findings",
    ]
    assert "◆ origin N NaN ∞ Inf ✗ hit" in answer.out


def test_a_healthy_dump_is_clean(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "health", dumps("mindspore-2.0-mlp"))
    assert answer.code == 0
    assert not {"◆", "N", "✗", "?", "…"} & set("".join(line[:11] for line in answer.lines[1:5]))
    assert run(capsys, "health", dumps("mindspore-2.0-mlp"), "--bad").lines[0] == "no row to show: nothing was found"


def test_nodes_in_execution_order(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "health", dumps("mindspore-2.0-nan"), "--nodes", "--bad")
    names = [line.split()[-1].rpartition("/")[2] for line in answer.lines[1:5]]
    assert names == ["Log-op381", "ReduceSum-op382", "Mul-op383", "Div-op385"]


def test_the_document(capsys: Capsys, dumps: Dumps) -> None:
    answer = run(capsys, "health", dumps("mindspore-2.0-nan"), "--depth", "1", "--json")
    document = answer.json
    assert (answer.code, document["exit_code"], document["verdict"]) == (1, 1, "finding")
    assert document["steps"] == [0, 1, 2, 3, 4, 5]
    assert document["rows"][0] == {
        "path": "Default",
        "scope": True,
        "cells": ["clean", "clean", "clean", "origin", "nan", "nan"],
    }
    assert document["coverage"]["checked"] == 2292
    assert document["findings"] == 910
    assert document["by_default"] is True


def test_more_steps_than_columns_share_them(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path, steps=range(50))
    (file,) = (tmp_path / "rank_0" / writer.net / "0" / "33").glob("ReLU*output*")
    np.save(file, np.full((2, 3), np.nan, np.float32))
    answer = run(capsys, "health", tmp_path, "--width", "60", "--depth", "1")
    assert answer.lines[0].endswith("step (up to 3 in a column, the worst is shown)")
    assert answer.lines[1].count("◆") == 1
    assert len(answer.lines[1].split()[0]) == 20


def test_given_watchpoints_judge_instead(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path)
    answer = run(capsys, "health", tmp_path, "--watch", "TL max_gt=-1000 @ type=ReLU")
    assert answer.code == 1
    assert answer.lines[1].startswith("✗ ✗ ✗")
    assert any(line.startswith("looked for TL max_gt=-1000") for line in answer.lines)
    missed = run(capsys, "health", tmp_path, "--watch", "TL max_gt=0 @ type=Nothing")
    assert missed.code == 2
    assert "cannot judge" in missed.out


def test_what_cannot_be_read_is_no_clean_answer(capsys: Capsys, tmp_path: Path) -> None:
    writer = write_dump(tmp_path)
    (file,) = (tmp_path / "rank_0" / writer.net / "0" / "1").glob("ReLU*output*")
    file.write_bytes(b"broken")
    answer = run(capsys, "health", tmp_path)
    assert answer.code == 2
    assert answer.lines[1].startswith("· ? ·")
    assert answer.lines[-1] == "cannot judge: 1 tensor cannot be read"


def test_chosen_steps_ranks_and_nodes(capsys: Capsys, tmp_path: Path) -> None:
    write_dump(tmp_path, ranks=(0, 1))
    answer = run(capsys, "health", tmp_path, "--step", "1-2", "--rank", "1", "--filter", "ReLU", "--nodes")
    assert answer.lines[0] == "1 2   step"
    assert answer.lines[1] == "· ·   Default/network-Net/act-ReLU/ReLU-op2"
    assert (
        answer.lines[-1] == "4 tensors checked in all 2 steps, the watchpoints found nothing"
    )  # the ReLU's, and what reads it


def test_a_mistake_is_told(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(capsys, "health", tmp_path / "nothing", "--json")
    assert answer.code == 2
    assert answer.json["verdict"] == "cannot_judge"
