"""What reading the largest scores costs here: a pass over a text and one token after it, against dense attention."""

import math
from functools import partial
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from ...answer import doc, record
from ...commands.budgets import TopkCost
from ...errors import BadSetting
from ...kernels.topk import smallest_kept, topk_attention
from ...timing import CANDIDATES, Progress, clock, fastest_dense, processor
from ...timing.inference import quickest_backend
from ..context import Context, made_on
from ..text.held_out import check_range
from .benched import Benchmark, ends

LENGTHS = (1024, 4096)
# Of a pass with 64 keys.
TARGETS = {"length": 4096, "times_dense": 2.0, "faster_than_masked": 4.0}


@record
class TopkTimes(Benchmark):
    """Top-k attention against torch's fastest dense kernel and the masked eager pass: a whole text (pass), and one
    token after it (step). Times are medians of the rounds, ratios of the same rounds."""

    targets: dict = doc("largest ratio to dense and smallest gain over the masked pass that are aimed at, and where")
    met: dict | None = doc("whether each is met; null where that length was not timed")
    table: pd.DataFrame = doc("the rows", name="rows")


@torch.no_grad()
def topk_cost(request: TopkCost, *, context: Context) -> TopkTimes:
    """Time top-k attention against torch's fastest dense kernel and the masked eager pass, which is what patching a
    model does: all scores of a head, a threshold, a mask, softmax, all values. All in turns, float32, on unit-normal
    states."""
    lengths, heads, kv_heads = request.lengths or LENGTHS, request.heads, request.kv_heads or request.heads
    for length in lengths:
        check_range("A text", length, 16, 65_536)
    if heads % kv_heads:
        raise BadSetting(f"{heads} heads cannot share {kv_heads} key heads evenly: give a divisor.")
    device, draw, rows = torch.device(context.torch_device()), torch.Generator().manual_seed(request.seed), []
    for index, length in enumerate(lengths):
        shapes = (heads, length), (kv_heads, length), (kv_heads, length)
        q, k, v = (torch.randn(1, *shape, request.head_dim, generator=draw).to(device) for shape in shapes)
        for part, measure in enumerate((_pass, _step)):
            begin, share = (2 * index + part) / (2 * len(lengths)), 1 / (2 * len(lengths))
            report = context.within(begin, share, f"{length:,} tokens").progress
            row = measure(q, k, v, request.keys, request.repeats, report)
            rows.append({"length": length, "keys": request.keys, **row})
    aimed = [row for row in rows if row["what"] == "pass" and row["length"] == TARGETS["length"]]
    met = None
    if aimed:
        met = {"times_dense": aimed[0]["times_dense"] <= TARGETS["times_dense"]}
        met["faster_than_masked"] = aimed[0]["faster_than_masked"] >= TARGETS["faster_than_masked"]
    about: dict[str, Any] = {"verb": "topk-cost", "model": None, "revision": None, "text": None, "dtype": "float32"}
    about |= {name: getattr(request, name) for name in ("seed", "heads", "head_dim", "repeats")}
    about |= {"kv_heads": kv_heads, "device": str(device), "processor": processor(str(device))}
    about["kernel"] = "top-k of all scores; gathered top-k"
    return TopkTimes(
        rows=rows,
        sentence=_sentence(rows),
        targets=TARGETS,
        met=met,
        table=pd.DataFrame(rows),
        protocol=made_on(**about),
    )


def _pass(q: Tensor, k: Tensor, v: Tensor, keys: int, repeats: int, report: Progress) -> dict:
    """A whole text."""
    name, dense, _ = fastest_dense(q, k, v)
    runs = {"dense": partial(dense, q, k, v), "top-k": partial(topk_attention, q, k, v, [keys] * q.shape[1])}
    runs["masked"] = partial(masked_eager, q, k, v, keys)
    return {"what": "pass", "dense_kernel": name, **_compared(runs, repeats, report)}


def _step(q: Tensor, k: Tensor, v: Tensor, keys: int, repeats: int, report: Progress) -> dict:
    """One token that reads a text before it."""
    query, past, scale = q[:, :, -1:], q.shape[2] - 1, q.shape[-1] ** -0.5
    grouped = q.shape[1] != k.shape[1]
    dense = partial(F.scaled_dot_product_attention, query, k, v, scale=scale, enable_gqa=grouped)
    runs = {"dense": dense, "top-k": partial(topk_attention, query, k, v, [keys] * q.shape[1], scale, past)}
    runs["masked"] = partial(masked_eager, query, k, v, keys)
    best = quickest_backend(dense)
    with sdpa_kernel(CANDIDATES[best]):
        compared = _compared(runs, repeats, report)
    read = q.element_size() * q.shape[-1] * (k.shape[1] * k.shape[2] + q.shape[1] * min(keys, k.shape[2]))
    return {"what": "step", "dense_kernel": best, **compared, "bytes_dense": k.nbytes + v.nbytes, "bytes_topk": read}


def masked_eager(q: Tensor, k: Tensor, v: Tensor, keys: int) -> Tensor:
    """Top-k by patching: every head's scores as one table, masked and thresholded. [B, H, n, D], the last n queries."""
    (_, heads, rows, size), length = q.shape, k.shape[2]
    future = torch.ones(rows, length, dtype=torch.bool, device=q.device).triu_(1 + length - rows)
    out = torch.empty_like(q)
    for head in range(heads):
        kv_head = head // (heads // k.shape[1])
        scores = (q[:, head] @ k[:, kv_head].transpose(1, 2) * size**-0.5).masked_fill(future, -math.inf)
        smallest = smallest_kept(scores[:, None], [keys])[:, 0]
        out[:, head] = torch.softmax(scores.masked_fill(scores < smallest, -math.inf), -1) @ v[:, kv_head]
    return out


def _compared(runs: dict, repeats: int, report: Progress) -> dict:
    """Medians in milliseconds, and the ratios of the rounds."""
    dense, topk, masked = clock(runs, repeats, report).values()
    row = {"dense_ms": 1e3 * dense.median, "topk_ms": 1e3 * topk.median, "masked_ms": 1e3 * masked.median}
    return row | ends("times_dense", topk.over(dense)) | {"faster_than_masked": masked.over(topk).median}


def _sentence(rows: list[dict]) -> str:
    full, step = (max((r for r in rows if r["what"] == phase), key=lambda r: r["length"]) for phase in ("pass", "step"))
    return (
        f"At {full['length']:,} tokens a pass that keeps {full['keys']} keys takes {full['times_dense']:.2f} times "
        f"a dense one and is {full['faster_than_masked']:.1f} times faster than the masked eager pass; a later token "
        f"takes {step['times_dense']:.2f} times a dense one. All scores are computed to find the largest, so the pass "
        "cannot be much faster than dense."
    )
