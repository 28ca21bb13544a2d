"""The mark of tests that only the kernel can pass."""

from __future__ import annotations

import pytest

from tui_debugger.stats import kernel

needs_kernel = pytest.mark.skipif(not kernel.available(), reason="the kernel is not built, and there is no C compiler")
