"""Builds the kernel: ``python -m tui_debugger.stats.kernel.build`` compiles the C files here into one library.

A wheel gets it from ``build_hook``. Without a C compiler numpy does the same work, slower. On x86-64 every file is
compiled for three processor levels, and ``level.c`` selects one at run time; all add in the same order, so results are
equal. The build hook imports this module before dependencies are installed: it must need nothing but Python.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tui_debugger.stats.kernel import FOLDER, shared_library_path

FLAGS: Final = (
    *("-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"),
    # Never -ffast-math: it takes NaN for impossible. Products are not fused with sums, so that all levels agree.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-fopenmp-simd", "-g0"),
)
LEVELS: Final = {
    0: (),
    3: ("-march=x86-64-v3",),
    4: ("-march=x86-64-v4", "-mprefer-vector-width=512"),
}
"""Compiler options for the levels of x86-64; the first is for all processors, and the only one elsewhere."""
PATIENCE: Final = 120.0
"""Seconds after which a compiler is given up."""


def sources() -> list[Path]:
    return sorted(FOLDER.glob("*.c"))


class CompileError(Exception):
    """The compiler failed; the text says why."""


class NoCompilerError(CompileError):
    """There is no compiler."""


def compiler(machine: str = "") -> list[str]:
    """Returns the command of a C compiler for a machine (empty: this one), or raises NoCompilerError."""
    if chosen := os.environ.get("CC"):
        return shlex.split(chosen)
    foreign = machine not in ("", platform.machine())
    candidates = (f"{machine}-linux-gnu-gcc",) if foreign else ("gcc", "clang", "cc")
    for name in candidates:
        if found := shutil.which(name):
            return [found]
    if foreign:
        target = ("cc", "-target", f"{machine}-linux-gnu.2.17")
        if found := shutil.which("zig"):
            return [found, *target]
        if importlib.util.find_spec("ziglang"):  # zig from PyPI
            return [sys.executable, "-m", "ziglang", *target]
    raise NoCompilerError(f"no C compiler was found: looked for {', '.join(candidates)}{', zig' if foreign else ''}")


def build(folder: Path = FOLDER, machine: str = "", flags: Sequence[str] = ()) -> Path:
    """Compiles the library into ``folder``, and removes libraries of other sources.

    ``machine`` as for ``compiler``; ``flags`` are added to ours. Raises CompileError.
    """
    command = [*compiler(machine), *FLAGS, *flags]
    zig = any("zig" in word for word in command)  # zig spells the levels differently
    wide = (machine or platform.machine()).lower() in ("x86_64", "amd64")
    into = folder / shared_library_path().name
    with tempfile.TemporaryDirectory(prefix="tdbg-kernel-") as work:
        objects: list[str] = []
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # each compiler is a process of its own
            for level, its_flags in LEVELS.items():
                if level and not wide:
                    continue
                known = [flag.replace("x86-64-v", "x86_64_v") if zig else flag for flag in its_flags]
                steps = {
                    str(Path(work) / f"{path.stem}-{level}.o"): [*command, *known, f"-DTDBG_LEVEL={level}", str(path)]
                    for path in sources()
                }
                try:
                    list(pool.map(lambda made, step: _run([*step, "-c", "-o", made]), steps, steps.values()))
                except CompileError:
                    if not level:
                        raise
                    break  # an older compiler does not know this level: such processors run the one below
                objects += steps
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".kernel-", suffix=".so", delete=False) as file:
            whole = Path(file.name)
        try:
            _run([*command, "-shared", *objects, "-o", str(whole)])
            whole.chmod(0o755)
            whole.replace(into)
        finally:
            whole.unlink(missing_ok=True)
    for old in folder.glob("kernel-*.so"):
        if old != into:
            old.unlink(missing_ok=True)
    return into


def oldest_glibc(library: Path) -> tuple[int, int]:
    """Returns the version of glibc that a library needs, at least 2.17, the first one for manylinux wheels."""
    named = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max([(2, 17), *((int(major), int(minor)) for major, minor in named)])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - a compiler of this machine, and our own files
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise CompileError(f"{command[0]} failed:\n{done.stderr.strip()}")


def main() -> int:
    try:
        made = build()
    except (CompileError, OSError) as error:
        sys.stderr.write(f"the kernel was not built: {error}\nnumpy does its work, slower\n")
        return 2
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
