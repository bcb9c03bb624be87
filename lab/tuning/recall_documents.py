"""What do recall documents give? The bundled model read on with none of them, with a quarter, and with twice as many.

A recall document is generated text whose answers stand far before in the same text (`lab.far.recall`). Copies of a
model that was trained here read on by its own recipe, and only the share of such rows differs between them.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.places import CACHE
from analysis.studies.stored.comparisons import holm_corrected, interval_caveat
from analysis.studies.stored.panels import chart, presented
from analysis.studies.stored.runner import Setting, option
from analysis.studies.stored.trained import TRAINED
from analysis.studies.text.held_out import check_range, sample_windows
from lab.far.recall import Source
from lab.far.recipe import MORE, MORE_OF, FarRecipe, recipe_from
from lab.far.training import train_far
from lab.harness.telling import concluded, lines_of
from lab.tuning.read_copies import AS_IT_IS, CopyStudy, Reader, means

SHARES = (0.0, 0.25, 0.5)
# The copy that the others are held against.
KEY, NONE = "against_none", "without recall documents"
# The one domain of what a corpus folder holds.
NATURAL = "texts"
WARM_UP = 10  # steps
# How the model read last.
LAST = MORE[-1]


def _named(share: float) -> str:
    return f"with {share:.0%} recall documents" if share else NONE


class RecallDocuments(CopyStudy):
    """Copies of the model that read on with different shares of recall documents, asked the generated tasks."""

    tables = ("rows", "texts")

    tokens: int = option(819_200, "tokens that each copy reads", low=4 * LAST.tokens, high=1_000_000_000)
    shares: list[float] | None = option(None, "shares of rows that are recall documents (default: 0,0.25,0.5)")
    items: int = option(48, "questions of each task, in prompts as long as a window", low=2, high=1024)

    def check(self, lm: Model) -> None:
        super().check(lm)
        for share in self.every_share:
            check_range("A share of recall documents", share, 0, 1 - LAST.repeats)
        self.recipe(lm, 0.0, self.seed)

    @property
    def every_share(self) -> list[float]:
        """None, and those that are held against it."""
        return sorted({0.0, *(self.shares or SHARES)})

    def recipe(self, lm: Model, share: float, seed: int) -> FarRecipe:
        """How a copy reads on: as the model did, with this share of recall documents to the end. Errors: BadSetting for
        a model that was not trained here."""
        place = Path(lm.lm.config.name_or_path or CACHE / lm.name) / "pretrain.json"
        stored = json.loads(place.read_text(encoding="utf-8"))["recipe"] if place.is_file() else {}
        if "heads_asked" not in stored:
            raise BadSetting(f"{lm.name} was not trained by `lab.far.run`, whose recipe is read on by.")
        return replace(
            recipe_from(stored),
            marks=(LAST._replace(length=self.length, recall=share),),
            last_share=share,
            kinds=tuple(MORE_OF.items()),
            tokens=self.tokens,
            decay=self.tokens * 9 // 10,
            warm_up=min(WARM_UP, self.tokens // LAST.tokens // 4),
            seed=seed + 1,
        )

    def measure(self, run: Setting) -> dict:
        lm, shares = run.lm, {AS_IT_IS: None} | {_named(share): share for share in self.every_share}
        about = {"name": "recall", "items": self.items, "seed": self.seed, "lengths": [self.length]}
        reader = Reader.of(run, expected=len(self.every_share) * self.seeds + 1, **about)
        reader.add(AS_IT_IS, [], lambda _: reader.read(lm, None, AS_IT_IS))
        for share in self.every_share:
            for seed in self.every_seed:
                recipe = self.recipe(lm, share, seed)

                def make(doing: Path, recipe: FarRecipe = recipe) -> dict:
                    label = f"{_named(recipe.last_share)}, seed {recipe.seed - 1}"
                    report = reader.within(label, TRAINED).progress
                    source = Source(lm.tokenizer.backend_tokenizer, {NATURAL: reader.ids.astype(np.uint16)}, NATURAL)
                    about = {"vocabulary": lm.lm.config.vocab_size, "domains": {NATURAL: {"share": 1.0}}}
                    model = train_far(recipe, source, about, doing, str(lm.device), lm.lm, report=report)
                    copy = replace(lm, lm=model.requires_grad_(False).eval(), name=f"{lm.name}, read on")
                    return reader.read(copy, None, label, TRAINED)

                reader.add(_named(share), [asdict(recipe)], make)
        texts = [{"share": shares[row["model"]]} | row for row in reader.text_rows(NONE, KEY)]
        return {
            "rows": reader.task_rows(NONE, [self.length], KEY),
            "texts": texts,
            "recipe": asdict(self.recipe(lm, 0.0, self.seed)),
            "protocol": run.about(reader.windows, read=self.tokens, kernel="sdpa"),
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = sample_windows(run.lm, min(256, run.lm.max_positions))
        return {AS_IT_IS: float(means(run.lm, None, ids).mean())}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol = numbers["rows"], numbers["protocol"]
        copies = [row for row in numbers["texts"] if row["share"] is not None]
        with_some = {row["model"] for row in copies if row["share"]}
        judged = [row for row in rows if row["model"] in with_some]
        family = holm_corrected([*judged, *(row for row in copies if row["share"])], KEY)
        lead = f"Read on for {protocol['read'] / 1e6:.1f} M tokens, right answers beside reading on {NONE}: "
        tasks, losses = family[: len(judged)], family[len(judged) :]
        sentence = concluded(lead, tasks, {KEY: ""}, "{model}, {task}", unit="points", family=family)
        texts = concluded(" Loss of held-out texts, ", losses, {KEY: ""}, "{model}", protocol["seeds"], "model")
        of_copies = [row | {"share": copy["share"]} for copy in copies for row in rows if row["model"] == copy["model"]]
        axes = ("task", "share", "share of rows that are recall documents", "share right", "score")
        charts = [lines_of("Tasks, by recall documents", of_copies, *axes, True)]
        charts.append(chart("Held-out texts", copies, *axes[1:3], "perplexity", {"perplexity": "perplexity"}))
        return presented("recall-documents", sentence + texts, charts, interval_caveat(protocol))
