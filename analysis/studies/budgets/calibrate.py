"""Calibrated Sparse Attention from end to end: ranks of the heads, budgets, and the cap that changes no position."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands import commandline
from ...commands.budgets import Calibrate
from ...errors import BadSetting
from ...files import write_json
from ...metrics.budgets import allocate_budget, budget_for_reads
from ...models import Model
from ...probes.ablation import estimated
from ...runs.caps import chosen_cap, summary
from ..context import Context, protocol
from ..text.calibration import document_windows, longest_window, split_corpus, split_texts, text_keys
from ..text.held_out import ids_hash
from ..text.text import cells_table
from .cap_rows import CAPS, KERNEL, check_caps, few_tokens, sweep, two_sides, units_of, without_bins
from .policies import Policy, policy_path, store_policy
from .ranks import Ranks, measure_ranks

# CSA, step 1.
MASS = 0.9
# Of the progress.
RANKS_SHARE = 0.4
SIDES = ("calibration text", "text to measure on")
# The paper calibrates on 8,000 to 50,000 tokens.
FEW_TOKENS = 8000


@record
class Calibration(Worded):
    """A calibrated policy, and the sweep that chose its cap."""

    ranks: list[list[float]] = doc("[layer][head]: keys that hold `mass` of the attention, or the scaled sensitivity")
    budgets: list[list[int]] = doc("[layer][head]: keys that a head may read")
    total: int = doc("all of these together")
    beta: float = doc("the same by the sum of the ranks")
    sweep: list[dict] = doc("one row per cap, see `sweep`")
    cap: int | None = doc("the smallest cap that passes; null where none does, and the policy has the largest")
    policy: dict = doc("the policy to hand on: layers heads policy")
    name: str = doc("what it is stored as")
    positions: list[dict] = doc("mean rank by position in the window")
    bias: dict = doc("mean rank over all positions, from min_pos on, and of the last sixteenth, in keys")
    split: str = doc("which texts calibrated and which measured, in words")
    path: str = doc("where it is stored")
    cells: pd.DataFrame = doc("layer head rank late budget", name="ranks")
    by_position: pd.DataFrame = doc("the positions", name="positions")
    rows: pd.DataFrame | None = doc("the sweep without its bins", default=None)
    bins: pd.DataFrame | None = doc("the bins of the sweep", default=None)


def calibrate(request: Calibrate, *, context: Context) -> Calibration:
    """Calibrate CSA on texts, share out budgets, sweep the cap on other texts, and store the policy under a name.

    The first half of several documents calibrates and the rest measures, of a single one its halves, of a folder its
    held-out texts. The cap is chosen on the first half of what measures and reported on the second. Ranks are the mean
    over positions of the fewest keys that hold `mass`; shared by `ablation`, `sensitivity` stands in their place,
    scaled to the same sum. An empty list of caps sweeps none. Windows are as
    long as the model and the texts allow unless given; `output`: a file for the policy, beside the stored one. Errors:
    BadText for a text without a window, BadSetting.
    """
    caps = list(CAPS if request.caps is None else request.caps)
    if caps:
        check_caps(caps)
    if context.browser and request.output:
        raise BadSetting("In a browser no file can be named for the policy: leave the output out.")
    lm, texts = context.model(request.model), request.texts or []
    policy_path(context, lm, request.name)
    context.progress(0.0, "cutting the texts into windows")
    if request.corpus:
        split = split_corpus(context, request.corpus, texts)
    else:
        split = split_texts(context, texts, request.against)
    sides = [split.calibrate, split.measure] if caps else [split.calibrate]
    window = request.window or max(8, min(longest_window(lm, side) for side in sides))
    (windows, _), *held_out = (
        document_windows(lm, side, window, request.tokens, role) for side, role in zip(sides, SIDES, strict=False)
    )
    ranking = RANKS_SHARE if caps else 1.0
    measured = measure_ranks(lm, windows, request.mass, context.within(0.0, ranking).progress)
    ranks = measured.mean(request.min_pos)
    if request.shared == "ablation":
        ranks = sensitivity(context, lm, windows, float(ranks.sum()))
    keys = _keys(ranks, request, window)
    budgets, rows = allocate_budget(ranks, keys, request.floor, request.floored), []
    allowed: dict[str, Any] = {"tolerance": request.tolerance, "tolerance_bin": request.tolerance_bin}
    allowed |= {"judged": request.judged}
    if caps:
        held_windows, documents = held_out[0]
        sides_of: dict[str, Any] = {"documents": units_of(documents), "report": two_sides(documents)}
        rows = sweep(context.within(ranking, 1 - ranking), lm, held_windows, budgets, caps, **allowed, **sides_of)
    passing = chosen_cap(rows)
    cap = passing or (rows[-1]["cap"] if rows else int(budgets.max()))
    how: dict[str, Any] = {"window": window, "mass": request.mass, "min_pos": request.min_pos, "floor": request.floor}
    how |= {"beta": keys / float(ranks.sum())}
    how |= {"floored": request.floored} if request.floored != Calibrate.floored else {}
    about = about_ranks(measured, windows, split.calibrate, request.min_pos) | how
    about |= {"shared": request.shared, "passes": passing is not None}
    about |= {"halves": texts[0] if split.halved else None}
    about |= {"corpus": Path(request.corpus).name or ", ".join(title for title, _ in split.calibrate)[:200]}
    # Texts and folders are the reader's own, so they stand in the command that repeats this as TEXT and DIR.
    repeated = request.arguments | {"model": lm.name, "window": window, "caps": caps, "output": None}
    repeated |= {name: ["TEXT"] * len(getattr(request, name) or []) for name in ("texts", "against")}
    repeated |= {"corpus": request.corpus and "DIR", "against": repeated["against"] or None}
    recorded = protocol(
        "calibrate",
        lm,
        "+".join(about["texts"]),
        int(windows.size),
        **how,
        **allowed,
        seed=request.seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        measured_on=[ids_hash(measured_windows) for measured_windows, _ in held_out],
        command=commandline("calibrate", repeated),
    )
    # Kept with the policy.
    brief = [{key: value for key, value in row.items() if key != "bins"} for row in rows]
    policy = Policy(request.name, ranks, budgets, cap, about | {"protocol": recorded, "sweep": brief})
    path, forgotten = store_policy(context, lm, policy)
    if request.output:
        _copy(path, Path(request.output))
    notes = [f"{split.words[0].upper()}{split.words[1:]}."]
    if windows.size < FEW_TOKENS:
        notes.append(f"The calibration reads {windows.size:,} tokens; the paper takes 8,000 to 50,000.")
    if request.shared == "ablation":
        notes.append(
            "The keys are shared out by ablation: a head gets as many as the loss is estimated to rise without it. "
            "The ranks of this policy are these rises, scaled to the same number of keys."
        )
    no_sweep: dict[str, Any] = {"sweep": [], "cap": None, "sentence": _sentence(ranks, request)}
    late = measured.mean(measured.by_position.shape[2] * 15 // 16)
    return Calibration(
        ranks=ranks.tolist(),
        budgets=budgets.tolist(),
        total=int(budgets.sum()),
        beta=how["beta"],
        **(summary(rows, request.judged) | without_bins(rows, "cap", "select", "report") if rows else no_sweep),
        policy=policy.integers,
        name=request.name,
        positions=about["positions"],
        bias=about["bias"],
        split=split.words,
        notes=[*notes, *(few_tokens(rows) if rows else []), *forgotten],
        path=str(request.output or path),
        cells=cells_table(lm, rank=ranks, late=late, budget=budgets),
        by_position=pd.DataFrame(about["positions"]),
        protocol=recorded,
    )


def sensitivity(context: Context, model: Model, windows: np.ndarray, total: float, by: str = "mean") -> np.ndarray:
    """What the loss of windows [n, W] rises by without each head, by the first-order estimate of ablation `by` zero or
    the head's own mean (`ablation.estimated`), nothing where it falls, scaled so that all heads add up to `total`:
    [L, H].
    """
    rises = np.zeros((model.num_layers, model.num_heads))
    for done, window in enumerate(windows):
        context.progress(RANKS_SHARE, f"estimating the loss without each head, window {done + 1} of {len(windows)}")
        rises += estimated(model, torch.from_numpy(np.asarray(window)).long()[None], by)
    rises = np.maximum(rises, 0.0)
    return rises * total / rises.sum() if rises.any() else np.full_like(rises, total / rises.size)


def _keys(ranks: np.ndarray, request: Calibrate, length: int) -> int:
    """All keys together."""
    if request.total is not None and request.reads is not None:
        raise BadSetting("total and reads both say how many keys there are: give one of them.")
    if request.reads is not None:
        return budget_for_reads(ranks, request.reads, length, request.floor)
    if request.total is not None:
        return request.total
    # Sharp heads may need fewer keys than the floor.
    return max(round(request.beta * float(ranks.sum())), request.floor * ranks.size)


def about_ranks(measured: Ranks, windows: np.ndarray, texts: list[tuple[str, str]], min_pos: int) -> dict:
    """What is stored of every calibration; `bias`: how much early positions pull the mean rank down, in keys a head."""
    length = measured.by_position.shape[2]
    means = {"all": measured.mean(), "from_min_pos": measured.mean(min_pos)}
    means |= {"last_sixteenth": measured.mean(length * 15 // 16)}
    bias = {name: float(mean.mean()) for name, mean in means.items()} | {"min_pos": min_pos}
    about = {"tokens": int(windows.size), "texts": text_keys(texts), "positions": measured.positions()}
    return about | {"bias": bias}


def _sentence(ranks: np.ndarray, request: Calibrate) -> str:
    spread = f"{ranks.mean():.0f} keys on average, from {ranks.min():.0f} to {ranks.max():.0f}"
    if request.shared == "ablation":
        return f"By the loss without it, a head gets {spread}."
    return f"{request.mass:.0%} of a head's attention lies on {spread}."


def _copy(path: Path, output: Path) -> None:
    try:
        write_json(output, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadSetting(f"The policy cannot be written to {output} ({error.strerror}): name another file.") from error
