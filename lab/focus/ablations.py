"""Which settings of Focus matter? Table 9's grid, one factor at a time, through both phases and beside controls."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.stored.comparisons import difference, interval_caveat, scope_of_claim
from analysis.studies.stored.measured import DENSE, DRAWS, HARD, KERNELS, dealt_arms, dense_of, hard_arms, window_arm
from analysis.studies.stored.panels import chart, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, by_seed, chance_arms, phase_2, plain, sample
from analysis.studies.text.held_out import check_range, ids_hash
from analysis.training.settings import RouterTraining
from lab.harness.pairs import equal_pairs_window, pairs_share
from lab.harness.telling import counted

FACTORS = {
    "groups": (2, 4, 8, 16, 32),
    "window": (16, 64, 128, 256, 512),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "iterations": (3, 5, 10, 20),
    "dimensions": ("full", 128, 32, 16),
    "similarity": ("dot", "cosine"),
}
LABELS = {  # factor -> (label of its axis, its name in table 9)
    "groups": ("groups, K", "K"),
    "window": ("window, tokens", "w"),
    "temperature": ("temperature", "τ"),
    "iterations": ("Sinkhorn iterations", "Sinkhorn iters"),
    "dimensions": ("dimensions of routing vectors", "d_s"),
    "similarity": ("similarity of a token and a centroid", ""),
}
PRINTED = {  # key of a row -> column of table 9, and what it is divided by
    "paper_centroid": ("Centroid PPL", 1),
    "paper_tuned": ("Fine-tuned PPL", 1),
    "paper_share_centroid": ("Dominance (centroid)", 100),
    "paper_share_tuned": ("Dominance (full FT)", 100),
}
VARIED = ("groups", "window", "temperature", "iterations", "d_s", "similarity")  # of a plan
PHASES = {  # phase -> (name, title of its chart, the control it is judged by)
    "centroid": ("trained centroids", "Trained centroids", "same"),
    "tuned": ("fine-tuned", "Fine-tuned", "random"),
}
UNEVEN = " Random groups are of even sizes here and read fewer pairs wherever the groups are uneven."


@dataclass(frozen=True)
class Sizes(Training):
    """Table 9's grid; it can be run in portions (`rows`, `seeds`) and collected at the end."""

    length: int = option(1024, "tokens in a sequence and in a window of text, as in the paper")
    widths: list[int] | None = option(
        None, f"windows of that factor's cells (default: {','.join(map(str, FACTORS['window']))})"
    )

    def check(self, lm: Model) -> None:
        super().check(lm)
        for width in self.widths or ():
            check_range("A window of the grid", width, 1, self.length)


def measure(run: Setting) -> dict:
    """Every cell of the grid trained in both phases and measured on held-out windows, hard, beside a window of equal
    pairs, random groups, and its own groups dealt to the tokens by chance. Errors: BadSetting, BadText."""
    lm, sizes, default = run.lm, run.sizes, run.sizes.plan()
    grid = cells(sizes.rows, default, lm, sizes.widths)
    plans = list(dict.fromkeys(grid.values()))
    controls = {(plan.groups, plan.window) for plan in plans}
    expected = (3 * sizes.seeds + 1) * len(plans) + sizes.seeds * len(controls) + 1
    trainer = PhaseTrainer.of(run, n_sink=default.n_sink, expected=expected)
    random_groups: dict = {}
    measured = {}
    for plan in plans:
        changed = [f"{name}={getattr(plan, name)}" for name in VARIED if getattr(plan, name) != getattr(default, name)]
        settings = {name: getattr(plan, name) for name in VARIED}
        measured[plan] = settings | _cell(trainer, " ".join(changed) or "default", plan, random_groups, sizes)
    rows = []
    for (factor, value), plan in grid.items():
        about = {"factor": factor, "value": value, "default": plan == default}
        rows.append(about | measured[plan] | paper_numbers(factor, value))
    untrained = FocusRouter(lm.num_layers, lm.width, default.router_settings())
    dense = trainer.measure(untrained, [DENSE])["dense"]
    checked = {"centroids": default}
    for name, reading in (("fine-tuned", "soft"), ("random groups", "drawn")):
        checked[name] = phase_2(default, untrained, reading)[0]
    about = {"steps": sizes.steps, "rate": sizes.rate, "base_rate": sizes.base_rate, "training_text": trainer.texts}
    return {
        "rows": rows,
        "dense": {"loss": dense.loss, "perplexity": dense.perplexity},
        "n_sink": default.n_sink,
        "windows": len(trainer.windows),
        "length": sizes.length,
        "plans": plain(checked),
        "protocol": run.about(trainer.windows, kernel=KERNELS, **about, seeds=sizes.seeds),
    }


def cells(
    rows: str | None, plan: RouterTraining, lm: Model, widths: list[int] | None = None
) -> dict[tuple[str, float | str], RouterTraining]:
    """(factor, value) -> the plan of that cell, of the factors and cells named in `rows`; `widths` are the windows of
    that factor. Errors: BadSetting."""
    factors = FACTORS | ({"window": tuple(sorted(set(widths)))} if widths else {})
    changes = {}
    for factor, values in factors.items():
        for value in values:
            field = "d_s" if factor == "dimensions" else factor
            changes[factor, value] = {field: lm.width if value == "full" else value}
    changes["groups", 2]["window"] = 16  # as in appendix B
    names = {f"{factor}={value}": (factor, value) for factor, value in changes}
    wanted = [word.strip() for word in rows.split(",")] if rows else list(FACTORS)
    if unknown := [word for word in wanted if word not in (*FACTORS, *names)]:
        raise BadSetting(
            f"There is no row {unknown[0][:40]!r}: the rows are {', '.join(FACTORS)}, or one of their cells such as "
            f"{', '.join(list(names)[1:3])}."
        )
    return {key: replace(plan, **changes[key]) for name, key in names.items() if {name, key[0]} & set(wanted)}


def _cell(trainer: PhaseTrainer, label: str, plan: RouterTraining, random_groups: dict, sizes: Sizes) -> dict:
    """The numbers of one cell at every seed; `random_groups` holds the controls of phase 2 that are tuned already."""
    length, units = trainer.windows.shape[1], trainer.units
    first, second = [], []
    for seed in sizes.every_seed:
        one = replace(plan, seed=seed)
        router = trainer.router(sizes.named(f"{label}, phase 1", one), one)
        dealt = dealt_arms(router, plan.window, DRAWS * seed)
        reads = trainer.measure(router, [*hard_arms(router, plan.window), *chance_arms(router, one), *dealt])
        first.append((router, reads | {"same sizes": Read.pool([reads.pop(arm.name) for arm in dealt])}))
    trained, same = ([reads[name] for _, reads in first] for name in ("trained", "same sizes"))
    pairs = Read.pool(trained).pairs
    wide = equal_pairs_window(pairs, length, trainer.n_sink)
    alone = trainer.measure(first[0][0], [window_arm(wide)])[f"window {wide}"]
    row = _phase("centroid", [reads for _, reads in first], units)
    row |= {"pairs_share": pairs_share(pairs, length), "equal_window": wide}
    row |= {"window_centroid": alone.perplexity, "parameters": first[0][0].size}
    row |= difference("centroid_against_window", by_seed(trained), alone.means, units)
    row |= {"same_sizes_centroid": Read.pool(same).perplexity, "same_sizes_pairs": Read.pool(same).pairs}
    row |= difference("centroid_against_same", by_seed(trained), by_seed(same), units)
    for seed, (router, _) in zip(sizes.every_seed, first, strict=True):
        one = replace(plan, seed=seed)
        name = sizes.named(f"{label}, phase 2", one)
        tuned = trainer.tuned(name, *phase_2(one, router, "soft"), lambda own: hard_arms(own, plan.window))
        key = plan.groups, plan.window, seed
        if key not in random_groups:
            same_size = sizes.plan(groups=plan.groups, window=plan.window, seed=seed)
            untrained = FocusRouter(trainer.lm.num_layers, trainer.lm.width, same_size.router_settings(), seed=seed)
            name = sizes.named(f"{plan.groups} random groups, window {plan.window}", one)
            control = phase_2(same_size, untrained, "drawn")
            random_groups[key] = trainer.tuned(name, *control, lambda own, one=one: chance_arms(own, one))["held out"]
        second.append(tuned["held out"] | random_groups[key])
    return row | _phase("tuned", second, units)


def _phase(phase: str, reads: list[dict[str, Read]], documents: np.ndarray) -> dict:
    """The columns of one phase from what each seed reads; `documents` [n] of the windows."""
    trained, literal = ([arms[name] for arms in reads] for name in HARD)
    random = []
    for arms in reads:
        random.append(Read.pool([read for name, read in arms.items() if name.startswith("random tokens")]))
    row = {
        "perplexity": Read.pool(trained).perplexity,
        "literal": Read.pool(literal).perplexity,
        "random": Read.pool(random).perplexity,
        "share": float(np.mean(Read.pool(trained).shares)),
        "worst": max(share for read in trained for share in read.shares),
        "literal_share": float(np.mean(Read.pool(literal).shares)),
    }
    against = difference(f"{phase}_against_random", by_seed(trained), by_seed(random), documents)
    return {f"{key}_{phase}": value for key, value in row.items()} | against


def paper_numbers(factor: str, value: float | str) -> dict:
    """What the paper prints for a cell (GPT-2 124M, PG-19, window 128 unless varied); None where it prints nothing."""
    row: dict = dict.fromkeys(PRINTED)
    if (factor, value) == ("groups", 2):
        return row | {"paper_centroid": printed("appendix B", "w=16", "PPL")}
    if factor == "dimensions":
        width = "768 (full)" if value == "full" else value
        return row | {"paper_centroid": printed("section 2", f"d_s={width}", "PPL")}
    if factor != "similarity":
        for key, (name, by) in PRINTED.items():
            number = printed("table 9", f"{LABELS[factor][1]}={value}", name)
            row[key] = None if number is None else number / by
    return row


def shown(numbers: dict) -> dict:
    """How far the cells lie apart in each phase, and how many beat their random groups."""
    rows, length, protocol = numbers["rows"], numbers["length"], numbers["protocol"]
    distinct = list({tuple(row[name] for name in VARIED): row for row in rows}.values())
    parts, controls = [], {}
    for phase, (name, _, control) in PHASES.items():
        values, shares = ([row[f"{key}_{phase}"] for row in distinct] for key in ("perplexity", "share"))
        parts.append(
            f"{name} from {min(values):.2f} to {max(values):.2f} (largest group {min(shares):.0%} to {max(shares):.0%})"
        )
        controls[f"{phase}_against_{control}"] = f"random groups when {name}"
    controls["centroid_against_same"] = "random groups of the same sizes with trained centroids"
    sentence = (
        f"Perplexity over {len(distinct)} cells: {'; '.join(parts)}; dense attention without fine-tuning has "
        f"{numbers['dense']['perplexity']:.2f}. {counted(distinct, 'cells', controls)}{UNEVEN}"
        f"{scope_of_claim(protocol['seeds'])}"
    )
    notes = [interval_caveat(protocol)]
    if wide := sorted({row["window"] for row in rows if row["window"] >= length}):
        note = f"A window of {', '.join(map(str, wide))} holds all {length:,} tokens, so this is full attention"
        notes.append(f"{note}: nothing is left to the groups.")
    summary = presented("ablations", sentence, panels(rows), *notes)
    return summary | {"columns": [column for column in summary["columns"] if column["name"] in rows[0]]}


def panels(rows: list[dict]) -> list[dict]:
    """Three small charts for each factor: perplexity of both phases, and the largest group's share."""
    charts = []
    for factor in dict.fromkeys(row["factor"] for row in rows):
        points, label = [row for row in rows if row["factor"] == factor], LABELS[factor][0]
        shares, printed = {}, {}
        for phase, (_, title, _) in PHASES.items():
            keys = {"trained groups": f"perplexity_{phase}", "literal groups": f"literal_{phase}"}
            keys |= {"random groups": f"random_{phase}"}
            keys |= {"window of equal pairs": "window_centroid"} if phase == "centroid" else {}
            paper = paper_lines({"GPT-2 124M, paper": [row[f"paper_{phase}"] for row in points]})
            charts.append(chart(f"{title}: {factor}", points, "value", label, "perplexity", keys, paper))
            name = {"centroid": "centroids", "tuned": "fine-tuned"}[phase]
            shares |= {name: f"share_{phase}"}
            printed[f"{name}, paper"] = [row[f"paper_share_{phase}"] for row in points]
        shares |= {f"{name}, literal": f"literal_{key}" for name, key in shares.items()}
        axes = ("value", label, "share of the tokens")
        charts.append(chart(f"Largest group: {factor}", points, *axes, shares, paper_lines(printed)))
    return charts


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention on all held-out windows, which every cell is held against; the cells are trainings."""
    row = dense_of(run.lm, run.windows, run.context).row("dense")
    dense = {name: row[name] for name in ("loss", "perplexity")}
    return {"dense": dense, "protocol": {"text": ids_hash(run.windows)}}


ablations = Study("ablations", __doc__, Sizes, measure, shown, sample, part=part)
