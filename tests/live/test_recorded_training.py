"""The training that the live demo plays says what the real client said when it was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tui_debugger.demo import demo_dump
from tui_debugger.demo.live import RecordedTraining, SavedTraining, recorded
from tui_debugger.live import wire
from tui_debugger.live.client.messages import text_of
from tui_debugger.live.wire import START, RemoteTensor
from tui_debugger.sources.registry import open_source

UNSEEN = 4
"""A comparison without a previous value and nothing else: our judge is silent there."""


@pytest.fixture(scope="module")
def recording() -> Iterator[SavedTraining]:
    source = open_source(demo_dump())
    yield SavedTraining(source)
    source.close()


def session_of_the_real_client() -> Iterator[tuple[int, str, list[Any]]]:
    """(step, what, messages): stops count from the initial one, which is step -1."""
    import base64
    import json
    import lzma

    from tui_debugger.demo.live import SESSION

    step, hits = START, []
    with lzma.open(SESSION, "rt") as file:
        for line in file:
            row = json.loads(line)
            if row["rpc"] == "WaitCMD" and row["kind"] == "reply":
                reply = wire.message("EventReply")()
                reply.ParseFromString(base64.b64decode(row["raw"]))
                if reply.HasField("set_cmd"):
                    yield step, "set", [reply.set_cmd]
                elif reply.HasField("run_cmd"):
                    step += reply.run_cmd.run_level == wire.LEVEL_STEP
                    yield step, "run", [reply.run_cmd]
            elif row["rpc"] == "SendWatchpointHits" and row["kind"] == "stream":
                hit = wire.message("WatchpointHit")()
                hit.ParseFromString(base64.b64decode(row["raw"]))
                hits.append(hit)
            elif row["rpc"] == "SendWatchpointHits" and row["kind"] == "end":
                yield step, "hits", hits
                hits = []


def said(hit: Any) -> tuple[str, int, int, list[tuple[str, bool, float]]]:
    """What a hit says, to five digits: the client adds in another order."""
    params = [
        (text_of(param.name), param.hit, float(f"{param.actual_value:.5g}"))
        for param in hit.watch_condition.params
        if not param.disabled
    ]
    return text_of(hit.tensor.node_name), hit.id, hit.error_code, params


def test_the_values_of_the_session_are_those_of_the_dump(recording: SavedTraining) -> None:
    step, seen = START, 0
    for each in recorded():
        if each.rpc == "WaitCMD":
            step = each.message.cur_step
        elif each.rpc == "SendTensors":
            tensor = each.message
            known = recording.value(text_of(tensor.node_name), int(tensor.slot), step - (tensor.iter == b"prev"))
            assert known is not None
            assert known.tobytes() == tensor.tensor_content
            seen += 1
    assert seen == 4


def test_the_hits_of_the_session_are_found_again(recording: SavedTraining) -> None:
    """Every step and the recheck: the same tensors, watchpoints, thresholds, actual values and error codes."""
    training = RecordedTraining(recording, "")
    compared = 0
    for step, what, messages in session_of_the_real_client():
        if what == "set":
            training._set(messages[0])
        elif what == "hits":
            from tui_debugger.live.client.messages import hit_messages

            mine = sorted(map(said, hit_messages(training.hits(step), training._watchpoints)))
            theirs = sorted(said(hit) for hit in messages if hit.error_code != UNSEEN)
            assert mine == theirs, step
            compared += len(mine)
    assert compared > 15


def test_every_operator_has_its_values_and_parameters_one_before_the_first_step(recording: SavedTraining) -> None:
    first = recording.value("head.weight", 0, START)
    after = recording.value("head.weight", 0, 0)
    assert first is not None
    assert after is not None
    assert first.shape == after.shape
    assert not np.array_equal(first, after)
    node = "Default/network-WithLossCell/_backbone-Net/Log-op415"
    assert recording.value(node, 0, START) is None
    assert [recording.value(node, 0, step) is not None for step in range(7)] == [True] * 6 + [False]
    broken = recording.value(node, 0, 3)
    assert broken is not None
    assert np.isinf(broken).any()


def test_what_is_not_in_the_recording_is_told_and_answered_as_missing(recording: SavedTraining) -> None:
    told: list[str] = []
    training = RecordedTraining(recording, "", missing=told.append)
    training._step = 3
    sent = list(training._tensors([RemoteTensor("Default/Nothing-op1"), RemoteTensor("x/head.weight", truncate=True)]))
    assert told == ["not in the recording: Default/Nothing-op1:0 at step 3"]
    assert [(each.node_name, each.finished, bool(each.tensor_content)) for each in sent] == [
        (b"Default/Nothing-op1", True, False),
        (b"x/head.weight", True, True),
    ]
