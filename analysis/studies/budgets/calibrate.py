"""Calibrated Sparse Attention from end to end: ranks of the heads, budgets, and the cap that changes no position."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands import commandline
from ...errors import BadSetting
from ...files import write_json
from ...metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from ...models import Model
from ...probes.ablation import estimated
from ...runs.caps import chosen_cap, summary
from ..context import Context, check_seed, protocol
from ..text.calibration import (
    document_windows,
    longest_window,
    split_corpus,
    split_texts,
    text_keys,
    whole_windows,
)
from ..text.held_out import check_range, ids_hash
from .cap_rows import two_sides, units_of
from .policies import DEFAULT, Policy, policy_path, store_policy
from .ranks import Ranks, cells_table, measure_ranks
from .sweep import (
    CAPS,
    KERNEL,
    TOKENS,
    TOLERANCE,
    TOLERANCE_BIN,
    check_caps,
    few_tokens,
    sweep,
    sweep_tables,
)

MASS = 0.9  # CSA, step 1
RANKS_SHARE = 0.4  # of the progress
SHARED = ("ranks", "ablation")  # what the keys are shared out by
SIDES = ("calibration text", "text to measure on")
FEW_TOKENS = 8000  # the paper calibrates on 8,000 to 50,000 tokens


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


def calibrate(
    model: str = "demo",
    texts: list[str] | None = None,
    against: list[str] | None = None,
    window: int | None = None,
    tokens: int = TOKENS,
    mass: float = MASS,
    min_pos: int = 0,
    beta: float = 1.0,
    total: int | None = None,
    reads: float | None = None,
    shared: str = SHARED[0],
    floor: int = FLOOR,
    caps: list[int] | None = None,
    tolerance: float = TOLERANCE,
    tolerance_bin: float = TOLERANCE_BIN,
    name: str = DEFAULT,
    corpus: str = "",
    seed: int = 0,
    output: str | None = None,
    *,
    context: Context,
) -> Calibration:
    """Calibrate CSA on texts, share out budgets, sweep the cap on other texts, and store the policy as `name`.

    `texts` are hashes: the first half of several documents calibrates and the rest measures, of a single one its
    halves; `against` measures instead if given. The cap is chosen on the first half of what measures and reported on
    the second. `corpus`: instead of texts a folder of them, whose held-out ones measure. Each side reads up to
    `tokens` tokens in windows of `window` (default: as long as the model and the texts allow). Ranks are the mean over
    positions from `min_pos` on of the fewest keys that hold `mass`. Keys in all: `beta` times the sum of ranks, or
    `total`, or as many as read the share `reads` of the causal pairs. `shared`: each head gets its part of them by its
    rank, or by `ablation` (`sensitivity`), which then stands in place of the ranks, scaled to the same sum. An empty
    list of caps sweeps none. `output`: a file for the policy, beside the stored one.
    Errors: BadText for a text without a window, BadSetting.
    """
    check_seed(seed)
    swept = list(CAPS if caps is None else caps)
    if swept:
        check_caps(swept, tolerance, tolerance_bin)
    check_range("min_pos", min_pos, 0, 1 << 20)
    if shared not in SHARED:
        raise BadSetting(f"Keys are shared out by {' or '.join(SHARED)}, not by {shared!r}.")
    if context.browser and output:
        raise BadSetting("In a browser no file can be named for the policy: leave the output out.")
    lm = context.model(model)
    policy_path(context, lm, name)
    context.progress(0.0, "cutting the texts into windows")
    split = split_corpus(context, corpus, texts or []) if corpus else split_texts(context, texts or [], against)
    sides = [split.calibrate, split.measure] if swept else [split.calibrate]
    window = window or max(8, min(longest_window(lm, side) for side in sides))
    (windows, _), *held_out = (
        document_windows(lm, side, window, tokens, role) for side, role in zip(sides, SIDES, strict=False)
    )
    part = RANKS_SHARE if swept else 1.0
    measured = measure_ranks(lm, windows, mass, lambda done, stage: context.progress(part * done, stage))
    ranks = measured.mean(min_pos)
    if shared == "ablation":
        ranks = sensitivity(context, lm, windows, float(ranks.sum()))
    keys = _keys(ranks, beta, total, reads, floor, window)
    budgets, rows = allocate_budget(ranks, keys, floor), []
    if swept:
        held_windows, documents = held_out[0]
        halves = {"documents": units_of(documents), "report": two_sides(documents)}
        rows = sweep(context, lm, held_windows, budgets, swept, tolerance, tolerance_bin, (part, 1.0), **halves)
    passing = chosen_cap(rows)
    cap = passing or (rows[-1]["cap"] if rows else int(budgets.max()))
    about = {
        "tokens": int(windows.size),
        "window": window,
        "mass": mass,
        "min_pos": min_pos,
        "floor": floor,
        "shared": shared,
        "beta": keys / float(ranks.sum()),
        "texts": text_keys(split.calibrate),
        "halves": texts[0] if split.halved else None,
        "corpus": Path(corpus).name or ", ".join(title for title, _ in split.calibrate)[:200],
        "passes": passing is not None,
        "positions": measured.positions(),
        "bias": _bias(measured, min_pos),
    }
    # The command that repeats this: texts and folders are the reader's own, so they stand there as TEXT and DIR.
    source = {"corpus": "DIR"} if corpus else {"texts": ["TEXT"] * len(texts or [])}
    if against and not corpus:
        source["against"] = ["TEXT"] * len(against)
    options = {"model": lm.name, "tokens": tokens, "mass": mass, "floor": floor, "window": window, "min_pos": min_pos}
    options |= {"shared": shared, "total": total, "reads": reads, "caps": swept, "tolerance": tolerance}
    options |= {"beta": beta if total is None and not reads else None, "tolerance_bin": tolerance_bin}
    options |= {"seed": seed, "name": name}
    recorded = protocol(
        "calibrate",
        lm,
        "+".join(about["texts"]),
        about["tokens"],
        **{key: about[key] for key in ("window", "mass", "min_pos", "floor", "beta")},
        seed=seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        measured_on=[ids_hash(measured_windows) for measured_windows, _ in held_out],
        tolerance=tolerance,
        tolerance_bin=tolerance_bin,
        command=commandline("calibrate", source | options),
    )
    brief = [{key: value for key, value in row.items() if key != "bins"} for row in rows]  # kept with the policy
    policy = Policy(name, ranks, budgets, cap, {**about, "protocol": recorded, "sweep": brief})
    path, forgotten = store_policy(context, lm, policy)
    if output:
        _copy(path, Path(output))
    notes = [f"{split.words[0].upper()}{split.words[1:]}."]
    if windows.size < FEW_TOKENS:
        notes.append(f"The calibration reads {windows.size:,} tokens; the paper takes 8,000 to 50,000.")
    if shared == "ablation":
        notes.append(
            "The keys are shared out by ablation: a head gets as many as the loss is estimated to rise without it. "
            "The ranks of this policy are these rises, scaled to the same number of keys."
        )
    if rows:
        notes += few_tokens(rows)
    no_sweep = {"sweep": [], "cap": None, "sentence": _sentence(ranks, mass, shared)}
    late = measured.mean(measured.by_position.shape[2] * 15 // 16)
    return Calibration(
        ranks=ranks.tolist(),
        budgets=budgets.tolist(),
        total=keys,
        beta=about["beta"],
        **(summary(rows) if rows else no_sweep),
        policy=policy.integers,
        name=name,
        positions=about["positions"],
        bias=about["bias"],
        split=split.words,
        notes=[*notes, *forgotten],
        path=str(output or path),
        cells=cells_table(rank=ranks, late=late, budget=budgets),
        by_position=pd.DataFrame(about["positions"]),
        **(sweep_tables(rows) if rows else {}),
        protocol=recorded,
    )


def calibrate_on(context: Context, model: Model, texts: list[str], corpus: str, name: str = DEFAULT) -> Policy:
    """A policy without a sweep: budgets of all the ranks of texts, no cap below the largest; stored as `name`."""
    windows = whole_windows(model, [(corpus, text) for text in texts], None, TOKENS)
    measured = measure_ranks(model, windows, MASS, context.progress)
    ranks = measured.mean()
    keys = _keys(ranks, 1.0, None, None, FLOOR, windows.shape[1])
    budgets = allocate_budget(ranks, keys)
    about = {"tokens": int(windows.size), "window": int(windows.shape[1]), "mass": MASS, "min_pos": 0, "beta": 1.0}
    about |= {"floor": FLOOR, "corpus": corpus, "texts": text_keys([("", text) for text in texts]), "passes": False}
    about |= {"positions": measured.positions(), "bias": _bias(measured, 0)}
    policy = Policy(name, ranks, budgets, int(budgets.max()), about)
    store_policy(context, model, policy)
    return policy


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


def _keys(ranks: np.ndarray, beta: float, total: int | None, reads: float | None, floor: int, length: int) -> int:
    """All keys together."""
    if total is not None and reads is not None:
        raise BadSetting("total and reads both say how many keys there are: give one of them.")
    if reads is not None:
        return budget_for_reads(ranks, reads, length, floor)
    if total is not None:
        return total
    if not 0 < beta <= 1000:
        raise BadSetting(f"beta is {beta} and must lie above 0 and up to 1,000: it multiplies the sum of the ranks.")
    return max(round(beta * float(ranks.sum())), floor * ranks.size)  # sharp heads may need less than the floor


def _bias(measured: Ranks, min_pos: int) -> dict:
    """How much the early positions pull the mean rank down, in keys per head."""
    length = measured.by_position.shape[2]
    late = measured.mean(length * 15 // 16)
    return {
        "all": float(measured.mean().mean()),
        "from_min_pos": float(measured.mean(min_pos).mean()),
        "min_pos": min_pos,
        "last_sixteenth": float(late.mean()),
    }


def _sentence(ranks: np.ndarray, mass: float, shared: str) -> str:
    low, high = ranks.min(), ranks.max()
    if shared == "ablation":
        return f"By the loss without it, a head gets from {low:.0f} to {high:.0f} keys, {ranks.mean():.0f} on average."
    return f"{mass:.0%} of a head's attention lies on {ranks.mean():.0f} keys on average, from {low:.0f} to {high:.0f}."


def _copy(path: Path, output: Path) -> None:
    try:
        write_json(output, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadSetting(f"The policy cannot be written to {output} ({error.strerror}): name another file.") from error
