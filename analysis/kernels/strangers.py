"""The kernel of the window on a GPU, in Triton: it goes on from what the groups gave. `gpu.strangers` calls it, where
Triton is installed."""

# Arguments of a kernel are pointers, numbers and constants of its compilation.
# mypy: allow-untyped-defs

import triton
import triton.language as tl
from triton import cdiv, next_power_of_2

__all__ = ["cdiv", "next_power_of_2", "strangers"]


@triton.jit
def strangers(
    q,
    k,
    v,
    sets,
    slots,
    far,
    far_lse,
    out,
    lse,
    q_text,
    q_head,
    q_row,
    k_text,
    k_head,
    k_row,
    v_text,
    v_head,
    v_row,
    out_text,
    out_head,
    out_row,
    far_row,
    far_head,
    lse_head,
    length,
    heads,
    repeat,
    window,
    scale,
    SIZE: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """One tile of ROWS queries of one head of one text: an online softmax over the window's tiles of KEYS keys."""
    first = tl.program_id(0) * ROWS
    # 64 bits: a text of a million tokens has more numbers than 32 bits count
    text = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    kv_head = head // repeat
    rows = (first + tl.arange(0, ROWS)).to(tl.int64)
    dims = tl.arange(0, WIDE)
    inside = rows < length
    real = dims[None, :] < SIZE
    at = q + text * q_text + head * q_head + rows[:, None] * q_row + dims[None, :]
    queries = tl.load(at, mask=inside[:, None] & real, other=0.0)
    own = tl.load(sets + text * length + rows, mask=inside, other=0)
    slot = tl.load(slots + text * length + rows, mask=inside, other=-1)
    grouped = slot >= 0
    # the softmax begins with what the group gave
    top = tl.load(far_lse + head * lse_head + slot, mask=grouped, other=float("-inf"))
    total = tl.where(grouped, 1.0, 0.0)
    at = far + slot[:, None] * far_row + head * far_head + dims[None, :]
    sums = tl.load(at, mask=grouped[:, None] & real, other=0.0).to(tl.float32)
    begin = tl.maximum(first - window + 1, 0) // KEYS * KEYS
    end = tl.minimum(first + ROWS, length)
    for start in range(begin, end, KEYS):
        columns = (start + tl.arange(0, KEYS)).to(tl.int64)
        there = columns < length
        wanted = there[:, None] & real
        keys = tl.load(k + text * k_text + kv_head * k_head + columns[:, None] * k_row + dims[None, :], wanted, 0.0)
        values = tl.load(v + text * v_text + kv_head * v_head + columns[:, None] * v_row + dims[None, :], wanted, 0.0)
        others = tl.load(sets + text * length + columns, mask=there, other=0)
        back = rows[:, None] - columns[None, :]
        read = (back >= 0) & (back < window) & ((own[:, None] & others[None, :]) == 0) & there[None, :]
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(read, scores, float("-inf"))
        highest = tl.maximum(top, tl.max(scores, 1))
        # a row that has read nothing yet
        base = tl.where(highest == float("-inf"), 0.0, highest)
        weights = tl.exp(scores - base[:, None])
        before = tl.exp(top - base)
        total = total * before + tl.sum(weights, 1)
        sums = sums * before[:, None] + tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        top = highest
    at = out + text * out_text + head * out_head + rows[:, None] * out_row + dims[None, :]
    tl.store(at, (sums / total[:, None]).to(out.dtype.element_ty), mask=inside[:, None] & real)
    tl.store(lse + (text * heads + head) * length + rows, top + tl.log(total), mask=inside)
