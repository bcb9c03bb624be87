"""What dense attention reads in a text, streamed block by block: nothing of size T x T is kept."""

import numpy as np
import pandas as pd
import torch

from analysis.attention import Block
from analysis.models import attention_modules


class FarReading:
    """Collects, over heads, layers and windows, how far back a text is read and which tokens draw that reading.

    Feed it to `apply(..., watch=reading.window(start))`. `far` means at least `min_distance` tokens back. A window's
    first token takes attention that means nothing (the sink), so it is counted apart and is never "far".
    """

    def __init__(self, tokens: int, min_distance: int):
        self.min_distance = min_distance
        self.received = np.zeros(tokens)  # far attention that each token draws
        self.expected = np.zeros(tokens)  # the same far attention, spread evenly over the far tokens of each query
        self.edges = 2 ** np.arange(0, 32)  # distance bins: [0, 1), [1, 2), [2, 4), [4, 8), ...
        self.mass = np.zeros(len(self.edges))
        self.uniform = np.zeros(len(self.edges))
        self.far = self.far_uniform = self.sink = self.queries = 0.0

    def window(self, start: int):
        """A watch for the window whose first token is token `start` of the text (batch of one)."""

        def watch(block: Block, probabilities: torch.Tensor) -> None:
            read = probabilities[0].mean(0).cpu()  # [n, Tk], mean over heads
            distance = block.distances().cpu()
            visible = block.visible[0, 0].cpu().expand_as(distance)  # causal, and within a sliding window
            inner = visible & (block.columns.cpu() > 0)
            far = inner & (distance >= self.min_distance)
            even = visible.float() / visible.sum(1, keepdim=True)  # chance: every visible token alike
            of_far = (read * far).sum(1)  # [n]
            count = far.sum(1).clamp(min=1)
            stop = start + read.shape[1]
            self.received[start:stop] += (read * far).sum(0).numpy()
            self.expected[start:stop] += ((of_far / count) @ far.float()).numpy()
            bins = torch.bucketize(distance.clamp(min=0), torch.from_numpy(self.edges), right=True)
            for total, weights in ((self.mass, read), (self.uniform, even)):
                chosen = (weights * inner).flatten().double()
                total += torch.bincount(bins.flatten(), chosen, minlength=len(total)).numpy()
            self.sink += float(read[:, 0].sum()) if int(block.columns[0]) == 0 else 0.0
            self.far += float(of_far.sum())
            self.far_uniform += float((even * far).sum())
            self.queries += read.shape[0]

        return watch

    def tokens(self) -> np.ndarray:
        """Per token: far attention received in multiples of chance (NaN where no query is far enough to read it)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.expected > 0, self.received / self.expected, np.nan)

    def distances(self) -> pd.DataFrame:
        """Columns `low high mass uniform`: share of attention by distance in tokens (high exclusive), sink left out."""
        used = np.flatnonzero(self.uniform > 0)
        low = np.concatenate([[0], self.edges])[used]
        return pd.DataFrame(
            {
                "low": low,
                "high": self.edges[used],
                "mass": self.mass[used] / self.queries,
                "uniform": self.uniform[used] / self.queries,
            }
        )

    def shares(self) -> dict[str, float]:
        """Shares of all attention: `far`, `far_uniform` (what even reading would give) and `sink`."""
        return {
            "far": self.far / self.queries,
            "far_uniform": self.far_uniform / self.queries,
            "sink": self.sink / self.queries,
        }


@torch.no_grad()
def attention_inputs(model, windows: list[np.ndarray], progress=None) -> list[torch.Tensor]:
    """The hidden states that enter each attention layer, windows of token ids [T] joined: L tensors [sum of T, d], CPU.

    `progress(fraction)` is called before each window.
    """
    kept: list[list[torch.Tensor]] = [[] for _ in range(model.num_layers)]

    def keep(module, args, kwargs):
        hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        kept[module.layer_idx].append(hidden[0].float().cpu())

    for index, ids in enumerate(windows):
        if progress:
            progress(index / len(windows))  # others may use the model meanwhile, so no hook is on it now
        handles = [m.register_forward_pre_hook(keep, with_kwargs=True) for m in attention_modules(model.lm)]
        try:
            forward(model, ids)
        finally:
            for handle in handles:
                handle.remove()
    return [torch.cat(parts) for parts in kept]


@torch.no_grad()
def forward(model, ids: np.ndarray) -> None:
    """Run one window of tokens [T] through the layers, without the vocabulary's logits and without a KV cache."""
    batch = torch.as_tensor(ids, device=model.device)[None]
    model.lm.base_model(batch, use_cache=False)
