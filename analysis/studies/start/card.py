"""The model card, and the badge that the seam computes what the stock model computes."""

from dataclasses import asdict

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...commands.text import Model as ModelRequest
from ...corpus import sample_texts, tokenize
from ...costs import coefficients
from ...errors import BadModel
from ...kernels.parts import now
from ...methods import METHODS
from ...models import Model
from ...models.counted import counted
from ...models.own import compressing, own_reading, selects_tokens
from ...seam.attention import apply
from ...seam.parity import COMPARED, check, longest_span, parity as compare
from ..context import Context, protocol
from ..groups.routers import stored_routers

# Largest difference of logits called equal.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}
# Tokens of a bundled sample that are compared.
PROBE = 256


@record
class Parity:
    """The stock attention against the seam, in the largest difference of logits."""

    max_abs_difference: float = doc("on one text")
    causal_difference: float = doc("before a changed token: 0 when nothing leaks")
    tolerance: float = doc("largest difference that is called equal in this type")
    tokens: int = doc("tokens that were compared")
    stock_attention: str = doc("the attention of transformers that was compared")
    same: bool = doc("both differences are within the tolerance")
    # Older examples lack it.
    seconds: float | None = doc("that a pass over the tokens took", default=None)


@record
class ModelCard(Answer):
    """What a model is, and whether the seam computes what the stock model computes."""

    name: str = doc("name of the model")
    revision: str = doc("fingerprint of its weights")
    family: str = doc("its architecture")
    parameters: int = doc("weights")
    head_dim: int = doc("numbers of a head")
    width: int = doc("numbers of a hidden state")
    inner: int = doc("width of the feed-forward blocks")
    vocabulary: int = doc("tokens that it knows")
    max_positions: int = doc("tokens that it reads at once")
    weight_bytes: int = doc("bytes of its weights")
    caution: str = doc("what to bear in mind about all its numbers")
    why: str = doc("why its weights have this type")
    layers: int = doc("layers of softmax attention")
    heads: int = doc("query heads of a layer")
    kv_heads: int = doc("key-value heads of a layer")
    dtype: str = doc("type of its weights")
    device: str = doc("where it runs")
    card: str = doc("what its authors say of it, Markdown")
    routers: list[dict] = doc("its stored routers")
    parity: Parity = doc("on a bundled text")
    small: dict | None = doc("the differences of a small copy of its kind, in one pass and decoded", default=None)
    full: dict | None = doc("those of its own weights beyond every window of it, where asked for", default=None)
    layer_numbers: list[int] | None = doc("of a hybrid, the numbers of its layers of softmax attention", default=None)
    other_layers: dict[str, str] | None = doc("of a hybrid, number of each other layer -> what it is", default=None)
    own_reading: list[str] | None = doc("what it does by itself to what its heads read", default=None)
    token_flops: float | None = doc("operations of a token beside attention, in every kind of layer", default=None)
    indexer: bool | None = doc("true where an indexer of its own chooses what its queries read", default=None)
    compressing: int | None = doc("layers that read compressed entries, which no method leaves out", default=None)


def model_card(request: ModelRequest, *, context: Context) -> ModelCard:
    """What the model is, its stored routers, and its parity with the stock model. `full`: compare it at a length beyond
    every window of it too, which takes long."""
    lm = context.model(request.model)
    readme = lm.state_dir / "README.md"
    copied = "name revision family parameters head_dim width inner vocabulary max_positions weight_bytes caution why"
    # Kept beside the model: a new router makes the card anew, and the model is still the one that was compared.
    compared = context.once("parity", (lm.revision, lm.precision, str(lm.device)), lambda: parity(lm))
    try:
        made_of = coefficients(counted(lm))
        # its logits included
        token_flops = made_of["token_flops"] + made_of["once_flops"]
    except BadModel:
        token_flops = None
    return ModelCard(
        **{name: getattr(lm, name) for name in copied.split()},
        layers=lm.num_layers,
        heads=lm.num_heads,
        kv_heads=lm.num_kv_heads,
        dtype=lm.precision,
        device=str(lm.device),
        card=readme.read_text(encoding="utf-8") if readme.is_file() else "",
        routers=stored_routers(context, lm),
        parity=compared,
        small=asdict(check(lm.lm.config)),
        full=full_parity(lm) if request.full else None,
        layer_numbers=list(lm.layer_numbers) if lm.other_layers else None,
        other_layers={str(number): kind for number, kind in lm.other_layers.items()} or None,
        own_reading=own_reading(lm) or None,
        token_flops=token_flops,
        indexer=selects_tokens(lm) or None,
        compressing=compressing(lm) or None,
        protocol=protocol("model", lm, tokens=compared.tokens, window=compared.tokens),
    )


def full_parity(model: Model) -> dict:
    """The differences on a text beyond every window, chunk, block and top-k, as far as the model reads."""
    length = min(max(PROBE, longest_span(model.lm.config) + COMPARED), model.max_positions)
    tokens = tokenize(model.tokenizer, sample_texts()["story"][1], length, 1)
    ids = torch.as_tensor(np.resize(tokens.ids, length), device=model.device)[None]  # [1, T], the text over and over
    differences = compare(model.lm, ids, watch=False)
    tolerance = _tolerance(model)
    return asdict(differences) | {"tolerance": tolerance, "same": differences.within(tolerance)}


def _tolerance(model: Model) -> float:
    return TOLERANCE.get(str(model.dtype).removeprefix("torch."), 1e-3)


@torch.no_grad()
def parity(model: Model) -> Parity:
    """The stock model against the seam on one text, and whether the future leaks."""
    text = sample_texts()["story"][1]
    tokens = tokenize(model.tokenizer, text, min(PROBE, model.max_positions), 1)
    ids = torch.as_tensor(tokens.ids, device=model.device)[None]  # [1, T]
    changed = ids.clone()
    half = ids.shape[1] // 2
    changed[:, half:] = ids[:, half:].flip(1)
    stock = model.lm(ids, use_cache=False).logits.float()
    with apply(model, METHODS["dense"]()):
        seam = model.lm(ids, use_cache=False).logits.float()
        began = now()
        seam_changed = model.lm(changed, use_cache=False).logits.float()
        # The third pass: nothing is loaded or compiled any more.
        seconds = now() - began
    difference = float((seam - stock).abs().max())
    leak = float((seam - seam_changed)[:, :half].abs().max())
    tolerance = _tolerance(model)
    return Parity(
        max_abs_difference=difference,
        causal_difference=leak,
        tolerance=tolerance,
        tokens=ids.shape[1],
        seconds=seconds,
        stock_attention=model.stock_attention,
        same=difference <= tolerance and leak <= tolerance,
    )
