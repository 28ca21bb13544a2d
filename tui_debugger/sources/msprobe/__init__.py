"""Dumps of msprobe (MindStudio Probe, mstt) as a source."""
