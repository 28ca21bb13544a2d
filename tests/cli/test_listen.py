"""``tdbg listen``: its options, and listening without a screen against trainings over a real socket."""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.running import Answer, run
from tests.hostile import EVIL, unsafe
from tests.json_page import assert_described
from tests.live.scripted import Message, Script, ScriptedTraining, hit_message
from tests.live.session.doubles import LOSS, NET, WEIGHT, graph, ones
from tui_debugger.cli import listen as listen_common
from tui_debugger.cli import listen_batch
from tui_debugger.live import wire
from tui_debugger.live.server import serve
from tui_debugger.session.live import LiveSession, LiveState
from tui_debugger.session.session import open_dump
from tui_debugger.signals import ENDING
from tui_debugger.text import backlog

Hits = Callable[[int, Mapping[int, Message]], Sequence[Message]]
EVERYWHERE = "0.0.0.0"  # noqa: S104 - what the warning is about
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def address() -> Iterator[str]:
    """A socket in a directory of its own: paths of sockets are short."""
    with tempfile.TemporaryDirectory(prefix="tdbg") as directory:
        yield f"unix:{directory}/s"


def values(step: int) -> dict[tuple[str, int, bool], np.ndarray[Any, Any]]:
    found = {(name, 0, False): array for name, array in ones(step).items()}
    found |= {(name, 0, True): ones(step - 1)[name] for name in ("x", WEIGHT)}
    if step == 3:
        found[LOSS, 0, False] = np.array([[np.nan, 1, 2], [3, 4, 5]], np.float32)
    return found


def nan_at(*steps: int) -> Hits:
    def hits(step: int, watched: Mapping[int, Message]) -> list[Message]:
        numbers = [number for number, each in watched.items() if each.watch_condition.condition == 13]
        return [hit_message(LOSS, number) for number in numbers] if step in steps else []

    return hits


def never(_step: int, _watched: Mapping[int, Message]) -> list[Message]:
    return []


class Later:
    """A training that begins as soon as the server listens."""

    def __init__(self, address: str, script: Script, **options: Any) -> None:
        self._address, self._script, self._options = address, script, options
        self._training: ScriptedTraining | None = None

    def start(self) -> None:
        self._training = ScriptedTraining(self._address, self._script, **self._options)

    def __getattr__(self, name: str) -> Any:
        assert self._training is not None, "the server never listened"
        return getattr(self._training, name)


_later: list[Later] = []


@pytest.fixture(autouse=True)
def trainings_begin_when_the_server_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    open_live = listen_common.open_live

    def opened(arguments: argparse.Namespace) -> LiveSession:
        session = open_live(arguments)
        for training in _later:
            training.start()
        return session

    _later.clear()
    monkeypatch.setattr(listen_common, "open_live", opened)


def train(
    address: str,
    hits: Hits = never,
    steps: int = 6,
    session: str | None = None,
    **fields: Any,
) -> Later:
    """A training in a thread."""
    script = Script(graphs=[NET], values=values, hits=hits, steps=steps, **fields)
    _later.append(Later(address, script, session=session))
    return _later[-1]


def listen(capsys: Capture, address: str, *options: object) -> Answer:
    return run(capsys, "listen", "--no-screen", "--timeout", 20, "--host", address, *options)


def rows(answer: Answer) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The hits, and the summary at the end."""
    *hits, summary = [json.loads(line) for line in answer.lines]
    assert summary["event"] == "summary"
    assert summary["exit_code"] == answer.code
    assert {hit["event"] for hit in hits} <= {"hit"}
    return hits, summary


def test_every_key_of_every_line_is_described_on_the_page(capsys: Capture, address: str, tmp_path: Path) -> None:
    training = train(address, nan_at(3))
    hits, summary = rows(listen(capsys, address, "--watch", "TO", "--json", "--save", tmp_path / "saved"))
    training.join()
    assert hits
    for line in (*hits, summary):
        assert_described(line, "listen")


def test_a_healthy_training_is_clean_and_runs_to_its_end(capsys: Capture, address: str) -> None:
    training = train(address)
    answer = listen(capsys, address, "--watch", "TO", "--json")
    hits, summary = rows(answer)
    training.join()
    assert (answer.code, hits, summary["verdict"], training.step) == (0, [], "clean", 5)
    assert summary["coverage"]["checked"] > 0
    assert summary["watchpoints"][0]["tensors"] == summary["coverage"]["checked"]
    assert "waiting for a training at " + address in answer.err
    assert f"TDBG_HOST={address}" in answer.err


def test_a_finding_is_a_line_and_the_training_goes_on(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(3))
    answer = listen(capsys, address, "--recommended", "--json")
    ((hit,), summary) = rows(answer)
    training.join()
    assert training.step == 5
    assert (answer.code, summary["verdict"], summary["findings"]) == (1, "finding", 1)
    assert (hit["step"], hit["node"], hit["rank"], hit["origin"]) == (3, LOSS, 0, True)
    assert [result["abbr"] for result in hit["results"]] == ["TO"]
    assert summary["origins"] == [{k: hit[k] for k in ("rank", "step", "graph", "node", "side", "slot", "round")}]


def test_without_json_hits_are_lines_and_the_summary_is_on_stderr(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(3))
    answer = listen(capsys, address, "--watch", "TO")
    training.join()
    line, step = answer.lines
    assert line.startswith("step 3  rank 0  TO  ")
    assert line.endswith(f"{LOSS}:out:0")
    assert step.startswith("step 3  rank 0  1 finding in ")
    assert "tensors judged by the training" in answer.err
    assert answer.err.rstrip().endswith("FINDINGS: 1 finding, 1 origin ◆")


def test_it_ends_at_the_first_finding_and_lets_the_training_go(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(1, 3, 4), steps=8)
    answer = listen(capsys, address, "--watch", "TO", "--stop-on-hit", "--json")
    hits, _ = rows(answer)
    training.join()
    assert answer.code == 1
    assert [hit["step"] for hit in hits] == [1]
    assert (training.step, training.exited, training.watched) == (7, False, {})


def test_it_lets_the_training_go_after_some_steps(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(3), steps=7)
    answer = listen(capsys, address, "--watch", "TO", "--steps", 3, "--json")
    _, summary = rows(answer)
    training.join()
    assert (answer.code, training.step, training.watched) == (0, 6, {})
    assert summary["steps"] == [{"rank": 0, "steps": 3}]


def test_hits_around_a_finding_are_saved_as_a_dump(capsys: Capture, address: str, tmp_path: Path) -> None:
    training = train(address, nan_at(3))
    directory = tmp_path / "dump"
    answer = listen(capsys, address, "--watch", "TO", "--save", directory, "--json")
    _, summary = rows(answer)
    training.join()
    assert answer.code == 1
    assert str(directory) in summary["saved"]
    session = open_dump(directory, remember=False)
    session.add_recommended()
    found = [hit for hit in session.check(session.pairs()).hits if hit.stats is not None and hit.stats.bad]
    assert [(hit.key.node, hit.key.step, hit.origin) for hit in found] == [(LOSS, 3, True)]
    session.close()


def test_a_directory_that_cannot_be_made_is_told_before_the_training_comes(
    capsys: Capture, address: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file" / "dump", tmp_path / "file"):
        answer = listen(capsys, address, "--save", place)
        assert answer.code == 2
        assert "waiting" not in answer.err


@pytest.mark.parametrize(("hits", "code"), [(never, 2), (nan_at(3), 1)])
def test_what_could_not_be_saved_is_a_reason_not_to_say_clean(
    capsys: Capture, address: str, tmp_path: Path, *, monkeypatch: pytest.MonkeyPatch, hits: Hits, code: int
) -> None:
    def full(_path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    training = train(address, hits)
    monkeypatch.setattr(Path, "write_bytes", full)
    answer = listen(capsys, address, "--watch", "TO", "--save", tmp_path / "dump", "--json")
    _, summary = rows(answer)
    training.join()
    assert (answer.code, summary["saved"]) == (code, None)
    (reason,) = summary["reasons"]
    assert reason["kind"] == "unsaved"
    assert reason["text"].startswith(f"not everything was saved in {tmp_path / 'dump'}: ")
    assert reason["text"].endswith("No space left on device")


def test_values_that_find_no_room_are_a_reason_and_the_training_goes_on(
    capsys: Capture, address: str, tmp_path: Path
) -> None:
    training = train(address, nan_at(3))
    answer = listen(capsys, address, "--watch", "TO", "--save", tmp_path / "dump", "--spool-limit", "8k", "--json")
    _, summary = rows(answer)
    training.join()
    assert not training.exited
    assert answer.code == 1
    assert [reason["kind"] for reason in summary["reasons"]] == ["unsaved"]
    assert "not saved: there was no room within --spool-limit" in summary["reasons"][0]["text"]


def test_what_was_not_recorded_is_a_doubt_and_a_finding_outranks_it(capsys: Capture, address: str) -> None:
    lost = wire.message("Unrecorded")(what=b"modules inside torch.compile", count=3, example=b"blocks.1", step=2)
    fields = {"client": "PyTorch 2.13.0", "unrecorded": [lost]}
    for hits, code, verdict in ((never, 2, "cannot_judge"), (nan_at(3), 1, "finding")):
        session = f"s{code}"
        training = train(address, hits, own=True, session=session, hello=hello(0) | {"session": session}, fields=fields)
        answer = listen(capsys, address, "--watch", "TO", "--json")
        _, summary = rows(answer)
        training.join()
        _later.clear()
        assert (answer.code, summary["verdict"]) == (code, verdict)
        assert summary["reasons"] == [
            {
                "kind": "unrecorded",
                "text": "not recorded by the training: rank 0: modules inside torch.compile "
                "(3, first blocks.1 at step 2)",
            }
        ]
        assert [row["where"] for row in summary["unrecorded"]] == ["rank 0: modules inside torch.compile"]


def test_hits_of_mindspore_come_with_counts_when_it_stops(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(3))
    answer = listen(capsys, address, "--watch", "TO", "--stop-on-hit")
    training.join()
    assert answer.lines[0] == f"step 3  rank 0  TO  ◆ NaN 1 of 6  {LOSS}:out:0"


def test_several_ranks_are_waited_for_and_told_apart(capsys: Capture, address: str) -> None:
    trainings = [
        train(address, nan_at(2) if rank else never, own=True, session=f"s{rank}", hello=hello(rank)) for rank in (0, 1)
    ]
    answer = listen(capsys, address, "--watch", "TO", "--ranks", 2, "--json")
    ((hit,), summary) = rows(answer)
    for training in trainings:
        training.join()
    assert (answer.code, hit["rank"], hit["step"]) == (1, 1, 2)
    assert [each["rank"] for each in summary["steps"]] == [0, 1]


def test_the_line_of_a_step_speaks_of_all_ranks(capsys: Capture, address: str) -> None:
    trainings = [train(address, nan_at(2), own=True, session=f"s{rank}", hello=hello(rank)) for rank in (0, 1)]
    answer = listen(capsys, address, "--watch", "TO", "--ranks", 2)
    for training in trainings:
        training.join()
    *origins, step = answer.lines
    assert sorted(line.split("  ◆")[0] for line in origins) == [f"step 2  rank {rank}  TO" for rank in (0, 1)]
    assert step.startswith("step 2  ranks 0–1  2 findings in ")


def test_a_rank_that_does_not_judge_the_step_of_the_first_finding_is_named(
    capsys: Capture, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_batch, "ANSWER", 0.3)
    held = threading.Event()

    def hang(step: int, _watched: Mapping[int, Message]) -> Sequence[Message]:
        if step == 2:
            held.wait(20)
        return []

    trainings = [
        train(address, hits, own=True, session=f"s{rank}", hello=hello(rank))
        for rank, hits in enumerate((nan_at(2, 3), hang))
    ]
    answer = listen(capsys, address, "--watch", "TO", "--ranks", 2, "--stop-on-hit", "--json")
    held.set()
    ((hit,), summary) = rows(answer)
    for training in trainings:
        training.join()
    assert (answer.code, hit["rank"], hit["step"]) == (1, 0, 2)
    assert summary["reasons"] == [
        {"kind": "unanswered", "text": "rank 1 had not judged step 2 0.3 s after the first finding"}
    ]
    assert trainings[0].step == 5


def test_the_end_at_a_finding_holds_no_rank_that_another_one_waits_for(capsys: Capture, address: str) -> None:
    """As in a collective: rank 1 ends the step of the finding only when rank 0 has begun the next one."""
    went_on = threading.Event()

    def first(step: int, watched: Mapping[int, Message]) -> Sequence[Message]:
        if step == 3:
            went_on.set()
        return nan_at(2)(step, watched)

    def second(step: int, watched: Mapping[int, Message]) -> Sequence[Message]:
        if step == 2:
            assert went_on.wait(20), "rank 0 is held"
        return nan_at(2)(step, watched)

    trainings = [
        train(address, hits, own=True, session=f"s{rank}", hello=hello(rank))
        for rank, hits in enumerate((first, second))
    ]
    answer = listen(capsys, address, "--watch", "TO", "--ranks", 2, "--stop-on-hit", "--json")
    hits, summary = rows(answer)
    for training in trainings:
        training.join()
    assert [(hit["rank"], hit["step"]) for hit in hits] == [(0, 2), (1, 2)]
    assert (answer.code, summary["reasons"]) == (1, [])


def test_lines_that_nobody_reads_in_time_are_counted(
    capsys: Capture, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = threading.Event()
    write_now, take_all = backlog.StreamBehind.write_now, backlog.Backlog.take_all

    def wait_for_a_reader(stream: backlog.StreamBehind, text: str) -> None:
        assert read.wait(20)
        write_now(stream, text)

    def begin_to_read(waiting: backlog.Backlog) -> int:
        read.set()
        return take_all(waiting)

    monkeypatch.setattr(backlog, "_ROOM", 5000)
    monkeypatch.setattr(backlog.StreamBehind, "write_now", wait_for_a_reader)
    monkeypatch.setattr(backlog.Backlog, "take_all", begin_to_read)
    training = train(address, nan_at(*range(20)), steps=20)
    answer = listen(capsys, address, "--watch", "TO", "--json")
    hits, summary = rows(answer)
    training.join()
    assert training.step == 19
    assert 0 < len(hits) < summary["findings"] <= len(hits) + summary["unprinted"]


def hello(rank: int) -> dict[str, Any]:
    return {"rank": rank, "world_size": 2, "session": f"s{rank}", "client": "PyTorch 2.13.0"}


def test_no_training_within_the_time_is_no_judgement(capsys: Capture, address: str) -> None:
    answer = listen(capsys, address, "--recommended", "--timeout", 0.3, "--json")
    (line,) = answer.lines
    summary = json.loads(line)
    assert (answer.code, summary["event"], summary["verdict"]) == (2, "summary", "cannot_judge")
    assert "no training came within 0.3 s" in answer.err


def test_a_training_that_is_lost_before_anything_is_found_cannot_be_judged(
    capsys: Capture, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen_batch, "GRACE", 0.2)
    first, second = (train(address, own=True, session=f"s{rank}", hello=hello(rank)) for rank in (0, 1))

    def begin(batch: listen_batch.HeadlessListener, state: LiveState) -> None:
        batch._ranks[state.rank].begun = True  # and it is not told to run
        (first, second)[state.rank].kill()  # while it waits for a command

    monkeypatch.setattr(listen_batch.HeadlessListener, "_begin", begin)
    answer = listen(capsys, address, "--watch", "TO", "--ranks", 2, "--json")
    _, summary = rows(answer)
    assert (answer.code, summary["verdict"]) == (2, "cannot_judge")
    assert [each["kind"] for each in summary["reasons"]] == ["nothing", "unmatched", "lost", "lost"]


class TestEnds:
    """What is not judged, because the training ended before its time, is not clean."""

    @pytest.mark.parametrize(
        ("hits", "options", "expected"),
        [
            (never, (), (2, ["the training ended in step 6 (ValueError: no batch); steps 0-5 clean"])),
            (nan_at(3), (), (1, ["the training ended in step 6 (ValueError: no batch)"])),
            (never, ("--steps", 3), (0, [])),
        ],
        ids=["nothing-found", "something-found", "the-steps-that-were-asked-for-had-ended"],
    )
    def test_one_that_breaks(
        self, capsys: Capture, address: str, hits: Hits, options: Sequence[object], expected: tuple[int, list[str]]
    ) -> None:
        training = train(address, hits, own=True, session="s0", hello=hello(0), cause="ValueError: no batch")
        answer = listen(capsys, address, "--watch", "TO", "--json", *options)
        _, summary = rows(answer)
        training.join()
        assert (answer.code, [reason["text"] for reason in summary["reasons"]]) == expected

    @pytest.mark.parametrize("steps", [6, 3], ids=["before-its-time", "the-steps-that-were-asked-for-had-ended"])
    def test_the_dump_that_is_saved_of_one_that_breaks_tells_so(
        self, capsys: Capture, address: str, tmp_path: Path, steps: int
    ) -> None:
        training = train(address, own=True, session="s0", hello=hello(0), steps=5, cause="ValueError: no batch")
        live = listen(capsys, address, "--watch", "TO", "--save", tmp_path / "dump", "--steps", steps)
        training.join()
        answer = run(capsys, "check", tmp_path / "dump", "--watch", "TO")
        lost = "rank 0: the rest of the training (it ended in step 5 (ValueError: no batch))"
        assert (live.code, answer.code) == ((2, 2) if steps > 5 else (0, 0))
        assert (f"cannot judge: not recorded by the training: {lost}" in answer.lines) == (steps > 5)

    def test_the_others_of_its_run_are_judged_to_their_end(self, capsys: Capture, address: str) -> None:
        trainings = [
            train(address, own=True, session=f"s{rank}", hello=hello(rank), steps=steps, cause=cause)
            for rank, steps, cause in ((0, 6, ""), (1, 2, "exit status 1"))
        ]
        _, summary = rows(listen(capsys, address, "--watch", "TO", "--ranks", 2, "--json"))
        for training in trainings:
            training.join()
        assert summary["steps"] == [{"rank": 0, "steps": 6}, {"rank": 1, "steps": 2}]
        assert [(each["kind"], each["text"]) for each in summary["reasons"]] == [
            ("ended", "the training of rank 1 ended in step 2 (exit status 1); steps 0,1 clean")
        ]

    def test_one_that_is_killed(self, capsys: Capture, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(listen_batch, "GRACE", 0.2)

        def killed(step: int, _watched: Mapping[int, Message]) -> list[Message]:
            if step == 0:
                training.client.hold_line()
            elif step == 4:
                training.kill()
            return []

        training = train(address, killed, own=True, session="s0", hello=hello(0))
        _, summary = rows(listen(capsys, address, "--watch", "TO", "--json"))
        training.join()
        assert (summary["exit_code"], summary["steps"]) == (2, [{"rank": 0, "steps": 4}])
        (reason,) = summary["reasons"]
        assert reason["kind"] == "lost"
        assert reason["text"].startswith("the training was lost after step 3")
        assert reason["text"].endswith("; steps 0-3 clean")


class TestStrays:
    """A client that shows nothing takes nothing with it."""

    @pytest.mark.parametrize("graphs", [(), [b"\x12\x01g"]], ids=["no-graph", "a-graph-of-nothing"])
    def test_one_that_comes_first(
        self, capsys: Capture, address: str, monkeypatch: pytest.MonkeyPatch, graphs: Sequence[bytes]
    ) -> None:
        monkeypatch.setattr(listen_batch, "GRACE", 0.2)
        training = train(address, own=True, session="s0", hello=hello(0))

        def come(start: Callable[[], None] = training.start) -> None:
            stray = ScriptedTraining(address, Script(graphs=graphs, steps=2))

            def follow() -> None:
                stray.join()
                start()

            threading.Thread(target=follow, daemon=True).start()

        monkeypatch.setattr(training, "start", come)
        answer = listen(capsys, address, "--recommended", "--json")
        _, summary = rows(answer)
        training.join()
        assert (answer.code, summary["verdict"], [each["steps"] for each in summary["steps"]]) == (0, "clean", [6])


def test_a_watchpoint_that_covers_nothing_is_no_clean_answer(capsys: Capture, address: str) -> None:
    training = train(address)
    answer = listen(capsys, address, "--watch", "TO", "--watch", "TL max_gt=1 @ re=nowhere", "--json")
    _, summary = rows(answer)
    training.join()
    assert answer.code == 2
    assert [reason["kind"] for reason in summary["reasons"]] == ["unmatched"]


def test_only_named_conditions_fail(capsys: Capture, address: str) -> None:
    training = train(address, nan_at(3))
    answer = listen(capsys, address, "--watch", "TO", "--watch", "TZ", "--fail-on", "TZ", "--json")
    hits, summary = rows(answer)
    training.join()
    assert (answer.code, len(hits), summary["verdict"]) == (0, 1, "clean")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--steps", "3"], "--steps is about listening without a screen"),
        (["--json"], "--json is about listening without a screen"),
        (["--no-screen", "--host", EVERYWHERE, "--port", "0"], "there is no token"),
        (["--no-screen", "--watch", "XX"], "no condition is called"),
        (
            ["--no-screen", "--port", "0", "--host", "256.1.1.1", "--allow-unauthenticated"],
            "no address of this machine",
        ),
    ],
)
def test_a_mistake_is_answered_in_the_shell(capsys: Capture, options: list[str], what: str) -> None:
    answer = run(capsys, "listen", *options)
    assert answer.code == 2
    assert what in answer.err


@pytest.mark.parametrize(
    "option", [["--port", "70000"], ["--spool-limit", "many"], ["--timeout", "0"], ["--steps", "0"]]
)
def test_a_wrong_value_is_refused(capsys: Capture, option: list[str]) -> None:
    answer = run(capsys, "listen", *option)
    assert answer.code == 2
    assert option[0] in answer.err


def test_another_address_than_this_machine_is_warned_of(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret-of-this-test")
    options = ["--no-screen", "--host", EVERYWHERE, "--port", "0", "--token-from", "MY_TOKEN", "--timeout", "0.1"]
    answer = run(capsys, "listen", *options)
    assert "not at this machine alone" in answer.err
    assert "secret" not in answer.err
    assert "what trainings send is not encrypted" in answer.err
    assert "TDBG_TOKEN=..." in answer.err


def test_a_new_token_is_another_one_each_time_and_long_enough(capsys: Capture) -> None:
    tokens = [run(capsys, "listen", "--new-token").out for _ in range(3)]
    assert len(set(tokens)) == 3
    for text in tokens:
        server = serve(EVERYWHERE, 0, token=text.rstrip("\n"))
        server.close()


@pytest.mark.parametrize("number", [signal.SIGINT, *ENDING[:3]])
def test_a_signal_sums_up_and_lets_the_training_go(address: str, number: int) -> None:
    command = [
        sys.executable,
        "-m",
        "tui_debugger",
        "listen",
        "--no-screen",
        "--host",
        address,
        "--watch",
        "TO",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    reached = threading.Event()
    held = threading.Event()

    def slow(step: int, watched: Mapping[int, Message]) -> Sequence[Message]:
        if step == 4:
            reached.set()
            held.wait(20)
        return nan_at(3)(step, watched)

    training = train(address, slow)
    assert process.stdout is not None
    assert process.stderr is not None
    assert "waiting for a training" in process.stderr.readline()
    training.start()
    assert json.loads(process.stdout.readline())["step"] == 3  # while it runs, not at the end
    assert reached.wait(20)
    os.kill(process.pid, number)
    held.set()
    out, err = process.communicate(timeout=60)
    summary = json.loads(out.splitlines()[-1])
    code = 128 + number
    assert (process.returncode, summary["verdict"], summary["exit_code"]) == (code, "interrupted", code), err
    assert not training.exited


def test_a_training_without_a_step_is_no_clean_one(capsys: Capture, address: str) -> None:
    training = train(address, steps=1)
    answer = listen(capsys, address, "--recommended", "--json")
    _, summary = rows(answer)
    training.join()
    assert (answer.code, summary["verdict"]) == (2, "cannot_judge")
    assert {"kind": "nothing", "text": "no tensor was looked at"} in summary["reasons"]


@pytest.mark.parametrize("more", [(), ("--stop-on-hit",)])
def test_nothing_that_a_training_says_commands_the_terminal(
    capsys: Capture, address: str, tmp_path: Path, more: tuple[str, ...]
) -> None:
    node = f"Default/net{EVIL}/Log{EVIL}-op3"

    def nan(step: int, watched: Mapping[int, Message]) -> list[Message]:
        numbers = [number for number, each in watched.items() if each.watch_condition.condition == 13]
        return [hit_message(node, number) for number in numbers] if step == 2 else []

    script = Script(
        graphs=[
            graph([("x", "Parameter", [], (2, 3)), (node, f"Log{EVIL}", ["x", f"w{EVIL}"], (2, 3))], ["x", f"w{EVIL}"])
        ],
        values=lambda _step: {(node, 0, False): np.full((2, 3), np.nan, np.float32)},
        hits=nan,
        steps=4,
        hello={"backend": f"GPU{EVIL}", "client": f"PyTorch 2.13.0 (tdbg 0.5) {EVIL}", "host": EVIL, "pid": 1},
        own=True,
    )
    _later.append(Later(address, script, session="s"))
    answer = listen(capsys, address, "--watch", "TO", "--save", tmp_path / "saved", *more)
    assert not unsafe(answer.out)
    assert not unsafe(answer.err)
    assert "aGFjaw==" in answer.out + answer.err
    assert "Traceback" not in answer.err
