"""What `gpu-check` measures on a device: attention alone by length, a step of decoding, and every method inside a
model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...errors import AnalysisError
from ...groups.controls import random_tokens
from ...groups.router import FocusRouter
from ...kernels import grouped_attention, plan
from ...kernels.parts import now
from ...kernels.pool import accelerated
from ...methods import METHODS
from ...models import Model
from ...papers import find
from ...seam.attention import apply, ran
from ...seam.cache import Cache, DynamicCache
from ...timing import clock, fastest_dense, time_parts
from ...timing.inference import next_token, time_decode
from ...timing.memory import model_bytes, peak_bytes
from ...training.settings import RouterTraining
from .benched import ends

# A quarter of the heads of a layer of Llama-3.1-8B, so that a dense call over a million tokens takes seconds.
HEADS, KV_HEADS, HEAD_DIM, WINDOW = 8, 2, 128, 128
KIND = torch.bfloat16
# Up to this length the fastest dense kernel is looked for; beyond, the one that was fastest there is taken.
TRIED = 65536
# Names of table 6's columns.
COLUMNS = {1024: "1K", 4096: "4K", 16384: "16K", 32768: "32K", 65536: "65K", 262144: "262K", 1048576: "1M"}
NEW_TOKENS, WARM_TOKENS = 8, 4

Report = Callable[[float, str], None]
Dense = tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor]]


def attention_rows(
    lengths: Sequence[int], groups: Sequence[int], device: torch.device, rounds: int, seed: int, report: Report
) -> list[dict]:
    """Grouped attention against the fastest dense kernel, a row for each length and number of groups."""
    rows, opponent = [], None
    for place, length in enumerate(lengths):
        report(place / len(lengths), f"attention over {length:,} tokens")
        try:
            more, opponent = _attention(length, groups, device, rounds, seed, opponent)
            rows += more
        except torch.OutOfMemoryError:
            rows += [{"what": "attention", "groups": count, "length": length, "refused": "memory"} for count in groups]
            break
        finally:
            _release(device)
    return rows


@torch.no_grad()
def _attention(
    length: int, groups: Sequence[int], device: torch.device, rounds: int, seed: int, opponent: Dense | None
) -> tuple[list[dict], Dense]:
    draw = torch.Generator(device).manual_seed(seed)
    shapes = [(1, heads, length, HEAD_DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    q, k, v = (torch.randn(*shape, generator=draw, device=device, dtype=KIND) for shape in shapes)
    if opponent is None or length <= TRIED:
        opponent = fastest_dense(q, k, v)[:2]
    name, dense = opponent
    members = {count: random_tokens(length, count, 1, seed)[None].to(device) for count in groups}
    plans = {count: plan(of, WINDOW, HEADS, HEAD_DIM, KIND, device) for count, of in members.items()}
    runs: dict[str, Callable[[], object]] = {"dense": partial(dense, q, k, v)}
    runs |= {str(count): partial(grouped_attention, q, k, v, of, WINDOW) for count, of in members.items()}
    timed = clock(runs, rounds)
    rows = []
    for count, chosen in plans.items():
        printed = find("focus", "table 6", f"K={count} speedup", COLUMNS.get(length, ""))
        row: dict[str, Any] = {"what": "attention", "groups": count, "length": length, "dense_kernel": name}
        row |= {"kernel": chosen.kernel, "dense_ms": timed["dense"].median * 1e3}
        row["sparse_ms"] = timed[str(count)].median * 1e3
        # Sorting and gathering by group, which Focus' section 2 gives 12 ms of 1.5 s at a million tokens.
        row["sort_ms"] = time_parts(runs[str(count)])["sort"] * 1e3
        row |= ends("speedup", timed["dense"].over(timed[str(count)])) | {"bound": 1 / chosen.retained}
        row |= {"paper": printed[0].value if printed else None, "peak_bytes": peak_bytes(runs[str(count)], device)}
        rows.append(row)
    return rows, opponent


def decode_rows(lengths: Sequence[int], groups: int, device: torch.device, rounds: int, report: Report) -> list[dict]:
    """A token that reads its group and the window, against one that reads all of the cache."""
    rows = []
    for place, length in enumerate(lengths):
        report(place / len(lengths), f"a token after {length:,}")
        step = time_decode(
            length, HEADS, HEAD_DIM, groups, WINDOW, kv_heads=KV_HEADS, repeats=rounds, device=str(device)
        )
        row: dict[str, Any] = {"what": "decode", "groups": groups, "length": length, "kernel": step.kernel}
        row |= {"dense_kernel": step.dense_kernel, "dense_ms": step.dense.median * 1e3}
        row["sparse_ms"] = step.sparse.median * 1e3
        rows.append(row | ends("speedup", step.speedup) | {"bound": step.bound})
    return rows


def untrained(model: Model, groups: int = 8) -> list[tuple[str, Any]]:
    """(name, method) of all that run on a model nothing was fitted on; Focus with a router as training would begin."""
    router = FocusRouter(model.num_layers, model.width, RouterTraining(groups=groups, window=WINDOW).router_settings())
    ready: list[tuple[str, Any]] = []
    for name, method in METHODS.items():
        if method.needs in ("", "rule", "router"):
            ready.append((name, method.build(router) if method.needs == "router" else method()))
    return ready


@torch.no_grad()
def method_rows(
    model: Model, methods: Sequence[tuple[str, Any]], length: int, report: Report, seed: int = 0
) -> list[dict]:
    """Each method inside a model by its own kernels: the prompt, the tokens after it, and the peak of memory beside the
    weights, measured and as the pages say it before."""
    lm, device = model.lm, model.device
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(8, lm.config.get_text_config().vocab_size, (1, length), generator=draw).to(device)
    rows = []
    for place, (name, method) in enumerate(methods):
        report(place / len(methods), f"{name}, {length:,} tokens")
        row = {"what": "model", "model": model.name, "method": name, "length": length}
        try:
            row |= _method(model, method, ids)
        except (AnalysisError, torch.OutOfMemoryError) as error:
            row["refused"] = str(error).partition("\n")[0]
        finally:
            _release(device)
        rows.append(row)
    return rows


def _method(model: Model, method: Any, ids: Tensor) -> dict:
    """What one method takes."""
    lm, device = model.lm, model.device
    with apply(model, method, kernels=True):

        def prompt() -> tuple[Tensor, Cache]:
            cache = method.cache(lm) or DynamicCache(config=lm.config)
            return next_token(lm, ids, cache), cache

        # The first call compiles; its peak is not the method's.
        prompt()
        peak = peak_bytes(prompt, device)
        start = now()
        token, cache = prompt()
        prefill = now() - start
        for _ in range(WARM_TOKENS):
            token = next_token(lm, token, cache)
        start = now()
        for _ in range(NEW_TOKENS):
            token = next_token(lm, token, cache)
        of_token = (now() - start) / NEW_TOKENS
        kernels = [entry.kernel for entry in ran(lm) if entry.phase == "prefill"]
    said = model_bytes(model, ids.shape[1], method, kernels)
    times = {"prefill_ms": prefill * 1e3, "token_ms": of_token * 1e3}
    return times | {"kernel": kernels[0] if kernels else None, "peak_bytes": peak, "said_bytes": said}


def _release(device: torch.device) -> None:
    """Give back what torch keeps of a GPU's memory: the next row begins with all of it."""
    if accelerated(device):
        torch.get_device_module(device).empty_cache()
