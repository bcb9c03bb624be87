"""Long-context tasks asked of models trained with a softmax temperature (Focal Attention, figures 5 to 7).

Copies of the model are trained further, with the temperature and, to hold it against, without, and asked the generated
long-context tasks as they were trained: labels from examples stand for in-context learning, one code among several for
retrieval augmented generation, the mark of a quoted passage for citations, the other tasks for recall.
"""

from dataclasses import asdict
from pathlib import Path

from analysis.corpus import text_hash
from analysis.errors import BadSetting
from analysis.methods.base import Method
from analysis.methods.focal import Focal
from analysis.models import Model
from analysis.studies.stored.comparisons import holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, option
from analysis.studies.stored.trained import TRAINED
from analysis.studies.text.held_out import check_range, sample_windows
from analysis.training.copies import keep_copy
from analysis.training.extend import Extension, extend
from lab.harness.telling import concluded, distinct, lines_of
from lab.tuning.read_copies import AS_IT_IS, CopyStudy, Reader, means

# The copy that the others are held against.
CONTROL, KEY = "dense, further", "against_dense"


class FocalTasks(CopyStudy):
    """Copies of the model trained further with a softmax temperature and without, on the same sequences, then asked the
    generated tasks, each as it was trained. With `keep` they stay as models; read that of a temperature with it."""

    tables = ("rows", "cells", "texts")

    temperature: float = option(0.4, "softmax temperature of the one copy; the other has none")
    length: int = option(1024, "tokens in a training sequence and in a window of text")
    windows: int = option(16, "held-out windows of text", low=2, high=4096)
    lengths: list[int] | None = option(None, "tokens of a prompt (default: 512, and the longest that the model reads)")
    items: int = option(32, "questions of each task and length", low=2, high=1024)
    steps: int = option(300, "steps of both trainings")
    tokens_per_step: int = option(4096, "tokens in one step of both trainings")
    rate: float = option(3e-4, "learning rate of both trainings")
    keep: bool = option(False, "keep the copies as models, finetuned/NAME, that every command can be asked of")

    def check(self, lm: Model) -> None:
        super().check(lm)
        Focal(t=self.temperature)
        if self.temperature == 1:
            raise BadSetting("A temperature of 1 is dense attention, which is trained beside it: choose another one.")
        for length in self.lengths or ():
            check_range("The length of a prompt", length, 64, lm.max_positions)

    def plan(self, seed: int) -> Extension:
        """How a copy is trained."""
        warm_up = min(20, self.steps // 4)
        return Extension(self.length, None, self.steps, self.tokens_per_step, self.rate, warm_up, seed=seed)

    def measure(self, run: Setting) -> dict:
        longest = run.lm.max_positions
        lengths = sorted(set(self.lengths or (min(512, longest), longest)))
        arms: dict[str, Method | None] = {CONTROL: None, f"t {self.temperature:g}, further": Focal(t=self.temperature)}
        about = {"name": "focal-tasks", "items": self.items, "seed": self.seed, "lengths": lengths}
        reader = Reader.of(run, expected=len(arms) * self.seeds + 1, **about)
        reader.add(AS_IT_IS, [], lambda _: reader.read(run.lm, None, AS_IT_IS))
        for name, method in arms.items():
            for seed in self.every_seed:
                plan = self.plan(seed)

                def make(doing: Path, name: str = name, method: Method | None = method, plan: Extension = plan) -> dict:
                    label, place = f"{name}, seed {plan.seed}", doing / "training.checkpoint"
                    report = reader.within(label, TRAINED).progress
                    copy, _ = extend(run.lm, reader.ids, plan, place, report, reader.texts, method)
                    if self.keep:
                        about = {"way": name, "training": asdict(plan), "training_text": reader.texts}
                        short = name.replace(", ", "-").replace(" ", "-")
                        made_of = text_hash(f"{run.lm.revision} {about}")[:6]
                        keep_copy(copy, run.lm, f"{Path(run.lm.name).name}-{short}-{made_of}", about)
                    return reader.read(copy, method, label, TRAINED)

                # One whose copy went has to be trained again.
                reader.add(name, [name, asdict(plan), *["its copy stays"] * self.keep], make)
        cells = []
        for length in lengths:
            cells += [{"length": length} | row for row in reader.task_rows(CONTROL, [length], KEY)]
        protocol = {"kernel": "torch dense on sharpened queries", "plan": asdict(self.plan(self.seed))}
        return {
            "rows": reader.task_rows(CONTROL, lengths, KEY),
            "cells": cells,
            "texts": reader.text_rows(CONTROL, KEY),
            "temperature": self.temperature,
            "protocol": run.about(reader.windows, **protocol),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = sample_windows(run.lm, min(256, run.lm.max_positions))
        methods: dict[str, Method | None] = {"dense": None, "sharpened": Focal(t=self.temperature)}
        return {name: float(means(run.lm, method, ids).mean()) for name, method in methods.items()}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, seeds, charts = numbers["rows"], numbers["protocol"]["seeds"], []
        able = {row["task"] for row in rows if row["model"].startswith("dense") and row["score_low"] > row["chance"]}
        sharp = [row for row in rows if row["model"].startswith("t ")]
        judged = [row for row in sharp if row["task"] in able]
        *tasks, text = family = holm_corrected([*judged, numbers["texts"][-1]], KEY)
        sentence = "No task is above chance without a temperature, so none is judged."
        if tasks:
            lead = f"Right answers with {text['model'].removesuffix(', further')} against training as far without, "
            sentence = concluded(lead, tasks, {KEY: ""}, "{task} ({family})", unit="points", family=family)
            unable = [row["task"] for row in sharp if row["task"] not in able]
            sentence += f" At chance without a temperature, and so not judged: {', '.join(unable)}." if unable else ""
        sentence += concluded(" ", [text], {KEY: ""}, "Held-out loss", seeds, "model")
        for task in distinct(numbers["cells"], "task"):
            points = [row for row in numbers["cells"] if row["task"] == task]
            title, axes = f"{task} ({points[0]['family']})", ("model", "length", "tokens of the prompt", "share right")
            charts.append(lines_of(title, points, *axes, "score", share=True))
        return presented("focal-tasks", sentence, charts, interval_caveat(numbers["protocol"]))
