"""Does balance hold? Training with and without Sinkhorn, phase 1 then phase 2, and what Focus' table 8 tries."""

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from analysis.groups.dominance import balanced_largest_share, confidence, largest_share, stability
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import scope_of_claim
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import TRAINED, Setting, Study, option
from analysis.studies.stored.trained import Trainer, Training, plain, sample
from analysis.studies.text.held_out import chosen
from analysis.training.focus import finetune, train_router
from analysis.training.run import PROBED
from analysis.training.settings import RouterTraining
from lab.focus.escaping import escape_paths

SOFT_LOSSES = {"balance": "softmax", "balance_weight": 0.01, "entropy_weight": 0.01}
ROWS = {  # name -> what differs from the others; the third to the last but one are the rows of table 8
    "softmax": {"balance": "softmax"},
    "balance loss": {"balance": "softmax", "balance_weight": 0.01},
    "entropy and balance loss": SOFT_LOSSES,
    "stop-gradient on inputs": {"balance": "softmax", "detach": True},
    "EMA centroids": {"balance": "softmax", "detach": True, "ema": 0.99},
    "recluster every 100 steps": {"balance": "softmax", "recluster_every": 100},
    "balance weight x5": SOFT_LOSSES | {"balance_weight": 0.05},
    "sinkhorn": {},
    "sinkhorn with 50 iterations": {"iterations": 50},
}
COLLAPSED = 0.9  # a layer whose largest group holds this share of the tokens
PATHS = ("centroid_cosine", "drift", "start_share", "rank")


@dataclass(frozen=True)
class Sizes(Training):
    """What the study can be asked for."""

    windows: int = option(8, "number of held-out windows measured at the end of a phase")


def measure(run: Setting) -> dict:
    """Each row of `ROWS` trained for `steps` in phase 1 and as many in phase 2, the largest group's share followed.

    All rows have the same start, data, rates, soft gate, window and sinks; the state after the last step counts, not
    the best one. Shares are of literal assignment on held-out windows, `causal` with the balance frozen; `stability` of
    phase 1 counts tokens that kept their group in the last 20 steps, of phase 2 those that have the one phase 1 ended
    with. Errors: BadSetting, BadText.
    """
    lm, sizes, names = run.lm, run.sizes, chosen(run.sizes.rows, list(ROWS))
    trainer = Trainer.of(run, expected=len(names) * sizes.seeds)
    rows, curves, plans = [], [], {}
    for name in names:
        parts = []
        for seed in sizes.every_seed:
            both = [sizes.plan(phase=phase, seed=seed, **ROWS[name]) for phase in (1, 2)]
            plans.setdefault(name, both[0])
            decides = [lm.revision, str(lm.dtype), trainer.texts, [asdict(plan) for plan in both]]
            make = partial(_row, trainer, sizes.named(name, both[0]), both)
            parts.append(trainer.part(f"dominance-{name.replace(' ', '-')}", decides, make))
        row = together(parts)
        rows.append({"row": name, "settings": ROWS[name], **row["ends"]})
        curves += [{"row": name, **point} for point in row["curve"]]
    about = {"text": trainer.texts, "window": sizes.length, "steps": sizes.steps, "kernel": "gate on the scores"}
    return {
        "even": 1 / sizes.groups,
        "chance": balanced_largest_share(PROBED * sizes.length, sizes.groups),
        "rows": rows,
        "curves": curves,
        "plans": plain(plans),
        "protocol": run.about(run.windows, **about, seeds=sizes.seeds) | {"tokens": len(trainer.ids)},
    }


def _row(trainer: Trainer, name: str, plans: list[RouterTraining], doing: Path) -> dict:
    """Both phases of a row: `ends` as in a row of the study, and `curve`; checkpoints lie in `doing`."""
    lm, ids, windows = trainer.lm, trainer.ids, trainer.windows
    places = [doing / f"phase{plan.phase}.checkpoint" for plan in plans]
    router, _, log = train_router(lm, ids, plans[0], places[0], trainer.told(name, 0.5), escape_paths)
    first, labels = _end(lm, router, windows)
    tuned, router, _, second_log = finetune(
        lm, router, ids, plans[1], places[1], trainer.told(name, 0.5, 0.5), escape_paths
    )
    second, now = _end(tuned, router, windows)
    second["stability"] = float(np.mean([stability(a, b, router.K)[0] for a, b in zip(labels, now, strict=True)]))
    ends, past, collapsed_at = {}, 0, None
    for phase, (end, rows) in enumerate(((first, log), (second, second_log)), 1):
        last = next(row for row in reversed(rows) if "shares" in row)
        end = {"stability": last["stability"]} | end | {path: float(np.mean(last[path])) for path in PATHS}
        ends |= {f"{key}_{phase}": value for key, value in end.items()}
        for row in rows:
            if collapsed_at is None and row.get("largest_share", 0) >= COLLAPSED:
                collapsed_at = row["step"] + 1 + past
        past += len(rows)
    return {"ends": ends | {"collapsed_at": collapsed_at}, "curve": [*curve(log, 1), *curve(second_log, 2)]}


def together(parts: list[dict]) -> dict:
    """What the trainings of a row found, one of each seed, as one."""
    ends = {name: [part["ends"][name] for part in parts] for name in parts[0]["ends"]}
    steps = [step for step in ends.pop("collapsed_at") if step is not None]
    mean = {name: float(np.mean(values)) for name, values in ends.items()}
    curve = [
        points[0] | {name: round(float(np.mean([point[name] for point in points])), 5) for name in ("share", *PATHS)}
        for points in zip(*(part["curve"] for part in parts), strict=True)
    ]
    return {"ends": mean | {"collapsed_at": min(steps, default=None), "collapsed": len(steps)}, "curve": curve}


def _end(lm: Model, router: FocusRouter, windows: np.ndarray) -> tuple[dict, np.ndarray]:
    """A phase's end on held-out windows [n, T], dense hidden states; and the literal labels [L, n T]."""
    inputs = attention_inputs(lm, list(windows))  # L x [n T, d]
    split = [hidden.view(len(windows), -1, hidden.shape[-1]) for hidden in inputs]
    soft = [router.soft(layer, hidden).flatten(0, 1).numpy() for layer, hidden in enumerate(split)]
    causal = [router.soft(layer, hidden, membership="causal").argmax(-1).numpy() for layer, hidden in enumerate(inputs)]
    labels = np.stack([groups.argmax(-1) for groups in soft])
    shares = [largest_share(layer, router.K) for layer in labels]
    with apply(lm, METHODS["focus"].build(router), kernels=True):
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


def shown(numbers: dict) -> dict:
    """What the rows say about softmax and Sinkhorn, whichever way it came out."""
    protocol, parts = numbers["protocol"], []
    rows = {row["row"]: row for row in numbers["rows"]}
    for name in ("softmax", "sinkhorn", "sinkhorn with 50 iterations"):
        if name in rows:
            row = rows[name]
            often = f" with {row['collapsed']} of {protocol['seeds']} seeds, first" if protocol["seeds"] > 1 else ""
            fate = f"no layer reached {COLLAPSED:.0%}"
            if row["collapsed_at"]:
                fate = f"a layer passed {COLLAPSED:.0%}{often} at step {row['collapsed_at']:,}"
            parts.append(
                f"{name.capitalize()}: the largest group of the worst layer holds {row['worst_1']:.1%} of the tokens "
                f"after phase 1 and {row['worst_2']:.1%} after phase 2 (even: {numbers['even']:.1%}); {fate}."
            )
    sentence = " ".join(parts) + scope_of_claim(protocol["seeds"])
    note = f"One look at the groups reads {PROBED * protocol['window']:,} training tokens."
    missing = "Neither softmax nor Sinkhorn is among these rows."
    return presented("dominance", sentence if parts else missing, None, note)


dominance = Study("dominance", __doc__, Sizes, measure, shown, sample, tables=("rows", "curves"), whole=TRAINED)
