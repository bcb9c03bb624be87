"""Does balance hold? Training with and without Sinkhorn, phase 1 then phase 2, and what Focus' table 8 tries."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.attention import apply
from analysis.corpus import text_hash, token_stream
from analysis.groups.dominance import balanced_largest_share, confidence, largest_share, stability
from analysis.groups.paths import escape_paths
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.runs import Result
from analysis.statistics import attention_inputs
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.stored.trained import first_losses
from analysis.studies.text.held_out import corpus_hash, held_out_windows, places, read_part, texts_of, write
from analysis.studies.text.sizes import chosen
from analysis.training.focus import finetune, train_router
from analysis.training.run import PROBED
from analysis.training.settings import RouterTraining

SOFT_LOSSES = {"balance": "softmax", "balance_weight": 0.01, "entropy_weight": 0.01}
ROWS = {  # name -> what differs from the others; all but the first and the last are the rows of table 8
    "softmax": {"balance": "softmax"},
    "entropy and balance loss": SOFT_LOSSES,
    "stop-gradient on inputs": {"balance": "softmax", "detach": True},
    "EMA centroids": {"balance": "softmax", "detach": True, "ema": 0.99},
    "recluster every 100 steps": {"balance": "softmax", "recluster_every": 100},
    "balance weight x5": SOFT_LOSSES | {"balance_weight": 0.05},
    "sinkhorn": {},
    "sinkhorn with 50 iterations": {"iterations": 50},
}
COLLAPSED = 0.9  # a layer whose largest group holds this share of the tokens
HELD_OUT = 8  # windows on which the end of a phase is measured
PATHS = ("centroid_cosine", "drift", "start_share", "rank")
READ_AS = (
    "Balance loss as in Switch Transformers (K sum f P), weight 0.01; entropy of the assignments, weight 0.01; EMA "
    "decay 0.99 with detached inputs; k-means of the routing vectors every 100 steps: the paper gives none of these."
)


def dominance(
    corpus: str = "",
    model: str = "demo",
    steps: int = 600,
    groups: int = 8,
    window: int | None = None,
    n_sink: int | None = None,
    tokens_per_step: int = 1024,
    length: int = 1024,
    rate: float = 1e-3,
    base_rate: float = 1e-4,
    rows: str | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Train each row of `ROWS` for `steps` in phase 1 and as many in phase 2, and follow the largest group's share.

    All rows have the same start, data, rates, soft gate, `window` (default 16) and sinks (default 4); the state after
    the last step counts, not the best one. `rows`: names joined by commas (default all). A row that is done is kept in
    `work`, one that was stopped goes on from its last checkpoint.
    numbers: `even` (1/K), `chance` (what balanced chance shows on the tokens of one look: shares near it are balanced),
    `rows`: `row settings`, and of both phases `share` and `worst` (largest group's, mean of and worst layer, literal
    assignment of held-out windows), `causal` (the same with the balance frozen, worst layer), `confidence`,
    `stability` (phase 1: tokens that kept their group in the last 20 steps;
    phase 2: that have the one phase 1 ended with, groups matched), `hard` (nats per token as at inference),
    `collapsed_at` (first step at which a layer's largest group held 90 %, counted on into phase 2, or None) and the
    paths A, B, C at the end (`paths.escape_paths`), mean of layers; `sentence`, `notes`, `path`.
    tables: `rows`, `curves` (`row phase step layer share` and the paths; layer -1 is the mean of all, `phase` 2
    counts its own steps). Errors: BadSetting, BadText.
    """
    check_seed(seed)
    names = chosen(rows, list(ROWS))
    lm = context.model(model)
    length = min(length, lm.max_positions)
    sizes = {"groups": groups, "window": 16 if window is None else window, "n_sink": 4 if n_sink is None else n_sink}
    sizes |= {"steps": steps, "tokens_per_step": tokens_per_step, "length": length, "seed": seed, "check_windows": 0}
    plans = {
        name: [RouterTraining(**sizes, rate=rate, base_rate=base_rate, phase=phase, **ROWS[name]) for phase in (1, 2)]
        for name in names
    }
    train, held_out = texts_of(corpus, context)
    path, folder = places(context, lm, "dominance", output, work)
    train_ids = token_stream(lm.tokenizer, train)
    windows = held_out_windows(lm, held_out, length, HELD_OUT)
    texts = corpus_hash(train)
    found = {}
    for index, (name, both) in enumerate(plans.items()):
        key = text_hash(repr([lm.revision, str(lm.dtype), texts, [asdict(plan) for plan in both]]))
        part = folder / f"dominance-{name.replace(' ', '-')}-{key}.json"

        def told(done: float, stage: str, name=name, index=index):
            context.progress((index + done) / len(plans), f"{name}, {stage}")

        found[name] = read_part(part) or _row(lm, train_ids, windows, both, part, told)
    looked = PROBED * length
    numbers = {
        "sentence": sentence(found, 1 / groups),
        "even": 1 / groups,
        "chance": balanced_largest_share(looked, groups),
        "rows": [{"row": name, "settings": ROWS[name], **row["ends"]} for name, row in found.items()],
        "notes": [READ_AS, f"One look at the groups reads {looked:,} training tokens."],
    }
    command = (
        f"python -m analysis study dominance --corpus DIR --model {lm.name} --steps {steps} --length {length} --seed "
        f"{seed} --tokens-per-step {tokens_per_step} --window {sizes['window']} --sinks {sizes['n_sink']}"
        f"{f' --rows {rows!r}' if rows else ''}"
    )
    numbers["protocol"] = protocol(
        "study dominance", lm, texts, len(train_ids), window=length, seed=seed, steps=steps, command=command,
        training=sizes | {"rate": rate, "base_rate": base_rate}, kernel="gate on the scores",
        corpus=f"{Path(corpus).name}, {len(train)} training and {len(held_out)} held-out documents",
    )  # fmt: skip
    curves = [{"row": name, **point} for name, row in found.items() for point in row["curve"]]
    check = first_losses(lm, {name: both[0] for name, both in plans.items()})
    write(path, numbers | {"curves": curves, "check": check})
    tables = {"rows": pd.DataFrame(numbers["rows"]).drop(columns="settings"), "curves": pd.DataFrame(curves)}
    return Result(numbers | {"path": str(path)}, tables)


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, row -> (what is stored, what comes out now)."""
    lm, made = context.model(stored["protocol"]["model"]), stored["protocol"]["training"]
    plans = {name: RouterTraining(**made, **ROWS[name]) for name in stored["check"]}
    again = first_losses(lm, plans)
    return {name: (losses, again[name]) for name, losses in stored["check"].items()}


def _row(lm: Model, ids: np.ndarray, windows: np.ndarray, plans: list[RouterTraining], part: Path, told) -> dict:
    """Both phases of a row: `ends` as in a row of the study, and `curve`; kept as `part`."""
    kept = [part.with_suffix(f".phase{plan.phase}.checkpoint") for plan in plans]
    router, _, log = train_router(lm, ids, plans[0], kept[0], lambda done, stage: told(done / 2, stage), escape_paths)
    first, labels = _end(lm, router, windows)
    own, router, _, more = finetune(
        lm, router, ids, plans[1], kept[1], lambda done, stage: told(0.5 + done / 2, stage), escape_paths
    )
    second, now = _end(own, router, windows)
    second["stability"] = float(np.mean([stability(a, b, router.K)[0] for a, b in zip(labels, now, strict=True)]))
    ends = {}
    for phase, end, rows in (("1", first, log), ("2", second, more)):
        last = next(row for row in reversed(rows) if "shares" in row)
        end = {"stability": last["stability"]} | end | {name: float(np.mean(last[name])) for name in PATHS}
        ends |= {f"{name}_{phase}": value for name, value in end.items()}
    both = log + [row | {"step": row["step"] + len(log)} for row in more]
    ends["collapsed_at"] = next((r["step"] + 1 for r in both if r.get("largest_share", 0) >= COLLAPSED), None)
    row = {"ends": ends, "curve": [*curve(log, 1), *curve(more, 2)]}
    write(part, row)
    for one in kept:
        one.unlink(missing_ok=True)
    return row


def _end(lm: Model, router: FocusRouter, windows: np.ndarray) -> tuple[dict, np.ndarray]:
    """A phase's end on held-out windows [n, T], dense hidden states; and the literal labels [L, n T]."""
    inputs = attention_inputs(lm, list(windows))  # L x [n T, d]
    split = [hidden.view(len(windows), -1, hidden.shape[-1]) for hidden in inputs]
    soft = [router.soft(layer, hidden).flatten(0, 1).numpy() for layer, hidden in enumerate(split)]
    causal = [router.soft(layer, hidden, causal=True).argmax(-1).numpy() for layer, hidden in enumerate(inputs)]
    labels = np.stack([groups.argmax(-1) for groups in soft])
    shares = [largest_share(layer, router.K) for layer in labels]
    with apply(lm, METHODS["focus"].of(router), kernels=True):
        hard = float(perplexity(lm, windows.reshape(-1), windows.shape[1]).losses.mean())
    return {
        "share": float(np.mean(shares)),
        "worst": max(shares),
        "causal": max(largest_share(layer, router.K) for layer in causal),
        "confidence": float(np.mean([confidence(groups) for groups in soft])),
        "hard": hard,
    }, labels


def curve(log: list[dict], phase: int) -> list[dict]:
    """The looks of a training log as points `phase step layer share` and the paths; layer -1 is the mean of all."""
    points = []
    looks = [(0, row["start"]) for row in log[:1]] + [(row["step"] + 1, row) for row in log if "shares" in row]
    for step, look in looks:
        table = np.array([look["shares"], *(look[name] for name in PATHS)])  # [5, L]
        for layer, values in [(-1, table.mean(1)), *enumerate(table.T)]:
            named = dict(zip(("share", *PATHS), (round(float(value), 5) for value in values), strict=True))
            points.append({"phase": phase, "step": step, "layer": layer, **named})
    return points


def sentence(found: dict[str, dict], even: float) -> str:
    """What the rows say about softmax and Sinkhorn, whichever way it came out."""
    said = []
    for name in ("softmax", "sinkhorn", "sinkhorn with 50 iterations"):
        if name in found:
            end = found[name]["ends"]
            at = end["collapsed_at"]
            fate = f"a layer passed {COLLAPSED:.0%} at step {at:,}" if at else f"no layer reached {COLLAPSED:.0%}"
            said.append(
                f"{name.capitalize()}: the largest group of the worst layer holds {end['worst_1']:.1%} of the tokens "
                f"after phase 1 and {end['worst_2']:.1%} after phase 2 (even: {even:.1%}); {fate}."
            )
    return " ".join(said) or "Neither softmax nor Sinkhorn is among these rows."
