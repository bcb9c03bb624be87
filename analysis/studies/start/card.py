"""The model card, and the badge that the seam computes what the stock model computes."""

from dataclasses import asdict

import numpy as np
import torch

from analysis.corpus import sample_texts, tokenize
from analysis.kernels.parts import now
from analysis.methods import METHODS
from analysis.models import Model
from analysis.runs import Result
from analysis.seam.attention import apply
from analysis.seam.parity import COMPARED, check, longest_span, parity as compare
from analysis.studies.context import Context, protocol
from analysis.studies.groups.routers import stored_routers

TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5, "float16": 0.1}  # largest difference of logits called equal
PROBE = 256  # tokens of a bundled sample that are compared


def model_card(model: str = "demo", full: bool = False, *, context: Context) -> Result:
    """What the model is, its stored routers, and its parity with the stock model. `full`: compare it at a length beyond
    every window of it too, which takes long.

    numbers: sizes, `caution` (what to bear in mind about all its numbers), `why` (its weights have this type), `card`
    (Markdown), `routers`, `parity`: `max_abs_difference` of the logits between the stock attention and the seam,
    `causal_difference` of the logits before a changed token (0 when nothing leaks), `same`; `small` the differences of
    a small copy of its kind, in one pass and decoded; `full` those of its own weights, or None.
    """
    lm = context.model(model)
    readme = lm.state_dir / "README.md"
    same = "name revision family parameters head_dim width inner vocabulary max_positions weight_bytes".split()
    numbers = {name: getattr(lm, name) for name in [*same, "caution", "why"]} | {
        "layers": lm.num_layers,
        "heads": lm.num_heads,
        "kv_heads": lm.num_kv_heads,
        "dtype": lm.precision,
        "device": str(lm.device),
        "card": readme.read_text(encoding="utf-8") if readme.is_file() else "",
        "routers": stored_routers(context, lm),
        # a new router makes the card anew, and the model is still the one that was compared
        "parity": context.once("parity", (lm.revision, lm.precision, str(lm.device)), lambda: parity(lm)),
        "small": asdict(check(lm.lm.config)),
        "full": full_parity(lm) if full else None,
    }
    probed = numbers["parity"]["tokens"]
    return Result(numbers | {"protocol": protocol("model", lm, tokens=probed, window=probed)})


def full_parity(model: Model) -> dict:
    """The differences on a text beyond every window, chunk, block and top-k, as far as the model reads."""
    length = min(max(PROBE, longest_span(model.lm.config) + COMPARED), model.max_positions)
    tokens = tokenize(model.tokenizer, sample_texts()["story"][1], length, 1)
    ids = torch.as_tensor(np.resize(tokens.ids, length), device=model.device)[None]  # [1, T], the text over and over
    found = compare(model.lm, ids, watch=False)
    tolerance = _tolerance(model)
    return asdict(found) | {"tolerance": tolerance, "same": found.within(tolerance)}


def _tolerance(model: Model) -> float:
    return TOLERANCE.get(str(model.dtype).removeprefix("torch."), 1e-3)


@torch.no_grad()
def parity(model: Model) -> dict:
    """The stock model against the seam on one text: largest difference of logits, whether the future leaks, and the
    `seconds` of a pass over its `tokens`."""
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
        other = model.lm(changed, use_cache=False).logits.float()
        took = now() - began  # the third pass: nothing is loaded or compiled any more
    difference = float((seam - stock).abs().max())
    leak = float((seam - other)[:, :half].abs().max())
    tolerance = _tolerance(model)
    return {
        "max_abs_difference": difference,
        "causal_difference": leak,
        "tolerance": tolerance,
        "tokens": ids.shape[1],
        "seconds": took,
        "stock_attention": model.stock_attention,
        "same": difference <= tolerance and leak <= tolerance,
    }
