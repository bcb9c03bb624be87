"""Whether a model can be computed with: weights that are numbers, a row for every token, nothing that overflows.

NaN and infinity spread, and a loss or an attention weight shows them. A finite overflow hides: a norm divides by the
root of a sum of squares, and where that sum leaves float32 the norm gives zero, the logits are all alike, and the
perplexity is the size of the vocabulary. So weights are read once at loading, the first pass, whatever asks for it, is
measured after every module, and each later one where the layers end.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ..errors import BadModel, BadText
from ..kernels.pool import on_host

# What has a square in float32, in which every norm computes.
LARGEST = torch.finfo(torch.float32).max ** 0.5
# Tokens whose vectors are measured in the first pass.
PROBE = 8
PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@torch.no_grad()
def check_weights(lm: nn.Module, name: str) -> None:
    """Raise BadModel where weights are not finite, or too large to be squared."""
    for place, weights in lm.named_parameters():
        if weights.numel() and type(weights.data) is Tensor and weights.dtype in PLAIN and not weights.is_meta:
            # one reading, nothing is copied; NaN comes through
            low, high = torch.aminmax(weights)
            size = float(torch.maximum(-low, high))
            if not size < LARGEST:
                finite = f"values of {size:.0e}, whose squares overflow float32," if size < torch.inf else ""
                what = f"{finite or 'NaN or infinity'} in {place}"
                raise BadModel(f"The weights of {name} hold {what}: fetch them again, or choose another model.")


def check_tokens(lm: PreTrainedModel, tokenizer: Any, name: str) -> None:
    """Raise BadModel where an ordinary token has no row in the embedding. Added ones without are usual: Gemma 3 reads
    text with a tokenizer that names an image."""
    embedding: Any = lm.get_input_embeddings()
    added, rows = tokenizer.added_tokens_decoder, embedding.num_embeddings
    last = max((token for token in tokenizer.get_vocab().values() if token not in added), default=0)
    if last >= rows:
        raise BadModel(
            f"The tokenizer of {name} has tokens up to {last:,} and its embedding {rows:,} rows: they do not belong "
            "together, so fetch both again or choose another model."
        )


def watch(lm: PreTrainedModel, tokenizer: Any, name: str) -> None:
    """From now on a pass ends with a sentence where its text has a token without a row (BadText), or where what leaves
    the last layer is not finite (BadModel). For a model that was loaded here, not one that somebody else holds."""
    embedding: Any = lm.get_input_embeddings()
    # else nothing is asked, which would wait for the device
    if max(tokenizer.added_tokens_decoder, default=0) >= embedding.num_embeddings:
        embedding.register_forward_pre_hook(_refuse_tokens)
    places = lm.base_model.named_modules()
    first = [module.register_forward_hook(_Length(name, place), with_kwargs=True) for place, module in places if place]
    lm.base_model.register_forward_hook(_End(name, first), with_kwargs=True)


def _refuse_tokens(module: nn.Embedding, args: tuple) -> None:
    if args and args[0].numel() and (largest := on_host(args[0].max(), "largest token")) >= module.num_embeddings:
        raise BadText(
            f"The text holds the token {largest:,} and the model has {module.num_embeddings:,}: take this token, "
            "usually of an image or a sound, out of the text."
        )


class _Length:
    """In the first pass: whether the length of the first vectors that leave a module is more than float32 can hold, as
    a norm takes it. A copy of a model has no such hook: a training looks at its own loss."""

    def __init__(self, name: str, about: Any) -> None:
        self.name, self.about = name, about

    def __deepcopy__(self, memo: dict) -> Any:
        return lambda *given: None

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        vectors = output[0] if isinstance(output, tuple) else output
        if isinstance(vectors, Tensor) and vectors.is_floating_point() and vectors.dim() > 1:
            length = torch.linalg.vector_norm(vectors.detach()[..., :PROBE, :], dtype=torch.float32)
            # NaN comes after infinity, or is padding
            if on_host(length, "length of vectors") == torch.inf:
                raise BadModel(
                    f"{self.name} overflows in {self.about} in {_kind(vectors)}, so none of its numbers mean anything: "
                    "load it in another precision, or choose another model."
                )


class _End(_Length):
    """After every pass: whether what goes to the vocabulary is finite. The first one removes the hooks in `about`."""

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        while self.about:
            self.about.pop().remove()
        hidden, not_padding = output[0], kwargs.get("attention_mask")  # [B, T, d]
        if torch.is_grad_enabled() or _finite(hidden):
            return
        # padding may be anything
        if not_padding is not None and not_padding.dim() == 2:
            hidden = hidden[not_padding[:, -hidden.shape[1] :].bool()]
        if not _finite(hidden):
            raise BadModel(
                f"{self.name} computes NaN or infinity here in {_kind(hidden)}: load it in another precision, or "
                "choose another text or model."
            )


def _kind(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _finite(values: Tensor) -> bool:
    return not values.numel() or on_host(torch.stack(torch.aminmax(values)).isfinite().all(), "finite")
