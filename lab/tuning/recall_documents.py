"""What do recall documents give? The bundled model read on with none of them, with a quarter, and with twice as many.

A recall document is generated text whose answers stand far before in the same text (`training.recall`). Copies of a
model that was trained here read on by its own recipe, and only the share of such rows differs between them.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from analysis.errors import BadSetting
from analysis.models import Model
from analysis.places import CACHE
from analysis.studies.stored.comparisons import holm_corrected, interval_caveat
from analysis.studies.stored.panels import chart, presented
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import TRAINED, Trainer
from analysis.studies.text.held_out import check_range, ids_hash, sample_windows
from analysis.studies.training.finetune_tasks import questions
from lab.far.recall import Source
from lab.far.recipe import MORE, MORE_OF, FarRecipe
from lab.far.run import recipe_from
from lab.far.training import train_far
from lab.harness.telling import concluded, lines_of
from lab.tuning.read_copies import means, read, task_rows, text_row

SHARES = (0.0, 0.25, 0.5)
KEY = "against_none"  # the copy without recall documents
NATURAL = "texts"  # the one domain of what a corpus folder holds
WARM_UP = 10  # steps
LAST = MORE[-1]  # how the model read last


@dataclass(frozen=True)
class Sizes(Seeds, Windows):
    """What the study can be asked for."""

    tokens: int = option(819_200, "tokens that each copy reads")
    shares: list[float] | None = option(None, "shares of rows that are recall documents (default: 0,0.25,0.5)")
    items: int = option(48, "questions of each task, in prompts as long as a window")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The tokens that each copy reads", self.tokens, 4 * LAST.tokens, 1_000_000_000)
        check_range("The number of questions", self.items, 2, 1024)
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
        part = LAST._replace(length=self.length, recall=share)
        named = {"marks": (part,), "last_share": share, "kinds": tuple(MORE_OF.items())}
        named |= {"warm_up": min(WARM_UP, self.tokens // LAST.tokens // 4)}
        return replace(recipe_from(stored), tokens=self.tokens, decay=self.tokens * 9 // 10, seed=seed + 1, **named)


def measure(run: Setting) -> dict:
    """Copies of the model that read on with different shares of recall documents, asked the generated tasks. Errors:
    BadSetting, BadText."""
    lm, sizes = run.lm, run.sizes
    prompts = {sizes.length: questions(lm, sizes.length, sizes.items, sizes.seed)}
    if not prompts[sizes.length]:
        raise BadSetting("No task fits prompts so short: choose a longer window.")
    trainer = Trainer.of(run, expected=len(sizes.every_share) * sizes.seeds + 1)
    decides = [lm.revision, trainer.texts, ids_hash(trainer.windows), sizes.items, sizes.seed]
    base = trainer.part("recall", decides, lambda _: read(trainer, lm, None, prompts, "the model as it is"))
    copies = {"as it is": [base]}
    for share in sizes.every_share:
        recipes = [sizes.recipe(lm, share, seed) for seed in sizes.every_seed]
        copies[_named(share)] = [
            trainer.part("recall", [*decides, asdict(one)], partial(_one, trainer, one, prompts)) for one in recipes
        ]
    none = _named(0.0)
    shares = {"as it is": None} | {_named(share): share for share in sizes.every_share}
    about = {"read": sizes.tokens, "seeds": sizes.seeds, "training_text": trainer.texts, "kernel": "sdpa"}
    return {
        "rows": task_rows(copies, none, [sizes.length], KEY),
        "texts": [
            {"share": shares[name]} | text_row(parts, copies[none], name, trainer.units, KEY)
            for name, parts in copies.items()
        ],
        "recipe": asdict(sizes.recipe(lm, 0.0, sizes.seed)),
        "protocol": run.about(trainer.windows, **about),
    }


def sample(run: Setting, numbers: dict) -> dict[str, float]:
    """Loss of two windows of the bundled samples, with which every copy begins."""
    ids = sample_windows(run.lm, min(256, run.lm.max_positions))
    return {"as it is": float(means(run.lm, None, ids).mean())}


def part(run: Setting, numbers: dict) -> dict:
    """The model as it is on all held-out windows; the copies are not kept."""
    perplexity = float(np.exp(means(run.lm, None, run.windows).mean()))
    return {"texts": [{"model": "as it is", "perplexity": perplexity}], "protocol": {"text": ids_hash(run.windows)}}


def _named(share: float) -> str:
    return f"with {share:.0%} recall documents" if share else "without recall documents"


def _one(trainer: Trainer, recipe: FarRecipe, prompts: dict[int, dict], doing: Path) -> dict:
    """Train one copy and read it."""
    lm, label = trainer.lm, f"{_named(recipe.last_share)}, seed {recipe.seed - 1}"
    report = trainer.told(label, TRAINED)
    source = Source(lm.tokenizer.backend_tokenizer, {NATURAL: trainer.ids.astype(np.uint16)}, NATURAL)
    about = {"vocabulary": lm.lm.config.vocab_size, "domains": {NATURAL: {"share": 1.0}}}
    model = train_far(
        recipe, source, about, doing, str(lm.device), lm.lm, report=lambda done, _: report(done, "training")
    )
    copy = replace(lm, lm=model.requires_grad_(False).eval(), name=f"{lm.name}, read on")
    return read(trainer, copy, None, prompts, label, TRAINED)


def shown(numbers: dict) -> dict:
    """What recall documents change in the tasks and in the text, whichever way it came out."""
    rows, texts, protocol = numbers["rows"], numbers["texts"], numbers["protocol"]
    copies = [row for row in texts if row["share"] is not None]
    others = {row["model"] for row in copies if row["share"]}
    mine = [row for row in rows if row["model"] in others]
    family = holm_corrected([*mine, *(row for row in copies if row["share"])], KEY)
    none = _named(0.0)
    lead = f"Read on for {protocol['read'] / 1e6:.1f} M tokens, right answers beside reading on {none}: "
    names = "{model}, {task}".format_map
    tasks, losses = family[: len(mine)], family[len(mine) :]
    sentence = concluded(lead, tasks, {KEY: ""}, names, unit="points", words=("fewer", "more"), family=family)
    loss, words, seeds = " Loss of held-out texts, ", ("lower", "higher"), protocol["seeds"]
    sentence += concluded(loss, losses, {KEY: ""}, "{model}".format_map, seeds, "model", words=words)
    of_copies = [row | {"share": copy["share"]} for copy in copies for row in rows if row["model"] == copy["model"]]
    name = "share of rows that are recall documents"
    charts = [lines_of("Tasks, by recall documents", of_copies, "task", "share", name, "share right", "score", True)]
    charts.append(chart("Held-out texts", copies, "share", name, "perplexity", {"perplexity": "perplexity"}))
    return presented("recall-documents", sentence, charts, interval_caveat(protocol))


recall_documents = Study(
    "recall-documents", __doc__.splitlines()[0], Sizes, measure, shown, sample, tables=("rows", "texts"), part=part
)
