"""Checksums of archives, as the kernel works them out and as zlib does."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from tests.stats.kernels import needs_kernel
from tui_debugger.stats import kernel
from tui_debugger.stats.kernel import checksum
from tui_debugger.stats.kernel.checksum import crc32

pytestmark = needs_kernel


def test_any_length_at_any_place_gives_what_zlib_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "_FEW", 0)
    data = np.frombuffer(np.random.default_rng(0).bytes(5000), np.uint8)
    total = 0
    for length in (*range(300), 1023, 1024, 4096):
        for start in (0, 1, 7):
            piece = data[start : start + length]
            assert crc32(piece, total) == zlib.crc32(piece.data, total)
            total = crc32(piece, total)


def test_without_the_kernel_zlib_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    data = np.arange(1 << 16, dtype=np.uint8)
    expected = crc32(data, 5)
    monkeypatch.setattr(checksum, "available", lambda: False)
    assert crc32(data, 5) == expected == zlib.crc32(data.data, 5)


def test_arguments_that_make_no_sense() -> None:
    call = kernel.function("checksum", "pqp")
    total = np.zeros(1, np.uint32)
    assert call(None, 1, kernel.address(total)) == -1
    assert call(None, -1, kernel.address(total)) == -1
    assert call(kernel.address(total), 4, None) == -1
