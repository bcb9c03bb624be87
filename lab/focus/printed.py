"""Focus as it is printed: the gate of equation 2, trained until more steps change nothing (Focus, sections 2 and 3)."""

from typing import Any

import numpy as np

from analysis.claims import Comparison
from analysis.commands.groups import AS_PRINTED
from analysis.groups.router import FocusRouter
from analysis.studies.budgets.cap_rows import two_sides
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, Bench, trained_arm, window_arm
from analysis.studies.stored.panels import chart, presented
from analysis.studies.stored.runner import Seeds, Setting, Windows, option
from analysis.studies.stored.trained import PhaseTrainer, chance_arms, first_losses, loss_curve, plain
from analysis.studies.text.held_out import ids_hash
from analysis.training.settings import RouterTraining
from lab.harness.routed import Reads, equal_pairs_window, pairs_share, pooled_reads
from lab.harness.telling import concluded, training_panel

# The longest training and its half, quarter and eighth, each under a rate that falls to its end.
SHARES = (8, 4, 2, 1)
# Of these, the one at which rates are tried.
TRIED = 1
RATES = (3e-4, 1e-3, 3e-3)
# Nats per token that a doubling of the steps may still bring.
FLAT = 0.002
# Of the curve of each training.
POINTS = 40
READ = {"hard": "trained", "literal": "trained, literal", "soft": "trained, soft literal"}  # key -> reading
LABELS = {"hard": "hard groups", "literal": "hard groups, literal", "soft": "the printed gate, as trained"}
CONTROLS = {
    "soft_against_dense": "dense attention through the gate it was trained with",
    "hard_against_dense": "dense attention with hard groups",
    "hard_against_random": "random groups",
    "hard_against_window": "a window of equal pairs",
}
MORE = {  # whether the curve is flat -> what that means
    None: "Whether more steps would change the loss through the gate is not judged",
    True: f"Through the gate the curve is flat: the last doubling of the steps brought less than {FLAT:g} nats",
    False: f"That it brought less than {FLAT:g} nats through the gate is not shown of the last doubling of the steps",
}


class FocusPrinted(Seeds, Windows):
    """A router trained through the printed gate for an eighth, a quarter, a half and all of `steps`, phase 1, read hard
    and as it was trained, beside random groups and windows. The rate is chosen at the quarter and the first seed, on
    half of the held-out documents; the other half reports. The defaults are the paper's where it gives them."""

    tables = ("rows", "curves", "tried")

    steps: int = option(
        4000, "steps of the longest training; its half, quarter and eighth are trained too", low=8, high=1_000_000
    )
    tokens_per_step: int = option(2048, "tokens in one step of a training")
    groups: int = option(AS_PRINTED["groups"], "number of groups K of the router")
    top: int = option(AS_PRINTED["top"], "groups each token belongs to")
    window: int = option(AS_PRINTED["window"], "number of recent tokens that are always read")
    rates: list[float] | None = option(None, "learning rates to choose from (default: 0.0003,0.001,0.003)")

    def plan(self, steps: int, rate: float, seed: int) -> RouterTraining:
        """The training as printed: the literal gate, whose sharpness stays, and no sinks. Errors: BadSetting."""
        names = "groups top window tokens_per_step length".split()
        about: dict[str, Any] = AS_PRINTED | {name: getattr(self, name) for name in names} | {"check_windows": 0}
        return RouterTraining(**about, steps=steps, rate=rate, seed=seed)

    def untrained(self, run: Setting) -> FocusRouter:
        """A router of the sizes of the trained ones, for arms that need none."""
        settings = self.plan(1, RATES[0], self.seed).router_settings()
        return FocusRouter(run.lm.num_layers, run.lm.width, settings)

    def measure(self, run: Setting) -> dict:
        rates, budgets = sorted(set(self.rates or RATES)), [self.steps // share for share in SHARES]
        expected = 2 * len(rates) + len(budgets) * (2 * self.seeds + 1) + 1
        trainer, base = PhaseTrainer.of(run, n_sink=0, expected=expected), self.untrained(run)
        plain_arms = pooled_reads(trainer, base, {"dense": [DENSE], "alone": [window_arm(self.window)]})
        report = two_sides(trainer.units)
        units, tried, rows, curves = trainer.units[report], [], [], []
        dense, alone = (plain_arms[name].means[report] for name in ("dense", "alone"))
        for rate in rates:
            router = trainer.router(f"rate {rate:g}", self.plan(budgets[TRIED], rate, self.seed))
            soft = pooled_reads(trainer, router, {"soft": [trained_arm(READ["soft"], router, self.window)]})["soft"]
            tried.append({"rate": rate, "choosing": float(soft.means[~report].mean())})
        best, before = min(tried, key=lambda one: one["choosing"])["rate"], None
        for steps in budgets:
            reads = Reads(trainer.units)
            for seed in self.every_seed:
                plan = self.plan(steps, best, seed)
                router = trainer.router(f"{steps:,} steps", plan)
                arms = {key: [trained_arm(reading, router, self.window)] for key, reading in READ.items()}
                reads.add(pooled_reads(trainer, router, arms | {"random": chance_arms(router, plan)}))
                curves += loss_curve(router.about["losses"], POINTS, steps=steps, seed=seed)
            wide = equal_pairs_window(reads["hard"].pairs, self.length)
            equal = pooled_reads(trainer, base, {"window": [window_arm(wide)]})["window"]
            losses = {key: reads.losses(key)[:, report] for key in (*READ, "random")}
            losses["window"] = np.stack([equal.means[report]] * self.seeds)
            row: Row = {"steps": steps, "tokens": steps * self.tokens_per_step, "equal_window": wide}
            row |= {"pairs_share": pairs_share(reads["hard"].pairs, self.length), "largest_share": reads.worst("hard")}
            for key, values in losses.items():
                row[f"perplexity_{key}"] = float(np.exp(values.mean()))
                row |= difference(f"{key}_against_dense", values, dense, units)
            for key in ("random", "window"):
                row |= difference(f"hard_against_{key}", losses["hard"], losses[key], units)
            for key in READ:
                gained = difference(f"{key}_gained", losses[key], (before or losses)[key], units)
                row |= gained if before else dict.fromkeys(gained)
            before = losses
            rows.append(row)
        return {
            "rows": rows,
            "curves": curves,
            "tried": tried,
            "dense": float(np.exp(dense.mean())),
            "alone": float(np.exp(alone.mean())),
            "window": self.window,
            "plans": plain({f"{self.steps:,} steps": self.plan(self.steps, best, self.seed)}),
            "protocol": run.about(trainer.windows[report], units, kernel=KERNELS, rate=best),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        return first_losses(run.lm, numbers)

    def part(self, run: Setting, numbers: dict) -> dict:
        ids = run.windows[two_sides(run.documents)]
        bench = Bench(run.lm, self.untrained(run), ids, 0, None, run.context, expected=2)
        dense, alone = (bench.measure(arm).level["perplexity"] for arm in (DENSE, window_arm(self.window)))
        return {"dense": dense, "alone": alone, "protocol": {"text": ids_hash(ids)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol, last = numbers["rows"], numbers["protocol"], numbers["rows"][-1]
        lead = f"Dense attention has a perplexity of {numbers['dense']:.2f}. Loss "
        subject = "after {steps:,} steps, hard groups reading {pairs_share:.0%} of the pairs"
        sentence = f"{concluded(lead, [last], CONTROLS, subject, protocol['seeds'])} {MORE[flat(last)]}"
        if last["hard_gained"] is not None:
            # no step trains what hard groups read
            sentence += f"; with hard groups the loss changed by {Comparison.of(last, 'hard_gained').evidence}"
        sentence += "."
        above = {label: f"{key}_against_dense" for key, label in LABELS.items()}
        above |= {"random groups": "random_against_dense", "window of equal pairs": "window_against_dense"}
        gained = {label: f"{key}_gained" for key, label in LABELS.items()}
        x, loss = ("steps", "steps of training"), "nats per token"
        charts = [
            chart("Loss above dense attention", rows, *x, loss, above),
            chart("What the last doubling of the steps changed", rows[1:], *x, loss, gained),
            training_panel("The longest training", numbers["curves"], "steps", {last["steps"]: "loss"}, "step"),
        ]
        rates = ", ".join(f"{row['rate']:g}" for row in numbers["tried"])
        note = f"The rate {protocol['rate']:g} was chosen of {rates} on other documents than those that report."
        return presented("focus-printed", sentence, charts, note, interval_caveat(protocol))


def flat(row: Row, key: str = "soft") -> bool | None:
    """Whether the last doubling of the steps changed nothing worth having: at least 0.002 nats are ruled out. None
    where there was none to look at, or too few texts."""
    low = row[f"{key}_gained_low"]
    return None if low is None else low > -FLAT
