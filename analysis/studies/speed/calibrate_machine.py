"""Constants of this machine: what a plain pass, attention and its parts take here, kept for prices and predictions."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...answer import doc, record
from ...commands.speed import CalibrateMachine
from ...groups.controls import random_tokens
from ...kernels import gpu, grouped_attention, packed
from ...kernels.constants import HOSTS, Accelerator, Host
from ...kernels.grouped import relative_cost
from ...kernels.members import causal_pairs
from ...kernels.native import compiled
from ...models import count_parameters
from ...runs import machine
from ...timing import clock, fastest_dense
from ...training.pretrain import build_model
from ...training.recipe import Recipe
from ..context import Context, made_on
from .benched import Benchmark

# Of one layer, with a window; groups of the calls that the constants are fitted to.
HEADS, HEAD_DIM, WINDOW, GROUPS = 8, 64, 128, (2, 8, 24)
WIDTH = HEADS * HEAD_DIM
# Tokens of attention on a processor, of a short and a long call on a GPU, and of a plain pass.
ON_HOST, SHORT, LONG, PASS = 4096, 1024, 65536, 512
PLAIN = Recipe(family="llama_plain", context=PASS, layers=4, width=512, kv_heads=8, intermediate=1408)


@record
class MachineConstants(Benchmark):
    """What was measured, beside what stands without: `rows` of a device, number format and constant."""

    path: str = doc("the file that keeps them")
    table: pd.DataFrame = doc("the rows", name="rows")


@torch.no_grad()
def calibrate_machine(request: CalibrateMachine, *, context: Context) -> MachineConstants:
    """Measure the constants of the processor, and of the GPU where there is one, and keep them."""
    kept: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    for place, device in enumerate(("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)):
        at = torch.device(device)
        context.progress(place / 2, f"a plain pass on the {device}")
        lm: Any = build_model(PLAIN, 64)
        lm = lm.eval().to(at, torch.float32 if device == "cpu" else torch.bfloat16)
        ids = torch.zeros(1, PASS, dtype=torch.long, device=at)
        plain = clock({"pass": partial(lm.base_model, ids, use_cache=False)}, request.repeats)["pass"].median
        # two operations for each weight and token
        operations = 2 * count_parameters(lm) * PASS / plain
        rows.append(_row(device, "", "operations", machine.OPERATIONS[device], operations))
        chip = machine.processor_name() if device == "cpu" else torch.cuda.get_device_name(at)
        kept[device] = {"chip": chip, "operations": operations}
        formats: dict[str, Any] = {**HOSTS} if device == "cpu" else {"attention": Accelerator()}
        for name, usual in formats.items():
            context.progress((place + 0.5) / 2, f"attention on the {device}, {name}")
            own = host_constants(name, request.repeats) if device == "cpu" else gpu_constants(at, request.repeats)
            kept[device][name] = own
            rows += [_row(device, name, constant, getattr(usual, constant), value) for constant, value in own.items()]
    about = made_on(verb="calibrate-machine", model=None, revision=None, text=None, repeats=request.repeats)
    for of_device in kept.values():
        of_device["date"] = about["date"]
    path = machine.keep(kept)
    told = " and ".join(
        f"{of['chip']}: a plain pass does {of['operations'] / 1e9:,.0f} GFLOP a second" for of in kept.values()
    )
    return MachineConstants(
        rows=rows,
        sentence=f"{told}. Prices and predicted speeds go by these constants from now on.",
        path=str(path),
        table=pd.DataFrame(rows),
        protocol=about,
    )


def _row(device: str, kind: str, constant: str, usual: float, own: float) -> dict[str, Any]:
    return {"device": device, "format": kind, "constant": constant, "usual": usual, "here": own}


def host_constants(name: str, repeats: int) -> dict[str, float]:
    """Those of `Host` for a format, fitted so that what is predicted of grouped attention comes nearest to what it
    takes here beside dense attention. A kernel that does not run here keeps the usual ones."""
    kind = torch.float32 if name == "float32" else torch.bfloat16
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, ON_HOST, HEAD_DIM, generator=draw).to(kind) for _ in range(3))
    dense = partial(fastest_dense(q, k, v)[1], q, k, v)
    members = [random_tokens(ON_HOST, groups, 1, 0)[None] for groups in GROUPS]
    unknown: dict[str, tuple[str, ...]] = {"torch": ("per_token",)}
    if compiled.runs(kind, max(GROUPS), HEAD_DIM):
        unknown["compiled"] = ("pair", "packed")
    own = HOSTS[name]
    for backend, names in unknown.items():
        runs = [partial(grouped_attention, q, k, v, of, WINDOW, backend=backend) for of in members]
        took = _beside(dense, runs, repeats)
        fixed = _predicted(members, backend, kind, replace(own, **dict.fromkeys(names, 0.0)))
        columns = []
        for constant in names:
            alone = replace(own, **dict.fromkeys(names, 0.0) | {constant: 1.0})
            columns.append((_predicted(members, backend, kind, alone) - fixed) / took)
        # by shares: what is off in a short call counts as much as in a long one
        values = np.linalg.lstsq(np.stack(columns, 1), (took - fixed) / took, rcond=None)[0]
        own = replace(own, **{one: max(0.0, float(value)) for one, value in zip(names, values, strict=True)})
    masked = partial(packed.dense, q, k, v, members[1], WINDOW, HEAD_DIM**-0.5, False)
    return asdict(replace(own, masked=float(_beside(dense, [masked], repeats)[0])))


def _predicted(members: list[Tensor], backend: str, kind: torch.dtype, own: Host) -> np.ndarray:
    """What these constants predict of each, as a multiple of dense."""
    costs = []
    for of in members:
        widened = -(-(HEAD_DIM + of.shape[-1]) // 8) * 8 / HEAD_DIM
        about = WINDOW, widened, False, backend, kind, torch.device("cpu"), WIDTH
        costs.append(relative_cost(of, of.sum(1)[0].tolist(), *about, own)[0])
    return np.array(costs)


def _beside(dense: Callable[[], object], runs: Sequence[Callable[[], object]], repeats: int) -> np.ndarray:
    """What each takes as a multiple of dense, in turns."""
    timed = clock({"dense": dense, **{str(place): run for place, run in enumerate(runs)}}, repeats)
    return np.array([timed[str(place)].over(timed["dense"]).median for place in range(len(runs))])


def gpu_constants(device: torch.device, repeats: int) -> dict[str, float]:
    """Those of `Accelerator`: short calls say what one costs, a long dense one and a gather their rates, and a long
    grouped one what is left for the window."""
    usual, inner = Accelerator(), 0
    took: dict[int, dict[str, float]] = {}
    for length in (SHORT, LONG):
        draw = torch.Generator(device).manual_seed(0)
        about: dict[str, Any] = {"generator": draw, "device": device, "dtype": torch.bfloat16}
        q, k, v = (torch.randn(1, HEADS, length, HEAD_DIM, **about) for _ in range(3))
        members = random_tokens(length, 8, 1, 0)[None].to(device)
        order = torch.randperm(length, device=device)
        rows = q[0].transpose(0, 1).reshape(length, WIDTH)
        runs: dict[str, Callable[[], object]] = {"dense": partial(fastest_dense(q, k, v)[1], q, k, v)}
        runs["gather"] = partial(rows.index_select, 0, order)
        runs["sparse"] = partial(grouped_attention, q, k, v, members, WINDOW)
        took[length] = {name: timing.median for name, timing in clock(runs, repeats).items()}
        inner = sum(size * (size + 1) // 2 for size in members.sum((0, 1)).tolist())
    short, long = took[SHORT], took[LONG]
    dense_rate = 4 * WIDTH * causal_pairs(1, LONG) / max(long["dense"] - short["dense"], 1e-9)
    copy_rate = 4 * WIDTH * LONG / max(long["gather"], 1e-9)
    window = long["sparse"] - short["sparse"] - 4 * WIDTH * inner / dense_rate - 12 * WIDTH * LONG / copy_rate
    near = 4 * WIDTH * LONG * (WINDOW + gpu.ROWS)
    rate = near / window if window > 0 else usual.window_rate
    return asdict(Accelerator(short["dense"], short["sparse"], dense_rate, rate, copy_rate))
