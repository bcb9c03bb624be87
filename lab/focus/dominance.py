"""Does balance hold? Training with and without Sinkhorn, phase 1 then phase 2, and what Focus' table 8 tries."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from analysis.commands.groups import AGAINST_COLLAPSE
from analysis.groups.dominance import balanced_largest_share, confidence, largest_share, stability
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import scope_of_claim
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import TRAINED, Setting, option
from analysis.studies.stored.trained import Trainer, Training, plain
from analysis.studies.text.held_out import chosen
from analysis.training.focus import finetune, train_router
from analysis.training.run import PROBED
from analysis.training.settings import RouterTraining
from lab.harness.telling import portion

TUNED = "balance loss tuned"
# Name -> what differs.
ROWS: dict[str, dict] = AGAINST_COLLAPSE | {TUNED: {"balance": "softmax"}}
# Of the tuned row, one after the other, until phase 1 ends at the share that the paper's does, or below.
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
PAPER_SHARE = 0.15
# Rows that the conclusion is about.
CLAIMED = ("softmax", TUNED, "sinkhorn", "sinkhorn with 50 iterations")
# A layer whose largest group holds this share of the tokens.
COLLAPSED = 0.9
# A group that holds less than this part of its even share is dead. The paper counts them (table 8, balance weight times
# five) and does not say from when on one is.
DEAD = 0.1
PATHS = ("centroid_cosine", "drift", "start_share", "rank")


class Dominance(Training):
    """Each row of `ROWS` trained for `steps` in phase 1 and as many in phase 2, the largest group's share followed. All
    rows have the same start, data, rates, soft gate, window and sinks; the state after the last step counts, not the
    best one. Shares are of literal assignment on held-out windows, `causal` with the balance frozen; `stability` of
    phase 1 counts tokens that kept their group in the last 20 steps, of phase 2 those that have the one phase 1 ended
    with. The weight of the tuned balance loss is the one of `weights` that ended phase 1 nearest to the paper's 15% on
    training texts, at the first seed."""

    tables = ("rows", "curves", "weights")
    whole = TRAINED

    windows: int = option(8, "number of held-out windows measured at the end of a phase", low=2, high=4096)
    others: int = option(
        1, "trainings of the rows of table 8 that no sentence is about, at most `seeds`", low=1, high=99
    )

    def measure(self, run: Setting) -> dict:
        lm, names = run.lm, chosen(self.rows, list(ROWS))
        seeds_of = {name: self.every_seed if name in CLAIMED else self.every_seed[: self.others] for name in names}
        trainings = sum(map(len, seeds_of.values()))
        trainer = Trainer.of(run, expected=trainings + len(WEIGHTS) * (TUNED in names))
        weights, settings = self.weights(trainer) if TUNED in names else [], dict(ROWS)
        if weights:
            nearest = min(weights, key=distance_from_paper)
            settings[TUNED] = ROWS[TUNED] | {"balance_weight": nearest["weight"]}
        rows, curves = [], []
        plans: dict[str, RouterTraining] = {}
        for name in names:
            parts = []
            for seed in seeds_of[name]:
                both = [self.plan(phase=phase, seed=seed, **settings[name]) for phase in (1, 2)]
                plans.setdefault(name, both[0])
                decides = [lm.revision, str(lm.dtype), trainer.texts, [plan.plain() for plan in both]]
                make = partial(_train_both, trainer, trainer.named(name, seed), both)
                parts.append(trainer.part(f"dominance-{name.replace(' ', '-')}", decides, make))
            row = together(parts)
            rows.append({"row": name, "seeds": len(parts), "settings": settings[name], **row["ends"]})
            curves += [{"row": name, **point} for point in row["curve"]]
        about = {"text": trainer.texts, "tokens": len(trainer.ids), "kernel": "gate on the scores"}
        return {
            "even": 1 / self.groups,
            "chance": balanced_largest_share(PROBED * self.length, self.groups),
            "rows": rows,
            "curves": curves,
            "weights": weights,
            "plans": plain(plans),
            "protocol": run.about(run.windows, **about),
        }

    def weights(self, trainer: Trainer) -> list[dict[str, float]]:
        """`weight share` of each tried weight of the balance loss: the largest group's, mean of layers, in the last
        look at the training texts of phase 1."""
        tried: list[dict[str, float]] = []
        for weight in WEIGHTS:
            plan = self.plan(**ROWS[TUNED], balance_weight=weight)
            decides = [trainer.lm.revision, str(trainer.lm.dtype), trainer.texts, plan.plain()]

            def make(doing: Path, plan: RouterTraining = plan) -> dict[str, float]:
                report = trainer.within(f"balance weight {plan.balance_weight:g}").progress
                log = train_router(trainer.lm, trainer.ids, plan, doing / "phase1.checkpoint", report)[-1]
                return {"share": float(np.mean(log[-1]["shares"]))}

            tried.append({"weight": weight} | trainer.part("dominance-weight", decides, make))
            if tried[-1]["share"] <= PAPER_SHARE:
                break
        return tried

    @staticmethod
    def shown(numbers: dict) -> dict:
        protocol, parts = numbers["protocol"], []
        for row in numbers["rows"]:
            if row["row"] in CLAIMED:
                fate = f"no layer reached {COLLAPSED:.0%}"
                if row["collapsed_at"]:
                    trainings = f"{row['collapsed']} of {protocol['seeds']} trainings"
                    fate = f"in {trainings} a layer passed {COLLAPSED:.0%}, first at step {row['collapsed_at']:,}"
                parts.append(f"{row['row']}: {row['worst_1']:.1%} and {row['worst_2']:.1%}, {fate}")
        lead = f"Largest group of the worst layer after phase 1 and 2, of the tokens (even: {numbers['even']:.1%}): "
        sentence = f"{lead}{'; '.join(parts) or 'neither softmax nor Sinkhorn is among these rows'}."
        done = [row.get("seeds", protocol["seeds"]) for row in numbers["rows"]]
        hours = protocol.get("seconds", 0) / 3600 / sum(done)
        notes = [f"One look at the groups reads {PROBED * protocol['window']:,} training tokens."]
        gates = sorted({plan["gate"] for plan in numbers["plans"].values()})
        notes.append(
            f"Trained through the {' and '.join(gates)} gate (equation 2 as printed is `train-router --gate literal`). "
            "Phase 2 reads the windows of phase 1 once more, in their order."
        )
        if weights := numbers.get("weights"):
            nearest = min(weights, key=distance_from_paper)
            tried = ", ".join(f"{weight['weight']:g}" for weight in weights)
            notes.append(
                f"The tuned balance loss has weight {nearest['weight']:g}: of {tried} the one that ended phase 1 "
                f"nearest to the paper's {PAPER_SHARE:.0%} on training texts, at {nearest['share']:.1%}."
            )
        sentence += scope_of_claim(protocol["seeds"]) + portion(len(done), len(ROWS), "rows", hours)
        return presented("dominance", sentence, None, *notes)


def distance_from_paper(weight: dict[str, float]) -> float:
    """How far a tried weight of the balance loss ended phase 1 from the paper's share."""
    return abs(weight["share"] - PAPER_SHARE)


def _train_both(trainer: Trainer, name: str, plans: list[RouterTraining], doing: Path) -> dict:
    """Both phases of a row: `ends` as in a row of the study, and `curve`; checkpoints lie in `doing`."""
    lm, ids, windows = trainer.lm, trainer.ids, trainer.windows
    places = [doing / f"phase{plan.phase}.checkpoint" for plan in plans]
    reports = [trainer.within(name, 0.5, began).progress for began in (0.0, 0.5)]
    router, _, log = train_router(lm, ids, plans[0], places[0], reports[0], escape_paths)
    first, labels = _end(lm, router, windows)
    tuned, router, _, second_log = finetune(lm, router, ids, plans[1], places[1], reports[1], escape_paths)
    second, now = _end(tuned, router, windows)
    second["stability"] = float(np.mean([stability(a, b, router.K)[0] for a, b in zip(labels, now, strict=True)]))
    ends: dict[str, float | None] = {}
    past, collapsed_at = 0, None
    for phase, (end, rows) in enumerate(((first, log), (second, second_log)), 1):
        last = next(row for row in reversed(rows) if "shares" in row)
        end = {"stability": last["stability"]} | end | {path: float(np.mean(last[path])) for path in PATHS}
        ends |= {f"{key}_{phase}": value for key, value in end.items()}
        for row in rows:
            if collapsed_at is None and row.get("largest_share", 0) >= COLLAPSED:
                collapsed_at = row["step"] + 1 + past
        past += len(rows)
    return {"ends": ends | {"collapsed_at": collapsed_at}, "curve": [*curve(log, 1), *curve(second_log, 2)]}


def _end(lm: Model, router: FocusRouter, windows: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
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
        "dead": float(np.mean([dead_groups(layer, router.K) for layer in labels])),
        "causal": max(largest_share(layer, router.K) for layer in causal),
        "confidence": float(np.mean([confidence(groups) for groups in soft])),
        "hard": hard,
    }, labels


def dead_groups(group: np.ndarray, groups: int) -> int:
    """How many of the groups hold less than `DEAD` of their even share of the tokens, labels [...]."""
    return int((np.bincount(group.ravel(), minlength=groups) < DEAD * group.size / groups).sum())


def together(parts: list[dict]) -> dict:
    """The trainings of a row, one of each seed, as one: means, and the largest groups' `shares` in each training."""
    ends = {name: [part["ends"][name] for part in parts] for name in parts[0]["ends"]}
    steps = [step for step in ends.pop("collapsed_at") if step is not None]
    means: dict[str, Any] = {name: float(np.mean(values)) for name, values in ends.items()}
    means |= {f"{name}_of_seeds": ends[name] for name in ("share_1", "worst_1", "share_2", "worst_2")}
    curve = []
    for points in zip(*(part["curve"] for part in parts), strict=True):
        mean = {name: round(float(np.mean([point[name] for point in points])), 5) for name in ("share", *PATHS)}
        curve.append(points[0] | mean | {"shares": [round(point["share"], 4) for point in points]})
    return {"ends": means | {"collapsed_at": min(steps, default=None), "collapsed": len(steps)}, "curve": curve}


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


@torch.no_grad()
def escape_paths(
    router: FocusRouter, inputs: list[Tensor], start: FocusRouter, first: list[Tensor]
) -> dict[str, list[float]]:
    """How groups escape balance (Focus, section 4), each path a number of every layer [L].

    inputs [L][N, width] are the attention inputs of now, `first` those of the same tokens at the start. Table 8 of the
    paper ticks the paths off without saying how they were measured; these are the readings taken here. A: the centroids
    come to point one way (`centroid_cosine`). B: the hidden states move (`drift`) towards one centroid: the largest
    group's share as the router of the start sees the states of now, its balance frozen then (`start_share`). C: the
    projection maps all tokens one way (`rank`).
    """
    paths: dict[str, list[float]] = {name: [] for name in PATHS}
    for layer, (now, before) in enumerate(zip(inputs, first, strict=True)):
        labels = start.soft(layer, now, membership="causal").argmax(-1).cpu()
        paths["centroid_cosine"].append(centroid_cosine(router.centroids[layer]))
        paths["drift"].append(hidden_drift(before, now))
        paths["start_share"].append(largest_share(labels.numpy(), start.K))
        paths["rank"].append(effective_rank(router.project(layer, now)))
    return paths


def centroid_cosine(centroids: Tensor) -> float:
    """Mean cosine of all pairs of centroids [K, d_s]; near 0 when spread, 1 when all point one way."""
    unit = F.normalize(centroids.detach().float(), dim=-1)
    pairs = len(unit) * (len(unit) - 1) / 2
    return float((unit @ unit.T).triu(1).sum() / pairs) if pairs else float("nan")


def hidden_drift(start: Tensor, now: Tensor) -> float:
    """Mean over tokens of 1 - cosine between hidden states [N, width] of the start and of now; 0: no change."""
    return float(1 - F.cosine_similarity(start.float(), now.float(), dim=-1).mean())


def effective_rank(vectors: Tensor) -> float:
    """exp of the entropy of the singular values' shares of vectors [N, d_s] (Roy & Vetterli, 2007), not centred: from 1
    (all tokens on one line) to d_s (as much in every direction)."""
    values = torch.linalg.svdvals(vectors.detach().float())
    return float(torch.special.entr(values / values.sum().clamp_min(1e-30)).sum().exp())
