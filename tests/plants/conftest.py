"""Copies to plant faults in, made once per process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.plants.planting import ONCE, Ground, make_ground


@pytest.fixture(scope="session")
def grounds(dumps: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ground]:
    """``grounds("mindspore-2.0-mlp")``: leave it as it was."""
    parent = tmp_path_factory.mktemp("plants")
    return cache(lambda name: make_ground(name, dumps(name), parent / name))


@pytest.fixture(params=ONCE)
def ground(request: pytest.FixtureRequest, grounds: Callable[[str], Ground]) -> Ground:
    """Each of the copies."""
    return grounds(request.param)
