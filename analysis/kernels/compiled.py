"""Grouped attention on the CPU in float32 by a program of our own, `compiled.cpp`, where a C++ compiler is at hand.

Torch's kernel computes a causal call in stretches of 512 keys, so a group of 512 tokens costs twice its pairs, and the
window needs a bias, a merge and their temporaries. Here the scores of a block of 24 queries never leave the cache, no
pair is computed much beyond those that are kept, and the window goes on from where the groups ended: a softmax carried
from block to block, no merge. A thread takes a head; none of OpenMP, so processes beside it wait for nobody.

Built on first use, in a second, into the folder of this installation's state, by the source and the processor it was
built for. Without a compiler `cpu.groups` runs.
"""

import ctypes
import functools
import hashlib
import platform
import shutil
import subprocess
from ctypes import c_float, c_int, c_long, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from analysis.files import write_whole
from analysis.kernels.members import bit_sets
from analysis.kernels.parts import part
from analysis.kernels.pool import each
from analysis.runs import state_root

SOURCE = Path(__file__).with_name("compiled.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-march=native", "-fPIC", "-shared", "-fno-math-errno", "-w")
SECONDS = 60  # that building may take
MOST_GROUPS = 31  # a bit each, and a sign
ARGUMENTS = (*[c_void_p] * 6, *[c_long] * 6, c_void_p, c_void_p, c_long, c_void_p, c_long, c_float, c_long, c_long)


def runs(dtype: torch.dtype, groups: int) -> bool:
    """Whether such calls are computed here: float32, not too many groups, and a compiler that built the program."""
    return dtype == torch.float32 and groups <= MOST_GROUPS and library() is not None


def groups(q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float) -> tuple[Tensor, Tensor]:
    """As `cpu.groups`: q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out as q, lse [B, H, T]).
    Errors: MemoryError."""
    batch, heads, length, size = q.shape
    repeat, window = heads // k.shape[1], min(window, length)
    program, out, lse = library(), torch.empty_like(q), torch.empty(q.shape[:3])
    sums, count = torch.empty_like(lse), members.shape[2]
    with part("sort"):
        sets = bit_sets(members).to(torch.int32).contiguous()  # [B, T]
        tokens = [mine.T.nonzero()[:, 1].to(torch.int32) for mine in members]  # sorted by group and time
        ends = members.sum(1).cumsum(1).to(torch.int32).contiguous()  # [B, K]

    def run(first: int, last: int, head: tuple[int, int]) -> None:
        b, h = head
        own = q[b, h], k[b, h // repeat], v[b, h // repeat], out[b, h]
        places = [x.data_ptr() for x in (*own, lse[b, h], sums[b, h])] + [x.stride(0) for x in own] + [length, size]
        places += [tokens[b].data_ptr(), ends[b].data_ptr(), count, sets[b].data_ptr(), window]
        if program(*places, scale, first, last):
            raise MemoryError("Grouped attention was refused memory.")

    every = [(b, h) for b in range(batch) for h in range(heads)]
    with part("set_a"):
        each(functools.partial(run, 0, count), every)
    with part("set_b"):
        each(functools.partial(run, count, count + 1), every)
    return out, lse


@functools.cache
def library():
    """The function of `compiled.cpp`, built where it was not yet; None where that cannot be."""
    try:
        program = ctypes.CDLL(str(_built())).grouped_head
    except (OSError, StopIteration, subprocess.SubprocessError):
        return None
    program.argtypes, program.restype = ARGUMENTS, c_int
    return program


def _built() -> Path:
    """The file of the program for this processor."""
    about = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode() + _processor().encode()).hexdigest()[:12]
    place = state_root() / "kernels" / f"compiled-{about}.so"
    if not place.is_file():
        compiler = next(filter(None, map(shutil.which, COMPILERS)))
        place.parent.mkdir(parents=True, exist_ok=True)
        with write_whole(place) as partial:
            command = [compiler, *FLAGS, "-o", str(partial), str(SOURCE)]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    return place


def _processor() -> str:
    """What `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
    except OSError:
        return platform.platform() + platform.processor()
