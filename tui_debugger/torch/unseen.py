"""A training that cannot be looked at: its debugger is told so, and why, in place of waiting for ever."""

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
"""The things that are not recorded."""


class UnseenProbe:
    """The ``Probe`` of a model of which nothing is known but its class."""

    def __init__(self, model: torch.nn.Module, why: str) -> None:
        self._name = type(model).__name__
        self._unrecorded = Unrecorded(f"{UNSEEN} ({why})", 1, self._name)

    def identity(self) -> Identity:
        """The rank, and that nothing else is known."""
        rank, world = ranks()
        return Identity(program=f"PyTorch {torch.__version__} (no module is seen)", rank=rank, world_size=world)

    def attached(self) -> None:
        """Nothing to install."""

    def detached(self) -> None:
        """Nothing to remove."""

    def unrecorded(self) -> Sequence[Unrecorded]:
        """Everything."""
        return (self._unrecorded,)

    def graphs(self) -> Sequence[bytes]:
        """The model as one node."""
        graph = GraphBuilder()
        graph.add_node(self._name, self._name)
        return [graph.serialize()]

    def watch(self, watchpoints: Sequence[RemoteWatchpoint]) -> None:
        """There is nothing to watch."""

    def evaluate(self, recheck: bool, initial: bool) -> Sequence[ClientHit]:  # noqa: ARG002 - of the protocol
        """Nothing was seen."""
        return ()

    def unfinished(self) -> bool:
        """Nothing was recorded."""
        return False

    def rest(self) -> Sequence[ClientHit]:
        """Nothing was seen."""
        return ()

    def describe(self, _: RemoteTensor) -> TensorMeta | None:
        """There are no tensors."""
        return None

    def statistics(self, _: RemoteTensor) -> tuple[TensorMeta, TensorStats | None] | None:
        """There are no tensors."""
        return None

    def value(self, _: RemoteTensor) -> ClientValue | None:
        """There are no tensors."""
        return None


def tell_debugger(model: Any, why: str, settings: LinkSettings) -> None:
    """Tells a debugger that listens that it will see nothing of this training. Never fails."""
    with contextlib.suppress(Exception):
        agent = Agent(UnseenProbe(model, why), settings)
        agent.begin()
        agent.close()
