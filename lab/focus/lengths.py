"""Do groups that were trained on short texts hold on long ones? Routers read at many lengths (Focus, section 3.5)."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.claims import Comparison, detectable, signed
from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.seam.layers import has_rotary
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    minimum_detectable_effect,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.measured import DENSE, DRAWS, KERNELS, Arm, dense_of, drawn_arms, window_arm
from analysis.studies.stored.panels import chart, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, by_seed, plain, sample
from analysis.studies.text.held_out import held_out_windows, ids_hash
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window

TIMES = (1, 2, 4)  # lengths by default, times that of the training
KS = (1, 2)  # groups per token that are read
CONTROLS = {
    "against_dense": "dense attention",
    "against_random": "random tokens",
    "against_window": "a window of equal pairs",
}
PAPER = (1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Sizes(Training):
    """What the study can be asked for."""

    windows: int = option(64, "number of held-out windows at the training length; all lengths read the same tokens")
    groups: int = option(4, "number of groups K of the router")
    rows: str | None = option(
        None, "lengths to read, separated by commas (default: 1, 2 and 4 times the training length)"
    )


def measure(at: Setting) -> dict:
    """A router trained on sequences of `length` tokens (phase 1) that reads longer held-out windows, k = 1 and 2.

    Lengths beyond the model's positions are extrapolated, and refused for models with learned positions. Controls:
    random tokens (3 draws), a window of equal pairs.
    `rows`: `length k extrapolated perplexity_dense perplexity perplexity_literal perplexity_random perplexity_window
    equal_window pairs_share largest_share`, and in nats with `_low` and `_high` `against_dense against_random
    against_window`. Errors: BadSetting, BadText.
    """
    lm, sizes = at.lm, at.sizes
    lengths = _lengths(sizes.rows, sizes.length)
    far = [size for size in lengths if size > lm.max_positions]
    if far and not has_rotary(lm.lm):
        raise BadSetting(
            f"{lm.name} has learned positions for {lm.max_positions:,} tokens, so nothing can be read at {far[0]:,}."
        )
    plan, longest = sizes.plan(), max(lengths)
    train, held_out = at.texts
    long, units = held_out_windows(lm, held_out, longest, -(-sizes.windows * sizes.length // longest))
    trainer = PhaseTrainer.of(
        at,
        n_sink=plan.n_sink,
        expected=sizes.seeds * (1 + 2 * len(lengths)),
        documents=train,
        windows=long,
        units=units,
    )
    plans = [replace(plan, seed=seed) for seed in sizes.every_seed]
    routers = [trainer.router(sizes.named(f"at {sizes.length:,} tokens", one), one) for one in plans]
    found = []
    for size in lengths:
        ids = long[:, : longest // size * size].reshape(-1, size)
        parts = [_read(trainer, router, one, ids) for router, one in zip(routers, plans, strict=True)]
        found += [_row(trainer, k, parts, ids, np.repeat(units, longest // size)) for k in KS]
    told = {"window": sizes.length, "steps": sizes.steps, "training_text": trainer.texts, "seeds": sizes.seeds}
    return {
        "rows": found,
        "trained_at": sizes.length,
        "window": plan.window,
        "n_sink": plan.n_sink,
        "windows": long.size // sizes.length,
        "positions": lm.max_positions,
        "plans": plain({"router": plan}),
        "protocol": at.about(long, units, kernel=KERNELS, **told),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows, length = numbers["rows"], numbers["trained_at"]
    more = [interval_caveat(numbers["protocol"])]
    if far := dict.fromkeys(f"{row['length']:,}" for row in rows if row["extrapolated"]):
        said = f"The model was trained on up to {numbers['positions']:,} positions"
        more.append(f"{said}; {', '.join(far)} is extrapolated, dense as well.")
    said = sentence(rows, length, numbers["protocol"].get("seeds", 1))
    return presented("lengths", said, panels(rows), *more)


def _lengths(rows: str | None, length: int) -> list[int]:
    try:
        sizes = sorted({int(word) for word in rows.split(",")}) if rows else [length * times for times in TIMES]
    except ValueError:
        raise BadSetting(f"The rows of this study are lengths such as 512,1024,2048, not {rows[:40]!r}.") from None
    if not all(16 <= size <= 1 << 17 for size in sizes):
        raise BadSetting(f"Windows of {sizes[0]:,} to {sizes[-1]:,} tokens: choose lengths from 16 to 131,072.")
    return sizes


def _read(trainer: PhaseTrainer, router: FocusRouter, plan: RouterTraining, ids: np.ndarray) -> dict:
    """What the router of one seed and its controls read at a length: name -> Read, and k -> `equal` window."""
    size, window = ids.shape[1], plan.window
    chance = {k: drawn_arms(router, window, DRAWS * plan.seed, k) for k in KS}
    arms = [DENSE]
    for k in KS:
        settings = {"window": window, "top": k}
        arms += [Arm(f"trained, top {k}", settings, router), *chance[k]]
        arms += [Arm(f"trained, top {k}, literal", settings | {"membership": "literal"}, router)]
    found = trainer.measure(router, arms, ids)
    wide = {k: equal_pairs_window(found[f"trained, top {k}"].pairs, size, trainer.n_sink) for k in KS}
    alone = trainer.measure(router, [window_arm(one) for one in dict.fromkeys(wide.values())], ids)
    for k in KS:
        found[f"random, top {k}"] = Read.pool([found[arm.name] for arm in chance[k]])
        found[f"window, top {k}"] = alone[f"window {wide[k]}"]
    return found | {"equal": wide}


def _row(trainer: PhaseTrainer, k: int, parts: list[dict], ids: np.ndarray, units: np.ndarray) -> dict:
    """The row of a length and a k, a part for every seed; `units` [n] is the document of each window."""
    size = ids.shape[1]
    reads = {"dense": [part["dense"] for part in parts]}
    reads |= {name: [part[f"{name}, top {k}"] for part in parts] for name in ("trained", "random", "window")}
    literal = Read.pool([part[f"trained, top {k}, literal"] for part in parts])
    together = {name: Read.pool(several) for name, several in reads.items()}
    row = {
        "length": size,
        "k": k,
        "extrapolated": size > trainer.lm.max_positions,
        "windows": len(ids),
        "perplexity_dense": together["dense"].perplexity,
        "perplexity": together["trained"].perplexity,
        "perplexity_literal": literal.perplexity,
        "perplexity_random": together["random"].perplexity,
        "perplexity_window": together["window"].perplexity,
        "equal_window": round(np.mean([part["equal"][k] for part in parts])),
        "largest_share": max(share for one in reads["trained"] for share in one.shares),
        "pairs_share": together["trained"].pairs / (size * (size + 1) // 2),
    }
    means = {name: by_seed(several) for name, several in reads.items()}
    for name in ("dense", "random", "window"):
        row |= difference(f"against_{name}", means["trained"], means[name], units)
    for name in ("random", "window"):
        row |= difference(f"{name}_against_dense", means[name], means["dense"], units)
    return row


def panels(rows: list[dict]) -> list[dict]:
    """Small multiples over the lengths, one pair for each k, and the paper's table beside."""
    made, x, controls = [], ("length", "length, tokens"), {"random": "random tokens", "window": "window of equal pairs"}
    read = {"dense": "perplexity_dense", "trained groups, hard": "perplexity"}
    read |= {label: f"perplexity_{name}" for name, label in controls.items()}
    above = {"trained groups": "against_dense"}
    above |= {label: f"{name}_against_dense" for name, label in controls.items()}
    for k in KS:
        mine = [row for row in rows if row["k"] == k]
        made.append(chart(f"Perplexity, k = {k}", mine, *x, "perplexity", read))
        made.append(chart(f"Loss above dense, k = {k}", mine, *x, "nats per token", above))
    names = ("Full attn", "Focus top-k=2 (2x speedup)", "Focus top-k=3 (1.3x speedup)")
    lines = paper_lines({name: [printed("section 3.5", f"{n:,}", name) for n in PAPER] for name in names})
    return [*made, panel("Section 3.5: Mistral 7B", *x, list(PAPER), "perplexity", lines)]


def sentence(rows: list[dict], length: int, seeds: int) -> str:
    """How the distance to dense goes on from the length of the training, and what differs from the controls."""
    judged, said = holm_corrected(rows, *CONTROLS), []
    for k in KS:
        mine = [row for row in judged if row["k"] == k]
        told = [
            f"{signed(row['against_dense'])} at {row['length']:,}{' (extrapolated)' if row['extrapolated'] else ''}"
            for row in mine
        ]
        unsure = [row for row in mine if not Comparison.of(row, "against_dense").direction]
        said.append(f"k = {k}: {', '.join(told)}{_unseen(unsure, len(mine))}")
    whom = "This router, trained at" if seeds == 1 else f"{seeds} routers, trained at"
    apart = "; ".join(f"from {name} {_signs(rows, judged, key)}" for key, name in CONTROLS.items())
    return (
        f"{whom} {length:,} tokens, in nats per token above dense attention: {'. '.join(said)}."
        f"{multiplicity_note(judged, *CONTROLS)} Significant differences of {len(rows)} each: {apart}."
        f"{scope_of_claim(seeds)}"
    )


def _unseen(unsure: list[dict], count: int) -> str:
    """What is said behind `count` differences when the family leaves some `unsure`: what each interval alone could have
    detected."""
    if not unsure:
        return ""
    least = minimum_detectable_effect(unsure, "against_dense")
    if least is None:
        return f"; {detectable(least)}"
    which = "not significant" if len(unsure) == count else f"{len(unsure)} of {count} not significant"
    return f"; {which} in this family, and judged alone {detectable(least)}"


def _signs(rows: list[dict], judged: list[dict], key: str) -> str:
    """How many losses are higher and lower than a control's, and how many would be by their own intervals alone."""
    found, alone = ([Comparison.of(row, key).direction for row in some] for some in (judged, rows))
    said = f"{found.count(1)} higher and {found.count(-1)} lower"
    return said if found == alone else f"{said} (by their own intervals {alone.count(1)} and {alone.count(-1)})"


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention at every length, on all held-out windows."""
    lengths = sorted({row["length"] for row in numbers["rows"]})
    count = -(-at.sizes.windows * at.sizes.length // lengths[-1])
    long, _ = held_out_windows(at.lm, at.texts[1], lengths[-1], count)
    parts = {size: long[:, : lengths[-1] // size * size].reshape(-1, size) for size in lengths}
    read = {size: float(np.exp(dense_of(at.lm, ids, at.context).means.mean())) for size, ids in parts.items()}
    rows = [{"length": size, "perplexity_dense": perplexity} for size, perplexity in read.items()]
    return {"rows": rows, "protocol": {"text": ids_hash(long)}}


lengths = Study("lengths", __doc__, Sizes, measure, shown, sample, part=part)
