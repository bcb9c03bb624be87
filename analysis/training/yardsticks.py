"""What a pretrained model is measured by: bits per byte, and what it gains from context."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from ..errors import BadText
from ..metrics.intervals import BLOCKS, interval
from ..models.arithmetic import quick
from ..seam.vocabulary import next_tokens


def token_losses(model: torch.nn.Module, ids: torch.Tensor, products: torch.dtype | None = None) -> torch.Tensor:
    """ids [B,T+1] -> nats of each predicted token [B,T], the softmax in float32; `products` as in `quick`."""
    with quick(ids.device, products):
        return next_tokens(model, ids[:, :-1]).losses(model, ids[:, 1:])


def bits_per_byte(nats_per_token: float, tokens: int, size: int) -> float:
    """Nats per token x tokens / (ln 2 x bytes): comparable between tokenizers; lower is better."""
    return nats_per_token * tokens / (math.log(2) * size)


@torch.no_grad()
def evaluate(model: torch.nn.Module, tokens: np.ndarray, length: int, limit: int | None = None, rows: int = 4) -> float:
    """Mean nats per token over non-overlapping windows of `length` tokens (the first of each is not predicted).

    `limit` windows, evenly spaced, instead of all of them. A text shorter than a window is one shorter window.
    """
    length = min(length, len(tokens))
    count = len(tokens) // length
    limit = count if limit is None else min(limit, count)
    starts, losses = np.arange(limit) * count // limit * length, []
    for first in range(0, limit, rows):
        ids = tokens[starts[first : first + rows, None] + np.arange(length)].astype(np.int64)
        batch = torch.from_numpy(ids).to(next(model.parameters()).device)
        losses.append(token_losses(model, batch).double().mean(1).cpu())
    return torch.cat(losses).mean().item()


def bits_by_domain(
    model: torch.nn.Module, valid: dict, about: dict, length: int, limit: int | None = None, rows: int = 4
) -> dict[str, float]:
    """Bits per byte of each domain's valid tokens {name: uint16[T]}; `about` is what `mixture.build` returned."""
    bits = {}
    for name, tokens in valid.items():
        size = about["domains"][name]["valid"]
        nats = evaluate(model, tokens, length, limit, rows)
        bits[name] = round(bits_per_byte(nats, size["tokens"], size["bytes"]), 4)
    return bits


@torch.no_grad()
def context_gain(
    model: torch.nn.Module,
    tokens: np.ndarray,
    context: int = 2048,
    short: int = 128,
    first: int = 768,
    windows: int = 64,
    samples: int = 64,
    seed: int = 0,
) -> dict:
    """What the model gains from context: nats per token that a fresh run on the last `short` tokens loses against the
    full context, at positions from `first` on; the same targets on both sides (paired).

    `samples` positions in each of `windows` evenly spaced windows. `low` and `high`: the 95% interval over windows,
    which are blocks of one text; None with fewer than 8 of them. Errors: BadText for a text shorter than a window.
    """
    count = len(tokens) // context
    if count < 1 or not short <= first < context - 1:
        raise BadText(f"The gain of context at {context:,} needs one window of that many tokens, not {len(tokens):,}.")
    rng, device, gains = np.random.default_rng(seed), next(model.parameters()).device, []
    # Evenly spaced over the text, each with positions of its own.
    for window in np.arange(min(windows, count)) * count // min(windows, count):
        ids = torch.from_numpy(tokens[window * context : (window + 1) * context].astype(np.int64)).to(device)
        full = token_losses(model, ids[None])[0]  # [T-1]; entry p is the loss of token p + 1
        chosen = rng.choice(np.arange(first, context - 1), min(samples, context - 1 - first), replace=False)
        positions = torch.from_numpy(np.sort(chosen)).to(device)
        tails = ids[positions[:, None] + torch.arange(1 - short, 2, device=device)]  # [n, short + 1], the target last
        with quick(device):
            last = model(input_ids=tails[:, :-1], use_cache=False, logits_to_keep=1).logits[:, -1]
        short_run = F.cross_entropy(last.float(), tails[:, -1], reduction="none")
        gains.append((short_run - full[positions]).double().cpu().numpy())
    gain = interval([g.mean() for g in gains], fewest=BLOCKS)
    told = {"nats": gain.mean, "low": gain.low, "high": gain.high, "n": sum(map(len, gains)), "windows": gain.units}
    return told | {"context": context, "short": short, "first_position": first}
