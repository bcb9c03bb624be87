"""Programs of our own in C++, built once where a compiler is at hand: in a second or two, into the folder of this
installation's state, or the one that FOCUSCOPE_KERNELS names, by their sources and the processor they were built for.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...files import write_whole
from ...runs import state_root
from ...runs.machine import facts

HERE = Path(__file__).parent
SOURCES = ("chosen.cpp", "compiled.cpp", "measured.cpp", "narrow.cpp", "one_query.cpp")
HEADERS = ("lanes.h", "online.h", "products.h", "threads.h")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-march=native", "-fPIC", "-shared", "-pthread", "-fno-math-errno", "-w")
SECONDS = 60  # that building may take
# Bytes that a thread reads before another is worth making.
ALONE = 1 << 20
# Of bfloat16 they multiply tiles (AMX), which not every processor has.
IN_TILES = ("grouped", "measured")


@functools.cache
def library() -> ctypes.CDLL | None:
    """All of them, built where they were not yet; None where that cannot be."""
    try:
        return ctypes.CDLL(str(_built()))
    except (OSError, StopIteration, subprocess.SubprocessError):
        return None


def programs(name: str, *takes: Any) -> dict[torch.dtype, Callable]:
    """Type -> the function of this name for it, which takes arguments of these types; {} where nothing can be built."""
    return _typed(library(), name, takes)


@functools.cache
def _typed(built: ctypes.CDLL | None, name: str, takes: tuple) -> dict[torch.dtype, Callable]:
    if built is None:
        return {}
    by_dtype = {torch.float32: getattr(built, f"{name}_single")}
    if name not in IN_TILES or (hasattr(built, "tiles") and built.tiles() == 0):
        by_dtype[torch.bfloat16] = getattr(built, f"{name}_half")
    for program in by_dtype.values():
        program.argtypes, program.restype = takes, ctypes.c_int
    return {**by_dtype}


def of_heads(sink_logits: Tensor | None) -> Tensor | None:
    """Learned sinks [H] as the programs read them: float32, one behind the other."""
    return None if sink_logits is None else sink_logits.detach().float().contiguous()


def _built() -> Path:
    """The file of the programs for this processor."""
    written = b"".join((HERE / name).read_bytes() for name in (*SOURCES, *HEADERS)) + " ".join(FLAGS).encode()
    # What `-march=native` depends on.
    lines = {line for line in facts().splitlines() if line.startswith(("flags", "Features", "model name"))}
    processor = "".join(sorted(lines)) or platform.platform() + platform.processor()
    about = hashlib.sha256(written + processor.encode()).hexdigest()[:12]
    folder = Path(os.environ.get("FOCUSCOPE_KERNELS") or state_root() / "kernels")
    place = folder / f"compiled-{about}.so"
    if not place.is_file():
        compiler = next(filter(None, map(shutil.which, COMPILERS)))
        place.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(place) as partial:
            command = [compiler, *FLAGS, "-o", str(partial), *(str(HERE / name) for name in SOURCES)]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    return place
