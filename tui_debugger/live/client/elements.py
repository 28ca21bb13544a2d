"""Element types by the numbers that the protocol uses."""

from __future__ import annotations

from functools import lru_cache

from tui_debugger.graph.messages import type_name
from tui_debugger.live import wire
from tui_debugger.stats.dtypes import canonical_name

_LAST_NUMBER = 49


def type_number(dtype: str) -> int:
    """``DataType`` of an element type by name; 0 where there is none."""
    return _numbers().get(dtype, 0)


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    named = {type_name(number): number for number in range(1, _LAST_NUMBER)}
    return {name: number for name, number in named.items() if canonical_name(name)} | wire.OWN_TYPES
