"""How long tests wait for what another thread or process does."""

from __future__ import annotations

from typing import Final

PATIENCE: Final = 60.0
"""Seconds: more than a machine with ten times as much to do takes. Nothing is asserted about it."""
