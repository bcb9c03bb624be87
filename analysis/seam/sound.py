"""Whether a model can be computed with: weights that are numbers, a row for every token, nothing that overflows.

NaN and infinity spread, and a loss or an attention weight shows them. A finite overflow hides: a norm divides by the
root of a sum of squares, and where that sum leaves float32 the norm gives zero, the logits are all alike, and the
perplexity is the size of the vocabulary. So weights are read once at loading, the first pass, whatever asks for it, is
measured after every module, and each later one where the layers end.
"""

import torch

from ..errors import BadModel, BadText

LARGEST = torch.finfo(torch.float32).max ** 0.5  # what has a square in float32, in which every norm computes
PROBE = 8  # tokens whose vectors are measured in the first pass
PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@torch.no_grad()
def check_weights(lm: torch.nn.Module, name: str) -> None:
    """Raise BadModel where weights are not finite, or too large to be squared."""
    for tensor, weights in lm.named_parameters():
        if weights.numel() and type(weights.data) is torch.Tensor and weights.dtype in PLAIN and not weights.is_meta:
            low, high = torch.aminmax(weights)  # one reading, nothing is copied; NaN comes through
            size = float(torch.maximum(-low, high))
            if not size < LARGEST:
                raise BadModel(
                    f"The weights of {name} hold {_too_large(size)} in {tensor}: fetch them again, or choose another "
                    "model."
                )


def _too_large(size: float) -> str:
    return f"values of {size:.0e}, whose squares overflow float32," if size < torch.inf else "NaN or infinity"


def _rows(lm: torch.nn.Module) -> int:
    return lm.get_input_embeddings().num_embeddings


def check_tokens(lm: torch.nn.Module, tokenizer, name: str) -> None:
    """Raise BadModel where an ordinary token has no row in the embedding. Added ones without are usual: Gemma 3 reads
    text with a tokenizer that names an image."""
    added = tokenizer.added_tokens_decoder
    beyond = max((token for token in tokenizer.get_vocab().values() if token not in added), default=0)
    if beyond >= _rows(lm):
        raise BadModel(
            f"The tokenizer of {name} has tokens up to {beyond:,} and its embedding {_rows(lm):,} rows: they do not "
            "belong together, so fetch both again or choose another model."
        )


def watch(lm: torch.nn.Module, tokenizer, name: str) -> None:
    """From now on a pass ends with a sentence where its text has a token without a row (BadText), or where what leaves
    the last layer is not finite (BadModel). For a model that was loaded here, not one that somebody else holds."""
    if max(tokenizer.added_tokens_decoder, default=0) >= _rows(lm):  # else nothing is asked, which waits for the device
        lm.get_input_embeddings().register_forward_pre_hook(_refuse_tokens)
    places = lm.base_model.named_modules()
    first = [module.register_forward_hook(_Length(name, place)) for place, module in places if place]
    lm.base_model.register_forward_hook(_End(name, first), with_kwargs=True)


def _refuse_tokens(module: torch.nn.Embedding, args: tuple) -> None:
    if args and args[0].numel() and (largest := int(args[0].max())) >= module.num_embeddings:
        raise BadText(
            f"The text holds the token {largest:,} and the model has {module.num_embeddings:,}: take this token, "
            "usually of an image or a sound, out of the text."
        )


class _Hook:
    """A forward hook that looks at what leaves a module. Training looks at its own loss, so a copy has none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __deepcopy__(self, memo: dict):
        return lambda *given: None


class _Length(_Hook):
    """In the first pass: whether the length of the first vectors is more than float32 can hold, as a norm takes it."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(name)
        self.place = place

    def __call__(self, module, args, output) -> None:
        value = output[0] if isinstance(output, tuple) else output
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1:
            length = torch.linalg.vector_norm(value.detach()[..., :PROBE, :], dtype=torch.float32)
            if float(length) == torch.inf:  # NaN comes after infinity, or is padding
                raise BadModel(
                    f"{self.name} overflows in {self.place} in {_kind(value)}, so none of its numbers mean anything: "
                    "load it in another precision, or choose another model."
                )


class _End(_Hook):
    """After every pass: whether what goes to the vocabulary is finite. The first one removes the hooks of its own."""

    def __init__(self, name: str, first: list) -> None:
        super().__init__(name)
        self.first = first

    def __call__(self, module, args, kwargs, output) -> None:
        while self.first:
            self.first.pop().remove()
        hidden, real = output[0], kwargs.get("attention_mask")  # [B, T, d]
        if torch.is_grad_enabled() or _finite(hidden):
            return
        if real is not None and real.dim() == 2:  # padding may be anything
            hidden = hidden[real[:, -hidden.shape[1] :].bool()]
        if not _finite(hidden):
            raise BadModel(
                f"{self.name} computes NaN or infinity here in {_kind(hidden)}: load it in another precision, or "
                "choose another text or model."
            )


def _kind(values: torch.Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _finite(values: torch.Tensor) -> bool:
    return not values.numel() or bool(torch.stack(torch.aminmax(values)).isfinite().all())
