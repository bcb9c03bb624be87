"""Which settings of Focus matter? Table 9's grid, one factor at a time, through both phases and beside controls."""

from dataclasses import replace

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.grids.factors import FACTORS, columns, panels, paper_numbers, sentence
from analysis.studies.stored.measured import DENSE, KERNELS, READINGS, Arm, drawn_arm, trained_arm, window_arm
from analysis.studies.stored.panels import difference, how_sure
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.runner import Setting, Study
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, phase_2, plain, sample
from analysis.training.settings import RouterTraining

SEEDS = 3  # of random tokens
SHOWN = ("trained", "trained, literal")
READ_AS = (
    "One factor differs from the default at a time; cells that are the default are trained once. Two groups always get "
    "the window of 16 that appendix B gives them. Phase 2 trains through the soft gate; its random groups get the same "
    "training of the base under a hard mask, once for each number of groups and window. Shares are of the largest "
    "group, mean of layers, on held-out windows."
)


def measure(at: Setting) -> dict:
    """Every cell of the grid trained in both phases and measured on held-out windows, hard.

    `rows` of the sizes: factors (`groups`, `window`, `temperature`, `iterations`, `dimensions`) or cells (`groups=4`),
    joined by commas (default: all). The default cell has these `groups` and `window`, temperature 0.1, 10 iterations
    and 16 dimensions. The grid can be run in portions and collected at the end.
    `rows`: `factor value default groups window temperature iterations d_s`; of `centroid` and `tuned`: `perplexity_X
    literal_X share_X literal_share_X worst_X random_X`, and `X_against_random` in nats with `_low` and `_high`;
    `pairs_share equal_window window_centroid centroid_against_window`, `paper_...` what table 9 prints. Beside them
    `dense`. Errors: BadSetting, BadText.
    """
    lm, sizes, plan = at.lm, at.sizes, at.sizes.plan()
    grid = cells(sizes.rows, plan, lm)
    plans = list(dict.fromkeys(grid.values()))
    drawn = {(one.groups, one.window) for one in plans}
    trainer = PhaseTrainer.of(at, plan.n_sink, 4 * len(plans) + len(drawn) + 1)
    controls: dict = {}
    done = {one: _cell(trainer, one, controls, plan) for one in plans}
    found = []
    for (factor, value), one in grid.items():
        about = {name: getattr(one, name) for name in ("groups", "window", "temperature", "iterations", "d_s")}
        row = {"factor": factor, "value": value, "default": one == plan, **about, **done[one]}
        found.append(row | paper_numbers(factor, value))
    anyone = FocusRouter(lm.num_layers, lm.width, plan.router_settings())
    dense = trainer.measure(anyone, [DENSE])["dense"]
    kinds = {"centroids": plan, "fine-tuned": phase_2(plan, anyone, "soft")[0]}
    kinds["random groups"] = phase_2(plan, anyone, "drawn")[0]
    told = {"steps": sizes.steps, "rate": sizes.rate, "base_rate": sizes.base_rate, "training_text": trainer.texts}
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
    rows = numbers["rows"]
    return {
        "sentence": sentence(rows, numbers["dense"]["perplexity"]),
        "columns": columns(),
        "panels": panels(rows),
        "notes": [READ_AS, how_sure(numbers["windows"]), *_local(rows, numbers["length"])],
    }


def cells(rows: str | None, plan: RouterTraining, lm: Model) -> dict[tuple[str, float | str], RouterTraining]:
    """(factor, value) -> the plan of that cell, of the factors and cells that are asked for. Errors: BadSetting."""
    every = {}
    for factor, values in FACTORS.items():
        for value in values:
            name = "d_s" if factor == "dimensions" else factor
            changed = {name: lm.width if value == "full" else value}
            if (factor, value) == ("groups", 2):
                changed["window"] = 16
            every[factor, value] = changed
    named = {f"{factor}={value}": (factor, value) for factor, value in every}
    wanted = [word.strip() for word in rows.split(",")] if rows else list(FACTORS)
    if unknown := [word for word in wanted if word not in (*FACTORS, *named)]:
        raise BadSetting(
            f"There is no row {unknown[0][:40]!r}: the rows are {', '.join(FACTORS)}, or one of their cells such as "
            f"{', '.join(list(named)[1:3])}."
        )
    chosen = [key for key in every if key[0] in wanted or f"{key[0]}={key[1]}" in wanted]
    return {key: replace(plan, **every[key]) for key in chosen}


def _cell(trainer: PhaseTrainer, plan: RouterTraining, controls: dict, default: RouterTraining) -> dict:
    """The numbers of one cell: phase 1, its controls, phase 2; `controls` holds the random groups that were tuned."""
    said, length = _name(plan, default), trainer.windows.shape[1]
    router = trainer.router(f"{said}, phase 1", plan)
    chance = [drawn_arm(router, plan.window, plan.seed + more) for more in range(SEEDS)]
    reads = trainer.measure(router, [*(trained_arm(one, router, plan.window) for one in SHOWN), *chance])
    wide = equal_pairs_window(reads["trained"].pairs, length, trainer.n_sink)
    alone = trainer.measure(router, [window_arm(wide)])[f"window {wide}"]
    row = _phase("centroid", reads)
    row |= {"pairs_share": reads["trained"].pairs / (length * (length + 1) // 2), "equal_window": wide}
    row |= {"window_centroid": alone.perplexity, "parameters": router.size}
    row |= difference("centroid_against_window", reads["trained"].means, alone.means)
    after, start = phase_2(plan, router, "soft")
    tuned = trainer.tuned(f"{said}, phase 2", after, start, lambda own: [_shown(one, own, plan) for one in SHOWN])
    if (which := (plan.groups, plan.window)) not in controls:
        same = replace(default, groups=plan.groups, window=plan.window)
        anyone = FocusRouter(trainer.lm.num_layers, trainer.lm.width, same.router_settings(), seed=plan.seed)
        told = f"{plan.groups} random groups, window {plan.window}"
        controls[which] = trainer.tuned(told, *phase_2(same, anyone, "drawn"), lambda own: chance)["held out"]
    return row | _phase("tuned", tuned["held out"] | controls[which])


def _shown(name: str, router: FocusRouter, plan: RouterTraining) -> Arm:
    return Arm(name, {"window": plan.window, **READINGS[name]}, router)


def _phase(phase: str, reads: dict[str, Read]) -> dict:
    """The columns of one phase."""
    mine, literal = (reads[name] for name in SHOWN)
    random = Read.pool([read for name, read in reads.items() if name.startswith("random tokens")])
    shares = {"share": sum(mine.shares) / len(mine.shares), "worst": max(mine.shares)}
    shares["literal_share"] = sum(literal.shares) / len(literal.shares)
    row = {"perplexity": mine.perplexity, "literal": literal.perplexity, **shares, "random": random.perplexity}
    return {f"{k}_{phase}": v for k, v in row.items()} | difference(f"{phase}_against_random", mine.means, random.means)


def _name(plan: RouterTraining, default: RouterTraining) -> str:
    names = ("groups", "window", "temperature", "iterations", "d_s")
    changed = [f"{n}={getattr(plan, n)}" for n in names if getattr(plan, n) != getattr(default, n)]
    return " ".join(changed) or "default"


def _local(rows: list[dict], length: int) -> list[str]:
    wide = sorted({row["window"] for row in rows if row["window"] >= length})
    if not wide:
        return []
    return [
        f"A window of {', '.join(map(str, wide))} holds all {length:,} tokens, so this is full attention: nothing is "
        "left to the groups."
    ]


ablations = Study("ablations", __doc__, Training, measure, shown, sample)
