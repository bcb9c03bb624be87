"""Which settings of Focus matter? Table 9's grid, one factor at a time, through both phases and beside controls."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.claims import Comparison
from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    multiplicity_note,
    scope_of_claim,
)
from analysis.studies.stored.measured import (
    DENSE,
    DRAWS,
    HARD,
    KERNELS,
    dealt_arms,
    dense_of,
    hard_arms,
    window_arm,
)
from analysis.studies.stored.panels import chart, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.stored.trained import (
    PhaseTrainer,
    Read,
    Training,
    by_seed,
    chance_arms,
    phase_2,
    plain,
    sample,
)
from analysis.studies.text.held_out import check_range, ids_hash
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window

FACTORS = {
    "groups": (2, 4, 8, 16, 32),
    "window": (16, 64, 128, 256, 512),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "iterations": (3, 5, 10, 20),
    "dimensions": ("full", 128, 32, 16),
    "similarity": ("dot", "cosine"),
}
NAMES = {"groups": "K", "window": "w", "temperature": "τ", "iterations": "Sinkhorn iters", "dimensions": "d_s"}
LABELS = {
    "groups": "groups, K",
    "window": "window, tokens",
    "temperature": "temperature",
    "iterations": "Sinkhorn iterations",
    "dimensions": "dimensions of routing vectors",
    "similarity": "similarity of a token and a centroid",
}
PRINTED = {  # key of a row -> column of table 9, and what it is divided by
    "paper_centroid": ("Centroid PPL", 1),
    "paper_tuned": ("Fine-tuned PPL", 1),
    "paper_share_centroid": ("Dominance (centroid)", 100),
    "paper_share_tuned": ("Dominance (full FT)", 100),
}
VARIED = ("groups", "window", "temperature", "iterations", "d_s", "similarity")  # of a plan

UNEVEN = " Random groups are of even sizes here and read fewer pairs wherever the groups are uneven."


@dataclass(frozen=True)
class Sizes(Training):
    """What the study can be asked for."""

    length: int = option(1024, "tokens in a sequence and in a window of text, as in the paper")
    widths: list[int] | None = option(
        None, f"windows of that factor's cells (default: {','.join(map(str, FACTORS['window']))})"
    )

    def check(self, lm: Model) -> None:
        super().check(lm)
        for width in self.widths or ():
            check_range("A window of the grid", width, 1, self.length)


def measure(at: Setting) -> dict:
    """Every cell of the grid trained in both phases and measured on held-out windows, hard.

    `rows` of the sizes: factors (`groups`, `window`, `temperature`, `iterations`, `dimensions`, `similarity`) or cells
    (`groups=4`), joined by commas (default: all). The default cell has these `groups` and `window`, temperature 0.1, 10
    iterations, 16 dimensions and scores by the dot product. The grid can be run in portions and collected at the end.
    `rows`: `factor value default groups window temperature iterations d_s similarity`; of `centroid` and `tuned`:
    `perplexity_X literal_X share_X literal_share_X worst_X random_X`, and `X_against_random` in nats with `_low` and
    `_high`;
    `pairs_share equal_window window_centroid centroid_against_window same_sizes_centroid centroid_against_same` (the
    same groups dealt to the tokens by chance, which read as many pairs), `paper_...` what table 9 prints. Beside them
    `dense`. Errors: BadSetting, BadText.
    """
    lm, sizes, plan = at.lm, at.sizes, at.sizes.plan()
    grid = cells(sizes.rows, plan, lm, sizes.widths)
    plans = list(dict.fromkeys(grid.values()))
    drawn = {(one.groups, one.window) for one in plans}
    expected = (3 * sizes.seeds + 1) * len(plans) + sizes.seeds * len(drawn) + 1
    trainer = PhaseTrainer.of(at, n_sink=plan.n_sink, expected=expected)
    controls: dict = {}
    done = {one: {n: getattr(one, n) for n in VARIED} | _cell(trainer, one, controls, sizes) for one in plans}
    found = [
        {"factor": factor, "value": value, "default": one == plan, **done[one], **paper_numbers(factor, value)}
        for (factor, value), one in grid.items()
    ]
    anyone = FocusRouter(lm.num_layers, lm.width, plan.router_settings())
    dense = trainer.measure(anyone, [DENSE])["dense"]
    kinds = {"fine-tuned": "soft", "random groups": "drawn"}
    kinds = {"centroids": plan} | {name: phase_2(plan, anyone, reading)[0] for name, reading in kinds.items()}
    told = {"steps": sizes.steps, "rate": sizes.rate, "base_rate": sizes.base_rate, "training_text": trainer.texts}
    told["seeds"] = sizes.seeds
    return {
        "rows": found,
        "dense": {"loss": dense.loss, "perplexity": dense.perplexity},
        "n_sink": plan.n_sink,
        "windows": len(trainer.windows),
        "length": sizes.length,
        "plans": plain(kinds),
        "protocol": at.about(trainer.windows, kernel=KERNELS, **told),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows, length = numbers["rows"], numbers["length"]
    more = [interval_caveat(numbers["protocol"])]
    if wide := sorted({row["window"] for row in rows if row["window"] >= length}):
        said = f"A window of {', '.join(map(str, wide))} holds all {length:,} tokens, so this is full attention"
        more.append(f"{said}: nothing is left to the groups.")
    said = sentence(rows, numbers["dense"]["perplexity"], numbers["protocol"].get("seeds", 1))
    found = presented("ablations", said, panels(rows), *more)
    return found | {"columns": [one for one in found["columns"] if one["name"] in rows[0]]}


def cells(
    rows: str | None, plan: RouterTraining, lm: Model, widths: list[int] | None = None
) -> dict[tuple[str, float | str], RouterTraining]:
    """(factor, value) -> the plan of that cell, of the factors and cells that are asked for; `widths` are the windows
    of that factor. Errors: BadSetting."""
    factors = FACTORS | ({"window": tuple(sorted(set(widths)))} if widths else {})
    every = {
        (factor, value): {"d_s" if factor == "dimensions" else factor: lm.width if value == "full" else value}
        for factor, values in factors.items()
        for value in values
    }
    every["groups", 2]["window"] = 16
    named = {f"{factor}={value}": (factor, value) for factor, value in every}
    wanted = [word.strip() for word in rows.split(",")] if rows else list(FACTORS)
    if unknown := [word for word in wanted if word not in (*FACTORS, *named)]:
        raise BadSetting(
            f"There is no row {unknown[0][:40]!r}: the rows are {', '.join(FACTORS)}, or one of their cells such as "
            f"{', '.join(list(named)[1:3])}."
        )
    return {named[cell]: replace(plan, **every[named[cell]]) for cell in named if {cell, named[cell][0]} & set(wanted)}


def _cell(trainer: PhaseTrainer, plan: RouterTraining, controls: dict, sizes: Sizes) -> dict:
    """The numbers of one cell: phase 1, its controls, phase 2, at every seed; `controls` holds the random groups that
    were tuned."""
    said, length = _name(plan, sizes.plan()), trainer.windows.shape[1]
    plans = [replace(plan, seed=seed) for seed in sizes.every_seed]
    routers = [trainer.router(sizes.named(f"{said}, phase 1", one), one) for one in plans]
    reads = []
    for router, one in zip(routers, plans, strict=True):
        alike = dealt_arms(router, plan.window, DRAWS * one.seed)
        found = trainer.measure(router, [*hard_arms(router, plan.window), *chance_arms(router, one), *alike])
        reads.append(found | {"same sizes": Read.pool([found.pop(arm.name) for arm in alike])})
    trained, same = ([found[name] for found in reads] for name in ("trained", "same sizes"))
    pairs = Read.pool(trained).pairs
    wide = equal_pairs_window(pairs, length, trainer.n_sink)
    alone = trainer.measure(routers[0], [window_arm(wide)])[f"window {wide}"]
    row = _phase("centroid", reads, trainer.units)
    row |= {"pairs_share": pairs / (length * (length + 1) // 2), "equal_window": wide}
    row |= {"window_centroid": alone.perplexity, "parameters": routers[0].size}
    row |= difference("centroid_against_window", by_seed(trained), alone.means, trainer.units)
    row |= {"same_sizes_centroid": Read.pool(same).perplexity, "same_sizes_pairs": Read.pool(same).pairs}
    row |= difference("centroid_against_same", by_seed(trained), by_seed(same), trainer.units)
    tuned = []
    for router, one in zip(routers, plans, strict=True):
        after, start = phase_2(one, router, "soft")
        name = sizes.named(f"{said}, phase 2", one)
        found = trainer.tuned(name, after, start, lambda own: hard_arms(own, plan.window))["held out"]
        tuned.append(found | _control(trainer, one, controls, sizes))
    return row | _phase("tuned", tuned, trainer.units)


def _control(trainer: PhaseTrainer, plan: RouterTraining, controls: dict, sizes: Sizes) -> dict[str, Read]:
    """What random groups read after phase 2: as many groups as the plan has, its window and its seed, tuned once."""
    which = plan.groups, plan.window, plan.seed
    if which not in controls:
        same = sizes.plan(groups=plan.groups, window=plan.window, seed=plan.seed)
        anyone = FocusRouter(trainer.lm.num_layers, trainer.lm.width, same.router_settings(), seed=plan.seed)
        told = sizes.named(f"{plan.groups} random groups, window {plan.window}", plan)
        made = phase_2(same, anyone, "drawn")
        controls[which] = trainer.tuned(told, *made, lambda own: chance_arms(own, plan))["held out"]
    return controls[which]


def _phase(phase: str, reads: list[dict[str, Read]], documents: np.ndarray) -> dict:
    """The columns of one phase from what each seed reads; `documents` [n] of the windows."""
    mine, literal = ([found[name] for found in reads] for name in HARD)
    drawn = [[read for name, read in found.items() if name.startswith("random tokens")] for found in reads]
    random = [Read.pool(several) for several in drawn]
    kinds = {"perplexity": mine, "literal": literal, "random": random}
    row = {name: Read.pool(several).perplexity for name, several in kinds.items()}
    row |= {"share": np.mean(Read.pool(mine).shares), "worst": max(share for one in mine for share in one.shares)}
    row["literal_share"] = np.mean(Read.pool(literal).shares)
    apart = difference(f"{phase}_against_random", by_seed(mine), by_seed(random), documents)
    return {f"{k}_{phase}": float(v) for k, v in row.items()} | apart


def _name(plan: RouterTraining, default: RouterTraining) -> str:
    changed = [f"{n}={getattr(plan, n)}" for n in VARIED if getattr(plan, n) != getattr(default, n)]
    return " ".join(changed) or "default"


def paper_numbers(factor: str, value: int | str) -> dict:
    """What the paper prints for a cell (GPT-2 124M, PG-19, window 128 unless varied); None where it prints nothing.

    Of the dimensions section 2 gives the perplexity of trained centroids, of two groups appendix B.
    """
    if (factor, value) == ("groups", 2):
        return dict.fromkeys(PRINTED) | {"paper_centroid": printed("appendix B", "w=16", "PPL")}
    if factor == "similarity":
        return dict.fromkeys(PRINTED)
    if factor == "dimensions":
        named = f"d_s={'768 (full)' if value == 'full' else value}"
        return dict.fromkeys(PRINTED) | {"paper_centroid": printed("section 2", named, "PPL")}
    found = {key: (printed("table 9", f"{NAMES[factor]}={value}", name), by) for key, (name, by) in PRINTED.items()}
    return {key: None if number is None else number / by for key, (number, by) in found.items()}


def panels(rows: list[dict]) -> list[dict]:
    """Three small charts for each factor: perplexity of both phases, and the largest group's share."""
    made = []
    for factor in dict.fromkeys(row["factor"] for row in rows):
        mine, label = [row for row in rows if row["factor"] == factor], LABELS[factor]
        for phase, title in (("centroid", "Trained centroids"), ("tuned", "Fine-tuned")):
            named = {"trained": "perplexity", "literal": "literal", "random": "random"}
            keys = {f"{name} groups": f"{key}_{phase}" for name, key in named.items()}
            keys |= {"window of equal pairs": "window_centroid"} if phase == "centroid" else {}
            paper = paper_lines({"GPT-2 124M, paper": [row[f"paper_{phase}"] for row in mine]})
            made.append(chart(f"{title}: {factor}", mine, "value", label, "perplexity", keys, paper))
        both = {"centroids": "centroid", "fine-tuned": "tuned"}
        keys = {name: f"share_{phase}" for name, phase in both.items()}
        keys |= {f"{name}, literal": f"literal_share_{phase}" for name, phase in both.items()}
        paper = {f"{name}, paper": [row[f"paper_share_{phase}"] for row in mine] for name, phase in both.items()}
        drawn = ("value", label, "share of the tokens", keys, paper_lines(paper))
        made.append(chart(f"Largest group: {factor}", mine, *drawn))
    return made


def sentence(rows: list[dict], dense: float, seeds: int) -> str:
    """How far the cells lie apart in each phase, and how many beat their random groups."""
    cells = list({tuple(row.get(name) for name in VARIED): row for row in rows}.values())
    # with as many pairs: random groups of even sizes read fewer
    kinds = {phase: "same" if f"{phase}_against_same" in cells[0] else "random" for phase in ("centroid", "tuned")}
    compared = [f"{phase}_against_{kind}" for phase, kind in kinds.items()]
    cells, said = holm_corrected(cells, *compared), []
    for phase, name in (("centroid", "trained centroids"), ("tuned", "fine-tuned")):
        values, shares = ([row[f"{key}_{phase}"] for row in cells] for key in ("perplexity", "share"))
        alike = kinds[phase] == "same"
        beaten = sum(Comparison.of(row, f"{phase}_against_{kinds[phase]}").direction < 0 for row in cells)
        said.append(
            f"{name} from {min(values):.2f} to {max(values):.2f} (largest group {min(shares):.0%} to "
            f"{max(shares):.0%}), {beaten} better than random groups{' of the same sizes' * alike}"
        )
    return (
        f"Perplexity over {len(cells)} cells: {'; '.join(said)}; dense attention without fine-tuning has {dense:.2f}."
        f"{'' if alike else UNEVEN}"
        f"{multiplicity_note(cells, *compared)}{scope_of_claim(seeds)}"
    )


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention on all held-out windows, which every cell is held against; the cells are trainings."""
    dense = dense_of(at.lm, at.windows, at.context).row("dense")
    return {"dense": {name: dense[name] for name in ("loss", "perplexity")}, "protocol": {"text": ids_hash(at.windows)}}


ablations = Study("ablations", __doc__, Sizes, measure, shown, sample, part=part)
