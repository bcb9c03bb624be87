"""The hooks through which a method changes what a model reads, in the order in which the seam calls them."""

import warnings
from typing import Any, ClassVar

from torch import Tensor

from .cache import GrowingCache
from .calls import Attended, Block, Call, CosSin, Prompt
from .rounded import Rounded

RENAMED = {  # former name -> hook; a class that still uses the former one works, with a warning
    "observe": "token_features",
    "file": "encode_tokens",
    "sharpen": "scale_queries",
    "keep": "mask",
    "weigh": "reweight",
    "leave": "finish_output",
}


class Hooks:
    """Reads everything, changes nothing. Shapes: B texts, H query heads, G key-value heads, T tokens, D dimensions."""

    # Reads every visible key with unchanged scores: the fastest dense kernel may run.
    dense: ClassVar[bool] = False
    # Whether `attend` puts a call's learned sinks into its sums.
    takes_sinks: ClassVar[bool] = False
    # Blocks of scores, of `pool.AT_ONCE` bytes each, that a layer holds at its peak on an accelerator: where keys are
    # masked, and where a kernel runs that makes scores all the same (study `rehearsal`).
    masked_scores: ClassVar[float] = 3.5
    kernel_scores: ClassVar[float] = 0.0
    # Of scores made at once on a processor; None: as is quickest.
    block_bytes: ClassVar[int | None] = None
    # Layers before it are not computed: their output is known from an earlier pass.
    first_layer: ClassVar[int] = 0
    renamed: ClassVar[dict[str, str]] = RENAMED

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for former, hook in cls.renamed.items():
            if former in vars(cls):
                warnings.warn(
                    f"{cls.__name__}.{former} is called {hook} now: rename it, the former name goes with the next "
                    "version.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                setattr(cls, hook, vars(cls)[former])
            elif hook in vars(cls):
                # for `super().keep(block)` in a class that uses former names
                setattr(cls, former, vars(cls)[hook])

    def check(self, lm: Any) -> None:
        """Refuse a transformers model this method cannot run on. Called by `apply` before anything is changed."""

    def prefill(self, prompt: Prompt) -> None:
        """See the first call of a layer before anything attends: for methods that decide once about a whole prompt."""

    def token_features(self, layer: int, hidden: Tensor, not_padding: Tensor | None) -> Tensor | None:
        """What to remember of the tokens entering a layer: hidden [B, T, d] -> [B, T, ...] or None.

        `not_padding` bool [B, T]; None at a decode step, where earlier tokens are in the KV cache.
        """
        return None

    def encode_tokens(
        self, layer: int, query: Tensor, key: Tensor, past: int, module: Any, tables: CosSin
    ) -> Tensor | None:
        """What to remember of the same tokens, from their query [B, H, T, D] and key [B, G, T, D]: [B, T, ...] or None.

        A method has this or `token_features`. `past` tokens lie before them; `module` is the attention layer, and
        `tables` (cos, sin) rotated both, or None.
        """
        return None

    def scale_queries(self, layer: int, query: Tensor, of_tokens: Tensor | None) -> Tensor:
        """The queries [B, H, n, D] as they meet the keys, before any scaling and soft cap: where a temperature acts.

        `of_tokens` [B, past + n, ...]: what was remembered of all tokens up to the last of them.
        """
        return query

    def attend(self, call: Call) -> Attended | None:
        """This call by a kernel of the method's own, exactly what `scores` and `mask` say; None without a kernel."""
        return None

    def scores(self, block: Block) -> Tensor:
        """The logits the softmax sees, [B, H, n, Tk]."""
        return block.scores

    def mask(self, block: Block) -> Tensor | None:
        """bool, broadcastable to [B, H, n, Tk], True = read; None reads all. The seam applies causality."""
        return None

    def reweight(self, block: Block, probabilities: Tensor) -> Tensor:
        """What values are multiplied with, float32 [B, H, n, Tk], of the softmax of what is read (`block.read`).

        For methods that spend a share of it on what was not read, such as on the mean of all values before a query.
        """
        return probabilities

    def see_gate(self, layer: int, out: Tensor, gated: Tensor) -> None:
        """See what a layer's output gate makes of what its heads read, [B, n, H, D] both: of layers that have one."""

    def rounded(self, layer: int, key: Tensor, value: Tensor) -> Rounded | None:
        """What queries read in place of keys [B, G, T, D] and values where the KV cache stores them in few bits."""
        return None

    def finish_output(self, layer: int, out: Tensor) -> Tensor:
        """What leaves the heads of a layer, [B, n, H, D], after an output gate and before the output projection: where
        a head is ablated."""
        return out

    @property
    def kv_cache(self) -> type[GrowingCache] | None:
        """A KV cache of its own for `generate` with kernels."""
        return None

    def cache(self, lm: Any) -> GrowingCache | None:
        """A new KV cache of the method's kind for this model; None where transformers' own will do."""
        return None if self.kv_cache is None else self.kv_cache(lm.config)


for _former, _hook in RENAMED.items():
    setattr(Hooks, _former, getattr(Hooks, _hook))
