"""Which settings of Focus matter? Table 9's grid, one factor at a time, through both phases and beside controls."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.stored.comparisons import Row, interval_caveat, scope_of_claim
from analysis.studies.stored.measured import DENSE, DRAWS, KERNELS, Arm, window_arm
from analysis.studies.stored.panels import chart, of_row, paper_lines, presented
from analysis.studies.stored.runner import Setting, option
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, chance_arms, phase_2, plain
from analysis.training.settings import RouterTraining
from lab.focus.labels import LabelledWindows, label_row
from lab.focus.table9 import CELLS, LABELS, cells, paper_numbers
from lab.harness.routed import Reads, dense_part, equal_pairs_window, named_arms, pairs_share, pooled_reads
from lab.harness.telling import counted, distinct, portion

VARIED = ("groups", "window", "temperature", "iterations", "d_s", "similarity")  # of a plan
TITLES = {"centroid": ("Trained centroids", "centroids"), "tuned": ("Fine-tuned", "fine-tuned")}  # phase -> names
CONTROLS = {
    "centroid_against_same": "random groups of the same sizes with trained centroids",
    "tuned_against_random": "random groups when fine-tuned",
    "tuned_against_full": "full attention when fine-tuned",
}
FULL = "full attention"
UNEVEN = " Random groups are of even sizes here and read fewer pairs wherever the groups are uneven."
# Of one processor, for a step of both phases of a cell and what is read of it: the default one took 36 minutes.
HOURS = 0.6 / 600


class Ablations(Training):
    """Every cell of the grid trained in both phases and measured on held-out windows, hard, beside a window of equal
    pairs, random groups, its own groups dealt to the tokens by chance, and full attention that is fine-tuned too. The
    default cell is trained `seeds` times. It can be run in portions (`rows`, `seeds`, `others`) and collected at the
    end."""

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
        # Full attention is tuned once for every seed.
        tunings = len(controls) + len({seed for _, seed in trainings})
        expected = 3 * len(trainings) + len(plans) + tunings + 1
        trainer = PhaseTrainer.of(run, n_sink=default.n_sink, expected=expected)
        beside = TunedBeside(trainer, self.plan)
        for plan in plans:
            settings = {name: getattr(plan, name) for name in VARIED}
            changed = [f"{name}={value}" for name, value in settings.items() if value != getattr(default, name)]
            measured[plan] = settings | self.cell(trainer, " ".join(changed) or "default", plan, beside)
        rows = []
        for (factor, value), plan in grid.items():
            about = {"factor": factor, "value": value, "default": plan == default}
            rows.append(about | measured[plan] | paper_numbers(factor, value))
        untrained = FocusRouter(lm.num_layers, lm.width, default.router_settings())
        dense = trainer.measure(untrained, [DENSE])["dense"]
        checked = {"centroids": default}
        for name, reading in (("fine-tuned", "soft"), ("random groups", "drawn")):
            checked[name] = phase_2(default, untrained, reading)[0]
        checked[FULL] = phase_2(default, untrained, "alone", self.length)[0]
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

    def cell(self, trainer: PhaseTrainer, label: str, plan: RouterTraining, beside: "TunedBeside") -> Row:
        """The numbers of one cell at its seeds."""
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
            plan_of_seed = replace(plan, seed=seed)
            start, look = phase_2(plan_of_seed, router, "soft"), labelled.watch(trainer.lm, router)
            arms_of = partial(named_arms, window=plan.window)
            tuned = trainer.tuned(f"{label}, phase 2", *start, arms_of, look=look)
            labels.append(tuned.observed)
            second.add(tuned.held_out | {"random": beside.random_groups(plan_of_seed), FULL: beside.full(seed)})
        row |= phase_row("tuned", second) | second.levels({"full_tuned": FULL})
        return row | second.differences({"tuned_against_full": ("trained", FULL)}) | label_row(labels)

    def part(self, run: Setting, numbers: dict) -> dict:
        return dense_part(run, numbers)

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, length, protocol, ranges = numbers["rows"], numbers["length"], numbers["protocol"], []
        # What is claimed of all cells rests on as many trainings as each of them has.
        trainings = [row["seeds"] for row in rows]
        protocol = protocol | {"seeds": min(trainings)}
        trained = list({tuple(row[name] for name in VARIED): row for row in rows}.values())
        for phase, (_, name) in TITLES.items():
            values = [row[f"perplexity_{phase}"] for row in trained]
            ranges.append(f"{name} from {min(values):.2f} to {max(values):.2f}")
        # The default cell has the most trainings, and so has full attention beside it.
        full = max(rows, key=lambda row: row["seeds"])["full_tuned"]
        sentence = (
            f"Perplexity over {len(trained)} cells: {'; '.join(ranges)}; dense attention has "
            f"{numbers['dense']['perplexity']:.2f}, fine-tuned as long {full:.2f}. "
        )
        sentence += _spread([row for row in rows if row["paper_tuned"] is not None])
        sentence += counted(trained, "cells", CONTROLS) + UNEVEN
        notes = [interval_caveat(protocol), _labels_note(trained)]
        if max(trainings) > min(trainings):
            notes[0] += f" The default cell is of {max(trainings)} trainings, and its intervals are over these too."
        if protocol["sizes"]["tokens_per_step"] < length:
            notes.append(f"A step is one sequence: {length:,} tokens.")
        if wide := sorted({row["window"] for row in rows if row["window"] >= length}):
            note = f"A window of {', '.join(map(str, wide))} holds all {length:,} tokens, so this is full attention"
            notes.append(f"{note}: nothing is left to the groups.")
        of_every = "cell but the default" if max(trainings) > min(trainings) else "cell"
        sentence += scope_of_claim(protocol["seeds"], arm=of_every)
        sentence += portion(len(trained), CELLS, "cells", HOURS * protocol["steps"])
        summary = presented("ablations", sentence, _panels(rows), *notes)
        return of_row(summary, rows[0])


@dataclass
class TunedBeside:
    """What is fine-tuned beside the cells as they are, each once; `plan` makes the study's plan with changes."""

    trainer: PhaseTrainer
    plan: Callable[..., RouterTraining]
    tuned: dict[tuple[str, int], Read] = field(default_factory=dict)

    def full(self, seed: int) -> Read:
        """Full attention."""
        return self._read(FULL, self.plan(seed=seed), "alone", lambda own: [DENSE], self.trainer.windows.shape[1])

    def random_groups(self, cell: RouterTraining) -> Read:
        """Random groups, as many and with the window of a cell."""
        name = f"{cell.groups} random groups, window {cell.window}"
        plan = self.plan(groups=cell.groups, window=cell.window, seed=cell.seed)
        return self._read(name, plan, "drawn", lambda own: chance_arms(own, plan))

    def _read(
        self,
        name: str,
        plan: RouterTraining,
        reading: str,
        arms: Callable[[FocusRouter], list[Arm]],
        window: int | None = None,
    ) -> Read:
        key, lm = (name, plan.seed), self.trainer.lm
        if key not in self.tuned:
            untrained = FocusRouter(lm.num_layers, lm.width, plan.router_settings(), seed=plan.seed)
            start = phase_2(plan, untrained, reading, window)
            self.tuned[key] = self.trainer.tuned(name, *start, lambda own: {name: arms(own)}).held_out[name]
        return self.tuned[key]


def phase_row(phase: str, reads: Reads) -> Row:
    """The columns of one phase."""
    row = reads.levels({"perplexity": "trained", "literal": "literal", "random": "random"})
    row |= {"share": float(np.mean(reads["trained"].shares)), "worst": reads.worst("trained")}
    row["literal_share"] = float(np.mean(reads["literal"].shares))
    named = {f"{key}_{phase}": value for key, value in row.items()}
    return named | reads.differences({f"{phase}_against_random": ("trained", "random")})


def _spread(printed_rows: list[Row]) -> str:
    """How far apart the settings end that table 9 prints, beside how far apart it prints them; nothing of one alone.
    The default stands in every factor's rows."""
    settings = len({tuple(row[name] for name in VARIED) for row in printed_rows})
    if settings < 2:
        return ""
    ours, paper = (
        max(row[key] for row in printed_rows) - min(row[key] for row in printed_rows)
        for key in ("perplexity_tuned", "paper_tuned")
    )
    which = f"The {len(printed_rows)} rows of table 9, {settings} settings, end within {ours:.1f} perplexity"
    return f"{which} of each other when fine-tuned (in the paper {paper:.1f}). "


def _labels_note(trained: list[Row]) -> str:
    """What becomes of the groups' categories, in all cells and in the default one."""
    low, high, *chance = (
        pick(row[key] for row in trained) for key in ("labels_kept", "labels_chance") for pick in (min, max)
    )
    note = f"Groups that fine-tuning leaves their category: {low:.0%} to {high:.0%} by cell"
    note += f" (by chance {chance[0]:.0%} to {chance[1]:.0%})"
    for row in trained:
        if row["default"]:
            note += f"; in the default one {row['labels_kept']:.0%} (by chance {row['labels_chance']:.0%})"
            if row["seeds"] > 1:
                ends = " to ".join(f"{row[f'labels_kept_{end}']:.0%}" for end in ("lowest", "highest"))
                note += f", over its {row['seeds']} trainings {ends}"
    return f"{note}."


def _panels(rows: list[dict]) -> list[dict]:
    """Three small charts for each factor: perplexity of both phases, and the largest group's share."""
    charts = []
    for factor in distinct(rows, "factor"):
        points, label = [row for row in rows if row["factor"] == factor], LABELS[factor][0]
        shares, paper_shares = {}, {}
        for phase, (title, name) in TITLES.items():
            keys = {"trained groups": f"perplexity_{phase}", "literal groups": f"literal_{phase}"}
            keys |= {"random groups": f"random_{phase}"}
            keys |= {"window of equal pairs": "window_centroid"} if phase == "centroid" else {FULL: "full_tuned"}
            paper = paper_lines({"GPT-2 124M, paper": [row[f"paper_{phase}"] for row in points]})
            charts.append(chart(f"{title}: {factor}", points, "value", label, "perplexity", keys, paper))
            shares[name] = f"share_{phase}"
            paper_shares[f"{name}, paper"] = [row[f"paper_share_{phase}"] for row in points]
        shares |= {f"{name}, literal": f"literal_{key}" for name, key in shares.items()}
        axes = ("value", label, "share of the tokens")
        charts.append(chart(f"Largest group: {factor}", points, *axes, shares, paper_lines(paper_shares)))
    return charts
