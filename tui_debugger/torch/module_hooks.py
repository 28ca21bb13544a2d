"""Hooks on modules: their outputs, the gradients of their outputs, and the losses made of them.

A tensor that functions compute between modules (a sum, a logarithm) is recorded when a module gets it: as a node of its
own, named by the function. A loss, which functions compute after the last module, is recorded when ``backward`` is
called on it.

A loss may be NaN while all its gradients are finite, so that no gradient reveals it. With a gradient scaler the loss is
the scaler's input; its output is a node of its own, which may overflow where the loss does not.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Container, Iterable, Iterator, Sequence
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from tui_debugger.graph.categories import without_wrappers
from tui_debugger.torch.arguments import settings_of
from tui_debugger.torch.calls import Calls, Guard, Times, capturing, is_compiling
from tui_debugger.torch.flow import has_fractions
from tui_debugger.torch.internals import (
    CallHook,
    EveryOperator,
    changed_by_hooks,
    compiles,
    in_backward,
    leaves,
    local,
    other_mode,
    part_of,
    readable,
    replace_run_backward,
    run_backward,
    transformed,
    version_of,
)
from tui_debugger.torch.makers import WEIGHS, Makers
from tui_debugger.torch.node_calls import NodeCall, TensorArgument
from tui_debugger.torch.recording import StepRecording, at_work
from tui_debugger.torch.structure import (
    GRADIENTS,
    UNKNOWN,
    ModelTree,
    ModulePlace,
    gradient_of,
    numbered,
    output_of,
    unique,
    without_gradients,
)

LOSS: Final = "Loss"
"""The node of the first loss of a call of the model, and its operator type if its functions were not seen."""
SCALED: Final = "Scaled"
"""The beginning of the name of a gradient scaler's output."""


class Losses:
    """Sees which tensors are differentiated, while it is installed."""

    def __init__(self, recording: StepRecording, calls: Calls, makers: Makers, guard: Guard) -> None:
        self._recording = recording
        self._calls = calls
        self._makers = makers
        self._guard = guard
        self._times = Times()
        self._name = LOSS
        self._reference = weakref.ref(self, _unsubscribe)

    def install(self, tree: ModelTree) -> None:
        """Listens to every backward pass and every gradient scaler of the program."""
        # The model's class may have this name, and so its node.
        self._name = LOSS if all(place.name != LOSS for place in tree.places) else f"Backward{LOSS}"
        if self._reference not in _listeners:
            _listeners.append(self._reference)
        if not hasattr(run_backward(), _WRAPPED):
            replace_run_backward(_reporting_backward(run_backward()))
        for each in _scalers():
            if not hasattr(each.scale, _WRAPPED):
                each.scale = _reporting_scale(each.scale)

    def remove(self) -> None:
        """Stops listening; the last listener restores PyTorch."""
        _unsubscribe(self._reference)

    def begin_call(self) -> None:
        """The model is called: losses are numbered anew, as modules are."""
        self._times.begin_call()

    def new_step(self) -> None:
        self._times.clear()

    def differentiated(self, tensors: Sequence[Any], gradients: Sequence[Any], adds: bool) -> None:
        """``backward`` (it ``adds`` to the gradients of parameters) or ``torch.autograd.grad`` is called on tensors.

        A derivative that a model computes inside itself is internal work, and one of many numbers is not of a loss.
        """
        if self._in_training() and (self._calls.outer is None or (adds and not self._calls.no_grad)):
            self._guard(lambda: self._know(tensors, gradients, adds))

    def to_scale(self, losses: Any) -> None:
        if self._in_training() and self._calls.outer is None:
            given = _several(losses)
            self._guard(lambda: self._know(given, [None] * len(given), adds=True))

    def scaled(self, losses: Any, made: Any) -> None:
        """Marks the scaler's outputs; a scaler that is switched off returns its inputs."""
        for before, after in zip(_several(losses), _several(made), strict=False):
            if isinstance(after, torch.Tensor) and after is not before:
                self._guard(functools.partial(setattr, after, _IS_SCALED, True))

    # -- inside --------------------------------------------------------------------------------------

    def _in_training(self) -> bool:
        """Tells whether this thread trains and runs no backward pass (checkpoints start another one inside)."""
        return not is_compiling() and not in_backward() and self._calls.thread in (None, get_ident())

    def _know(self, tensors: Sequence[Any], gradients: Sequence[Any], adds: bool) -> None:
        """Records tensors, except for outputs of modules and weights, which are known."""
        recording = self._recording
        flow, structure = recording.flow, recording.structure
        if capturing():
            return
        for tensor, gradient in zip(tensors, gradients, strict=False):
            if not isinstance(tensor, torch.Tensor) or tensor.grad_fn is None or transformed(tensor):
                continue
            if not adds and tensor.numel() > 1:
                continue
            name = recording.step.seen_as(tensor)
            with recording.at_work():
                if not name:
                    scaled = hasattr(tensor, _IS_SCALED)
                    kind = f"{SCALED}{self._name}" if scaled else self._name
                    name = numbered(kind, self._times.count(kind))
                    structure.losses.add(name)
                    if scaled:
                        structure.scaled.add(name)
                    sources = functools.partial(flow.sources, [tensor])
                    usual = self._makers.usual_loss(name, tensor)
                    kind = self._makers.weighs(tensor) or flow.of(tensor).work or LOSS
                    reads = functools.partial(self._makers.read, tensor)
                    recording.made(name, kind, [tensor], sources, reads=reads)
                    self._makers.made(name, [tensor])
                    if not usual:
                        recording.unexpected(name)
                if name in structure.losses and flow.following and isinstance(gradient, torch.Tensor):
                    flow.began_backward(gradient, name)


def _several(losses: Any) -> list[Any]:
    return list(losses) if isinstance(losses, list | tuple) else [losses]


def _scalers() -> Iterator[Any]:
    pending: list[Any] = [torch.amp.GradScaler]
    while pending:
        each = pending.pop()
        pending += each.__subclasses__()
        if "scale" in vars(each):
            yield each


def _unsubscribe(reference: weakref.ref[Losses]) -> None:
    """Removes a listener; the last one restores PyTorch."""
    if reference not in _listeners:
        return
    _listeners.remove(reference)
    if _listeners:
        return
    if hasattr(run_backward(), _WRAPPED):
        replace_run_backward(getattr(run_backward(), _WRAPPED))
    for each in _scalers():
        if hasattr(each.scale, _WRAPPED):
            each.scale = getattr(each.scale, _WRAPPED)


_listeners: Final[list[weakref.ref[Losses]]] = []
_WRAPPED: Final = "_tdbg_wrapped"
_IS_SCALED: Final = "_tdbg_scaled"


def _reporting_backward(original: Any) -> Any:
    @functools.wraps(original)
    def run(tensors: Sequence[Any], gradients: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        for each in tuple(_listeners):
            if (losses := each()) is not None:
                losses.differentiated(tensors, gradients, bool(kwargs.get("accumulate_grad")))
        return original(tensors, gradients, *args, **kwargs)

    setattr(run, _WRAPPED, original)
    return run


def _reporting_scale(original: Any) -> Any:
    @functools.wraps(original)
    def scale(scaler: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        listening = [losses for each in _listeners if (losses := each()) is not None]
        for losses in listening:
            losses.to_scale(outputs)
        made = original(scaler, outputs, *args, **kwargs)
        for losses in listening:
            losses.scaled(outputs, made)
        return made

    setattr(scale, _WRAPPED, original)
    return scale


class ModuleHooks:
    """Hooks on every module of a tree, while they are installed.

    A pass that begins with gradients enabled is a part of the training step; else it is a pass of its own below
    ``NoGrad``. Inside a pass with gradients, modules below a checkpoint run without gradients at first, and again in
    the backward pass: the second run is not recorded, but may be the only one whose outputs have gradients.
    """

    def __init__(self, recording: StepRecording, tree: ModelTree, guard: Guard) -> None:
        self._recording = recording
        self._tree = tree
        self._guard = guard
        self._handles: list[RemovableHandle] = []
        self._times = Times()
        self._again = Times()
        self._times_bare = Times()
        self._ran_in_step: set[str] = set()
        self._given_to: dict[tuple[str, int], tuple[str, str]] = {}
        self._writers: dict[str, str] = {}
        """The autograd functions of the nodes of masks."""
        self._takers: set[str] = set()
        """Places whose inputs functions computed."""
        self._gradient_hooks: dict[tuple[str, int], CallHook] = {}
        self._kinds = {place.scope: place.kind for place in tree.places}
        self._holders = holders(self._kinds)
        """Scopes of modules with inner modules that are seen as well."""
        self._mode: EveryOperator | None = None
        self._left_modes: list[EveryOperator] = []
        self._makers = Makers(recording)
        self._calls = Calls(recording, guard, self._began)
        self._losses = Losses(recording, self._calls, self._makers, guard)

    @property
    def installed(self) -> bool:
        return bool(self._handles)

    def install(self, tree: ModelTree) -> None:
        if self._handles:
            return
        self._tree = tree
        self._kinds = {place.scope: place.kind for place in tree.places}
        self._holders = holders(self._kinds)
        for place in (*self._calls.place_of_root(tree), *tree.places):
            module, hooks = place.module, self._handles
            with self._calls.hooking(place):
                hooks.append(module.register_forward_pre_hook(self._calls.hook(place), with_kwargs=True, prepend=True))
                if place.kind:
                    hooks.append(module.register_forward_pre_hook(CallHook(self._enter, place), with_kwargs=True))
                hooks.append(
                    module.register_forward_hook(CallHook(self._after, place), with_kwargs=True, always_call=True)
                )
        self._losses.install(tree)
        self._follow()

    def remove(self) -> None:
        """Removes the hooks. Gradients that come later are not recorded."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._losses.remove()
        self.new_step()

    def new_step(self, *, ended: bool = False) -> None:
        self._times.clear()
        self._again.clear()
        self._ran_in_step.clear()
        self._losses.new_step()
        self._makers.new_step()
        self._calls.new_step(ended=ended)
        self._follow()

    def _follow(self) -> None:
        flow = self._recording.flow
        wanted = self.installed and flow.following
        if self._mode is not None and not wanted:
            self._left_modes.append(self._mode)
            self._mode = None
        self._left_modes = [mode for mode in self._left_modes if not mode.leave()]
        if wanted and self._mode is None:
            # torch.compile would not compile, an earlier mode might be left before this one, and a mode that is
            # entered in inference mode ends with it.
            known = self._tree.compiled or compiles()
            flow.seeing = not (known or other_mode() or torch.is_inference_mode_enabled())
            if not flow.seeing:
                return
            self._mode = EveryOperator(self._seen)
            self._mode.enter()

    def _seen(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if self._mode is not None and not (self._recording.paused or at_work()):
            self._guard(lambda: self._recording.flow.ran(func, args, kwargs, out))

    def hidden(self) -> list[str]:
        """Scopes of modules not seen in this step, although their weights have gradients or are all frozen."""
        names = set(self._recording.step.names())
        attention = {place.scope for place in self._tree.places if isinstance(place.module, nn.MultiheadAttention)}
        return [
            place.scope or place.kind
            for place in self._tree.places
            if place.scope not in self._ran_in_step
            and place.scope.rpartition("/")[0] not in attention
            and _is_used(place, names)
        ]

    # -- hooks ---------------------------------------------------------------------------------------

    def _enter(
        self, place: ModulePlace, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
    ) -> None:
        """A module is going to run. PyTorch leaves ``kwargs`` out where another hook has just removed this one."""
        if kwargs is None or module is not place.module or is_compiling():
            return
        if self._recording.flow.following or place.name in self._takers:
            self._guard(lambda: self._takes(place, args, kwargs))

    def _after(
        self, place: ModulePlace, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
    ) -> None:
        """A module has run, or failed without output."""
        if is_compiling():
            return
        calls = self._calls
        if module is place.module and (calls.thread == get_ident() or in_backward()):
            self._ran_in_step.add(place.scope)
            if place.kind:
                self._guard(lambda: self._ran(place, args, kwargs, out))
            if calls.end(module) and calls.no_grad:
                self._guard(self._recording.end_pass)
        elif calls.outer is not None:
            calls.elsewhere(place)

    # -- inside --------------------------------------------------------------------------------------

    def _began(self, of_the_root: bool) -> None:
        if self._calls.no_grad:
            self._times_bare.clear()
        elif of_the_root:
            self._recording.begin_call()
            self._times.begin_call()
            self._again.begin_call()
            self._losses.begin_call()

    def _takes(self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Records a module's inputs that functions computed: the module may change them in place."""
        again = in_backward()
        calls = self._calls
        if not again and (calls.outer is None or calls.thread != get_ident()):
            return
        call = self._name(place, 1)
        with self._recording.at_work():
            if self._recording.flow.following:
                self._know_parameters(place)
            for at, tensor in enumerate(leaves((args, kwargs))):
                node = self._given_to.get((call, at))
                if node is None and self._recording.flow.following and not again:
                    node = self._function_before(place, tensor)
                    if node is not None:
                        self._given_to[call, at] = node
                        self._takers.add(place.name)
                if node is None:
                    continue
                name, kind = node
                if again:
                    self._recording.flow.recomputed(tensor, name)
                else:
                    sources = functools.partial(self._recording.flow.sources, [tensor])
                    usual = self._makers.usual(name, "computed", [tensor])
                    self._recording.made(name, self._makers.weighs(tensor) or kind, [tensor], sources)
                    self._makers.made(name, [tensor])
                    if not usual:
                        self._recording.unexpected(name)
        if again or not self._calls.no_grad:
            self._await_functions(call, args, kwargs)

    def _name(self, place: ModulePlace, later: int = 0) -> str:
        """The node of the call of a module that has just ended, or of a later one."""
        if in_backward():
            return numbered(place.name, self._again[place.name] + later)
        times = self._times_bare if self._calls.no_grad else self._times
        name = numbered(place.name, times[place.name] + later)
        return without_gradients(name) if self._calls.no_grad else name

    def _await_functions(self, call: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for at, tensor in enumerate(leaves((args, kwargs))):
            if (node := self._given_to.get((call, at))) is not None:
                self._await_gradients(*node, node[0], [tensor])

    def _know_parameters(self, place: ModulePlace) -> None:
        """Weights may be other tensors while a module runs, such as weights gathered from all processes."""
        for name, parameter in place.module.named_parameters(recurse=False):
            known = without_wrappers(f"{place.scope.replace('/', '.')}.{name}" if place.scope else name)
            if self._recording.flow.of(parameter).work:  # the program computed it for this call
                self._recording.flow.doubt(parameter)
            elif known in self._tree.parameters:
                self._recording.flow.know_parameter(known, parameter)

    def _function_before(self, place: ModulePlace, tensor: torch.Tensor) -> tuple[str, str] | None:
        """The node (name, kind) of the function that computed a module's input, or None, also for masks with Inf."""
        made = self._recording.flow.of(tensor)
        if not made.work or not (tensor.is_floating_point() or tensor.is_complex()) or not readable(tensor):
            return None
        if WEIGHS.search(place.kind) or bool(tensor.detach().isinf().any()):
            self._recording.flow.doubt(tensor)
            return None
        scope = place.scope
        while scope:
            scope = scope.rpartition("/")[0]
            if self._kinds.get(scope, "") not in _ONLY_HOLD:
                break
        return self._free_name(scope, made.work), made.work

    def _free_name(self, scope: str, kind: str) -> str:
        name = f"{scope}/{kind}" if scope else kind
        if self._calls.no_grad:
            name = without_gradients(name)
        taken = {node for node, _ in self._given_to.values()} | set(self._recording.structure.nodes)
        return next(found for each in itertools.count(1) if (found := numbered(name, each)) not in taken)

    def _ran(self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        tensors = leaves(out)
        if in_backward():
            self._ran_again(place, tensors)
            return
        if self._calls.outer is None or not tensors:
            return
        no_grad = self._calls.no_grad
        (self._times_bare if no_grad else self._times).count(place.name)
        name = self._name(place)
        usual = self._makers.usual(name, "given", leaves((args, kwargs) if kwargs else args))
        if place.scope in self._holders:
            usual &= self._makers.usual(name, "returned", tensors) or (usual and self._is_own_work(place, args, kwargs))
        if self._recording.flow.following or self._makers.masks:
            self._know_masks(place, name, tensors)
        if self._recording.settled:
            self._recording.made(name, place.kind, tensors, list, no_grad=no_grad)
        else:
            with self._recording.at_work():
                sources = functools.partial(self._sources, place, args, kwargs, tensors)
                # The sources from before the module ran: a container returns the output of its last module.
                following = self._recording.flow.following
                call = self._call_of(place, args, kwargs) if following else None
                self._recording.made(name, place.kind, tensors, sources, no_grad=no_grad)
                if following:
                    self._recording.structure.add_call(name, call)
        self._makers.made(name, tensors)
        if not usual:
            self._recording.unexpected(name)
        if not no_grad:
            self._await_gradients(place.name, place.kind, name, tensors)

    def _know_masks(self, place: ModulePlace, name: str, tensors: list[torch.Tensor]) -> None:
        """Records the function that wrote a mask which a module returns: its reader need not be a module."""
        recording = self._recording
        with recording.at_work():
            for slot, tensor in enumerate(tensors):
                node = self._given_to.get((name, ~slot))
                masked = recording.flow.of(tensor).masked and not recording.seen_as(tensor)
                writer = self._makers.writer(tensor)
                if node is None and masked and _is_mask(tensor):
                    node = self._given_to[name, ~slot] = self._free_name(place.scope, _MASKS), _MASKS
                    self._writers[node[0]] = writer
                # Without gradients it is unknown whether the same function ran.
                if node is None or (tensor.grad_fn is not None and writer != self._writers[node[0]]):
                    continue
                self._makers.masks.add(node[0])
                sources = functools.partial(recording.flow.sources, [tensor])
                recording.made(*node, [tensor], sources, no_grad=self._calls.no_grad)
                self._makers.made(node[0], [tensor])

    def _call_of(self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NodeCall | None:
        """The arguments of a module's call.

        None if the class does not determine the computation, or an argument is not itself recorded (a view, or the
        output of a function).
        """
        module = place.module
        if kwargs or len(args) != 1 or not isinstance(args[0], torch.Tensor) or not computes_as_its_class(module):
            return None
        given = self._recording.seen_as(args[0])
        if not given or self._recording.flow.sources([args[0]]) != [given]:
            return None
        if has_hooks(module, args[0]):  # hooks may change gradients
            self._recording.structure.touch([given, self._name(place)])
        found = {**settings_of(module), "input": TensorArgument(given)}
        for name, parameter in module.named_parameters(recurse=False):
            known = without_wrappers(f"{place.scope.replace('/', '.')}.{name}" if place.scope else name)
            if known not in self._tree.parameters or part_of(parameter) is not parameter:
                return None
            found[name] = TensorArgument(known)
        return NodeCall(found, module=True)

    def _is_own_work(self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Tells whether everything is finite that a module with inner modules can have made its outputs of.

        Then a branch that runs for the first time in it is as good as known.
        """
        if self._calls.no_grad:
            return False
        scope = f"{place.scope}/" if place.scope else ""
        with self._recording.at_work():
            inside = [each for each in self._recording.step if each.name.startswith(scope)]
            if not all(each.intact for each in inside):
                return False
            read = [*leaves((args, kwargs)), *(each.tensor for each in inside), *held_by(place.module)]
            return all(readable(each) and bool(local(each).isfinite().all()) for each in read if each is not None)

    def _ran_again(self, place: ModulePlace, tensors: list[torch.Tensor]) -> None:
        """For a checkpoint; it is unknown which of several calls is recomputed."""
        self._again.count(place.name)
        once, name = self._times[place.name] <= 1, self._name(place)
        if self._recording.flow.following:
            for slot, tensor in enumerate(tensors):
                self._recording.flow.recomputed(tensor, output_of(name, slot) if once else UNKNOWN)
        if once:
            self._await_gradients(place.name, place.kind, name, tensors)

    def _await_gradients(self, node: str, kind: str, forward: str, tensors: list[torch.Tensor]) -> None:
        """Hooks the gradients of a node's outputs; ``node`` is its name (``forward``) without the call's number."""
        for slot, tensor in enumerate(tensors):
            # A leaf would keep the hook for good; the output of an inner module has its hook.
            if tensor.grad_fn is not None and not self._hooked(tensor):
                hook = self._gradient_hooks.get((forward, slot)) or self._gradient_hook(node, kind, forward, slot)
                tensor.register_hook(hook)  # type: ignore[no-untyped-call] # PyTorch does not say its type

    def _gradient_hook(self, node: str, kind: str, forward: str, slot: int) -> CallHook:
        scope, _, last = node.rpartition("/")
        number = forward[len(node) :] + (last[len(kind) :] if last.startswith(f"{kind}#") else "")
        name = "/".join(part for part in (GRADIENTS.rstrip("/"), scope, f"{kind}Grad") if part) + number
        hook = self._gradient_hooks[forward, slot] = CallHook(self._gradient, name, f"{kind}Grad", forward, slot)
        return hook

    def _hooked(self, tensor: torch.Tensor) -> bool:
        if getattr(tensor, _MARK, None) == version_of(tensor):
            return True
        setattr(tensor, _MARK, version_of(tensor))  # another module may change it later
        return False

    def _gradient(self, name: str, kind: str, forward: str, slot: int, gradient: torch.Tensor) -> None:
        if self.installed and not is_compiling():
            self._guard(lambda: self._came(name, kind, forward, slot, gradient))

    def _came(self, name: str, kind: str, forward: str, slot: int, gradient: torch.Tensor) -> None:
        if self._recording.settled:
            self._recording.came(name, kind, slot, gradient, forward)
            return
        with self._recording.at_work():
            self._recording.came(name, kind, slot, gradient, forward)

    def _sources(
        self, place: ModulePlace, args: tuple[Any, ...], kwargs: dict[str, Any], out: list[torch.Tensor]
    ) -> list[str]:
        """The sources of a module's outputs; if some are unknown, also the sources of its arguments."""
        flow = self._recording.flow
        made = flow.sources(out)
        if not flow.seeing and place.scope not in self._holders:
            module = place.module
            return flow.sources([*leaves((args, kwargs)), *module.parameters(), *module.buffers()])
        return made if UNKNOWN not in made else unique([*made, *flow.sources(leaves((args, kwargs)))])


def computes_as_its_class(module: nn.Module) -> bool:
    """Tells whether a module is one of PyTorch's own, with unchanged computation and output."""
    own = type(module).__module__.startswith("torch.nn.modules.") and "forward" not in vars(module)
    return own and not changed_by_hooks(module)


def has_hooks(module: nn.Module, given: torch.Tensor) -> bool:
    """Tells whether the program hooked into the gradients of a module or of its input."""
    ours = hasattr(given, _MARK)
    hooks = getattr(given, "_backward_hooks", None) or ()
    backward = (getattr(module, name, None) for name in ("_backward_hooks", "_backward_pre_hooks"))
    return len(hooks) > ours or any(backward)


def held_by(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters(recurse=False)
    for each in module.modules():
        yield from each.buffers(recurse=False)
        yield from (value for value in vars(each).values() if isinstance(value, torch.Tensor))


def holders(scopes: Iterable[str]) -> set[str]:
    """The scopes around some scopes."""
    found: set[str] = set()
    for scope in filter(None, scopes):
        found.add("")
        found.update(scope[:at] for at, letter in enumerate(scope) if letter == "/")
    return found


def _is_mask(tensor: torch.Tensor) -> bool:
    values = local(tensor)
    return has_fractions(tensor) and readable(tensor) and bool(values.isinf().any()) and not bool(values.isnan().any())


_MARK = "_tdbg_hooked"


def _is_used(place: ModulePlace, gradients: Container[str]) -> bool:
    """Tells whether a module has weights of its own with gradients, or only weights that cannot have any."""
    own = dict(place.module.named_parameters(place.scope.replace("/", "."), recurse=False))
    if not any(each.requires_grad for each in own.values()):
        return bool(own)
    return any(gradient_of(without_wrappers(name)) in gradients for name in own)


_ONLY_HOLD: Final = frozenset({"", "ModuleList", "ModuleDict"})
"""Kinds of modules that are not called themselves."""
_MASKS: Final = "MaskedFill"
"""The type of the nodes of masks that modules return: several functions may write them."""
