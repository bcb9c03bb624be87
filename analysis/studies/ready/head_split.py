"""DuoAttention's split of the heads beside their ablation: those that keep every key, and what a text loses without
each."""

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...errors import BadSetting
from ...probes.ablation import check_way, estimated
from ..context import Context, protocol, read
from ..text.states import window_of
from ..text.text import cells_table
from .candidates import candidates
from .head_lists import METHOD


@record
class HeadSplit(Worded):
    """DuoAttention's split of the heads beside what a text is estimated to lose without each."""

    rows: list[dict] = doc("per key-value head, most missed first: far rise whole missed, as the table has them")
    kept: int = doc("heads that keep every key")
    both: int = doc("those of them that would if as many were chosen by their rise")
    chance: float = doc("as many by chance")
    agreement: float | None = doc("rank correlation of both scores")
    heads: pd.DataFrame = doc(
        "layer head, far (the score that DuoAttention goes by), rise (first-order estimate of the rise of the loss, "
        "nats per token, sum over the query heads that share its keys), whole (it keeps every key), missed (it would, "
        "chosen by its rise)"
    )


def head_split(
    model: str = "demo",
    text: str = "",
    ratio: float = 0.5,
    by: str = "zero",
    part: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> HeadSplit:
    """Which key-value heads DuoAttention lets keep every key, where the share `ratio` of them keeps sinks and a window
    only, and what window `part` of a text is estimated to lose without each (`by`: what takes its place, as `ablate`).
    Errors: BadSetting, NotFitted."""
    lm = context.model(model)
    check_way(by)
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
    whole, missed = (~method.streaming(torch.as_tensor(scores)).numpy() for scores in (far, rise))
    table = cells_table(far=far.double().numpy(), rise=rise.astype(float), whole=whole, missed=missed)
    agreement = table[["far", "rise"]].rank().corr().iloc[0, 1]
    table = table.sort_values("rise", ascending=False, kind="stable", ignore_index=True)
    kept, both = int(whole.sum()), int((whole & missed).sum())
    note = "The estimate is of first order and of this text; DuoAttention's score is of its calibration texts."
    return HeadSplit(
        rows=table.to_dict("records"),
        kept=kept,
        both=both,
        chance=kept * kept / whole.size,
        agreement=None if np.isnan(agreement) else float(agreement),
        sentence=(
            f"DuoAttention lets {kept} of {whole.size} key-value heads keep every key. {both} of them are among the "
            f"{kept} that this text would miss most; chance would give {kept * kept / whole.size:.1f}."
        ),
        notes=[*reading.notes, note],
        heads=table,
        protocol=protocol("head-split", lm, text, ids.shape[1], ratio=ratio, by=by, part=part),
    )
