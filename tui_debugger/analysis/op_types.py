"""Operator types without what differs between frameworks."""

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
