"""What a serving stack lets a rule of eviction choose, rung by rung: none holds more than the rule as measured.

In a paged cache the heads of a layer share pages, so a page is chosen for all of them: those stay that hold most of the
keys that the heads would keep.
"""

from dataclasses import replace

import torch
from torch import Tensor

from analysis.methods.evicting import Evicting, largest, ranks
from analysis.seam.calls import Prompt, part_of
from lab.equal.held import Kept, Read, Scored

HEAD, AS_MEASURED, LAYER = "query head", "group of heads", "layer"
APPEND, PROTECTED = "append-only", "prompt protected"
PAGES = {f"pages of {size}": size for size in (16, 64, 128)}
RUNGS = (HEAD, AS_MEASURED, LAYER, *PAGES, APPEND, PROTECTED)
# Rules whose scores differ between the query heads of a group.
BY_QUERY = ("snapkv", "ada_kv", "pyramid_kv", "h2o", "expected_attention", "triattention")
# What reads a whole prompt once more cannot decide on a part of it when that was read.
AT_ONCE = ("kvzip_plus",)
# Tokens that are decided on at once where nothing leaves later, and the newest of them that a rule has to keep.
CHUNK, NEWEST = 128, 16


def on_rung(name: str, rung: str, read: Read, rule: Evicting, scored: Scored, kept: Kept) -> Kept | None:
    """What stays on a rung, no more keys than `kept`, what the rule keeps as measured; None where it has no such
    rung."""
    if rung == AS_MEASURED:
        return kept
    # of a head of each layer: rules may give layers and heads different shares
    counts = [int(stays.sum(-1).double().mean()) for stays in kept]
    prompts = list(zip(scored.prompts, counts, strict=True))
    if rung == HEAD:
        return [largest(_any_head(rule, prompt), count) for prompt, count in prompts] if name in BY_QUERY else None
    if rung == APPEND:
        return None if name in AT_ONCE else [_appended(rule, prompt, count) for prompt, count in prompts]
    of_layers = list(zip(scored.scores, kept, counts, strict=True))
    if rung == PROTECTED:
        first = torch.arange(len(read.ids)) < len(read.ids) // 8
        return [largest(scores.masked_fill(first, torch.inf), count) for scores, _, count in of_layers]
    if rung == LAYER:
        return [largest(_best(scores), count).expand_as(stays) for scores, stays, count in of_layers]
    return [_paged(stays, _best(scores), PAGES[rung], count) for scores, stays, count in of_layers]


def _best(scores: Tensor) -> Tensor:
    """Of scores [1, G, L] minus the best rank that any head gives a key, [1, 1, L]."""
    return -ranks(scores).amin(1, keepdim=True).float()


def _any_head(rule: Evicting, prompt: Prompt) -> Tensor:
    """Minus the best rank that any query head of a group gives a key, [1, G, L]."""
    heads, groups = prompt.query.shape[1], prompt.key.shape[1]
    states = {side: getattr(prompt, side).repeat_interleave(heads // groups, 1) for side in ("key", "value")}
    apart = replace(prompt, **states)
    return -ranks(rule.key_scores(apart)).unflatten(1, (groups, -1)).amin(2).float()


def _appended(rule: Evicting, prompt: Prompt, count: int) -> Tensor:
    """What stays, bool [1, G, L], where the same share of every chunk does, by what is known when it has been read."""
    length, window = prompt.key.shape[2], vars(rule).get("window")
    if window is not None:
        vars(rule)["window"] = NEWEST
    chunks = []
    for start in range(0, length, CHUNK):
        end = min(start + CHUNK, length)
        scores = rule.key_scores(part_of(prompt, 0, 0, end))[..., start:]
        chunks.append(largest(scores, count * end // length - count * start // length))
    if window is not None:
        vars(rule)["window"] = window
    return torch.cat(chunks, 2)


def _paged(kept: Tensor, shared: Tensor, size: int, count: int) -> Tensor:
    """Whole pages that hold most of `kept` [1, G, L], of equal ones that with the better keys; the last is the newest
    and may be partly filled."""
    length = kept.shape[2]
    pages = torch.arange(length) // size
    votes = torch.zeros(int(pages[-1]) + 1).index_add(0, pages, kept[0].sum(0).float())
    better = torch.full_like(votes, -torch.inf).scatter_reduce(0, pages, shared[0, 0], "amax")
    chosen = largest(votes + better / (length * len(votes)), max(1, count // size))
    return chosen[pages].expand_as(kept)
