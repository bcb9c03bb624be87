"""Does the norm of queries and keys keep a small model from looking back? Random tokens that come again (induction)"""

from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np

from analysis.metrics.intervals import SEEDS, interval
from analysis.studies.context import Context
from analysis.studies.stored.comparisons import scope_of_claim
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import Seeds, Setting, option
from lab.far.looking_back import Circuit, train_circuit

ARMS = {"llama_plain": "as Llama", "llama": "queries and keys normalised"}
RATES = (1e-3, 2e-3)
# Nats per token of the second copy, below which the model knows what comes again.
KNOWN = 1.0
# Steps of a training that are stored and come again.
CHECKED = 2


class CircuitStudy(Seeds):
    """Models of two layers, with and without the norm, at two rates, trained on random tokens that repeat."""

    name = "circuit"
    tables = ("rows", "curves")

    steps: int = option(
        Circuit.steps, "most steps of a training: one that knows the second copy ends there", low=1, high=100_000
    )

    def measure(self, run: Setting) -> dict:
        curves, trainings = {}, list(product(ARMS, RATES, self.every_seed))
        for place, (family, rate, seed) in enumerate(trainings):
            plan = Circuit(family=family, rate=rate, seed=seed, steps=self.steps)
            inside = run.context.within(place / len(trainings), 1 / len(trainings), f"{_arm(plan)}, seed {seed}")

            def make(doing: Path | None, plan: Circuit = plan, inside: Context = inside) -> dict:
                return {"curve": train_circuit(plan, lambda e: inside.progress(e["step"] / plan.steps, "training"))}

            part = run.context.part(run.work, f"circuit-{family}-{seed}", [asdict(plan)], make)
            curves[plan] = part["curve"]
        return numbers(curves) | {
            "chance": float(np.log(Circuit.vocabulary)),
            "protocol": {
                "tokens": sum(curve[-1]["tokens"] for curve in curves.values()),
                "window": Circuit.length,
                "layers": Circuit.layers,
                "width": Circuit.width,
                "heads": Circuit.heads,
                "vocabulary": Circuit.vocabulary,
                "tokens_per_step": Circuit.sequences * Circuit.length,
                "unit": "seeds",
                "units": self.seeds,
            },
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        plans = [Circuit(family=family, seed=self.seed, steps=CHECKED, measured_every=1) for family in ARMS]
        return {_arm(plan): [value for entry in train_circuit(plan) for value in entry.values()] for plan in plans}

    def part(self, run: Setting, numbers: dict) -> dict:
        first = min(point["step"] for point in numbers["curves"])
        plans = [Circuit(family=family, rate=RATES[0], seed=self.seed, steps=first) for family in ARMS]
        return {"curves": [point for plan in plans for point in _points(plan, train_circuit(plan))]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        steps = sorted({entry["step"] for entry in numbers["curves"]})
        lines = [series(row["arm"], _mean_curve(numbers["curves"], row["arm"], steps)) for row in rows]
        lines.append(series("chance", [numbers["chance"]] * len(steps)))
        title = "Random tokens twice: the second copy"
        drawn = panel(title, "step", "training steps", steps, "nats per token", lines)
        return presented("circuit", _sentence(rows, numbers["chance"], numbers["protocol"]["seeds"]), [drawn])


def numbers(curves: dict[Circuit, list[dict]]) -> dict:
    """`rows` and `curves` of trained models."""
    grouped: dict[str, list[Circuit]] = {}
    for plan in curves:
        grouped.setdefault(_arm(plan), []).append(plan)
    points = [point for plan, curve in curves.items() for point in _points(plan, curve)]
    return {"rows": [_row(arm, plans, curves) for arm, plans in grouped.items()], "curves": points}


def _points(plan: Circuit, curve: list[dict]) -> list[dict]:
    """The second copy of a training by step."""
    about = {"arm": _arm(plan), "seed": plan.seed}
    return [about | {name: entry[name] for name in ("step", "second")} for entry in curve]


def _row(arm: str, plans: list[Circuit], curves: dict[Circuit, list[dict]]) -> dict:
    """One arm over its seeds."""
    ends = [curves[plan][-1] for plan in plans]
    first_known = [next((e["step"] for e in curves[plan] if e["second"] < KNOWN), None) for plan in plans]
    steps = [step for step in first_known if step is not None]
    second = interval([end["second"] for end in ends], fewest=SEEDS)
    return {
        "arm": arm,
        "norm": plans[0].family == "llama",
        "rate": plans[0].rate,
        "trainings": len(plans),
        "known": len(steps),
        "steps": float(np.median(steps)) if steps else None,
        "trained": max(end["step"] for end in ends),
        "first": float(np.mean([end["first"] for end in ends])),
        "second": second.mean,
        "second_low": second.low,
        "second_high": second.high,
    }


def _arm(plan: Circuit) -> str:
    """What a reader calls it."""
    return f"{ARMS[plan.family]}, rate {plan.rate:g}"


def _mean_curve(curves: list[dict], arm: str, steps: list[int]) -> list[float]:
    """The mean over seeds at each step; a training that ended stays where it ended."""
    of_seed: dict[int, dict[int, float]] = {}
    for entry in curves:
        if entry["arm"] == arm:
            of_seed.setdefault(entry["seed"], {})[entry["step"]] = entry["second"]
    return [float(np.mean([curve[max(s for s in curve if s <= step)] for curve in of_seed.values()])) for step in steps]


def _sentence(rows: list[dict], chance: float, seeds: int) -> str:
    """Where the circuit forms and where not, whichever way it came out."""
    parts = []
    for norm, name in ((False, "without the norm of queries and keys"), (True, "with it")):
        arms = [row for row in rows if row["norm"] == norm]
        learned, of = (sum(row[key] for row in arms) for key in ("known", "trainings"))
        steps = [row["steps"] for row in arms if row["steps"] is not None]
        when = f", after {min(steps):,.0f} to {max(steps):,.0f} steps at the median" if len(steps) > 1 else ""
        when = f", after {steps[0]:,.0f} steps at the median" if len(steps) == 1 else when
        never = f", and {min(row['second'] for row in arms):.2f} nats is the best mean" if learned < of else ""
        parts.append(f"{name} {learned} of {of} trainings learn it{when}{never}")
    lead = (
        f"A second copy of random tokens costs {chance:.2f} nats a token by chance and next to 0 once a head looks back"
    )
    longest = max(row["trained"] for row in rows)
    return f"{lead}: {'; '.join(parts)} ({longest:,} steps at most).{scope_of_claim(seeds, 'model')}"
