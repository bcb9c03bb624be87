"""What reading the largest scores costs here: a pass over a text and one token after it, against dense attention."""

import math
from collections.abc import Callable

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from ...answer import doc, record
from ...errors import BadSetting
from ...kernels.topk import smallest_kept, topk_attention
from ...timing import CANDIDATES, Timing, clock, fastest_dense, processor
from ...timing.inference import quickest
from ..context import Context, check_seed, made_on
from ..text.held_out import check_range
from .benched import Benchmark

LENGTHS = (1024, 4096)
TARGETS = {"length": 4096, "times_dense": 2.0, "faster_than_masked": 4.0}  # of a pass with 64 keys


@record
class TopkCost(Benchmark):
    """Top-k attention against torch's fastest dense kernel and the masked eager pass: a whole text (pass), and one
    token after it (step). Times are medians of the rounds, ratios of the same rounds."""

    targets: dict = doc("largest ratio to dense and smallest gain over the masked pass that are aimed at, and where")
    met: dict | None = doc("whether each is met; null where that length was not timed")
    table: pd.DataFrame = doc("the rows", name="rows")


@torch.no_grad()
def topk_cost(
    lengths: list[int] | None = None,
    keys: int = 64,
    heads: int = 8,
    head_dim: int = 64,
    kv_heads: int | None = None,
    repeats: int = 5,
    seed: int = 0,
    *,
    context: Context,
) -> TopkCost:
    """Time top-k attention of `keys` keys per query against torch's fastest dense kernel and the masked eager pass.

    The masked pass is what patching a model does: all scores of a head, a threshold, a mask, softmax, all values. All
    in turns, in `repeats` rounds, float32, on unit-normal states.
    """
    check_seed(seed)
    lengths, kv_heads = list(lengths or LENGTHS), kv_heads or heads
    for length in lengths:
        check_range("A text", length, 16, 65_536)
    check_range("The number of heads", heads, 1, 256)
    check_range("The number of key heads", kv_heads, 1, heads)
    check_range("The size of a head", head_dim, 1, 512)
    check_range("The number of keys", keys, 1, 1 << 20)
    check_range("The number of rounds", repeats, 1, 1000)
    if heads % kv_heads:
        raise BadSetting(f"{heads} heads cannot share {kv_heads} key heads evenly: give a divisor.")
    device, draw = torch.device(context.torch_device()), torch.Generator().manual_seed(seed)
    rows = []
    for index, length in enumerate(lengths):
        shapes = (heads, length), (kv_heads, length), (kv_heads, length)
        states = [torch.randn(1, *shape, head_dim, generator=draw).to(device) for shape in shapes]
        for part, measure in enumerate((_pass, _step)):
            begin, share = (2 * index + part) / (2 * len(lengths)), 1 / (2 * len(lengths))
            report = context.within(begin, share, f"{length:,} tokens").progress
            rows.append({"length": length, "keys": keys, **measure(*states, keys, repeats, report)})
    goal_row = next((row for row in rows if row["what"] == "pass" and row["length"] == TARGETS["length"]), None)
    met = goal_row and {
        "times_dense": goal_row["times_dense"] <= TARGETS["times_dense"],
        "faster_than_masked": goal_row["faster_than_masked"] >= TARGETS["faster_than_masked"],
    }
    about = {"verb": "topk-cost", "model": None, "revision": None, "text": None, "seed": seed, "dtype": "float32"}
    about |= {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "repeats": repeats, "device": str(device)}
    about |= {"processor": processor(str(device)), "kernel": "top-k of all scores; gathered top-k"}
    return TopkCost(
        rows=rows,
        sentence=_sentence(rows),
        targets=TARGETS,
        met=met,
        table=pd.DataFrame(rows),
        protocol=made_on(**about),
    )


def _pass(q: Tensor, k: Tensor, v: Tensor, keys: int, repeats: int, report: Callable) -> dict:
    """A whole text."""
    name, dense, _ = fastest_dense(q, k, v)
    counts = [keys] * q.shape[1]
    runs = {
        "dense": lambda: dense(q, k, v),
        "top-k": lambda: topk_attention(q, k, v, counts),
        "masked": lambda: masked_eager(q, k, v, keys),
    }
    return {"what": "pass", "dense_kernel": name, **_compared(clock(runs, repeats, report))}


def _step(q: Tensor, k: Tensor, v: Tensor, keys: int, repeats: int, report: Callable) -> dict:
    """One token that reads a text before it."""
    query, counts, past = q[:, :, -1:], [keys] * q.shape[1], q.shape[2] - 1
    grouped, scale = q.shape[1] != k.shape[1], q.shape[-1] ** -0.5

    def dense() -> Tensor:
        return F.scaled_dot_product_attention(query, k, v, scale=scale, enable_gqa=grouped)

    best = quickest(dense)
    runs = {
        "dense": dense,
        "top-k": lambda: topk_attention(query, k, v, counts, scale, past),
        "masked": lambda: masked_eager(query, k, v, keys),
    }
    with sdpa_kernel(CANDIDATES[best]):
        compared = _compared(clock(runs, repeats, report))
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


def _compared(times: dict[str, Timing]) -> dict:
    """Medians in milliseconds, and the ratios of the rounds."""
    dense, topk, masked = (times[name] for name in ("dense", "top-k", "masked"))
    ratio = topk.over(dense)
    row = {"dense_ms": 1e3 * dense.median, "topk_ms": 1e3 * topk.median, "masked_ms": 1e3 * masked.median}
    row |= {"times_dense": ratio.median, "times_dense_low": ratio.low, "times_dense_high": ratio.high}
    return row | {"faster_than_masked": masked.over(topk).median}


def _sentence(rows: list[dict]) -> str:
    full, step = (max((r for r in rows if r["what"] == phase), key=lambda r: r["length"]) for phase in ("pass", "step"))
    return (
        f"At {full['length']:,} tokens a pass that keeps {full['keys']} keys takes {full['times_dense']:.2f} times "
        f"a dense one and is {full['faster_than_masked']:.1f} times faster than the masked eager pass; a later token "
        f"takes {step['times_dense']:.2f} times a dense one. All scores are computed to find the largest, so the pass "
        "cannot be much faster than dense."
    )
