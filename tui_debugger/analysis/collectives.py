"""Operators that send values between the ranks of a run."""

from __future__ import annotations

from typing import Final

from tui_debugger.analysis.op_types import plain_type

_COLLECTIVE: Final = frozenset(
    {
        *("allreduce", "allgather", "allgatherv", "reducescatter", "reducescatterv", "broadcast", "reduce"),
        *(
            "alltoall",
            "alltoallv",
            "alltoallsingle",
            "neighborexchange",
            "neighborexchangev2",
            "neighborexchangev2grad",
        ),
        *("collectivegather", "collectivescatter", "allgatherintotensor", "reducescattertensor", "mirroroperator"),
        *("allreducecoalesced", "allgathercoalesced", "matmulallreduce", "allgathermatmul", "matmulreducescatter"),
    }
)
_SENDING: Final = frozenset({"send", "isend", "p2psend"})
_RECEIVING: Final = frozenset({"receive", "recv", "irecv", "p2precv"})


def _plain(op_type: str) -> str:
    """``allreduce`` of ``AllReduce``, ``HcomAllReduce``, ``c10d::allreduce_``, ``_c10d_functional.all_reduce``."""
    return plain_type(op_type).removeprefix("hcom").removeprefix("inner")


def is_collective(op_type: str) -> bool:
    """Whether every rank that takes part has a node of this kind, and each may give the others values."""
    return _plain(op_type) in _COLLECTIVE


def is_sending(op_type: str) -> bool:
    """Whether it gives its input to one other rank."""
    return _plain(op_type) in _SENDING


def is_receiving(op_type: str) -> bool:
    """Whether what it makes is the input of another rank's sending node."""
    return _plain(op_type) in _RECEIVING
