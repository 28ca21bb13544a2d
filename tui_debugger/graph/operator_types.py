"""Operator types without what differs between frameworks, and which of them send values between ranks."""

from __future__ import annotations

import re
from typing import Final

_SPACES: Final = frozenset({"aten", "c10d", "_c10d_functional"})
"""Name spaces that PyTorch sets before an operator with a dot; an overload may follow."""


def plain_type(op_type: str) -> str:
    """``log`` of ``Log``, ``aten.log_.default`` and ``aten::log.out``; ``allreduce`` of ``c10d::allreduce_``."""
    spaced, _, name = op_type.lower().rpartition("::")
    name = name.partition(".")[0] if spaced else name
    space, _, rest = name.partition(".")
    name = rest.partition(".")[0] if space in _SPACES else name
    return re.sub(r"[^a-z0-9]", "", name)


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
    """Tells whether every rank that takes part has a node of this kind, and each may give the others values."""
    return _plain(op_type) in _COLLECTIVE


def is_sending(op_type: str) -> bool:
    """Tells whether it gives its input to one other rank."""
    return _plain(op_type) in _SENDING


def is_receiving(op_type: str) -> bool:
    """Tells whether what it makes is the input of another rank's sending node."""
    return _plain(op_type) in _RECEIVING
