"""Which settings of Focus matter? Table 9's grid, one factor at a time, through both phases and beside controls."""

from dataclasses import replace
from functools import partial

import numpy as np

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.stored.comparisons import Row, interval_caveat, scope_of_claim
from analysis.studies.stored.measured import DENSE, DRAWS, KERNELS, Arm, window_arm
from analysis.studies.stored.panels import chart, of_row, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, option
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, chance_arms, phase_2, plain
from analysis.training.settings import RouterTraining
from lab.focus.labels import LabelledWindows, label_row
from lab.harness.routed import Reads, dense_part, equal_pairs_window, named_arms, pairs_share, pooled_reads
from lab.harness.telling import counted, distinct, portion

FACTORS: dict[str, tuple] = {
    "groups": (2, 4, 8, 16, 32),
    "window": (16, 64, 128, 256, 512),
    "window_of_two": (16, 128, 512),
    "temperature": (0.05, 0.1, 0.2, 0.5),
    "iterations": (3, 5, 10, 20),
    "dimensions": ("full", 128, 32, 16),
    "similarity": ("dot", "cosine"),
}
LABELS = {  # factor -> (label of its axis, its name in table 9)
    "groups": ("groups, K", "K"),
    "window": ("window, tokens", "w"),
    "window_of_two": ("window of two groups, tokens", ""),
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
TITLES = {"centroid": ("Trained centroids", "centroids"), "tuned": ("Fine-tuned", "fine-tuned")}  # phase -> names
CONTROLS = {
    "centroid_against_same": "random groups of the same sizes with trained centroids",
    "tuned_against_random": "random groups when fine-tuned",
}
UNEVEN = " Random groups are of even sizes here and read fewer pairs wherever the groups are uneven."
Cell = tuple[str, float | str]  # factor, value
# Every factor shares a cell with the others.
CELLS = sum(map(len, FACTORS.values())) - len(FACTORS) + 1
# Of one processor, for a step of both phases of a cell and what is read of it: the default one took 36 minutes.
HOURS = 0.6 / 600


class Ablations(Training):
    """Every cell of the grid trained in both phases and measured on held-out windows, hard, beside a window of equal
    pairs, random groups, and its own groups dealt to the tokens by chance. The default cell is trained `seeds` times.
    It can be run in portions (`rows`, `seeds`, `others`) and collected at the end."""

    tables = ("rows", "curves")

    length: int = option(1024, "tokens in a sequence and in a window of text, as in the paper")
    windows: int = option(16, "held-out windows of text", low=2, high=4096)
    window: int = option(128, "number of recent tokens that are always read, as in the paper")
    others: int = option(1, "trainings of every cell but the default one, at most `seeds`", low=1, high=99)

    def measure(self, run: Setting) -> dict:
        lm, default, measured = run.lm, self.plan(), {}
        grid = cells(self.rows, default, lm)
        plans = list(dict.fromkeys(grid.values()))
        trainings = {(plan, seed) for plan in plans for seed in self.seeds_of(plan)}
        controls = {(plan.groups, plan.window, seed) for plan, seed in trainings}
        expected = 3 * len(trainings) + len(plans) + len(controls) + 1
        trainer = PhaseTrainer.of(run, n_sink=default.n_sink, expected=expected)
        random_groups: dict[tuple, dict[str, Read]] = {}
        for plan in plans:
            settings = {name: getattr(plan, name) for name in VARIED}
            changed = [f"{name}={value}" for name, value in settings.items() if value != getattr(default, name)]
            measured[plan] = settings | self.cell(trainer, " ".join(changed) or "default", plan, random_groups)
        rows = []
        for (factor, value), plan in grid.items():
            about = {"factor": factor, "value": value, "default": plan == default}
            rows.append(about | measured[plan] | paper_numbers(factor, value))
        untrained = FocusRouter(lm.num_layers, lm.width, default.router_settings())
        dense = trainer.measure(untrained, [DENSE])["dense"]
        checked = {"centroids": default}
        for name, reading in (("fine-tuned", "soft"), ("random groups", "drawn")):
            checked[name] = phase_2(default, untrained, reading)[0]
        return {
            "rows": rows,
            "curves": trainer.curves,
            "dense": {"loss": dense.loss, "perplexity": dense.perplexity},
            "n_sink": default.n_sink,
            "windows": len(trainer.windows),
            "length": self.length,
            "plans": plain(checked),
            "protocol": run.about(trainer.windows, kernel=KERNELS),
        }

    def seeds_of(self, plan: RouterTraining) -> range:
        """The seeds of the trainings of a cell."""
        return self.every_seed if plan == self.plan() else self.every_seed[: self.others]

    def cell(self, trainer: PhaseTrainer, label: str, plan: RouterTraining, random_groups: dict) -> Row:
        """The numbers of one cell at its seeds; `random_groups` holds the controls of phase 2 that are tuned already,
        by groups, window and seed."""
        length, first, second, routers = self.length, Reads(trainer.units), Reads(trainer.units), {}
        for seed in self.seeds_of(plan):
            plan_of_seed = replace(plan, seed=seed)
            router = routers[seed] = trainer.router(f"{label}, phase 1", plan_of_seed)
            arms = named_arms(router, plan.window) | {"random": chance_arms(router, plan_of_seed)}
            # Its own groups, dealt to the tokens by chance.
            draws, reads = range(DRAWS * seed, DRAWS * (seed + 1)), {"window": plan.window}
            arms["same"] = [Arm(f"same sizes {draw}", reads, router, chance=draw) for draw in draws]
            first.add(pooled_reads(trainer, router, arms))
        pairs = first["trained"].pairs
        wide = equal_pairs_window(pairs, length, trainer.n_sink)
        alone = pooled_reads(trainer, routers[self.seed], {"window": [window_arm(wide)]})
        for _ in routers:
            first.add(alone)
        row = (
            {"seeds": len(routers)}
            | phase_row("centroid", first)
            | {"pairs_share": pairs_share(pairs, length), "equal_window": wide}
        )
        row |= first.levels({"window_centroid": "window", "same_sizes_centroid": "same"})
        row |= {"parameters": routers[self.seed].size, "same_sizes_pairs": first["same"].pairs}
        against = {"centroid_against_window": ("trained", "window"), "centroid_against_same": ("trained", "same")}
        row |= first.differences(against)
        labelled, labels = LabelledWindows.of(trainer.lm, trainer.windows), []
        for seed, router in routers.items():
            plan_of_seed, key = replace(plan, seed=seed), (plan.groups, plan.window, seed)
            start, look = phase_2(plan_of_seed, router, "soft"), labelled.watch(trainer.lm, router)
            arms_of = partial(named_arms, window=plan.window)
            tuned = trainer.tuned(f"{label}, phase 2", *start, arms_of, look=look)
            labels.append(tuned.observed)
            if key not in random_groups:
                same_size = self.plan(groups=plan.groups, window=plan.window, seed=seed)
                untrained = FocusRouter(trainer.lm.num_layers, trainer.lm.width, same_size.router_settings(), seed=seed)
                name = f"{plan.groups} random groups, window {plan.window}"

                def drawn(own: FocusRouter, plan: RouterTraining = plan_of_seed) -> dict[str, list[Arm]]:
                    return {"random": chance_arms(own, plan)}

                random_groups[key] = trainer.tuned(name, *phase_2(same_size, untrained, "drawn"), drawn).held_out
            second.add(tuned.held_out | random_groups[key])
        return row | phase_row("tuned", second) | label_row(labels)

    def part(self, run: Setting, numbers: dict) -> dict:
        return dense_part(run, numbers)

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, length, protocol, ranges = numbers["rows"], numbers["length"], numbers["protocol"], []
        # What is claimed of all cells rests on as many trainings as each of them has.
        protocol = protocol | {"seeds": min(row.get("seeds", protocol["seeds"]) for row in rows)}
        trained = list({tuple(row[name] for name in VARIED): row for row in rows}.values())
        for phase, (_, name) in TITLES.items():
            values = [row[f"perplexity_{phase}"] for row in trained]
            ranges.append(f"{name} from {min(values):.2f} to {max(values):.2f}")
        sentence = (
            f"Perplexity over {len(trained)} cells: {'; '.join(ranges)}; dense attention without fine-tuning has "
        )
        sentence += f"{numbers['dense']['perplexity']:.2f}. {counted(trained, 'cells', CONTROLS)}{UNEVEN}"
        notes = [interval_caveat(protocol)]
        if wide := sorted({row["window"] for row in rows if row["window"] >= length}):
            note = f"A window of {', '.join(map(str, wide))} holds all {length:,} tokens, so this is full attention"
            notes.append(f"{note}: nothing is left to the groups.")
        sentence += scope_of_claim(protocol["seeds"]) + portion(len(trained), CELLS, "cells", HOURS * protocol["steps"])
        summary = presented("ablations", sentence, _panels(rows), *notes)
        return of_row(summary, rows[0])


def cells(rows: str | None, plan: RouterTraining, lm: Model) -> dict[Cell, RouterTraining]:
    """(factor, value) -> the plan of that cell, of the factors and cells named in `rows`. Errors: BadSetting."""
    changes: dict[Cell, dict] = {}
    for factor, values in FACTORS.items():
        for value in values:
            field = {"dimensions": "d_s", "window_of_two": "window"}.get(factor, factor)
            changes[factor, value] = {field: lm.width if value == "full" else value}
            if factor == "window_of_two":
                changes[factor, value]["groups"] = 2
    # Two groups have the window of appendix B, whatever the others have.
    changes["groups", 2]["window"] = 16
    names = {f"{factor}={value}": (factor, value) for factor, value in changes}
    wanted = [word.strip() for word in rows.split(",")] if rows else list(FACTORS)
    if unknown := [word for word in wanted if word not in (*FACTORS, *names)]:
        raise BadSetting(
            f"There is no row {unknown[0][:40]!r}: the rows are {', '.join(FACTORS)}, or one of their cells such as "
            f"{', '.join(list(names)[1:3])}."
        )
    return {key: replace(plan, **changes[key]) for name, key in names.items() if {name, key[0]} & set(wanted)}


def phase_row(phase: str, reads: Reads) -> Row:
    """The columns of one phase."""
    row = reads.levels({"perplexity": "trained", "literal": "literal", "random": "random"})
    row |= {"share": float(np.mean(reads["trained"].shares)), "worst": reads.worst("trained")}
    row["literal_share"] = float(np.mean(reads["literal"].shares))
    named = {f"{key}_{phase}": value for key, value in row.items()}
    return named | reads.differences({f"{phase}_against_random": ("trained", "random")})


def paper_numbers(factor: str, value: float | str) -> dict[str, float | None]:
    """What the paper prints for a cell (GPT-2 124M, PG-19, window 128 unless varied); None where it prints nothing."""
    row: dict[str, float | None] = dict.fromkeys(PRINTED)
    if (factor, value) in (("groups", 2), ("window_of_two", 16)):
        row["paper_centroid"] = printed("appendix B", "w=16", "PPL")
    elif factor == "dimensions":
        width = "768 (full)" if value == "full" else value
        row["paper_centroid"] = printed("section 2", f"d_s={width}", "PPL")
    elif LABELS[factor][1]:
        for key, (name, by) in PRINTED.items():
            number = printed("table 9", f"{LABELS[factor][1]}={value}", name)
            row[key] = None if number is None else number / by
    return row


def _panels(rows: list[dict]) -> list[dict]:
    """Three small charts for each factor: perplexity of both phases, and the largest group's share."""
    charts = []
    for factor in distinct(rows, "factor"):
        points, label = [row for row in rows if row["factor"] == factor], LABELS[factor][0]
        shares, paper_shares = {}, {}
        for phase, (title, name) in TITLES.items():
            keys = {"trained groups": f"perplexity_{phase}", "literal groups": f"literal_{phase}"}
            keys |= {"random groups": f"random_{phase}"}
            keys |= {"window of equal pairs": "window_centroid"} if phase == "centroid" else {}
            paper = paper_lines({"GPT-2 124M, paper": [row[f"paper_{phase}"] for row in points]})
            charts.append(chart(f"{title}: {factor}", points, "value", label, "perplexity", keys, paper))
            shares[name] = f"share_{phase}"
            paper_shares[f"{name}, paper"] = [row[f"paper_share_{phase}"] for row in points]
        shares |= {f"{name}, literal": f"literal_{key}" for name, key in shares.items()}
        axes = ("value", label, "share of the tokens")
        charts.append(chart(f"Largest group: {factor}", points, *axes, shares, paper_lines(paper_shares)))
    return charts
