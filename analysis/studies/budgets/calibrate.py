"""Calibrated Sparse Attention from end to end: ranks of the heads, budgets, and the cap that changes no position."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from analysis.commandline import commandline
from analysis.errors import BadSetting
from analysis.files import write_json
from analysis.metrics.budgets import FLOOR, allocate_budget, budget_for_reads
from analysis.models import Model
from analysis.probes.ablation import estimated
from analysis.runs import Result
from analysis.runs.caps import chosen_cap, summary
from analysis.studies.budgets.cap_rows import two_sides, units_of
from analysis.studies.budgets.policies import DEFAULT, Policy, policy_path, store_policy
from analysis.studies.budgets.ranks import Ranks, cells_table, measure_ranks
from analysis.studies.budgets.sweep import (
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
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.text.calibration import (
    Split,
    document_windows,
    longest_window,
    split_corpus,
    split_texts,
    text_keys,
    whole_windows,
)
from analysis.studies.text.held_out import check_range, ids_hash

MASS = 0.9  # CSA, step 1
RANKS_SHARE = 0.4  # of the progress
SHARED = ("ranks", "ablation")  # what the keys are shared out by
SIDES = ("calibration text", "text to measure on")


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
) -> Result:
    """Calibrate CSA on texts, share out budgets, sweep the cap on other texts, and store the policy as `name`.

    `texts` are hashes: the first half of several documents calibrates and the rest measures, of a single one its
    halves; `against` measures instead if given. The cap is chosen on the first half of what measures and reported on
    the second. `corpus`: instead of texts a folder of them, whose held-out ones measure. Each side reads up to
    `tokens` tokens in windows of `window` (default: as long as the model and the texts allow). Ranks are the mean over
    positions from `min_pos` on of the fewest keys that hold `mass`. Keys in all: `beta` times the sum of ranks, or
    `total`, or as many as read the share `reads` of the causal pairs. `shared`: each head gets its part of them by its
    rank, or by `ablation` (`sensitivity`), which then stands in place of the ranks, scaled to the same sum. An empty
    list of caps sweeps none. `output`: a file for the policy, beside the stored one.
    numbers: `ranks` and `budgets` [L][H], `total`, `beta`, `cap` (None when none passes; the policy then has the
    largest), `sweep` (see `cap_sweep.sweep`), `policy` (`layers heads policy`), `positions` (mean rank by position),
    `bias` (mean rank over all positions, from `min_pos` on, and of the last bin), `split`, `sentence`, `notes`,
    `path`; tables: `ranks` (`layer head rank late budget`), `positions`, and of the sweep `rows` and `bins`.
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
    sides = [split.calibrate, *([split.measure] if swept else [])]
    window = window or max(8, min(longest_window(lm, side) for side in sides))
    (windows, _), *held_out = (
        document_windows(lm, side, window, tokens, what) for side, what in zip(sides, SIDES, strict=False)
    )
    part = RANKS_SHARE if swept else 1.0
    found = measure_ranks(lm, windows, mass, lambda done, stage: context.progress(part * done, stage))
    ranks = found.mean(min_pos)
    if shared != SHARED[0]:
        ranks = sensitivity(context, lm, windows, float(ranks.sum()))
    keys = _keys(ranks, beta, total, reads, floor, window)
    budgets, rows = allocate_budget(ranks, keys, floor), []
    if swept:
        measured, documents = held_out[0]
        halves = {"documents": units_of(documents), "report": two_sides(documents)}
        rows = sweep(context, lm, measured, budgets, swept, tolerance, tolerance_bin, (part, 1.0), **halves)
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
        "corpus": Path(corpus).name or ", ".join(name for name, _ in split.calibrate)[:200],
        "passes": passing is not None,
        "positions": found.positions(),
        "bias": _bias(found, min_pos),
    }
    words = {"texts": ["TEXT"] * len(texts or []), "against": ["TEXT"] * len(against) if against else None}
    source = {"corpus": "DIR"} if corpus else words
    asked = {"model": lm.name, "tokens": tokens, "mass": mass, "floor": floor, "window": window, "min_pos": min_pos}
    asked |= {
        "shared": shared,
        "total": total,
        "reads": reads,
        "beta": beta if total is None and not reads else None,
        "caps": swept,
    }
    asked |= {"tolerance": tolerance, "tolerance_bin": tolerance_bin, "seed": seed, "name": name}
    made = protocol(
        "calibrate",
        lm,
        "+".join(about["texts"]),
        about["tokens"],
        window=window,
        seed=seed,
        kernel=KERNEL,
        windows=ids_hash(windows),
        measured_on=[ids_hash(one) for one, _ in held_out],
        mass=mass,
        min_pos=min_pos,
        floor=floor,
        beta=about["beta"],
        tolerance=tolerance,
        tolerance_bin=tolerance_bin,
        command=commandline("calibrate", source | asked),
    )
    policy = Policy(name, ranks, budgets, cap, {**about, "protocol": made, "sweep": _brief(rows)})
    path, notes = store_policy(context, lm, policy)
    if output:
        _copy(path, Path(output))
    numbers = {
        "ranks": ranks.tolist(),
        "budgets": budgets.tolist(),
        "total": keys,
        "beta": about["beta"],
        **(summary(rows) if rows else {"sweep": [], "cap": None, "sentence": _sentence(ranks, mass, shared)}),
        "policy": policy.integers,
        "name": name,
        "positions": about["positions"],
        "bias": about["bias"],
        "split": split.words,
        "notes": [*_notes(split, windows), *_shared_notes(shared), *(few_tokens(rows) if rows else []), *notes],
        "path": str(output or path),
        "protocol": made,
    }
    late = found.mean(found.by_position.shape[2] * 15 // 16)
    tables = {"ranks": cells_table(rank=ranks, late=late, budget=budgets), "positions": pd.DataFrame(found.positions())}
    return Result(numbers, tables | (sweep_tables(rows) if rows else {}))


def calibrate_on(context: Context, model: Model, texts: list[str], corpus: str, name: str = DEFAULT) -> Policy:
    """A policy without a sweep: budgets of all the ranks of texts, no cap below the largest; stored as `name`."""
    windows = whole_windows(model, [(corpus, text) for text in texts], None, TOKENS)
    found = measure_ranks(model, windows, MASS, context.progress)
    ranks = found.mean()
    keys = _keys(ranks, 1.0, None, None, FLOOR, windows.shape[1])
    budgets = allocate_budget(ranks, keys)
    about = {"tokens": int(windows.size), "window": int(windows.shape[1]), "mass": MASS, "min_pos": 0, "beta": 1.0}
    about |= {"floor": FLOOR, "corpus": corpus, "texts": text_keys([("", text) for text in texts]), "passes": False}
    about |= {"positions": found.positions(), "bias": _bias(found, 0)}
    policy = Policy(name, ranks, budgets, int(budgets.max()), about)
    store_policy(context, model, policy)
    return policy


def sensitivity(context: Context, model: Model, windows: np.ndarray, total: float, by: str = "mean") -> np.ndarray:
    """What the loss of windows [n, W] rises by without each head, by the first-order estimate of ablation `by` zero or
    the head's own mean (`ablation.estimated`), nothing where it falls, scaled so that all heads add up to `total`:
    [L, H].
    """
    found = np.zeros((model.num_layers, model.num_heads))
    for done, window in enumerate(windows):
        context.progress(RANKS_SHARE, f"estimating the loss without each head, window {done + 1} of {len(windows)}")
        found += estimated(model, torch.from_numpy(np.asarray(window)).long()[None], by)
    found = np.maximum(found, 0.0)
    return found * total / found.sum() if found.any() else np.full_like(found, total / found.size)


def _shared_notes(shared: str) -> list[str]:
    if shared == SHARED[0]:
        return []
    return [
        "The keys are shared out by ablation: a head gets as many as the loss is estimated to rise without it. "
        "The ranks of this policy are these rises, scaled to the same number of keys."
    ]


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


def _bias(found: Ranks, min_pos: int) -> dict:
    """How much the early positions pull the mean rank down, in keys per head."""
    length = found.by_position.shape[2]
    late = found.mean(length * 15 // 16)
    return {
        "all": float(found.mean().mean()),
        "from_min_pos": float(found.mean(min_pos).mean()),
        "min_pos": min_pos,
        "last_sixteenth": float(late.mean()),
    }


def _brief(rows: list[dict]) -> list[dict]:
    """The sweep without its bins, kept with the policy."""
    return [{key: value for key, value in row.items() if key != "bins"} for row in rows]


def _notes(split: Split, windows: np.ndarray) -> list[str]:
    said = [f"{split.words[0].upper()}{split.words[1:]}."]
    if windows.size < 8000:
        said.append(f"The calibration reads {windows.size:,} tokens; the paper takes 8,000 to 50,000.")
    return said


def _sentence(ranks: np.ndarray, mass: float, shared: str) -> str:
    low, high = ranks.min(), ranks.max()
    if shared != SHARED[0]:
        return f"By the loss without it, a head gets from {low:.0f} to {high:.0f} keys, {ranks.mean():.0f} on average."
    return f"{mass:.0%} of a head's attention lies on {ranks.mean():.0f} keys on average, from {low:.0f} to {high:.0f}."


def _copy(path: Path, output: Path) -> None:
    try:
        write_json(output, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadSetting(f"The policy cannot be written to {output} ({error.strerror}): name another file.") from error
