"""Focus as it is printed: the gate of equation 2, trained until more steps change nothing (Focus, sections 2 and 3)."""

from dataclasses import dataclass

import numpy as np

from analysis.claims import Claim, Comparison
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.budgets.cap_rows import two_sides
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.measured import DENSE, KERNELS, Arm, Bench, trained_arm, window_arm
from analysis.studies.stored.panels import chart, panel, presented, printed as prints, series
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import PhaseTrainer, Read, by_seed, chance_arms, plain, sample
from analysis.studies.text.held_out import check_range
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window

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
    """What the study can be asked for; the defaults are the paper's where it gives them."""

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


def measure(at: Setting) -> dict:
    """A router trained through the printed gate for an eighth, a quarter, a half and all of `steps`, phase 1, read hard
    and as it was trained, beside random groups and windows.

    The rate is chosen at the quarter and the first seed, on the first half of the held-out documents; the other half
    reports. `rows`: one for each number of steps, `steps tokens pairs_share largest_share equal_window`; `perplexity_X`
    of `hard`, `literal`, `soft`, `random` and `window` (of equal pairs); in nats with `_low` and `_high`
    `X_against_dense`, `hard_against_random`, `hard_against_window`, and `X_gained`, minus half the steps; `curves`
    (`steps seed step loss` while training), `tried` (`rate choosing`), `dense`, `alone` (the window). Errors:
    BadSetting, BadText.
    """
    sizes, lm = at.sizes, at.lm
    rates = sorted(set(sizes.rates or RATES))
    budgets = [sizes.steps // share for share in SHARES]
    expected = 2 * len(rates) + len(budgets) * (2 * sizes.seeds + 1) + 1
    trainer = PhaseTrainer.of(at, n_sink=0, expected=expected)
    anyone = FocusRouter(lm.num_layers, lm.width, sizes.plan(1, rates[0], sizes.seed).router_settings())
    plain_reads = trainer.measure(anyone, [DENSE, window_arm(sizes.window)])
    dense, alone = plain_reads["dense"], plain_reads[f"window {sizes.window}"]
    report = two_sides(trainer.units)
    tried = []
    for rate in rates:
        plan = sizes.plan(budgets[TRIED], rate, sizes.seed)
        router = trainer.router(f"rate {rate:g}", plan)
        read = trainer.measure(router, [_arms(router, sizes)["soft"]])[READ["soft"]]
        tried.append({"rate": rate, "choosing": float(read.means[~report].mean())})
    best = min(tried, key=lambda one: one["choosing"])["rate"]
    parts, curves, plans = {}, [], {}
    for steps in budgets:
        parts[steps] = []
        for seed in sizes.every_seed:
            plan = sizes.plan(steps, best, seed)
            router = trainer.router(f"{steps:,} steps, seed {seed}", plan)
            arms = [*_arms(router, sizes).values(), *chance_arms(router, plan)]
            parts[steps].append(trainer.measure(router, arms))
            curves += _curve(steps, seed, router.about["losses"])
            plans.setdefault(f"{steps:,} steps", plan)
        pairs = np.mean([part[READ["hard"]].pairs for part in parts[steps]])
        wide = equal_pairs_window(pairs, sizes.length)
        equal = trainer.measure(anyone, [window_arm(wide)])[f"window {wide}"]
        for part in parts[steps]:
            part |= {"equal": wide, "window": equal}
    before = [None, *budgets]
    told = {"steps": sizes.steps, "rate": best, "training_text": trainer.texts, "seeds": sizes.seeds}
    units = trainer.units[report]
    return {
        "rows": [
            _row(sizes, steps, parts[steps], parts.get(last), dense, report, trainer.units)
            for steps, last in zip(budgets, before, strict=False)
        ],
        "curves": curves,
        "tried": tried,
        "dense": float(np.exp(dense.means[report].mean())),
        "alone": float(np.exp(alone.means[report].mean())),
        "window": sizes.window,
        "plans": plain({name: plans[name] for name in list(plans)[-1:]}),
        "protocol": at.about(trainer.windows[report], units, kernel=KERNELS, **told),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    paper = prints("table 7", PAPER, "PPL")
    more = [f"The paper prints a perplexity of {paper} for {PAPER}, against {PRETRAINED} before."] if paper else []
    protocol = numbers["protocol"]
    rates = ", ".join(f"{one['rate']:g}" for one in numbers["tried"])
    more += [f"The rate {protocol['rate']:g} was chosen of {rates} on other documents than those that report."]
    said = sentence(numbers, protocol["seeds"])
    return presented("focus-printed", said, panels(numbers), *more, interval_caveat(protocol))


def _arms(router: FocusRouter, sizes: Sizes) -> dict[str, Arm]:
    return {key: trained_arm(reading, router, sizes.window) for key, reading in READ.items()}


def _curve(steps: int, seed: int, losses: list[float]) -> list[dict]:
    """The losses of a training as few points, means of the steps between."""
    return [
        {"steps": steps, "seed": seed, "step": int(piece[-1]) + 1, "loss": float(np.mean([losses[at] for at in piece]))}
        for piece in np.array_split(np.arange(len(losses)), min(POINTS, len(losses)))
    ]


def _row(
    sizes: Sizes,
    steps: int,
    parts: list[dict],
    last: list[dict] | None,
    dense: Read,
    report: np.ndarray,
    units: np.ndarray,
) -> dict:
    """The row of so many steps, a part for every seed; `last` those of half the steps. Windows that do not `report`
    [n] are left out."""
    units = units[report]

    def of(parts: list[dict], key: str) -> np.ndarray:
        if key == "random":
            drawn = [[read for name, read in part.items() if name.startswith("random tokens")] for part in parts]
            return by_seed([Read.pool(several) for several in drawn])[:, report]
        return by_seed([part[READ.get(key, key)] for part in parts])[:, report]

    hard = [part[READ["hard"]] for part in parts]
    means = {key: of(parts, key) for key in (*READ, "random", "window")}
    row = {"steps": steps, "tokens": steps * sizes.tokens_per_step}
    row |= {"pairs_share": Read.pool(hard).pairs / (sizes.length * (sizes.length + 1) // 2)}
    row |= {"largest_share": max(share for one in hard for share in one.shares), "equal_window": parts[0]["equal"]}
    row |= {f"perplexity_{key}": float(np.exp(losses.mean())) for key, losses in means.items()}
    for key in means:
        row |= difference(f"{key}_against_dense", means[key], dense.means[report], units)
    for key in ("random", "window"):
        row |= difference(f"hard_against_{key}", means["hard"], means[key], units)
    for key in READ:
        gained = f"{key}_gained"
        row |= difference(gained, means[key], of(last, key), units) if last else dict.fromkeys(_ends(gained))
    return row


def _ends(key: str) -> list[str]:
    return [f"{key}{end}" for end in ("", "_low", "_high", "_p", "_points", "_lowest", "_highest")]


def flat(row: dict, key: str = "soft") -> bool | None:
    """Whether the last doubling of the steps changed nothing worth having: at least 0.002 nats are ruled out. None
    where there was none to look at, or too few texts."""
    low = row[f"{key}_gained_low"]
    return None if low is None else low > -FLAT


def panels(numbers: dict) -> list[dict]:
    """The learning curve by steps, and the training losses of the first seed."""
    rows, x = numbers["rows"], ("steps", "steps of training")
    named = {said: f"{key}_against_dense" for key, said in SAID.items()}
    named |= {"random groups": "random_against_dense", "window of equal pairs": "window_against_dense"}
    made = [chart("Loss above dense attention", rows, *x, "nats per token", named)]
    gained = {said: f"{key}_gained" for key, said in SAID.items()}
    made.append(chart("What the last doubling of the steps changed", rows[1:], *x, "nats per token", gained))
    longest = rows[-1]["steps"]
    points = [one for one in numbers["curves"] if one["steps"] == longest]
    steps = sorted({one["step"] for one in points})
    mean = [float(np.mean([one["loss"] for one in points if one["step"] == step])) for step in steps]
    made.append(panel("The longest training", "step", "step", steps, "nats per token", [series("loss", mean)]))
    return made


def sentence(numbers: dict, seeds: int) -> str:
    """What the printed form reaches, and whether more steps would have changed it."""
    keys = ("soft_against_dense", "hard_against_dense", "hard_against_random", "hard_against_window")
    row = holm_corrected(numbers["rows"][-1:], *keys)[0]
    said = [
        Claim(Comparison.of(row, f"{key}_against_dense"), SAID[key], "lower", "higher").text()
        for key in ("soft", "hard")
    ]
    others = {"random": "random groups", "window": f"a window of equal pairs, {row['equal_window']:,}"}
    held = [Claim(Comparison.of(row, f"hard_against_{key}", versus=other)).text() for key, other in others.items()]
    done = flat(row)
    ends = {
        None: "whether more steps would change that is not judged",
        True: f"the curve is flat: the last doubling of the steps brought less than {FLAT:g} nats",
        False: "the curve is not flat yet, so more steps may change all of it",
    }[done]
    if done is False and Comparison.of(row, "soft_gained").direction >= 0:
        ends = f"whether the last doubling of the steps brought {FLAT:g} nats is not told"
    start = f"After {row['steps']:,} steps, against dense attention (perplexity {numbers['dense']:.2f})"
    return (
        f"{start}: {'; '.join(said)}. "
        f"Hard groups, which read {row['pairs_share']:.0%} of the pairs, are {' and '.join(held)}; {ends}."
        f"{multiplicity_note([row], *keys)}{scope_of_claim(seeds)}"
    )


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention and the window alone on the documents that report; the routers are trainings."""
    report = two_sides(at.documents)
    anyone = FocusRouter(at.lm.num_layers, at.lm.width, at.sizes.plan(1, RATES[0], at.sizes.seed).router_settings())
    bench = Bench(at.lm, anyone, at.windows[report], 0, None, at.context, expected=2)
    dense, alone = (float(np.exp(bench.measure(arm).means.mean())) for arm in (DENSE, window_arm(at.sizes.window)))
    return {"dense": dense, "alone": alone, "protocol": {"text": bench.text}}


TABLES = ("rows", "curves", "tried")
focus_printed = Study("focus-printed", __doc__, Sizes, measure, shown, sample, tables=TABLES, part=part)
