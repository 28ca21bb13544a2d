"""Operator types without what differs between frameworks."""

from __future__ import annotations

import re
from typing import Final

_SPACES: Final = frozenset({"aten", "c10d", "_c10d_functional"})
"""Name spaces that PyTorch sets before an operator with a dot; an overload may follow."""


def plain_type(op_type: str) -> str:
    """``log`` of ``Log``, ``aten.log_.default`` and ``torch::log``; ``allreduce`` of ``c10d::allreduce_``."""
    name = op_type.rpartition("::")[2].lower()
    space, _, rest = name.partition(".")
    name = rest.partition(".")[0] if space in _SPACES else name
    return re.sub(r"[^a-z0-9]", "", name)
