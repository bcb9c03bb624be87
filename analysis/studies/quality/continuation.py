"""What follows a prompt whose KV cache was compressed once, or whose blocks were read in part: loss, keys and bytes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ...answer import Answer, doc, record
from ...commands.quality import Continuation
from ...errors import BadSetting
from ...methods import METHODS
from ...metrics.paired import perplexity_change, perplexity_of
from ...models import Model
from ..context import Context, protocol
from ..ready.candidates import FAMILIES, Candidate, Setting, candidates
from ..text.scoring import Difference, columns
from .equal_budget import nearest
from .evaluate import MISSED
from .following import KERNEL, NOTHING, Followed, Stretches, Turn, follow, stretches

# Methods and ratios.
MAX_METHODS = 64
# Of `at_step`.
STEPS = 100
UNKNOWN, KNOWN = "question unknown", "question known"
SUMMARY = (
    "label ratio setting kept_keys kv_bytes kv_share kv_most_bytes blocks perplexity difference low high units".split()
)


@record
class Continued(Difference, Setting):
    """What follows the prompts under one method in one setting of the question."""

    setting: str = doc("whether the compression saw the question")
    ratio: float | None = doc("share of the keys that is removed, where the method has a ratio")
    kept_keys: float = doc("keys per layer and key-value head after the prompt")
    kv_bytes: int = doc("bytes really held after the prompt")
    kv_share: float = doc("the same as a share of dense attention's")
    kv_most_bytes: int = doc("bytes held at once until then: a layer drops its keys before the next one is read")
    blocks: float | None = doc("share of the prompt's blocks that was read, of methods that read by blocks")
    perplexity: float = doc("of the continuation")


@record
class ContinuedTexts(Answer):
    """What follows a prompt under methods that compress its KV cache or read it in part."""

    rows: list[Continued] = doc("one per method and setting, dense first in every setting")
    notes: list[str] = doc("methods that miss the share asked for, or hide keys instead of dropping them")
    summary: pd.DataFrame = doc("the rows in short", name="rows")
    losses: pd.DataFrame = doc("nats per predicted token, by row, document, cut and position")


def continuation(request: Continuation, *, context: Context) -> ContinuedTexts:
    """Read a prefix of each text under each method, then score the tokens after.

    Methods that save memory compress the KV cache once, after the prefix; those that save prefill time read its blocks.
    Stretches of a text are evenly spaced. `share` is met in the first one. With a `question`, between prefix and
    continuation, there are two settings: *unknown*, the compression sees the prefix only, and *known*, it sees the
    question too. Errors: BadSetting, BadText.
    """
    lm = context.model(request.model)
    chosen = _chosen(context, lm, request)
    question = lm.tokenizer(request.question, add_special_tokens=False)["input_ids"] if request.question else []
    turns = [Turn(UNKNOWN, [], question), Turn(KNOWN, question, [])] if question else [NOTHING]
    count = request.cuts * len(request.texts or ())
    texts = stretches(context, lm, request, lm.max_positions, count, reserved=len(question))
    notes: list[str] = []

    def tried(candidate: Candidate, make: Callable[[], Any]) -> Any:
        """What `make` gives; where all methods were asked for, a sentence in place of one that cannot read these."""
        try:
            return make()
        except BadSetting as why:
            if request.methods is not None:
                raise
            notes.append(f"{candidate.label} is left out: {why}")
            return None

    if request.share is not None:
        # The prefix and two tokens more, the fewest that `follow` scores.
        prompt = torch.as_tensor(texts.windows[0][: texts.prefix + 2])
        full = follow(lm, chosen[0].method, prompt, texts.prefix, NOTHING).kv_bytes
        at_share = partial(_at_share, context, lm, prompt=prompt, share=request.share, prefix=texts.prefix, full=full)
        settled = [tried(candidate, partial(at_share, candidate)) for candidate in chosen[1:]]
        chosen[1:] = [candidate for candidate in settled if candidate]

    def followed(candidate: Candidate, turn: Turn) -> list[Followed]:
        return [follow(lm, candidate.method, torch.as_tensor(ids), texts.prefix, turn) for ids in texts.windows]

    rows: list[Continued] = []
    tables = []
    for place, turn in enumerate(turns):
        for index, candidate in enumerate(chosen):
            context.progress((place + index / len(chosen)) / len(turns), f"{candidate.label}, {turn.setting}")
            if not index:
                # Dense attention is kept, so that a slider's move costs one pass of one method.
                belongs = (lm.name, lm.revision, str(lm.device), str(texts.about), request.cuts, str(turn))
                dense = context.once(f"after {turn.setting}", belongs, partial(followed, candidate, turn))
            measured = tried(candidate, partial(followed, candidate, turn)) if index else dense
            if measured is None:
                continue
            tables.append(_losses(len(rows), measured, texts))
            rows.append(_row(candidate, turn, measured, dense, texts))
            notes += _notes(rows[-1], request.share, measured[0].masked)
    asked_for = {"question": request.question or None, "share": request.share}
    return ContinuedTexts(
        rows=rows,
        notes=list(dict.fromkeys(notes)),
        summary=pd.DataFrame([vars(row) for row in rows])[SUMMARY],
        losses=pd.concat(tables, ignore_index=True),
        protocol=protocol(
            "continuation", lm, texts.about["texts"][0], texts.windows.size, **texts.about, **asked_for, kernel=KERNEL
        ),
    )


def _chosen(context: Context, lm: Model, request: Continuation) -> list[Candidate]:
    """Dense first, then the methods asked for, once for each ratio where they have one. Errors: BadSetting."""
    methods = request.methods
    if methods is None:
        methods = [{"name": candidate.name} for candidate in candidates(context, lm, None, ("memory",))]
    specs: list[dict] = [{"name": "dense"}]
    for spec in methods:
        if request.ratios and "ratio" in getattr(METHODS.get(spec.get("name", "")), "__dataclass_fields__", ()):
            settings = spec.get("settings") or {}
            specs += [spec | {"settings": settings | {"ratio": ratio}} for ratio in request.ratios]
        elif spec.get("name") != "dense":
            specs.append(spec)
    if len(specs) > MAX_METHODS:
        raise BadSetting(f"{len(specs):,} methods and ratios were asked for: choose at most {MAX_METHODS}.")
    # One by one: the same method may stand there several times, at several ratios.
    return [candidates(context, lm, [spec], FAMILIES)[0] for spec in specs]


def _at_share(
    context: Context, lm: Model, candidate: Candidate, prompt: Tensor, share: float, prefix: int, full: int
) -> Candidate:
    """A method set so that it keeps, or reads, the `share` of what dense attention does of the first `prefix` tokens of
    a prompt, as near as its steps come. Errors: BadSetting for a method without such steps."""
    if candidate.method.saves == "reads":
        raise BadSetting(
            f"{candidate.label} neither drops keys nor reads blocks: give it its budget with `equal-budget`."
        )
    if not candidate.method.budget_steps:
        return candidate
    changed = {name: value for name, value in candidate.settings.items() if value != candidate.defaults[name]}
    tried: dict[int, Candidate] = {}

    def share_at(step: int) -> float:
        context.progress(1 - 0.8 ** len(tried), f"{candidate.method.title}: looking for {share:.0%}")
        spec = {"name": candidate.name, "settings": changed | type(candidate.method).at_step(step)}
        tried[step] = candidates(context, lm, [spec], FAMILIES)[0]
        measured = follow(lm, tried[step].method, prompt, prefix, NOTHING)
        return measured.kv_bytes / full if measured.blocks is None else measured.blocks

    return tried[nearest(share_at, 1, STEPS, share, max(1, round(STEPS * share)))]


def _losses(row: int, measured: list[Followed], texts: Stretches) -> pd.DataFrame:
    losses = np.stack([stretch.losses for stretch in measured])
    cut, position = np.indices(losses.shape)
    columns = {"document": texts.documents[cut], "cut": cut, "position": position, "loss": losses}
    return pd.DataFrame({"row": row} | {name: values.ravel() for name, values in columns.items()})


def _row(
    candidate: Candidate, turn: Turn, measured: list[Followed], dense: list[Followed], texts: Stretches
) -> Continued:
    losses, baseline = (np.stack([stretch.losses for stretch in side]) for side in (measured, dense))
    mean = pd.DataFrame([vars(stretch) for stretch in measured]).drop(columns="losses").astype(float).mean()
    dense_bytes = float(np.mean([stretch.kv_bytes for stretch in dense]))
    return Continued(
        **candidate.setting,
        **columns(Difference, perplexity_change(losses, baseline, texts.units())),
        setting=turn.setting,
        ratio=candidate.settings.get("ratio"),
        kept_keys=float(mean["keys"]),
        kv_bytes=round(mean["kv_bytes"]),
        kv_share=float(mean["kv_bytes"]) / dense_bytes,
        kv_most_bytes=round(mean["kv_most"]),
        blocks=None if measured[0].blocks is None else float(mean["blocks"]),
        perplexity=perplexity_of(losses, texts.units()).change,
    )


def _notes(row: Continued, share: float | None, masked: bool) -> list[str]:
    """What to bear in mind of a method that comes nowhere near the share asked for, or drops nothing."""
    notes = []
    reached, verb = (row.kv_share, "keeps") if row.blocks is None else (row.blocks, "reads")
    if share is not None and row.method != "dense" and abs(reached / share - 1) > MISSED:
        notes.append(f"{row.label} {verb} {reached:.0%}: none of its settings comes nearer to {share:.0%} here.")
    if masked:
        notes.append(f"{row.label} was computed with masks: its cache holds every key in full.")
    return notes
