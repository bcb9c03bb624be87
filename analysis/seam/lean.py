"""transformers, imported without what it reaches for and nothing here uses: half of the time that a command takes to
start. In processes of our own only: who has this installed as `focuscope.analysis` may use the rest.

Left out are the compiler that it marks functions for (torch._dynamo, which brings sympy and inductor), models spread
over processes (torch.distributed.tensor), and scipy, for losses of object detection.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import transformers.utils
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers.utils import import_utils

COMPILER = "torch._dynamo"
# The one part of it that transformers calls: it stands on its own.
ALONE = f"{COMPILER}._trace_wrapped_higher_order_op"
MARKS = ("allow_in_graph", "assume_constant_result", "disable")
MODELS, READ = "models", "define_import_structure"
UNUSED = ("is_scipy_available", "is_torch_distributed_available")
DRAWN = (torch.Tensor.normal_, torch.Tensor.uniform_, nn.init.normal_, nn.init.kaiming_uniform_)
PARTS = ("modeling_utils", "generation.utils", "masking_utils", "models.auto.modeling_auto")


def _unmarked(function: Callable | None = None, *_: Any, **__: Any) -> Callable:
    """What a mark for the compiler does where nothing is compiled."""
    return function or _unmarked


@contextmanager
def _without_compiler() -> Iterator[None]:
    """In the place of the compiler a module that has nothing but its marks."""
    marks = ModuleType(COMPILER)
    marks.__dict__.update(dict.fromkeys(MARKS, _unmarked), __path__=[str(Path(torch.__file__).parent / "_dynamo")])
    sys.modules[COMPILER] = marks
    try:
        importlib.import_module(ALONE)
        yield
    finally:
        # Its parts go too: one that stayed would be no attribute of the real compiler, whose import then ends.
        for name in [name for name in sys.modules if name == COMPILER or name.startswith(f"{COMPILER}.")]:
            del sys.modules[name]
        vars(torch).pop("_dynamo", None)


@contextmanager
def _without_unused() -> Iterator[None]:
    """Answer transformers that libraries are not there."""
    places = (transformers.utils, import_utils)
    known = [(place, name, getattr(place, name)) for place in places for name in UNUSED]
    try:
        for place, name, _ in known:
            setattr(place, name, lambda: False)
        yield
    finally:
        for place, name, answer in known:
            setattr(place, name, answer)


@contextmanager
def _read_once() -> Iterator[None]:
    """Tell the package of models what transformers has read of its two thousand files, in the place of reading them
    again."""
    read = getattr(import_utils, READ)

    def structure(path: str, prefix: str | None = None) -> Any:
        if Path(path).parent.name != MODELS:
            return read(path, prefix)
        listed = vars(sys.modules["transformers"])["_import_structure"]
        inside = {name.partition(".")[2]: set(named) for name, named in listed.items() if name.startswith(f"{MODELS}.")}
        return {frozenset(): inside}

    setattr(import_utils, READ, structure)
    try:
        yield
    finally:
        setattr(import_utils, READ, read)


class NoNumbers(TorchFunctionMode):
    """While a model is laid out on the meta device: nothing is drawn, and ranges of numbers are made on the CPU. For
    either torch would import its compiler, which takes longer than reading a small model's weights."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.arange and torch.device(kwargs.get("device") or "cpu").type == "meta":
            kwargs["device"] = "cpu"
        elif func in DRAWN and (tensor := args[0] if args else kwargs["tensor"]).is_meta:
            return tensor
        return func(*args, **kwargs)


def undrawn(make: Callable[[], Any]) -> Any:
    """What `make` lays out with NoNumbers, or without it where a family combines its ranges with other tensors of the
    meta device (Gemma 4)."""
    try:
        with NoNumbers():
            return make()
    except RuntimeError:
        return make()


# Torch for GPUs imports its compiler with the first kernel.
if __name__.startswith("analysis.") and COMPILER not in sys.modules and torch.version.cuda is None:
    try:
        with _without_compiler(), _without_unused(), _read_once():
            for part in PARTS:
                importlib.import_module(f"transformers.{part}")
    except (ImportError, AttributeError, KeyError):
        # Another version reaches for more: what was imported stays, and the rest comes as its own imports bring it.
        pass
