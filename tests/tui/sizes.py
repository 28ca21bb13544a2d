"""The sizes of a terminal at which the screen has to work."""

from __future__ import annotations

from typing import Final

import pytest

SIZES: Final = ((80, 24), (120, 40), (200, 50))
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
