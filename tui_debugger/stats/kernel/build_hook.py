"""The build hook of hatch (see ``pyproject.toml``): compiles the kernel into wheels and editable installs.

A wheel with the kernel is for one processor and every Python 3; without a compiler, or with ``TDBG_KERNEL=off``, it is
for all. ``TDBG_MACHINE`` (``x86_64``, ``aarch64``) names another processor; a failing compiler is then an error.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINE = "TDBG_MACHINE"


class KernelHook(BuildHookInterface[Any]):
    """Adds the library to the build."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; for ``version`` ``editable`` the library must lie beside its sources."""
        sys.path.insert(0, self.root)
        try:
            from tui_debugger.stats import kernel
            from tui_debugger.stats.kernel import build
        finally:
            sys.path.remove(self.root)
        self._folder = None if version == "editable" else tempfile.mkdtemp(prefix="tdbg-wheel-")
        machine = os.environ.get(MACHINE, "")
        if kernel.is_off():
            return
        try:
            made = build.build(Path(self._folder) if self._folder else kernel.FOLDER, machine)
        except (build.CompileError, OSError) as error:
            if machine:
                raise
            self.app.display_warning(f"without the compiled kernel, numpy does its work: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform(machine or platform.machine(), build.oldest_glibc(made))}"
        if self._folder:
            build_data["force_include"][os.fspath(made)] = f"tui_debugger/stats/kernel/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatch's
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _platform(machine: str, glibc: tuple[int, int]) -> str:
    """Returns the platform tag of a wheel; on a machine without glibc the library fits only that machine."""
    import sysconfig

    own = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not own.startswith("linux") or (machine == platform.machine() and platform.libc_ver()[0] != "glibc"):
        return own
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machine}"
