"""A training that cannot be looked at: its debugger is told so, and why, instead of waiting for ever."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

import torch

from tui_debugger.live.client.agent import Agent, ClientHit, ClientValue, Identity
from tui_debugger.live.client.link import LinkSettings
from tui_debugger.live.client.messages import GraphBuilder
from tui_debugger.live.wire import RemoteTensor, RemoteWatchpoint, Unrecorded
from tui_debugger.model import TensorMeta, TensorStats
from tui_debugger.torch.training import ranks

UNSEEN: Final = "models that cannot be looked at"
"""The kind of the unrecorded models."""


class UnseenProbe:
    """The ``Probe`` of a model of which only the class is known."""

    def __init__(self, model: torch.nn.Module, why: str) -> None:
        self._name = type(model).__name__
        self._unrecorded = Unrecorded(f"{UNSEEN} ({why})", 1, self._name)

    def identity(self) -> Identity:
        rank, world = ranks()
        return Identity(program=f"PyTorch {torch.__version__} (no module is seen)", rank=rank, world_size=world)

    def attached(self) -> None:
        """Nothing to install."""

    def detached(self) -> None:
        """Nothing to remove."""

    def unrecorded(self) -> Sequence[Unrecorded]:
        return (self._unrecorded,)

    def graphs(self) -> Sequence[bytes]:
        """The model as one node."""
        graph = GraphBuilder()
        graph.add_node(self._name, self._name)
        return [graph.serialize()]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """There is nothing to watch."""

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:  # noqa: ARG002 - of the protocol
        return ()

    def unfinished(self) -> bool:
        return False

    def rest(self) -> Sequence[ClientHit]:
        return ()

    def describe(self, _: RemoteTensor) -> TensorMeta | None:
        return None

    def statistics(self, _: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        return None

    def value(self, _: RemoteTensor) -> ClientValue | None:
        return None


def tell_debugger(model: Any, why: str, settings: LinkSettings) -> None:
    """Tells a listening debugger that it will see nothing of this training. Never fails."""
    with contextlib.suppress(Exception):
        agent = Agent(UnseenProbe(model, why), settings)
        agent.begin()
        agent.close()
