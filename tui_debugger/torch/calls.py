"""The outermost calls of modules, and the place in the user's program where something is called."""

from __future__ import annotations

import inspect
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any, Final

import torch
from torch import nn

from tui_debugger.graph.stacks import is_framework
from tui_debugger.live.client.messages import stack_text
from tui_debugger.torch.internals import CallHook, in_backward, named_leaves
from tui_debugger.torch.recording import StepRecording
from tui_debugger.torch.structure import UNKNOWN, ModelTree, ModulePlace, numbered, without_gradients

DEEPEST: Final = 24
"""Lines of a stack at most."""
_OURS: Final = str(Path(__file__).resolve().parents[1])
_TORCH: Final = str(Path(torch.__file__).resolve().parent)


def user_stack() -> str:
    """The running lines of the user's program, innermost first, without frameworks."""
    found: list[tuple[str, int, str]] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the only way, and part of Python's documentation
    while frame is not None and len(found) < DEEPEST:
        path = frame.f_code.co_filename
        if _is_users(path):
            found.append((path, frame.f_lineno, linecache.getline(path, frame.f_lineno).strip()))
        frame = frame.f_back
    return stack_text(found)


@lru_cache(maxsize=4096)
def _is_users(path: str) -> bool:
    if path.startswith(("<", _OURS, _TORCH)):
        return False
    return not is_framework(path)


Guard = Callable[[Callable[[], None]], None]

is_compiling = torch.compiler.is_compiling


class Times:
    """How often each node ran in this step, which distinguishes several calls.

    Every call of the model counts on from the nodes before the first call, so that all calls have the same names.
    """

    def __init__(self) -> None:
        self._now: Counter[str] = Counter()
        self._before: Counter[str] | None = None

    def __getitem__(self, name: str) -> int:
        return self._now[name]

    def count(self, name: str) -> int:
        self._now[name] += 1
        return self._now[name]

    def begin_call(self) -> None:
        if self._before is None:
            self._before = self._now.copy()
        else:
            self._now = self._before.copy()

    def clear(self) -> None:
        self._now.clear()
        self._before = None


class Calls:
    """Knows which call is the outermost one."""

    def __init__(self, recording: StepRecording, guard: Guard, began: Callable[[bool], None]) -> None:
        self.outer: nn.Module | None = None  # the module that was called; None between passes
        self.nested = 0  # how often it was called again inside itself
        self.no_grad = False  # the pass began without gradients
        self.thread: int | None = None  # the thread that trains, None until something has run
        self._recording = recording
        self._guard = guard
        self._began = began
        self._times: Counter[str] = Counter()
        self._names: dict[nn.Module, Mapping[str, inspect.Parameter]] = {}
        self._made: set[str] = set()
        """Inputs that other modules make."""
        self._captures = torch.cuda.is_available()

    def place_of_root(self, tree: ModelTree) -> tuple[ModulePlace, ...]:
        """A place for the root where the tree has none, because the root is no node."""
        root = tree.root
        return () if any(place.module is root for place in tree.places) else (ModulePlace(root, "", "", ""),)

    def hook(self, place: ModulePlace) -> CallHook:
        return _Enter(self, place)

    @contextmanager
    def hooking(self, place: ModulePlace) -> Iterator[None]:
        """Around hooking a module: reports as lost one that takes no hooks, and modules inside TorchScript."""
        try:
            yield
            if isinstance(place.module, torch.jit.ScriptModule):
                self._recording.lost("modules inside TorchScript", place.name)
        except RuntimeError:
            self._recording.lost("modules that take no hooks", place.name)

    def new_step(self, *, ended: bool) -> None:
        """A step is over. ``ended``: in this thread, which therefore is the one that trains."""
        self.outer, self.nested = None, 0
        self._times.clear()
        if ended:
            self.thread = get_ident()

    def begin(self, place: ModulePlace, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if in_backward():
            return
        self._guard(lambda: self._begin(place, module, args, kwargs))

    def end(self, module: nn.Module) -> bool:
        if module is not self.outer:
            return False
        if self.nested:
            self.nested -= 1
            return False
        self.outer = None
        return True

    def elsewhere(self, place: ModulePlace) -> None:
        self._recording.lost("calls of modules in other threads", place.name)

    # -- inside --------------------------------------------------------------------------------------

    def _begin(self, place: ModulePlace, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if module is not place.module:
            self._recording.lost("calls of copies of modules (DataParallel)", place.name)
            return
        if self.thread is None:
            self.thread = get_ident()
        elif self.thread != get_ident():
            self.elsewhere(place)
            return
        if self._captures and capturing():
            self._recording.lost("passes inside a CUDA graph", place.name)
            return
        self.outer, self.nested, self.no_grad = module, 0, not torch.is_grad_enabled()
        if self.no_grad:
            self._recording.begin_pass()
        self._began(not place.scope)
        self._given(place, args, kwargs)

    def _given(self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Takes the inputs of a pass. A module that is called by itself may get the output of another module."""
        recording, no_grad = self._recording, self.no_grad
        whole = not place.scope
        scope = "inputs" if whole else "inputs." + place.scope.replace("/", ".")
        if not whole and not no_grad:
            self._times[scope] += 1
        times = self._times[scope] or 1
        following = recording.flow.following
        with recording.at_work():
            for key, value in (*self._named(place.module, args), *kwargs.items()):
                for name, tensor in named_leaves(f"{scope}.{key}", value):
                    full = without_gradients(name) if no_grad else numbered(name, times)
                    known = whole or full in recording.structure.inputs
                    if following and not known and recording.flow.has_maker(tensor):
                        self._made.add(full)
                    if full in self._made:
                        continue
                    recording.given(full, tensor, no_grad=no_grad)
                    if not known and not following:  # another module may have made it
                        recording.structure.feed(full, [UNKNOWN])

    def _named(self, module: nn.Module, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
        if module not in self._names:
            try:
                written = getattr(module, "_orig_mod", module)  # torch.compile hides the names
                self._names[module] = inspect.signature(written.forward).parameters
            except ValueError:  # TorchScript does not tell
                self._names[module] = {}
        names = [name for name, each in self._names[module].items() if each.kind not in _MANY]
        return [*zip([*names, *(f"arg{at}" for at in range(len(names), len(args)))], args, strict=False)]


class _Enter(CallHook):
    """Runs before every module: any call but the outermost must cost next to nothing."""

    __slots__ = ("_calls", "_place")

    def __init__(self, calls: Calls, place: ModulePlace) -> None:
        super().__init__(calls.begin)
        self._calls = calls
        self._place = place

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if is_compiling():
            return
        calls = self._calls
        if calls.outer is None:
            calls.begin(self._place, module, args, kwargs)
        elif calls.outer is module and calls.thread == get_ident():
            calls.nested += 1


def capturing() -> bool:
    """Tells whether a CUDA graph is being captured: Python code runs without values."""
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
