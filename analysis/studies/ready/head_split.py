"""DuoAttention's split of the heads beside their ablation: those that keep every key, and what a text loses without
each."""

import numpy as np
import pandas as pd
import torch

from analysis.errors import BadSetting
from analysis.probes.ablation import WAYS, estimated
from analysis.runs import Result
from analysis.studies.context import Context, protocol, read
from analysis.studies.ready.candidates import candidates
from analysis.studies.ready.head_lists import METHOD
from analysis.studies.text.states import window_of


def head_split(
    model: str = "demo",
    text: str = "",
    ratio: float = 0.5,
    by: str = "zero",
    part: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Which key-value heads DuoAttention lets keep every key, where the share `ratio` of them keeps sinks and a window
    only, and what window `part` of a text is estimated to lose without each (`by`: what takes its place, as `ablate`).

    numbers: `rows` (also the table `heads`), most missed first: `layer head` (of keys and values) `far` (the score that
    DuoAttention goes by) `rise` (first-order estimate of the rise of the loss, nats per token, sum over the query heads
    that share its keys) `whole` (it keeps every key) `missed` (it would, if as many were chosen by their rise);
    `kept both chance` (heads that keep every key, those that would by both lists, and as many by chance), `agreement`
    (rank correlation of both scores), `sentence`, `notes`. Errors: BadSetting, NotFitted.
    """
    lm = context.model(model)
    if by not in WAYS:
        raise BadSetting(f"A head's output is replaced by {', '.join(WAYS)}, not by {by!r}.")
    spec = {"name": METHOD, "settings": {"ratio": ratio}}
    method = candidates(context, lm, [spec], ("memory",))[0].method
    reading = read(context, lm, text, long_text)
    _, window = window_of(reading, part)
    ids = torch.from_numpy(np.asarray(window)).long()[None]
    if ids.shape[1] < 2:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    context.progress(0.2, "estimate for all heads")
    rise = estimated(lm, ids, by).reshape(lm.num_layers, lm.num_kv_heads, -1).sum(2)
    far = method.fitted["far"].expand(-1, lm.num_kv_heads)
    whole, missed = (~method.streaming(torch.as_tensor(one)).numpy() for one in (far, rise))
    table = pd.DataFrame([{"layer": layer, "head": head} for layer, head in np.ndindex(rise.shape)])
    table["far"], table["rise"] = far.double().numpy().ravel(), rise.ravel().astype(float)
    table["whole"], table["missed"] = whole.ravel(), missed.ravel()
    agreement = table[["far", "rise"]].rank().corr().iloc[0, 1]
    table = table.sort_values("rise", ascending=False, kind="stable", ignore_index=True)
    kept, both = int(whole.sum()), int((whole & missed).sum())
    numbers = {
        "rows": table.to_dict("records"),
        **{"kept": kept, "both": both, "chance": kept * kept / whole.size},
        "agreement": None if np.isnan(agreement) else float(agreement),
        "sentence": _sentence(kept, both, whole.size),
        "notes": [
            *reading.notes,
            "The estimate is of first order and of this text; DuoAttention's score is of its calibration texts.",
        ],
        "protocol": protocol("head-split", lm, text, ids.shape[1], ratio=ratio, by=by, part=part),
    }
    return Result(numbers, {"heads": table})


def _sentence(kept: int, both: int, heads: int) -> str:
    return (
        f"DuoAttention lets {kept} of {heads} key-value heads keep every key. {both} of them are among the {kept} that "
        f"this text would miss most; chance would give {kept * kept / heads:.1f}."
    )
