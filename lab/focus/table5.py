"""Does fine-tuning with groups beat fine-tuning with full attention? Focus, table 5, with the controls it lacks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.stored.comparisons import Row, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, Arm, dense_of, window_arm
from analysis.studies.stored.panels import of_row, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting
from analysis.studies.stored.trained import PhaseTrainer, Training, chance_arms, phase_2, plain
from analysis.studies.text.held_out import domains, held_out_windows, ids_hash, make_folder
from analysis.training.settings import RouterTraining
from lab.focus.labels import LabelledWindows, label_row
from lab.harness.routed import Reads, equal_pairs_window, named_arms, pairs_share, pooled_reads
from lab.harness.telling import concluded, lines_of

ARMS = {  # what the base is fine-tuned with -> how the training reads
    "full attention": "alone",  # a window as long as the text
    "Focus, soft": "soft",
    "Focus, hard": "hard",
    "random groups": "drawn",
    "window of equal pairs": "alone",
}
AGAINST = {
    "against_full": "full attention",
    "against_random": "random groups",
    "against_window": "window of equal pairs",
}
PANELS = {
    "perplexity": ("Perplexity after fine-tuning", "perplexity, held out"),
    "against_full": ("Loss above full attention", "nats per token"),
    "learned": ("What fine-tuning changes", "nats per token"),
    "gap": ("Held out minus trained on", "nats per token"),
}
PAPER = {"PG-19": "PG-19 (books)", "WikiText-103": "WikiText-103 (Wikipedia)", "OpenWebText": "OpenWebText (web)"}
PAPER_ARMS = ("Full FT", "Focus FT")
SEEN = "The bundled model was pretrained on texts of these kinds, so there is less to learn than on a new domain."


class Finetuning(Training):
    """Copies of the model fine-tuned with full attention, Focus (soft and hard), random groups and a window of equal
    pairs, on each domain, held against each other and against the base read the same way, on texts held out. A corpus
    with the folders `books`, `python`, `wikitext2` has three domains, any other is one."""

    tables = ("rows", "curves")

    def measure(self, run: Setting) -> dict:
        plan, texts, rows, curves = self.plan(), domains(self.corpus, self.rows, run.context), [], []
        plans: dict[str, RouterTraining] = {}
        about: dict[str, dict[str, Any]] = {}
        for index, (domain, (train, held_out)) in enumerate(texts.items()):
            place = run.folder / domain
            make_folder(place)
            ids, units = held_out_windows(run.lm, held_out, self.length, self.windows)
            texts_of = {"documents": train, "windows": ids, "units": units, "work": place}
            texts_of["context"] = run.context.within(index / len(texts), 1 / len(texts), domain)
            trainer = PhaseTrainer.of(run, n_sink=plan.n_sink, expected=9 * self.seeds, **texts_of)
            reads = Reads(units)
            labels: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
            for seed in self.every_seed:
                trained_with = self.train(trainer, replace(plan, seed=seed), reads, labels)
                plans = trained_with if seed == self.seed else plans
            curves += [{"domain": domain} | point for point in trainer.curves]
            for arm in ARMS:
                rows.append({"domain": domain, "arm": arm} | _row(arm, reads, self.length) | label_row(labels[arm]))
            about[domain] = {"training_text": trainer.texts, "text": ids_hash(ids), "units": len(np.unique(units))}
            about[domain] |= {"documents": [len(train), len(held_out)], "windows": len(ids)}
        return {
            "rows": rows,
            "curves": curves,
            "window": plan.window,
            "n_sink": plan.n_sink,
            "windows": len(ids),
            "plans": plain(plans),
            "protocol": {
                "tokens": sum(facts["windows"] for facts in about.values()) * self.length,
                "window": self.length,
                "kernel": KERNELS,
                "domains": about,
                "unit": "documents",
                "units": min(facts["units"] for facts in about.values()),
                "corpus": f"{Path(self.corpus).name}: {', '.join(texts)}",
            },
        }

    def train(
        self, trainer: PhaseTrainer, plan: RouterTraining, reads: Reads, labels: dict[str, list[dict[str, float]]]
    ) -> dict[str, RouterTraining]:
        """All arms of one domain trained from one seed; returns their plans. Adds to `reads`, by (arm, side), what each
        reads of the held-out windows, and `on` those it was trained on, `tuned` and as the `base` reads the same way,
        and with `literal` groups where it has any; and to `labels` what became of those of such an arm's groups."""
        window = plan.window
        router, seen = trainer.router("phase 1", plan), trainer.sample(self.windows)
        base = named_arms(router, window) | {"full attention": [DENSE], "random groups": chance_arms(router, plan)}
        before = pooled_reads(trainer, router, base)
        wide = equal_pairs_window(before["trained"].pairs, self.length, trainer.n_sink)
        alone = {"window of equal pairs": [window_arm(wide)]}
        before |= pooled_reads(trainer, router, alone)
        before_on = pooled_reads(trainer, router, base | alone, seen)
        widths, plans = {"full attention": self.length, "window of equal pairs": wide}, {"router": plan}
        look = LabelledWindows.of(trainer.lm, trainer.windows).watch(trainer.lm, router)
        for arm, reading in ARMS.items():
            plans[arm], start = phase_2(plan, router, reading, widths.get(arm))

            def arms(own: FocusRouter, arm: str = arm) -> dict[str, list[Arm]]:
                return {arm: (base | alone)[arm]} if arm in base | alone else named_arms(own, window)

            has_groups = arm not in base | alone
            tuned = trainer.tuned(arm, plans[arm], start, arms, seen, look if has_groups else None)
            name = "trained" if has_groups else arm
            reads.add({(arm, "tuned"): tuned.held_out[name], (arm, "tuned on"): tuned.trained_on[name]})
            reads.add({(arm, "base"): before[name], (arm, "base on"): before_on[name]})
            if has_groups:
                reads.add({(arm, "literal"): tuned.held_out["literal"]})
                labels[arm].append(tuned.observed)
        return plans

    def part(self, run: Setting, numbers: dict) -> dict:
        rows = []
        for name, (_, held_out) in domains(self.corpus, self.rows, run.context).items():
            ids, _ = held_out_windows(run.lm, held_out, self.length, self.windows)
            before = dense_of(run.lm, ids, run.context).level["perplexity"]
            rows.append({"domain": name, "arm": "full attention", "before": before})
        return {"rows": rows}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol, charts = numbers["rows"], numbers["protocol"], []
        focus = [row for row in rows if row["arm"].startswith("Focus")]
        sentence = concluded("Loss, ", focus, AGAINST, "{domain}, {arm}", protocol["seeds"])
        for key, (title, label) in PANELS.items():
            drawn = [row for row in rows if AGAINST.get(key) != row["arm"]]
            charts.append(lines_of(title, drawn, "arm", "domain", "domain", label, key))
        paper = {name: [printed("section 3.4", row, name) for row in PAPER.values()] for name in PAPER_ARMS}
        x = ("domain", "data set", list(PAPER))
        charts.append(panel("Section 3.4: GPT-2 124M", *x, "perplexity", paper_lines(paper)))
        notes = [SEEN] if protocol["model"] == "demo" else []
        if labelled := [row for row in rows if row.get("labels_kept") is not None]:
            kept = [f"{row['domain']}, {row['arm']}: {row['labels_kept']:.0%}" for row in labelled]
            chance = np.mean([row["labels_chance"] for row in labelled])
            notes.append(f"Groups that fine-tuning leaves their category: {'; '.join(kept)} (by chance {chance:.0%}).")
        caveats = [f"{name}: {interval_caveat(protocol | facts)}" for name, facts in protocol["domains"].items()]
        return of_row(presented("finetuning", sentence, charts, *caveats, *notes), focus[0])


def _row(arm: str, reads: Reads, length: int) -> Row:
    """An arm over the trainings of all seeds."""
    now, base, on = reads[arm, "tuned"], reads[arm, "base"], reads[arm, "tuned on"]
    row: Row = {"loss": now.loss, "perplexity": now.perplexity, "before": base.perplexity, "train": on.loss}
    row |= {"gap": now.loss - on.loss, "gap_before": base.loss - reads[arm, "base on"].loss}
    row |= {"pairs_share": pairs_share(now.pairs, length), "largest_share": None, "perplexity_literal": None}
    if (arm, "literal") in reads.of_seeds:
        row["largest_share"] = reads.worst((arm, "tuned"))
        row["perplexity_literal"] = reads[arm, "literal"].perplexity
    against = {"learned": ((arm, "tuned"), (arm, "base"))}
    against |= {key: ((arm, "tuned"), (control, "tuned")) for key, control in AGAINST.items() if control != arm}
    return row | reads.differences(against)
