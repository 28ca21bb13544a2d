"""Tensors are fetched: chunk by chunk, and no size that a client declares is believed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.live.conftest import Happened
from tests.live.scripted import Key, Script, ScriptedClient, ScriptedTraining, graph_bytes, tensor_messages
from tests.live.server.sinks import Arrays
from tests.live.server.watching import wait_until_it_reads
from tui_debugger.errors import CancelledError, LostError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.server import Server, ServerLimits
from tui_debugger.live.server.answers import ValuesAnswer
from tui_debugger.live.server.training import RemoteTraining
from tui_debugger.live.wire import Event, RemoteTensor
from tui_debugger.model import Progress, TensorMeta

Array = np.ndarray[Any, Any]


@pytest.fixture
def training(server: Server, happened: Happened) -> Callable[..., RemoteTraining]:
    """A training that stopped and holds these tensors: ``training({(name, slot, previous): array})``."""

    def made(values: dict[Key, Array], **options: Any) -> RemoteTraining:
        ScriptedTraining(server.address, Script(values=lambda _step: values, **options))
        return happened.training(Event.STOPPED)

    return made


class Manual:
    """A client whose answers a test writes by hand."""

    def __init__(self, server: Server, happened: Happened) -> None:
        self.client = ScriptedClient(server.address)
        self.waiting = self.client.stand()
        self.training = happened.training(Event.STOPPED)

    def asked(self) -> Any:
        """Waits for the next command."""
        return wire.message("EventReply").FromString(self.waiting.result(20))

    def answers(self, messages: Iterable[Any], call: str = "SendTensors") -> None:
        """Answers the view that it waits for, and waits again."""
        assert self.asked().HasField("view_cmd")
        self.client.stream(call, messages)
        self.waiting = self.client.wait_later()

    def serve(self, *answers: Iterable[Any]) -> None:
        """Gives these answers from another thread."""

        def give() -> None:
            with contextlib.suppress(grpc.RpcError, ValueError):  # a test may break the connection
                for messages in answers:
                    self.answers(messages)

        threading.Thread(target=give, daemon=True).start()


@pytest.fixture
def manual(server: Server, happened: Happened) -> Manual:
    return Manual(server, happened)


def test_values_come_whole_in_chunks(training: Callable[..., RemoteTraining]) -> None:
    large = np.arange(2_000_003, dtype=np.float32).reshape(-1, 1)
    arrays = Arrays()
    seen: list[Progress] = []
    trained = training({("net/Log-op1", 1, False): large})
    assert trained.values([RemoteTensor("net/Log-op1", 1)], arrays, seen.append) == [True]
    np.testing.assert_array_equal(arrays.arrays[0], large)
    assert arrays.log == [("begin", 0), *[("write", 0)] * 3, ("end", 0)]
    assert seen[-1].done == seen[-1].total == large.nbytes


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint64", "float16", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64"]
)
def test_every_element_type(training: Callable[..., RemoteTraining], dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    array = np.arange(6).astype(kind).reshape(2, 3)
    arrays = Arrays()
    assert training({("a", 0, False): array}).values([RemoteTensor("a")], arrays) == [True]
    assert arrays.arrays[0].dtype == kind
    np.testing.assert_array_equal(arrays.arrays[0], array)


def test_current_previous_missing_and_empty_tensors_in_one_request(training: Callable[..., RemoteTraining]) -> None:
    now, before = np.ones(3, np.float32), np.zeros(3, np.float32)
    values = {
        ("head.weight", 0, False): now,
        ("head.weight", 0, True): before,
        ("nothing", 0, False): np.zeros((0, 4), np.int32),
        ("scalar", 0, False): np.array(7, np.int64),
    }
    asked = [
        RemoteTensor("net/head.weight", truncate=True),
        RemoteTensor("net/head.weight", previous=True, truncate=True),
        RemoteTensor("nothing"),
        RemoteTensor("net/missing"),
        RemoteTensor("scalar"),
    ]
    arrays = Arrays()
    assert training(values).values(asked, arrays) == [True, True, True, False, True]
    np.testing.assert_array_equal(arrays.arrays[0], now)
    np.testing.assert_array_equal(arrays.arrays[1], before)
    assert arrays.arrays[2].shape == (0, 4)
    assert arrays.arrays[4] == 7
    assert ("begin", 3) not in arrays.log
    assert arrays.complete[3] is False


def test_many_tensors_are_asked_for_in_several_commands(serving: Callable[..., Server]) -> None:
    server = serving(limits=ServerLimits(view_tensors=4, view_numbers=3))
    happened = Happened(server)
    values = {(f"t{number}", 0, False): np.full(number, number, np.float32) for number in range(1, 11)}
    made = ScriptedTraining(server.address, Script(values=lambda _step: values))
    trained = happened.training(Event.STOPPED)
    tensors = [RemoteTensor(name) for name, _, _ in values]
    arrays = Arrays()
    assert trained.values(tensors, arrays) == [True] * 10
    assert [arrays.arrays[number].size for number in range(10)] == list(range(1, 11))
    statistics = trained.statistics(tensors)
    assert [each.stats.count for each in statistics if each.stats] == list(range(1, 11))
    assert [len(reply.view_cmd.tensors) for reply in made.replies] == [4, 4, 2, 3, 3, 3, 1]


def test_statistics_and_types(training: Callable[..., RemoteTraining]) -> None:
    array = np.array([[np.nan, np.inf, -np.inf, -2.0, 0.0, 6.0]], np.float32)
    bad = np.full(3, np.nan, np.float32)
    trained = training({("a", 0, False): array, ("b", 0, False): bad})
    asked = [RemoteTensor("a"), RemoteTensor("missing"), RemoteTensor("b")]
    first, missing, last = trained.statistics(asked)
    assert first.meta == TensorMeta("float32", (1, 6), 24)
    stats = first.stats
    assert stats is not None
    assert (stats.count, stats.nan, stats.pos_inf, stats.neg_inf, stats.zero) == (6, 1, 1, 1, 1)
    assert (stats.negative, stats.positive, stats.minimum, stats.maximum) == (1, 1, -2.0, 6.0)
    assert stats.abs_mean is None
    assert stats.variance is None
    assert not first.complete
    assert (missing.meta, missing.stats) == (None, None)
    assert last.stats is not None
    assert (last.stats.minimum, last.stats.maximum, last.stats.mean) == (None, None, None)
    assert [base.meta for base in trained.bases(asked)] == [first.meta, None, last.meta]


def test_our_clients_statistics_are_complete(server: Server, happened: Happened) -> None:
    client = ScriptedClient(server.address, session="s1")
    client.hello(client="PyTorch", session="s1", features=wire.FULL_STATISTICS)
    client.graph(graph_bytes())
    waiting = client.wait_later(client="PyTorch")
    trained = happened.training(Event.STOPPED)
    full = wire.message("TensorSummary")()
    full.tensor_base.data_type, full.tensor_base.shape[:] = 12, [2]
    statistics = full.statistics
    statistics.count, statistics.pos_zero_count = 2, 2
    statistics.minimum, statistics.maximum, statistics.mean, statistics.abs_mean = 1.0, 3.0, 2.0, 2.0
    statistics.variance, statistics.sum_squares = 1.0, 10.0
    words = wire.message("TensorSummary")()
    words.tensor_base.data_type, words.tensor_base.shape[:] = 11, [0]

    def give() -> None:
        waiting.result(20)
        client.call("SendTensorStats", full, words)
        client.wait_later(client="PyTorch")

    threading.Thread(target=give, daemon=True).start()
    first, second, third = trained.statistics([RemoteTensor("a"), RemoteTensor("b"), RemoteTensor("c")])
    assert first.complete
    assert first.stats is not None
    assert (first.stats.variance, first.stats.sum_squares, first.stats.abs_mean) == (1.0, 10.0, 2.0)
    assert second.stats is None
    assert third.meta is None, "what does not come is missing"


def test_clients_before_1_5_have_values_only(server: Server, happened: Happened) -> None:
    values = {("a", 0, False): np.ones(2, np.float32), ("empty", 0, False): np.ones(0, np.float32)}
    ScriptedTraining(server.address, Script(values=lambda _step: values, hello={"version": "1.2.0"}))
    trained = happened.training(Event.STOPPED)
    with pytest.raises(UnsupportedError):
        trained.statistics([RemoteTensor("a")])
    arrays = Arrays()
    assert trained.values([RemoteTensor("empty"), RemoteTensor("a")], arrays) == [False, True]
    assert arrays.complete == {0: False, 1: True}


def lying(**fields: Any) -> Any:
    """A chunk of two float32 that says what a test wants it to say."""
    told = {"node_name": b"a", "slot": b"0", "data_type": 11, "dims": [2], "tensor_content": b"\0" * 8, **fields}
    return wire.message("TensorProto")(**told)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([lying(dims=[1], finished=True)], "more bytes than declared"),
        ([lying(dims=[1 << 40, 1 << 40, 1 << 40], finished=True)], "more than there is"),
        ([lying(dims=[-2], finished=True)], "a negative size"),
        ([lying(dims=[1] * 65, finished=True)], "too many dimensions"),
        ([lying(data_type=13, finished=True)], "text has no elements"),
        ([lying(data_type=77, finished=True)], "no such type"),
        ([lying(dims=[4], finished=True)], "fewer bytes than declared"),
        ([lying(dims=[4])], "never finished"),
        ([lying(dims=[4]), lying(dims=[2, 2], finished=True)], "another shape in the middle"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(manual: Manual, messages: list[Any], why: str) -> None:
    good = lying(node_name=b"b", finished=True)
    manual.serve([*messages, good])
    arrays = Arrays()
    assert manual.training.values([RemoteTensor("a"), RemoteTensor("b")], arrays) == [False, True], why
    assert arrays.complete == {0: False, 1: True}


def test_what_nobody_asked_for_is_dropped(manual: Manual) -> None:
    manual.serve([lying(node_name=b"x"), lying(finished=True), lying(finished=True)])
    arrays = Arrays()
    assert manual.training.values([RemoteTensor("a")], arrays) == [True]
    assert arrays.log == [("begin", 0), ("write", 0), ("end", 0)]


def test_a_receiver_without_room_gets_nothing(training: Callable[..., RemoteTraining]) -> None:
    class Full(Arrays):
        def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
            return super().begin(number, dtype, shape) and number != 0

    sink = Full()
    trained = training({("a", 0, False): np.ones(9, np.float32), ("b", 0, False): np.ones(2, np.float32)})
    assert trained.values([RemoteTensor("a"), RemoteTensor("b")], sink) == [False, True]
    assert sink.log == [("begin", 0), ("begin", 1), ("write", 1), ("end", 1)]


def test_what_a_receiver_raises_reaches_who_asked(training: Callable[..., RemoteTraining]) -> None:
    class Broken(Arrays):
        def write(self, _number: int, _chunk: bytes) -> None:
            raise OSError(28, "No space left on device")

    trained = training({("a", 0, False): np.ones(9, np.float32)})
    with pytest.raises(OSError, match="No space"):
        trained.values([RemoteTensor("a")], Broken())
    assert trained.values([RemoteTensor("a")], Arrays()) == [True]


def test_a_request_that_is_cancelled_has_its_answer_taken_off_the_wire(manual: Manual) -> None:
    gate = threading.Event()
    late = np.ones(10, np.float32)

    def slow() -> Iterator[Any]:
        first, *rest = tensor_messages("a", late, chunk=4)
        yield first
        gate.wait(20)
        yield from rest

    def cancel(progress: Progress) -> None:
        if progress.done:
            raise CancelledError("that is enough")

    arrays = Arrays()
    again = np.zeros(10, np.float32)
    manual.serve(slow(), tensor_messages("a", again))
    with pytest.raises(CancelledError):
        manual.training.values([RemoteTensor("a")], arrays, cancel)
    told = list(arrays.log)
    gate.set()
    fresh = Arrays()
    assert manual.training.values([RemoteTensor("a")], fresh) == [True]
    np.testing.assert_array_equal(fresh.arrays[0], again)
    assert arrays.log == told, "nobody is told anything after the cancel"


def test_a_request_that_is_cancelled_before_it_was_sent_never_is(manual: Manual) -> None:
    manual.client.close()

    def cancel(_: Progress) -> None:
        raise CancelledError("that is enough")

    with pytest.raises((CancelledError, LostError)):
        manual.training.bases([RemoteTensor("a")], cancel)


def test_a_connection_that_breaks_in_the_middle_of_an_answer(
    manual: Manual, server: Server, happened: Happened
) -> None:
    def cut() -> Iterator[Any]:
        yield from list(tensor_messages("a", np.ones(10, np.float32), chunk=8))[:3]
        wait_until_it_reads(server)
        manual.client.close()

    manual.serve(cut())
    arrays = Arrays()
    with pytest.raises(LostError):
        manual.training.values([RemoteTensor("a")], arrays)
    assert arrays.complete.get(0, False) is False
    assert happened.training(Event.LOST) is manual.training


def test_an_answer_under_the_full_name_is_taken_too(manual: Manual) -> None:
    manual.serve(tensor_messages("net/head.weight", np.ones(2, np.float32)))
    assert manual.training.values([RemoteTensor("net/head.weight", truncate=True)], Arrays()) == [True]


def test_questions_of_several_threads_take_turns(training: Callable[..., RemoteTraining]) -> None:
    values = {(f"t{number}", 0, False): np.full(5, number, np.float32) for number in range(8)}
    trained = training(values)
    results: dict[int, Arrays] = {number: Arrays() for number in range(8)}
    threads = [
        threading.Thread(target=trained.values, args=([RemoteTensor(f"t{number}")], sink))
        for number, sink in results.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [int(results[number].arrays[0][0]) for number in range(8)] == list(range(8))


NAMES = st.sampled_from(["a", "b", "net/a", "net/c"])
TENSORS = st.builds(RemoteTensor, node=NAMES, slot=st.integers(0, 1), previous=st.booleans(), truncate=st.booleans())


@given(
    asked=st.lists(TENSORS, min_size=1, max_size=5),
    sent=st.lists(
        st.tuples(NAMES, st.integers(0, 1), st.booleans(), st.integers(-1, 4), st.integers(0, 20), st.booleans()),
        max_size=12,
    ),
)
def test_whatever_comes_a_receiver_gets_begin_writes_end_and_never_more_than_declared(
    asked: list[RemoteTensor], sent: list[tuple[str, int, bool, int, int, bool]]
) -> None:
    declared: dict[int, int] = {}

    class Strict(Arrays):
        def begin(self, number: int, dtype: str, shape: tuple[int, ...]) -> bool:
            assert number not in declared
            declared[number] = 4 * int(np.prod(shape, dtype=np.int64))
            return super().begin(number, dtype, shape)

        def write(self, number: int, chunk: bytes) -> None:
            assert number not in self.complete
            declared[number] -= len(chunk)
            assert declared[number] >= 0
            super().write(number, chunk)

        def end(self, number: int, complete: bool) -> None:
            assert number not in self.complete
            super().end(number, complete)

    sink = Strict()
    answer = ValuesAnswer(asked, 0, sink)
    for name, slot, previous, size, length, finished in sent:
        message = wire.message("TensorProto")(
            node_name=name.encode(), slot=str(slot).encode(), iter=b"prev" if previous else b"", data_type=11
        )
        message.dims.append(size)
        message.tensor_content, message.finished = b"\0" * length, finished
        answer.take(message, length)
    answer.finish()
    assert answer.failure is None
    for number, complete in enumerate(answer.done):
        assert sink.complete.get(number) == complete
        assert not complete or declared[number] == 0
