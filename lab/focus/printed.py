"""Focus as it is printed: the gate of equation 2, trained until more steps change nothing (Focus, sections 2 and 3)."""

from dataclasses import dataclass

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.budgets.cap_rows import two_sides
from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, Bench, trained_arm, window_arm
from analysis.studies.stored.panels import chart, panel, presented, printed as prints, series
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import PhaseTrainer, Read, by_seed, chance_arms, plain, sample
from analysis.studies.text.held_out import check_range
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window, pairs_share
from lab.harness.telling import concluded

SHARES = (8, 4, 2, 1)  # the longest training and its half, quarter and eighth, each under a rate that falls to its end
TRIED = 1  # of these, the one at which rates are tried
RATES = (3e-4, 1e-3, 3e-3)
FLAT = 0.002  # nats per token that a doubling of the steps may still bring
POINTS = 40  # of the curve of each training
READ = {"hard": "trained", "literal": "trained, literal", "soft": "trained, soft literal"}  # key -> reading
SAID = {"hard": "hard groups", "literal": "hard groups, literal", "soft": "the printed gate, as trained"}
PRETRAINED, PAPER = 42.8, "GPT-2 124M, top-k=2"


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """The defaults are the paper's where it gives them."""

    steps: int = option(4000, "steps of the longest training; its half, quarter and eighth are trained too")
    tokens_per_step: int = option(2048, "tokens in one step of a training")
    groups: int = option(4, "number of groups K of the router")
    top: int = option(2, "groups each token belongs to")
    window: int = option(128, "number of recent tokens that are always read")
    rates: list[float] | None = option(None, "learning rates to choose from (default: 0.0003,0.001,0.003)")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of steps", self.steps, max(SHARES), 1_000_000)

    def plan(self, steps: int, rate: float, seed: int) -> RouterTraining:
        """The training as printed: the literal gate, whose sharpness stays, and no sinks. Errors: BadSetting."""
        names = "groups top window tokens_per_step length".split()
        given = {name: getattr(self, name) for name in names} | {"steps": steps, "rate": rate, "seed": seed}
        return RouterTraining(**given, n_sink=0, gate="literal", sharpest=1.0, check_windows=0)


def measure(run: Setting) -> dict:
    """A router trained through the printed gate for an eighth, a quarter, a half and all of `steps`, phase 1, read hard
    and as it was trained, beside random groups and windows. The rate is chosen at the quarter and the first seed, on
    half of the held-out documents; the other half reports. Errors: BadSetting, BadText."""
    sizes, lm = run.sizes, run.lm
    rates = sorted(set(sizes.rates or RATES))
    budgets = [sizes.steps // share for share in SHARES]
    expected = 2 * len(rates) + len(budgets) * (2 * sizes.seeds + 1) + 1
    trainer = PhaseTrainer.of(run, n_sink=0, expected=expected)
    untrained = FocusRouter(lm.num_layers, lm.width, sizes.plan(1, rates[0], sizes.seed).router_settings())
    plain_reads = trainer.measure(untrained, [DENSE, window_arm(sizes.window)])
    report = two_sides(trainer.units)
    units = trainer.units[report]
    dense, alone = (plain_reads[name].means[report] for name in ("dense", f"window {sizes.window}"))
    tried = []
    for rate in rates:
        router = trainer.router(f"rate {rate:g}", sizes.plan(budgets[TRIED], rate, sizes.seed))
        read = trainer.measure(router, [trained_arm(READ["soft"], router, sizes.window)])[READ["soft"]]
        tried.append({"rate": rate, "choosing": float(read.means[~report].mean())})
    best = min(tried, key=lambda one: one["choosing"])["rate"]
    rows, curves, before = [], [], None
    for steps in budgets:
        reads: dict[str, list[Read]] = {key: [] for key in (*READ, "random")}
        for seed in sizes.every_seed:
            plan = sizes.plan(steps, best, seed)
            router = trainer.router(f"{steps:,} steps, seed {seed}", plan)
            chance = chance_arms(router, plan)
            arms = [trained_arm(reading, router, sizes.window) for reading in READ.values()]
            read = trainer.measure(router, [*arms, *chance])
            for key, reading in READ.items():
                reads[key].append(read[reading])
            reads["random"].append(Read.pool([read[arm.name] for arm in chance]))
            curves += _curve(steps, seed, router.about["losses"])
        pairs = np.mean([read.pairs for read in reads["hard"]])
        wide = equal_pairs_window(pairs, sizes.length)
        reads["window"] = [trainer.measure(untrained, [window_arm(wide)])[f"window {wide}"]] * sizes.seeds
        losses = {key: by_seed(several)[:, report] for key, several in reads.items()}
        row = {"steps": steps, "tokens": steps * sizes.tokens_per_step}
        row |= {"pairs_share": pairs_share(Read.pool(reads["hard"]).pairs, sizes.length)}
        row |= {"largest_share": max(share for read in reads["hard"] for share in read.shares), "equal_window": wide}
        for key, values in losses.items():
            row[f"perplexity_{key}"] = float(np.exp(values.mean()))
        for key, values in losses.items():
            row |= difference(f"{key}_against_dense", values, dense, units)
        for key in ("random", "window"):
            row |= difference(f"hard_against_{key}", losses["hard"], losses[key], units)
        for key in READ:
            gained = difference(f"{key}_gained", losses[key], (before or losses)[key], units)
            row |= gained if before else dict.fromkeys(gained)
        before = losses
        rows.append(row)
    about = {"steps": sizes.steps, "rate": best, "training_text": trainer.texts, "seeds": sizes.seeds}
    return {
        "rows": rows,
        "curves": curves,
        "tried": tried,
        "dense": float(np.exp(dense.mean())),
        "alone": float(np.exp(alone.mean())),
        "window": sizes.window,
        "plans": plain({f"{sizes.steps:,} steps": sizes.plan(sizes.steps, best, sizes.seed)}),
        "protocol": run.about(trainer.windows[report], units, kernel=KERNELS, **about),
    }


def _curve(steps: int, seed: int, losses: list[float]) -> list[dict]:
    """The losses of a training as few points, means of the steps between."""
    points = []
    for piece in np.array_split(np.arange(len(losses)), min(POINTS, len(losses))):
        loss = float(np.mean([losses[step] for step in piece]))
        points.append({"steps": steps, "seed": seed, "step": int(piece[-1]) + 1, "loss": loss})
    return points


def flat(row: dict, key: str = "soft") -> bool | None:
    """Whether the last doubling of the steps changed nothing worth having: at least 0.002 nats are ruled out. None
    where there was none to look at, or too few texts."""
    low = row[f"{key}_gained_low"]
    return None if low is None else low > -FLAT


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and the window alone on the documents that report; the routers are trainings."""
    report = two_sides(run.documents)
    untrained = FocusRouter(
        run.lm.num_layers, run.lm.width, run.sizes.plan(1, RATES[0], run.sizes.seed).router_settings()
    )
    bench = Bench(run.lm, untrained, run.windows[report], 0, None, run.context, expected=2)
    dense, alone = (float(np.exp(bench.measure(arm).means.mean())) for arm in (DENSE, window_arm(run.sizes.window)))
    return {"dense": dense, "alone": alone, "protocol": {"text": bench.text}}


def shown(numbers: dict) -> dict:
    """What the printed form reaches, and whether more steps would have changed it."""
    rows, protocol = numbers["rows"], numbers["protocol"]
    last = rows[-1]
    controls = {"soft_against_dense": "dense attention through the gate it was trained with"}
    controls |= {"hard_against_dense": "dense attention with hard groups", "hard_against_random": "random groups"}
    controls["hard_against_window"] = f"a window of equal pairs, {last['equal_window']:,}"
    lead = f"Dense attention has a perplexity of {numbers['dense']:.2f}. "
    label = f"After {last['steps']:,} steps, hard groups reading {last['pairs_share']:.0%} of the pairs"
    ends = {
        None: "Whether more steps would change that is not judged.",
        True: f"The curve is flat: the last doubling of the steps brought less than {FLAT:g} nats.",
        False: f"That the last doubling of the steps brought less than {FLAT:g} nats is not shown: more may change it.",
    }
    sentence = f"{concluded(lead, [last], controls, lambda row: label, protocol['seeds'])} {ends[flat(last)]}"
    rates = ", ".join(f"{one['rate']:g}" for one in numbers["tried"])
    notes = [f"The rate {protocol['rate']:g} was chosen of {rates} on other documents than those that report."]
    if paper := prints("table 7", PAPER, "PPL"):
        notes.insert(0, f"The paper prints a perplexity of {paper} for {PAPER}, against {PRETRAINED} before.")
    above = {label: f"{key}_against_dense" for key, label in SAID.items()}
    above |= {"random groups": "random_against_dense", "window of equal pairs": "window_against_dense"}
    gained = {label: f"{key}_gained" for key, label in SAID.items()}
    losses: dict[int, list[float]] = {}
    for point in numbers["curves"]:
        if point["steps"] == last["steps"]:
            losses.setdefault(point["step"], []).append(point["loss"])
    steps = sorted(losses)
    line = series("loss", [float(np.mean(losses[step])) for step in steps])
    x, loss = ("steps", "steps of training"), "nats per token"
    charts = [
        chart("Loss above dense attention", rows, *x, loss, above),
        chart("What the last doubling of the steps changed", rows[1:], *x, loss, gained),
        panel("The longest training", "step", "step", steps, loss, [line]),
    ]
    return presented("focus-printed", sentence, charts, *notes, interval_caveat(protocol))


TABLES = ("rows", "curves", "tried")
focus_printed = Study("focus-printed", __doc__, Sizes, measure, shown, sample, tables=TABLES, part=part)
