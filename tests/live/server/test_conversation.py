"""The state machine behind a connection, without any connection."""

from __future__ import annotations

import pytest

from tui_debugger.errors import LostError, NotStoppedError, UnsupportedError
from tui_debugger.live import wire
from tui_debugger.live.server.conversation import (
    ENDLESS,
    Command,
    Exit,
    Level,
    QuestionState,
    Recheck,
    RunNode,
    RunPlan,
    RunStep,
    TensorRequest,
    TrainingConversation,
    TrainingReport,
    Unwatch,
    Watch,
)
from tui_debugger.live.wire import START, Event, Phase, RemoteTensor, RemoteWatchpoint, TrainingStop

VIEW = TensorRequest(Level.VALUE, (RemoteTensor("head.weight"),))


def watchpoint(number: int, limit: float = 1.0) -> RemoteWatchpoint:
    return RemoteWatchpoint(number, 15, (("max_gt", limit, False),), (("fc1.weight", "Parameter", "graph"),))


class Client:
    """Enters and takes commands, one call after the other."""

    def __init__(self, conversation: TrainingConversation) -> None:
        self.conversation = conversation
        self.call = 0

    def enter(self, report: TrainingReport = TrainingReport()) -> list[Event]:  # noqa: B008 - frozen
        self.call += 1
        return self.conversation.enter(self.call, report, 0.0)

    def told(self) -> Command | None:
        return self.conversation.command(self.call)

    def step(self, report: TrainingReport = TrainingReport()) -> Command | None:  # noqa: B008 - frozen
        self.enter(report)
        return self.told()


@pytest.fixture
def conversation() -> TrainingConversation:
    return TrainingConversation(0.0, features=wire.RUNS_TO_NODES)


@pytest.fixture
def client(conversation: TrainingConversation) -> Client:
    return Client(conversation)


def test_the_first_entry_is_the_stop_before_the_first_step(conversation: TrainingConversation, client: Client) -> None:
    assert client.enter() == [Event.STOPPED]
    assert conversation.stop == TrainingStop(1, START)
    assert client.told() is None


def test_steps_are_counted_from_the_commands_that_were_given(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    for step in range(3):
        assert conversation.run(RunPlan()) == [Event.RUNNING]
        assert client.told() == RunStep()
        assert client.enter() == [Event.STOPPED]
        assert conversation.stop == TrainingStop(step + 2, step)


def test_entering_again_without_having_run_is_no_stop(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    assert client.enter() == []
    assert conversation.stop == TrainingStop(1, START)


def test_several_steps_are_gone_on_to_without_asking(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.run(RunPlan(3))
    assert client.told() == RunStep()
    assert client.step() == RunStep()
    assert client.step() == RunStep()
    assert client.enter() == [Event.STOPPED]
    assert conversation.stop == TrainingStop(4, 2)


@pytest.mark.parametrize("steps", [5, None])
def test_hits_end_a_run(conversation: TrainingConversation, client: Client, steps: int | None) -> None:
    client.enter()
    conversation.run(RunPlan(steps))
    assert client.told() == RunStep()
    assert client.step() == RunStep()
    assert conversation.report_hits()
    assert client.enter() == [Event.STOPPED]
    assert client.told() is None


def test_a_run_that_only_logs_goes_on_after_hits(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.run(RunPlan(None, stop_on_hit=False))
    assert client.told() == RunStep(together=True)
    conversation.report_hits()
    assert client.enter() == [Event.HITS]
    assert client.told() == RunStep(together=True)
    assert conversation.phase is Phase.RUNNING


def test_hits_inside_a_step_come_one_by_one_only_where_somebody_stops_at_them(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    conversation.run(RunPlan(None, stop_at_nodes=False))
    assert client.told() == RunStep(together=True)
    conversation.report_hits()
    assert client.enter() == [Event.STOPPED], "the first ones and those at the end of the step stop it all the same"
    conversation.run(RunPlan(None))
    assert client.told() == RunStep()


def test_pause_ends_a_run_at_the_end_of_its_step(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.run(RunPlan(None))
    assert client.told() == RunStep()
    conversation.pause()
    assert client.enter() == [Event.STOPPED]
    conversation.run(RunPlan(2))
    assert client.told() == RunStep()
    assert client.step() == RunStep(), "a pause is over with the stop that it made"


def test_differences_of_the_list_go_before_the_next_run_one_at_a_time(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    conversation.watch([watchpoint(1), watchpoint(2)])
    assert client.told() is None, "nothing is sent while it waits for people"
    conversation.run(RunPlan())
    assert client.told() == Watch(watchpoint(1))
    assert client.step() == Watch(watchpoint(2))
    assert client.step() == RunStep()
    client.enter()
    conversation.watch([watchpoint(2, 9.0), watchpoint(3)])
    conversation.run(RunPlan())
    assert [client.told(), client.step(), client.step(), client.step()] == [
        Unwatch(1),
        Watch(watchpoint(2, 9.0)),
        Watch(watchpoint(3)),
        RunStep(),
    ]


class TestAListThatComesWhileItRuns:
    """It is sent when the training asks for the next time, and whoever drives is told from which step on it counts."""

    @pytest.fixture
    def runs(self, conversation: TrainingConversation, client: Client) -> Client:
        client.enter()
        conversation.run(RunPlan(None))
        assert told(conversation, client) == (RunStep(), [])
        return client

    def test_is_known_from_the_next_step_on(self, conversation: TrainingConversation, runs: Client) -> None:
        number = conversation.watch([watchpoint(1)])
        assert conversation.listed < number
        runs.enter()
        assert told(conversation, runs) == (Watch(watchpoint(1)), [])
        runs.enter()
        assert told(conversation, runs) == (RunStep(), [Event.LISTED])
        assert conversation.listed == number
        assert conversation.stop is not None
        assert conversation.stop.step == 0, "the step that ended was judged by the list of before"
        runs.enter()
        assert told(conversation, runs) == (RunStep(), []), "once"

    def test_waits_for_the_next_run_where_it_stops_before(
        self, conversation: TrainingConversation, runs: Client
    ) -> None:
        conversation.watch([watchpoint(1)])
        conversation.pause()
        assert runs.enter() == [Event.STOPPED]
        number = conversation.watch([watchpoint(1), watchpoint(2)])
        conversation.run(RunPlan())
        assert told(conversation, runs) == (Watch(watchpoint(1)), [])
        runs.enter()
        assert told(conversation, runs) == (Watch(watchpoint(2)), [])
        runs.enter()
        assert told(conversation, runs) == (RunStep(), []), "nobody has to be told"
        assert conversation.listed == number


def told(conversation: TrainingConversation, client: Client) -> tuple[Command | None, list[Event]]:
    """What a client that waits is answered, and what follows from that."""
    command = client.told()
    return command, conversation.after(command) if command is not None else []


def test_the_name_for_everything_is_never_sent(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    everything = RemoteWatchpoint(1, 13, (), (("*", "", ""),))
    mixed = RemoteWatchpoint(2, 13, (), (("*", "", ""), ("a/b", "Add", "graph")))
    conversation.watch([everything, mixed])
    conversation.run(RunPlan())
    assert client.told() == Watch(RemoteWatchpoint(2, 13, (), (("a/b", "Add", "graph"),)))
    assert client.step() == RunStep()


def test_a_question_is_answered_before_the_run_that_was_asked_for_after_it(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    question = conversation.ask(VIEW)
    conversation.run(RunPlan())
    assert client.told() == VIEW
    assert question.state is QuestionState.SENT
    assert client.step() == RunStep()
    assert question.state is QuestionState.ANSWERED
    with pytest.raises(NotStoppedError):
        conversation.ask(VIEW)


def test_a_recheck_sends_the_list_first_and_is_no_stop(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.watch([watchpoint(1)])
    question = conversation.ask(Recheck())
    assert client.told() == Watch(watchpoint(1))
    assert client.step() == Recheck()
    assert conversation.report_hits()
    assert client.enter() == [Event.HITS]
    assert question.state is QuestionState.ANSWERED
    assert conversation.stop == TrainingStop(1, START)
    assert conversation.phase is Phase.STOPPED


def test_hits_that_nothing_was_run_for_are_not_taken(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    assert not conversation.report_hits()


def test_terminating_ends_at_once_or_at_the_next_stop(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.run(RunPlan(None))
    client.told()
    conversation.terminate()
    client.enter()
    command = client.told()
    assert command == Exit()
    assert conversation.after(command) == [Event.DONE]
    assert conversation.phase is Phase.DONE


def test_a_released_training_runs_without_watchpoints_and_without_a_word(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    conversation.watch([watchpoint(1)])
    conversation.run(RunPlan())
    client.told()
    client.step()
    client.enter()
    assert conversation.release() == [Event.RUNNING]
    conversation.watch([watchpoint(7)])
    assert client.told() == Unwatch(1)
    for _ in range(3):
        assert client.enter() == []
        assert client.told() == RunStep(together=True)


def test_running_to_a_node_goes_on_until_that_node_or_the_end_of_the_step(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    conversation.run_to_node("net/Log-op1")
    assert client.told() == RunNode("net/Log-op1")
    assert client.step(TrainingReport(node="net/Add-op0")) == RunNode("net/Log-op1"), "another node stopped it"
    assert client.enter(TrainingReport(node="net/Log-op1")) == [Event.STOPPED]
    assert conversation.stop == TrainingStop(3, 0, "net/Log-op1")
    conversation.run_to_node()
    assert client.told() == RunNode()
    assert client.enter() == [Event.STOPPED]
    assert conversation.stop == TrainingStop(4, 0), "the end of the step that the node is in"
    conversation.run(RunPlan())
    client.told()
    client.enter()
    assert conversation.stop == TrainingStop(5, 1)


def test_a_client_without_node_stops_cannot_run_to_a_node() -> None:
    conversation = TrainingConversation(0.0)
    Client(conversation).enter()
    with pytest.raises(UnsupportedError):
        conversation.run_to_node("a")


def test_a_client_that_counts_is_believed(conversation: TrainingConversation, client: Client) -> None:
    client.enter(TrainingReport(41))
    assert conversation.stop == TrainingStop(1, 41)
    conversation.run(RunPlan())
    client.told()
    client.enter(TrainingReport(57))
    assert conversation.stop == TrainingStop(2, 57)


def test_a_run_that_never_arrived_is_given_again_to_a_client_that_counts(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter(TrainingReport(START))
    conversation.run(RunPlan())
    assert client.told() == RunStep()
    assert client.enter(TrainingReport(START)) == []
    assert client.told() == RunStep()
    assert client.enter(TrainingReport(0)) == [Event.STOPPED]


def test_a_broken_wait_loses_the_training_and_the_next_one_brings_it_back(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    question = conversation.ask(VIEW)
    assert conversation.leave(client.call) == [Event.LOST]
    assert question.state is QuestionState.LOST
    with pytest.raises(LostError):
        conversation.ask(VIEW)
    with pytest.raises(NotStoppedError):
        conversation.run(RunPlan())
    assert conversation.heard(1.0) == [], "heartbeats alone do not bring back what cannot be told anything"
    assert client.enter() == [Event.BACK]
    assert conversation.phase is Phase.STOPPED
    assert conversation.stop == TrainingStop(1, START)


def test_silence_loses_a_running_training_and_any_sign_of_life_brings_it_back(
    conversation: TrainingConversation, client: Client
) -> None:
    conversation.heartbeat.beat(30, 0.0)
    client.enter()
    assert conversation.tick(1e6) == [], "its call waits: gRPC itself finds out when the machine is gone"
    conversation.run(RunPlan(None))
    client.told()
    assert conversation.tick(1e6 + 91.0) == []
    assert conversation.tick(1e6 + 92.0) == [Event.LOST]
    assert conversation.tick(1e6 + 93.0) == []
    assert conversation.heard(1e6 + 94.0) == [Event.BACK]
    assert conversation.phase is Phase.RUNNING


def test_a_client_without_heartbeats_is_never_missed(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.run(RunPlan(None))
    client.told()
    assert conversation.tick(1e9) == []


def test_one_that_does_not_answer_and_says_nothing_is_lost(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    question = conversation.ask(Recheck())
    assert client.told() == Recheck()
    conversation.run(RunPlan())
    assert conversation.tick(119.0) == []
    conversation.heard(119.0)
    assert conversation.tick(200.0) == [], "a heartbeat: it is still at work"
    assert conversation.tick(240.0) == [Event.LOST]
    assert question.state is QuestionState.LOST
    assert client.enter() == [Event.BACK]


@pytest.mark.parametrize("period", [-1, 0, 4, 3601])
def test_periods_that_make_no_sense_are_not_taken(conversation: TrainingConversation, period: int) -> None:
    client = Client(conversation)
    client.enter()
    conversation.run(RunPlan())
    client.told()
    conversation.heartbeat.beat(period, 0.0)
    assert conversation.tick(1e9) == []


def test_a_new_handshake_sends_the_whole_list_again(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    conversation.watch([watchpoint(1)])
    conversation.run(RunPlan())
    assert client.told() == Watch(watchpoint(1))
    assert client.step() == RunStep()
    conversation.introduce_again(0.0, features=0)
    assert conversation.phase is Phase.RECEIVING
    assert client.enter() == [Event.STOPPED]
    assert conversation.stop == TrainingStop(2, START), "stops only grow, steps begin again"
    conversation.run(RunPlan())
    assert client.told() == Watch(watchpoint(1))


def test_a_run_outlives_a_change_of_the_graph(conversation: TrainingConversation, client: Client) -> None:
    client.enter(TrainingReport(START))
    conversation.watch([watchpoint(1)])
    conversation.run(RunPlan(3))
    assert client.told() == Watch(watchpoint(1))
    assert client.step(TrainingReport(START)) == RunStep()
    assert conversation.introduce_again(0.0, resumes=True) == []
    assert client.step(TrainingReport(0)) == Watch(watchpoint(1))
    assert client.step(TrainingReport(0)) == RunStep()
    assert client.step(TrainingReport(1)) == RunStep()
    assert client.enter(TrainingReport(2)) == [Event.STOPPED]


@pytest.mark.parametrize(("left", "passing"), [(3, True), (None, True), (1, False)])
def test_a_run_may_be_interrupted_by_a_change_of_the_graph(
    conversation: TrainingConversation, client: Client, left: int | None, passing: bool
) -> None:
    """Whoever drives has the step judged with its new nodes, and lets it go on as it was told."""
    client.enter(TrainingReport(START))
    conversation.run(RunPlan(left, stop_on_new_nodes=True))
    assert client.told() == RunStep()
    assert conversation.introduce_again(0.0, resumes=True) == []
    assert client.enter(TrainingReport(0)) == [Event.STOPPED]
    stop = conversation.stop
    assert stop is not None
    assert (stop.step, stop.grown, stop.passing, stop.alone) == (0, True, passing, False)
    conversation.run(RunPlan(2, stop_on_new_nodes=True))
    assert client.told() == RunStep()
    assert client.step(TrainingReport(1)) == RunStep()
    assert client.enter(TrainingReport(2)) == [Event.STOPPED]
    assert conversation.stop is not None
    assert not conversation.stop.grown


class TestOneMoreNetwork:
    """A process of MindSpore compiles another network, sends its graph, and waits before it runs for the first time."""

    @pytest.fixture
    def trains(self, conversation: TrainingConversation, client: Client) -> Client:
        """Watches, and has run the first step of its first network."""
        client.enter(TrainingReport(root=0))
        conversation.watch([watchpoint(1)])
        conversation.run(RunPlan(1, stop_on_new_nodes=True))
        assert client.told() == Watch(watchpoint(1))
        assert client.step(TrainingReport(root=0)) == RunStep()
        assert client.enter(TrainingReport(root=0)) == [Event.STOPPED]
        return client

    @pytest.mark.parametrize("left", [2, None])
    def test_interrupts_a_run_that_then_goes_on_as_it_was_told(
        self, conversation: TrainingConversation, trains: Client, left: int | None
    ) -> None:
        conversation.run(RunPlan(left, stop_on_new_nodes=True))
        assert trains.told() == RunStep()
        assert conversation.open_graph(0.0) == []
        assert trains.enter(TrainingReport(root=1)) == [Event.STOPPED]
        stop = conversation.stop
        assert stop is not None
        assert (stop.count, stop.step, stop.root, stop.opens, stop.passing, stop.alone) == (3, 0, 1, True, True, False)
        conversation.run(RunPlan(left, stop_on_new_nodes=True))
        assert trains.told() == RunStep(), "it has forgotten no watchpoint"
        trains.enter(TrainingReport(root=1))
        assert conversation.stop is not None
        assert (conversation.stop.step, conversation.stop.root, conversation.stop.opens) == (1, 1, False)
        assert [conversation.graph_runs.root(step, (0, 1)) for step in (0, 1)] == [0, 1]

    def test_holds_a_pause(self, conversation: TrainingConversation, trains: Client) -> None:
        conversation.run(RunPlan(None, stop_on_new_nodes=True))
        trains.told()
        conversation.pause()
        conversation.open_graph(0.0)
        assert trains.enter(TrainingReport(root=1)) == [Event.STOPPED]
        assert conversation.stop is not None
        assert not conversation.stop.passing

    def test_is_no_reason_to_stop_one_that_nobody_drives(
        self, conversation: TrainingConversation, trains: Client
    ) -> None:
        conversation.release()
        assert trains.told() == Unwatch(1)
        assert trains.step(TrainingReport(root=0)) == RunStep(together=True)
        conversation.open_graph(0.0)
        assert trains.step(TrainingReport(root=1)) == RunStep(together=True)
        assert conversation.phase is Phase.RUNNING


def test_a_run_does_not_outlive_a_lost_connection_that_was_made_again(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter(TrainingReport(START))
    conversation.run(RunPlan(None))
    client.told()
    conversation.lose()
    assert conversation.introduce_again(0.0, resumes=True) == [Event.BACK]
    assert client.enter(TrainingReport(17)) == [Event.STOPPED]
    assert conversation.stop == TrainingStop(2, 17)


def test_another_version_can_only_be_ended_or_let_go() -> None:
    conversation = TrainingConversation(0.0, mismatch=True)
    client = Client(conversation)
    client.enter()
    assert conversation.phase is Phase.MISMATCH
    assert client.told() is None
    with pytest.raises(NotStoppedError):
        conversation.run(RunPlan())
    conversation.release()
    assert client.told() == RunStep()
    client.enter()
    conversation.terminate()
    assert client.told() == Exit()


class TestRunningAhead:
    """Our own client asks only now and then, and says which step it stands after."""

    @pytest.fixture
    def conversation(self) -> TrainingConversation:
        return TrainingConversation(0.0, features=wire.RUNS_TO_NODES | wire.RUNS_AHEAD)

    def test_steps_that_it_did_not_tell_of_count(self, conversation: TrainingConversation, client: Client) -> None:
        client.enter(TrainingReport(START))
        conversation.run(RunPlan(10))
        assert client.told() == RunStep(9)
        assert client.step(TrainingReport(3)) == RunStep(5)
        assert client.enter(TrainingReport(9)) == [Event.STOPPED]
        assert conversation.stop == TrainingStop(3, 9)

    def test_it_stops_where_a_watchpoint_hits(self, conversation: TrainingConversation, client: Client) -> None:
        client.enter(TrainingReport(START))
        conversation.run(RunPlan(None))
        assert client.told() == RunStep(ENDLESS)
        assert conversation.report_hits()
        assert client.enter(TrainingReport(6)) == [Event.STOPPED]
        assert conversation.stop == TrainingStop(2, 6)

    def test_a_pause_ends_it_when_it_asks(self, conversation: TrainingConversation, client: Client) -> None:
        client.enter(TrainingReport(START))
        conversation.run(RunPlan(None))
        client.told()
        conversation.pause()
        assert client.enter(TrainingReport(6)) == [Event.STOPPED]

    def test_the_end_says_how_far_it_came(self, conversation: TrainingConversation, client: Client) -> None:
        client.enter(TrainingReport(START))
        conversation.run(RunPlan(None))
        client.told()
        assert conversation.finish(11) == [Event.DONE]
        assert conversation.stop == TrainingStop(1, 11)

    @pytest.mark.parametrize(("ended", "last"), [(6, TrainingStop(2, 6)), (5, TrainingStop(2, 6, "node"))])
    def test_the_end_says_whether_the_step_ended_in_which_it_stopped_last(
        self, conversation: TrainingConversation, client: Client, ended: int, last: TrainingStop
    ) -> None:
        client.enter(TrainingReport(START))
        conversation.run(RunPlan(None, stop_on_hit=False))
        client.told()
        conversation.report_hits()
        assert client.enter(TrainingReport(6, "node")) == [Event.HITS]
        client.told()
        assert conversation.finish(ended) == [Event.DONE]
        assert conversation.stop == last
        assert conversation.stop.ended == ended

    def test_a_client_that_cannot_is_not_told_to(self) -> None:
        client = Client(TrainingConversation(0.0))
        client.enter()
        client.conversation.run(RunPlan(None))
        assert client.told() == RunStep()


def test_one_that_said_it_was_done_and_goes_on_is_back(conversation: TrainingConversation, client: Client) -> None:
    client.enter()
    assert conversation.finish() == [Event.DONE]
    assert client.enter() == [Event.BACK, Event.STOPPED]


def test_a_question_that_moved_to_another_connection_is_put_again(
    conversation: TrainingConversation, client: Client
) -> None:
    client.enter()
    question = conversation.ask(VIEW)
    assert client.told() == VIEW
    conversation.moved()
    assert client.step() == VIEW
    client.enter()
    assert question.state is QuestionState.ANSWERED
