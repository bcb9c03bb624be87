"""A calibration of eviction on trial: what it keeps of held-out prompts, what follows them loses, and its file."""

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from ...errors import BadModel
from ...files import write_text
from ...fitted import Fitted
from ...methods import METHODS
from ...methods.budgets import AdaKV
from ...methods.evicting import Evicting
from ...models import Model
from ...seam.attention import apply
from ...statistics.inputs import forward
from ..text.calibration import document_windows, longest_window
from .following import NOTHING, follow

# Of a calibration window and of all of them together.
LENGTH, TOKENS = 1024, 8192
# First tokens that the null keeps beside the newest.
SINKS = 4
Kept = dict[int, Tensor]


@dataclass
class Newest(Evicting):
    """The null at equal bytes: the first four keys and the newest ones, as many as any method that evicts."""

    title = "Sinks and the newest"

    def key_scores(self, prompt: Any) -> Tensor:
        """The place of a key."""
        scores = torch.arange(prompt.key.shape[2], device=prompt.key.device, dtype=torch.float32)
        scores[:SINKS] = torch.inf
        return scores.expand(1, prompt.key.shape[1], -1).clone()


class Kind:
    """How a method is calibrated and used, and the file that its calibration leaves in."""

    name: ClassVar[str]
    # How the file ends.
    suffix: ClassVar[str]
    # Its first null, in words.
    null: ClassVar[str] = "the first four keys and the newest, as many of every head: equal bytes"

    def fit(self, lm: Model, windows: Tensor, ratio: float) -> Any:
        """What is fitted on calibration windows [n, T]."""
        return vars(METHODS[self.name]().fit(lm, windows))["fitted"]

    def method(self, lm: Model, fitted: Any, ratio: float, share: str) -> Evicting:
        """The method that uses it."""
        return METHODS[self.name].build(fitted, ratio=ratio)  # type: ignore[return-value]

    def write(self, path: Path, lm: Model, fitted: Any) -> bytes:
        """What its file holds; what belongs beside it is written there."""
        raise NotImplementedError

    def nulls(self, lm: Model, ratio: float) -> dict[str, list[Any]]:
        """What it has to beat, by name; of several methods the mean."""
        return {"null": [Newest(ratio=ratio)]}

    def choices(self, trial: "Trial", fitted: Any) -> list[Kept]:
        """What `agreement` compares of two calibrations: which keys of every prompt stay."""
        prompts = torch.as_tensor(trial.stretches[:, : trial.prefix])
        return [kept_of(trial.lm, trial.method(fitted), ids) for ids in prompts]

    def chance(self, lm: Model, fitted: Any, ratio: float) -> float:
        """The agreement with what is drawn at random."""
        return 1 - ratio

    def told(self, fitted: Any, ratio: float) -> str:
        """How a sentence begins about what it loses."""
        return f"Without {ratio:.0%} of the keys"


class OfTriAttention(Kind):
    """The statistics of its queries."""

    name, suffix = "triattention", ".pt"

    def method(self, lm: Model, fitted: Fitted, ratio: float, share: str) -> Evicting:
        """The method that uses them, heads sharing their budgets as `share` says."""
        return METHODS[self.name].build(fitted, ratio=ratio, share=share)  # type: ignore[return-value]

    def write(self, path: Path, lm: Model, fitted: Fitted) -> bytes:
        """TriAttention's `.pt`: a dictionary with `metadata` (sampled_heads head_dim num_attention_heads num_kv_heads
        rope_style) and `stats`, `layer00_head00` -> q_mean_real q_mean_imag q_abs_mean, float32 [D/2], by the model's
        own numbers of layers. Errors: BadModel for pairs that are neither halves nor neighbours."""
        numbers = lm.layer_numbers
        # how the sizes that are turned are paired
        styles = set()
        for real, imaginary, rates in zip(fitted["real"], fitted["imaginary"], fitted["rates"], strict=True):
            turned = int((rates != 0).sum())
            places = torch.arange(turned, device=real.device, dtype=real.dtype)
            pairs = {"half": (places, places + turned), "interleaved": (2 * places, 2 * places + 1)}
            for style, (first, second) in pairs.items():
                if torch.equal(real[:turned], first) and torch.equal(imaginary[:turned], second):
                    styles.add(style)
        if len(styles) != 1:
            raise BadModel("This model pairs the sizes of its heads in a way that TriAttention's file has no word for.")
        metadata = {
            "sampled_heads": [[numbers[layer], head] for layer in range(lm.num_layers) for head in range(lm.num_heads)],
            "head_dim": 2 * fitted["size"].shape[2],
            "num_attention_heads": lm.num_heads,
            "num_kv_heads": lm.num_kv_heads,
            "rope_style": styles.pop(),
            "rotary_dim": 2 * int((fitted["rates"][0] != 0).sum()),
        }
        parts = {"q_mean_real": "mean_real", "q_mean_imag": "mean_imaginary", "q_abs_mean": "size"}
        stats = {
            f"layer{numbers[layer]:02d}_head{head:02d}": {
                name: fitted[part][layer, head].cpu().clone() for name, part in parts.items()
            }
            for layer in range(lm.num_layers)
            for head in range(lm.num_heads)
        }
        file = io.BytesIO()
        torch.save({"metadata": metadata, "stats": stats}, file)
        return file.getvalue()


class OfKVzap(Kind):
    """Its lines."""

    name, suffix = "kvzap", ".safetensors"

    def write(self, path: Path, lm: Model, fitted: Fitted) -> bytes:
        """KVzap's linear maps with the names of its published models, and their config.json beside them."""
        tensors: dict[str, Tensor] = {}
        for layer in range(lm.num_layers):
            tensors |= {f"layers.{layer}.{name}": fitted[name][layer].cpu().contiguous() for name in ("weight", "bias")}
        heads, width = fitted["weight"].shape[1:]
        config = {"model_type": "kvzap", "input_dim": width, "output_dim": heads, "hidden_dim": None}
        write_text(path.with_name("config.json"), json.dumps(config | {"n_modules": lm.num_layers}) + "\n")
        return save(tensors, metadata={"format": "pt"})


class OfAdaKV(Kind):
    """The shares of its heads."""

    name, suffix = "ada_kv", ".npy"

    def fit(self, lm: Model, windows: Tensor, ratio: float) -> np.ndarray:
        """What it lets every head keep of calibration windows, on average, float64 [L, G]."""
        kept = [kept_of(lm, AdaKV(ratio=ratio), ids) for ids in windows]
        shares = [[of_text[layer][0].double().mean(-1) for layer in sorted(of_text)] for of_text in kept]
        return torch.stack([torch.stack(of_text) for of_text in shares]).mean(0).cpu().numpy()

    def method(self, lm: Model, fitted: np.ndarray, ratio: float, share: str) -> Evicting:
        """The method with budgets of query heads, of which it takes the largest of a group."""
        budgets = [*np.repeat(fitted, lm.num_heads // lm.num_kv_heads, axis=1).ravel().tolist(), 0]
        return AdaKV.build(lambda name: budgets, ratio=ratio, shares="calibrated")

    def write(self, path: Path, lm: Model, fitted: np.ndarray) -> bytes:
        """float64 [L, G]: the share of a prompt's keys that every key-value head keeps."""
        file = io.BytesIO()
        np.save(file, fitted)
        return file.getvalue()


KINDS: dict[str, Kind] = {kind.name: kind for kind in (OfTriAttention(), OfKVzap(), OfAdaKV())}


def calibration_windows(lm: Model, named: list[tuple[str, str]]) -> Tensor:
    """Calibration windows [n, T], two at least, so that there are halves of them."""
    longest = min(LENGTH, longest_window(lm, named))
    for size in (longest, longest // 2 - 1, longest // 4):
        windows = document_windows(lm, named, size, TOKENS)[0]
        if len(windows) > 1:
            break
    return torch.as_tensor(windows)


@dataclass
class Trial:
    """Held-out stretches [n, T] of a prompt of `prefix` tokens and what follows."""

    lm: Model
    kind: Any
    ratio: float
    share: str
    stretches: np.ndarray
    prefix: int

    def method(self, fitted: Any) -> Any:
        """The method with what was fitted."""
        return self.kind.method(self.lm, fitted, self.ratio, self.share)

    def losses(self, *methods: Any) -> np.ndarray:
        """Mean loss of each stretch behind its prompt, nats per token [n], mean over methods."""
        texts = [torch.as_tensor(ids) for ids in self.stretches]
        read = [[follow(self.lm, method, ids, self.prefix, NOTHING).losses for ids in texts] for method in methods]
        return np.array(read).mean((0, 2))

    def kept(self, fitted: Any) -> list[Kept]:
        """What a calibration chooses."""
        return self.kind.choices(self, fitted)


def kept_of(lm: Model, method: Evicting, ids: Tensor) -> Kept:
    """layer -> bool [1, G, T]: which keys of a prompt [T] stay."""
    with apply(lm, method, kernels=True):
        forward(lm, ids)
    return dict(method.kept_)


def agreement(one: list[Kept], other: list[Kept]) -> float:
    """Share of the keys that one calibration keeps which the other keeps too, of all prompts, layers and heads."""
    both = sum(int((a[layer] & b[layer]).sum()) for a, b in zip(one, other, strict=True) for layer in a)
    return both / sum(int(stays.sum()) for kept in one for stays in kept.values())
