"""Is what an instruct model learned kept while it is adapted? LoRA, full fine-tuning and Focus (Focus, table 4).

The bundled models follow no instructions, so a copy is tuned on generated ones first; all arms adapt that copy.
"""

import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from analysis.claims import Comparison
from analysis.corpus import text_hash
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.stored.panels import of_row, panel, presented, printed, series
from analysis.studies.stored.runner import Setting, option
from analysis.studies.text.held_out import ids_hash
from analysis.studies.training.finetune import SEEN, Baseline
from analysis.studies.training.finetune_rows import on_rates, panels, rests_on, sentence
from analysis.studies.training.finetune_tasks import answers
from analysis.training.extend import Extension, extend
from lab.tuning.instructions import Instructions

ITEMS = 32
# Generated instructions that the copy is tuned on.
COPIES = 4000
TASKS = ("TQA MC1", "HellaSwag", "ARC-E", "LAMBADA")
# Of LoRA in table 4.
PRINTED_RATES = (1e-5, 5e-5, 1e-4)


class Alignment(Baseline):
    """As the study `baselines`, of a copy that was tuned on generated instructions: `tasks` are the instructions
    followed, of four kinds. `followed`: `before` the tuning and `tuned`, kind -> share right; `untuned`: domain ->
    perplexity before it."""

    method: str | None = option("lora,focus,full", "lora, focus or full, one or several")
    groups: int = option(2, "number of groups K of Focus, beside 2")
    instruct_steps: int = option(600, "steps of the tuning on instructions", low=1, high=1_000_000)
    instruct_rate: float = option(1e-4, "learning rate of the tuning on instructions; at 0.001 it forgets how to read")

    def check(self, lm: Model) -> None:
        super().check(lm)
        self.tuning()

    def tuning(self) -> Extension:
        """How the copy is tuned. Errors: BadSetting."""
        about = {"warm_up": min(20, self.instruct_steps // 4), "seed": self.seed}
        return Extension(self.length, None, self.instruct_steps, self.tokens_per_step, self.instruct_rate, **about)

    def measure(self, run: Setting) -> dict:
        lm = run.lm
        instructions, plan = Instructions(lm, self.seed), self.tuning()
        ids, questions = instructions.stream(COPIES), instructions.asked(ITEMS)
        named = text_hash(f"{ids_hash(ids)} {plan}")
        report = run.context.within(0.0, 0.1, "instructions").progress
        tuned_copy, losses = extend(
            lm, ids, plan, run.folder / f"instructions-{lm.revision}-{named}.checkpoint", report, named
        )
        before = answers(lm, METHODS["dense"](), questions, lambda stage: report(0.99, stage))
        tuned = replace(tuned_copy, name=lm.name, revision=f"{lm.revision}-{named}")
        numbers = self.measured(replace(run, lm=tuned, context=run.context.within(0.1, 0.9)), questions)
        shares = {kind: float(np.mean(scores)) for kind, scores in before.items()}
        numbers["untuned"] = self.as_it_is(run, numbers["protocol"]["new_domain"])
        numbers["followed"] = {"before": shares, "tuned": numbers["rows"][0]["scores"]}
        numbers["tuning"] = asdict(plan) | {"losses": [round(loss, 6) for loss in losses]}
        numbers["protocol"] |= {"instructions": named, "items": ITEMS}
        return numbers

    def sample(self, run: Setting, numbers: dict) -> dict:
        plan = Extension(**{name: value for name, value in numbers["tuning"].items() if name != "losses"})
        ids = Instructions(run.lm, plan.seed).stream(COPIES)
        with tempfile.TemporaryDirectory() as folder:
            few, place = replace(plan, steps=2), Path(folder) / "checkpoint"
            return {"tuning": extend(run.lm, ids, few, place, lambda fraction, stage: None)[1]}

    def part(self, run: Setting, numbers: dict) -> dict:
        questions = Instructions(run.lm, self.seed).asked(ITEMS)
        before = answers(run.lm, METHODS["dense"](), questions, lambda stage: None)
        followed = {"before": {kind: float(np.mean(scores)) for kind, scores in before.items()}}
        return {"followed": followed, "untuned": self.as_it_is(run, numbers["protocol"]["new_domain"])}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol, kinds = numbers["rows"], numbers["protocol"], numbers["followed"]
        followed = []
        for kind, share in kinds["tuned"].items():
            followed.append(f"{kind} {kinds['before'][kind]:.0%} to {share:.0%}")
        new, before = protocol["new_domain"], numbers["untuned"][protocol["new_domain"]]
        parts = [
            f"Tuning on instructions takes the share that the copy follows from and to: {', '.join(followed)} (chance "
            f"25%), and its perplexity on {new} from {before:.1f} to {rows[0]['new_domain']:.1f}.",
            sentence(rows, protocol["seeds"], "Instructions followed", protocol["chance"]),
        ]
        if low := [row for row in rows if row["line"] == "LoRA r=4" and row["rate"] in PRINTED_RATES]:
            parts.append(f"LoRA r=4 at the rates of table 4, instructions followed: {'; '.join(map(_of_rate, low))}.")
        if all(protocol["within_window"][kind] == 1 for kind in kinds["tuned"]):
            parts.append("Every instruction fits Focus' window, so Focus reads it as dense attention does.")
        loras = [f"+ LoRA (r=4, lr={rate})" for rate in ("1e-5", "5e-5", "1e-4")]
        names = ["Instruct baseline", "+ Centroids (K=2)", *loras]
        lines = [series(name, [printed("table 4", name, task) for task in TASKS], paper=True) for name in names]
        drawn = panels(rows, protocol["rates"])[:-1]
        drawn.append(panel("Table 4: Mistral-7B-Instruct", "task", "task", list(TASKS), "%", lines))
        notes = [f"The new domain is {new}.", *rests_on(protocol), *on_rates(rows, protocol["seeds"])]
        notes += [SEEN] if protocol["model"] == "demo" else []
        return of_row(presented("alignment", " ".join(parts), drawn, *notes), rows[0])


def _of_rate(row: dict) -> str:
    """What a rate changes, with its own interval, and the perplexity that it reaches."""
    change = Comparison.of(row, "tasks", unit="points")
    return f"{row['rate']:g} {change.bracketed} points, perplexity {row['new_domain']:.1f}"
