"""Grouped attention on CUDA, through a kernel for packed texts: two calls, one over groups and one over windows. Masked
and plain causal attention are its fallbacks.

The group call packs the members of every group of every text, sorted; a token in several groups comes several times.
Both calls keep to their pairs by extra head dimensions instead of masks, as in `cpu`: +PUSH in queries and -PUSH in
keys, in the group call for lower groups, in the window call for all groups, so that the window reads strangers only.

Two providers of the packed kernel: torch's `varlen_attn` and the flash-attn package. Neither runs on a CPU; the packed
algorithm itself is tested there through a stand-in.
"""

import importlib
import importlib.util
import inspect

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import BadSetting
from .cpu import PUSH
from .merge import merge
from .reference import kept

ROWS = 1024  # queries at once under a mask
MOST_DIMENSIONS = 256  # per head
HALVES = (torch.bfloat16, torch.float16)


def dense(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K] -> (out [B, H, T, D], lse [B, H, T])."""
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    length, repeat = q.shape[2], q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(repeat, 1) for x in (k, v))
    if causal:
        out, lse = run(q, k, v, None, True, 0.0, True, scale=scale)[:2]
        return out, lse[..., :length].float()
    outputs, sums = [], []
    for start in range(0, length, ROWS):
        rows = torch.arange(start, min(start + ROWS, length), device=q.device)
        stop = int(rows[-1]) + 1
        read = kept(members, rows, stop, window)[:, None]  # [B, 1, n, stop]
        bias = q.new_zeros(read.shape).masked_fill_(~read, -torch.inf)
        bias = F.pad(bias, (0, -stop % 16))[..., :stop].expand(-1, q.shape[1], -1, -1)  # rows must begin aligned
        out, lse = run(q[:, :, rows], k[:, :, :stop], v[:, :, :stop], bias, True, 0.0, False, scale=scale)[:2]
        outputs.append(out)
        sums.append(lse[..., : len(rows)].float())
    return torch.cat(outputs, 2), torch.cat(sums, 2)


def grouped(
    q: Tensor, k: Tensor, v: Tensor, members: Tensor, window: int, scale: float, backend: str
) -> tuple[Tensor, Tensor]:
    """q [B, H, T, D], k and v [B, G, T, D], members bool [B, T, K], any number of groups -> (out, lse [B, H, T])."""
    batch, heads, length, size = q.shape
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [B T, heads, D]
    flat_members = members.flatten(0, 1).to(q.dtype)  # [B T, K]
    text, group, place = members.transpose(1, 2).nonzero(as_tuple=True)  # sorted by text, group, place
    tokens = text * length + place
    several = bool((members.sum(-1) > 1).any())
    lower = (
        flat_members[tokens] * (torch.arange(members.shape[-1], device=q.device) < group[:, None]) if several else None
    )
    sizes = members.sum(1).flatten()
    far, far_lse = _call(backend, q[tokens], k[tokens], v[tokens], lower, sizes, scale)
    texts = torch.full((batch,), length, device=q.device)
    out, lse = _call(backend, q, k, v, flat_members, texts, scale, window)
    out = out.float()
    turn = (members.cumsum(-1)[text, place, group] - 1) if several else torch.zeros_like(tokens)
    for index in range(int(turn.max()) + 1 if len(turn) else 0):
        chosen = (turn == index).nonzero()[:, 0]
        rows = tokens[chosen]
        out[rows], total = merge(out[rows], lse[:, rows].T, far[chosen], far_lse[:, chosen].T)
        lse[:, rows] = total.T
    out = out.to(q.dtype).unflatten(0, (batch, length)).transpose(1, 2)
    return out, lse.unflatten(1, (batch, length)).transpose(0, 1)


def _call(backend, q, k, v, extra, sizes, scale, window=None) -> tuple[Tensor, Tensor]:
    """One packed call; pairs whose `extra` [N, E] overlap weigh nothing. lse -inf where nothing is left."""
    dimensions = q.shape[-1]
    if extra is not None:
        push = extra * (PUSH / scale**0.5)
        q, k, v = (_widened(x, part) for x, part in ((q, push), (k, -push), (v, push * 0)))
    starts = F.pad(sizes.cumsum(0), (1, 0)).int()
    out, lse = packed(backend, q, k, v, starts, int(sizes.max()), scale, window)
    return out[..., :dimensions], lse.float().masked_fill(lse < -(PUSH**2) / 2, float("-inf"))


def _widened(x: Tensor, extra: Tensor) -> Tensor:
    """x [N, heads, D] with extra [N, E] behind every head's dimensions, padded to a multiple of 8."""
    wide = torch.cat([x, extra[:, None].expand(-1, x.shape[1], -1)], -1)
    return F.pad(wide, (0, -wide.shape[-1] % 8))


def why_not(backend: str, head_dim: int, dtype: torch.dtype, device: torch.device) -> str | None:
    """One sentence why a backend cannot run here, or None."""
    if backend == "flash_attn" and importlib.util.find_spec("flash_attn") is None:
        return "The backend flash_attn needs the package flash-attn, which is not installed: use torch or auto."
    if backend == "flash_attn" and device.type != "cuda":
        return f"The backend flash_attn runs on CUDA only, and the tensors are on {device.type}: use torch or auto."
    if backend == "flash_attn" and dtype not in HALVES:
        return f"The backend flash_attn takes bfloat16 and float16, not {str(dtype)[6:]}: use torch or reference."
    if dtype not in (*HALVES, torch.float32):
        return f"The backend {backend} takes float32, bfloat16 and float16, not {str(dtype)[6:]}: use reference."
    if dtype in HALVES and (head_dim % 8 or head_dim > MOST_DIMENSIONS):
        return (
            f"The backend {backend} takes head sizes that are multiples of 8 up to {MOST_DIMENSIONS}, and this one is "
            f"{head_dim}: use reference."
        )
    return None


def packed(
    backend: str, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, longest: int, scale: float, window: int | None = None
) -> tuple[Tensor, Tensor]:
    """Causal attention inside each packed text, over the last `window` keys when given.

    q [N, H, D], k and v [N, G, D]; starts int32 [texts + 1], the borders of the texts -> (out [N, H, D], lse [H, N]).
    """
    run = _flash_attn if backend == "flash_attn" else _torch
    tokens, heads = q.shape[:2]
    if tokens == heads:  # a logsumexp of this shape would not say which is which: one more text of one token
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, 1)) for x in (q, k, v))
        starts = F.pad(starts, (0, 1), value=tokens + 1)
    out, lse = run(q, k, v, starts, longest, scale, (-1 if window is None else window - 1, 0))
    return out[:tokens], _heads_first(lse, q)[:, :tokens]


def _torch(q, k, v, starts, longest, scale, window):
    from torch.nn.attention import varlen

    parameters = inspect.signature(varlen.varlen_attn).parameters
    options = {"return_aux": varlen.AuxRequest(lse=True)}
    if "window_size" in parameters:
        options["window_size"] = window
    elif window == (-1, 0):
        options["is_causal"] = True
    else:
        raise BadSetting("This torch has no windowed varlen_attn: install a newer one, or use the backend reference.")
    if "scale" in parameters:
        options["scale"] = scale
    else:
        q = q * (scale * q.shape[-1] ** 0.5)
    if k.shape[1] != q.shape[1]:
        if "enable_gqa" in parameters:
            options["enable_gqa"] = True
        else:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return varlen.varlen_attn(q, k, v, starts, starts, longest, longest, **options)


def _flash_attn(q, k, v, starts, longest, scale, window):
    run = importlib.import_module("flash_attn").flash_attn_varlen_func
    out, lse, _ = run(
        *(q, k, v, starts, starts, longest, longest),
        softmax_scale=scale,
        causal=True,
        window_size=window,
        return_attn_probs=True,
    )
    return out, lse


def _heads_first(lse: Tensor, q: Tensor) -> Tensor:
    """lse as [H, N]: the documentation and the code of torch 2.13 disagree about its shape."""
    tokens, heads = q.shape[:2]
    if lse.shape == (heads, tokens):
        return lse
    assert lse.shape == (tokens, heads), f"logsumexp of shape {tuple(lse.shape)} for {tokens} tokens of {heads} heads"
    return lse.T
