"""Causal and windowed flash attention over packed texts of unequal lengths on CUDA, with its logsumexp.

Two providers of one function: torch's `varlen_attn` and the flash-attn package. Neither runs on a CPU; the packed
algorithm itself is tested there through a stand-in.
"""

import importlib
import importlib.util
import inspect

import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.errors import BadSetting

MOST_DIMENSIONS = 256  # per head
HALVES = (torch.bfloat16, torch.float16)


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


def attention(
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

    known = inspect.signature(varlen.varlen_attn).parameters
    more = {"return_aux": varlen.AuxRequest(lse=True)}
    if "window_size" in known:
        more["window_size"] = window
    elif window == (-1, 0):
        more["is_causal"] = True
    else:
        raise BadSetting("This torch has no windowed varlen_attn: install a newer one, or use the backend reference.")
    if "scale" in known:
        more["scale"] = scale
    else:
        q = q * (scale * q.shape[-1] ** 0.5)
    if k.shape[1] != q.shape[1]:
        if "enable_gqa" in known:
            more["enable_gqa"] = True
        else:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    return varlen.varlen_attn(q, k, v, starts, starts, longest, longest, **more)


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
