"""A learned indexer on trial like a calibration of eviction: the weights that leave by the names of its class."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save
from torch import Tensor

from ...files import write_text
from ...fitted import Fitted
from ...indexers import INDEXERS
from ...indexers.base import Indexer, Inputs
from ...indexers.fit import reachable
from ...indexers.reading import read_layers
from ...indexers.sizes import Sizes
from ...indexers.state import PLACE, unpacked
from ...methods.base import Method
from ...methods.indexer import LearnedIndexer
from ...methods.windows import StreamingLLM
from ...models import Model
from ..routing.indexers import token_scores
from .trial import SINKS, Kept, Trial

# Last queries of a prompt whose choices two fits are compared by.
COMPARED = 32
# Kind -> the class of transformers that reads its tensors, and its sizes by the names of that class's config.
CLASSES: dict[str, tuple[str, Callable[[Sizes, Model, int], dict]]] = {
    "dsa": (
        "DeepseekV32Indexer",
        lambda sizes, lm, keys: {
            "index_n_heads": sizes.index_heads,
            "index_head_dim": sizes.index_dim,
            "index_topk": keys,
            # Queries are made of what enters the layer: there is no residual of their own.
            "q_lora_rank": lm.width,
        },
    ),
    "m3": (
        "MiniMaxM3VLIndexer",
        lambda sizes, lm, keys: {
            "index_n_heads": lm.num_kv_heads,
            "index_head_dim": sizes.index_dim,
            "index_block_size": sizes.unit,
            "index_topk_blocks": keys // sizes.unit,
            "index_local_blocks": 1,
        },
    ),
    "qsa": (
        "Qwen4ExpTextQSAIndexer",
        lambda sizes, lm, keys: {
            "indexer_n_heads": sizes.index_heads,
            "indexer_kv_heads": 1,
            "indexer_head_dim": sizes.index_dim,
            "indexer_compress_ratio": sizes.unit,
            "indexer_budget": keys,
        },
    ),
    "seer": ("AttnGate", lambda sizes, lm, keys: {"gate_hidden_size": sizes.index_dim, "block_size": sizes.unit}),
    "low_rank": ("", lambda sizes, lm, keys: {"rank": sizes.index_dim}),
}


@dataclass(frozen=True)
class Indexed:
    """Used as a `Kind` of eviction: of `keys` keys that a query reads the newest are half, and the indexer `kind`
    chooses the rest, the first four aside."""

    kind: str
    keys: int

    null: ClassVar[str] = "the first four keys and the newest, as many: equal reads"
    suffix: ClassVar[str] = ".safetensors"

    @property
    def window(self) -> int:
        """Newest keys that are read, the own one included."""
        return max(1, self.keys // 2)

    @property
    def chosen(self) -> int:
        """Keys that the indexer chooses, in whole blocks."""
        unit = Sizes().for_kind(self.kind, 1).unit
        return max(1, (self.keys - self.window - SINKS) // unit) * unit

    def fit(self, lm: Model, windows: Tensor, ratio: float) -> Fitted:
        """Its tensors for all layers, of calibration windows [n, T]."""
        if len(windows) < 2:
            # One learns and one selects.
            windows = windows[:, : windows.shape[1] // 2 * 2].reshape(2, -1)
        fitted = LearnedIndexer(window=self.window).fit(lm, windows, [self.kind]).fitted
        assert fitted is not None
        fitted.about["keys"] = self.chosen
        return fitted

    def method(self, lm: Model, fitted: Fitted, ratio: float, share: str) -> LearnedIndexer:
        """The method that reads by them."""
        about: dict[str, Any] = {"keys": self.chosen, "window": self.window, "n_sink": SINKS}
        return LearnedIndexer.build(fitted, kind=self.kind, **about)

    def nulls(self, lm: Model, ratio: float) -> dict[str, list[Method]]:
        """The newest keys instead of those that an indexer would choose."""
        return {"null": [StreamingLLM(window=self.window + self.chosen, n_sink=SINKS)]}

    def choices(self, trial: Trial, fitted: Fitted) -> list[Kept]:
        """Which keys the last queries of every prompt are offered."""
        indexers, _ = unpacked(fitted, self.kind, trial.lm.num_layers)
        prompts: list[Kept] = []
        for ids in trial.stretches[:, : trial.prefix]:
            of_prompt: Kept = {}

            def take(layer: int, inputs: dict[str, Inputs], kept: Kept = of_prompt, tokens: int = len(ids)) -> None:
                kept[layer] = self._offered(indexers[layer], inputs, tokens)

            read_layers(trial.lm, ids, {"", indexers[0].reads}, take, lambda layer, rows, attention: None)
            prompts.append(of_prompt)
        return prompts

    def _offered(self, indexer: Indexer, inputs: dict[str, Inputs], tokens: int) -> Tensor:
        """bool [S, n, T]."""
        rows = torch.arange(max(self.window + SINKS, tokens - COMPARED), tokens)
        allowed = reachable(rows, tokens, Sizes(min_distance=self.window, sinks=SINKS))
        scores = token_scores(indexer, inputs, rows, tokens).masked_fill(~allowed, -torch.inf)
        best = scores.sort(stable=True, dim=-1, descending=True).indices[..., : self.chosen]
        return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & allowed

    def chance(self, lm: Model, fitted: Fitted, ratio: float) -> float:
        """The agreement with keys drawn at random."""
        return min(1.0, self.chosen / max(1.0, self.keys / (1 - ratio) - self.window - SINKS))

    def told(self, fitted: Fitted, ratio: float) -> str:
        """How a sentence begins about what it loses."""
        return f"With {INDEXERS[self.kind].title} and {self.window + self.chosen + SINKS} keys a query"

    def write(self, path: Path, lm: Model, fitted: Fitted) -> bytes:
        """The tensors of all layers by the names of their class in a model, `model.layers.N.self_attn.indexer.NAME`,
        and beside them config.json with its sizes by the names of the class's config, float32."""
        indexers, sizes = unpacked(fitted, self.kind, lm.num_layers)
        named, config = CLASSES[self.kind]
        tensors = {
            f"model.{PLACE.format(number)}{name}": tensor.detach().cpu().contiguous()
            for number, indexer in zip(lm.layer_numbers, indexers, strict=True)
            for name, tensor in indexer.state.items()
        }
        about: dict[str, Any] = {"kind": self.kind, "class": named, "hidden_size": lm.width, "n_modules": lm.num_layers}
        about |= {
            "rms_norm_eps": indexers[0].eps,
            "rope_theta": indexers[0].theta,
            "qk_rope_head_dim": indexers[0].rotated,
        }
        text = json.dumps(about | config(sizes, lm, fitted.about["keys"]), indent=1)
        write_text(path.with_name("config.json"), f"{text}\n")
        return save(tensors, metadata={"format": "pt"})
