"""Training baselines: LoRA, DoRA, full tuning, other methods and Focus' router on a domain (Focus, tables 1, 3)."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from ...commands.training import WAYS, Finetune
from ...errors import BadSetting
from ...models import Model
from ...training.settings import RouterTraining
from ..stored.measured import KERNELS, dense_of
from ..stored.panels import of_row, presented
from ..stored.runner import Seeds, Setting, Windows, declared_option
from ..stored.trained import first_losses, plain
from ..text.held_out import check_range, chosen, domains, held_out_windows, ids_hash
from .finetune_rows import choosing, on_rates, panels, reporting, rests_on, row_of, sentence
from .finetune_tasks import benchmarks, chances, questions, within
from .finetune_ways import ADAPTERS, RANKS, READ, READERS, Baselines, Way

# The papers' three, and what a small model needs.
RATES = (1e-5, 5e-5, 1e-4, 1e-3)
# The domain that is learned, if there is one of this name.
NEW = "python"
TASK_TOKENS, ITEMS = 256, 16
SEEN = "The bundled model was pretrained on texts of all these kinds: new is only what it saw less of."

APART = (
    "Rows of Longformer, Performer and Routing Transformer are read by that method. As pretrained: nothing is trained. "
    "Fine-tuned: all parameters are, on windows drawn apart from the same texts. Performer draws its random features "
    "anew for each training; Routing Transformer keeps the clusters of the pretrained model."
)


as_declared = partial(declared_option, Finetune)


class Baseline(Seeds, Windows):
    """Copies of the model trained on a domain by every method at every rate, measured on it, on the other domains and
    on the generated tasks, paired with the base.

    Each is trained once at every rate, then `seeds` times in all at each rate that a reading chooses on the windows
    that do not report, and `others` times at the rest. LoRA and DoRA have ranks 4 and 16, Focus `groups` groups and 2,
    of 16 dimensions; a model that reads with Longformer, Performer or Routing Transformer is also measured as it was
    pretrained. With `keep` every copy stays as a model. With `benchmarks` every copy is asked those of the tables whose
    files are in models_cache/benchmarks.

    `rows`: per way, rate and reading `label line read rate seeds trained_parameters new_domain old_domain` (as
    perplexity) `perplexities scores task_score`; `choosing`, nats on the windows that choose a rate; `new`, `old`
    (nats) and `tasks` (share) minus the base, with `_low` and `_high`; the first row is the base. `curves`: the losses
    of every training, as `loss_curve`."""

    name = "baselines"
    tables = ("rows", "curves")

    method: str | None = as_declared("method")
    rates: list[float] | None = as_declared("rates")
    groups: int = as_declared("groups")
    length: int = as_declared("length")
    windows: int = as_declared("windows")
    window: int = as_declared("window")
    n_sink: int = as_declared("n_sink")
    steps: int = as_declared("steps")
    tokens_per_step: int = as_declared("tokens_per_step")
    rows: str | None = as_declared("rows")
    others: int = as_declared("others")
    keep: bool = as_declared("keep")
    benchmarks: bool = as_declared("benchmarks")

    def check(self, lm: Model) -> None:
        super().check(lm)
        rates = self.rates or RATES
        if any(not 0 < rate < 1 for rate in rates) or len(set(rates)) < len(rates):
            raise BadSetting(
                f"The learning rates are {', '.join(f'{rate:g}' for rate in rates)}: give numbers in 0 to 1, each once."
            )
        check_range("The number of groups", self.groups, 2, 64)

    def measure(self, run: Setting) -> dict:
        return self.measured(run, questions(run.lm, min(TASK_TOKENS, run.lm.max_positions), ITEMS, self.seed))

    def measured(self, run: Setting, questions_by_task: dict[str, list]) -> dict:
        """As `measure`, with these questions in the place of the long-context tasks."""
        lm = run.lm
        kinds, rates = chosen(self.method, list(WAYS), "method"), sorted(self.rates or RATES)
        texts = domains(self.corpus, self.rows, run.context)
        new = next(iter(texts)) if self.rows or NEW not in texts else NEW
        # Every training reads the same windows; nothing is measured on the way.
        names = "groups window n_sink steps tokens_per_step length seed".split()
        plan = RouterTraining(**{name: getattr(self, name) for name in names}, check_windows=0, calibration_windows=8)
        windows_of, units = {}, {}
        for name, (_, held_out) in texts.items():
            windows_of[name], units[name] = held_out_windows(lm, held_out, self.length, self.windows)
        sized = [(kind, size) for kind in kinds for size in _sizes(kind, self.groups)]
        readers, others = [kind for kind in kinds if kind in READERS], min(self.others, self.seeds)
        trainer = Baselines.of(
            run,
            n_sink=plan.n_sink,
            expected=1 + self.seeds * len(readers) + len(sized) * (self.seeds + others * (len(rates) - 1)),
            documents=texts[new][0],
            windows=windows_of[new],
            units=units[new],
            held=windows_of,
            asked=questions_by_task,
            keep=self.keep,
            benchmarks=benchmarks(lm) if self.benchmarks else {},
        )
        base = trainer.base(plan)
        itself = {
            f"{key}_{end}": None for key in ("new", "old", "tasks", *trainer.benchmarks) for end in ("low", "high")
        }
        rows = [row_of(about("base", "dense", None, 0), [base], base, new, units) | itself]
        plans_of_seeds = [replace(plan, seed=seed) for seed in self.every_seed]
        for kind in readers:
            read = [trainer.untrained(kind, of_seed) for of_seed in plans_of_seeds]
            facts = about(f"{READERS[kind]}, as pretrained", READERS[kind], None, 0)
            rows.append(row_of(facts, read, base, new, units))
        plans_to_repeat = {}
        for kind, size in sized:
            first = {rate: trainer.way(Way(kind, size, rate), plan) for rate in rates}
            readings = list(first[rates[0]][1]["reads"])
            best = {
                min(rates, key=lambda rate: choosing(first[rate][1]["reads"][read], new, units)) for read in readings
            }
            trainer.expected += (len(best) - 1) * (self.seeds - others)
            for rate, (first_plan, part) in first.items():
                way = Way(kind, size, rate)
                if first_plan and first_plan.phase == 1 and rate == rates[-1]:
                    plans_to_repeat[way.name] = first_plan
                more = plans_of_seeds[1 : self.seeds if rate in best else others]
                parts = [part, *(trainer.way(way, of_seed)[1] for of_seed in more)]
                for read in readings:
                    line = f"{way.line}, {READ[read]}" if read in READ else way.line
                    facts = about(line, READ.get(read, READERS.get(read, read)), rate, part["parameters"])
                    rows.append(row_of(facts, [part["reads"][read] for part in parts], base, new, units))
        coded = {name: of_task for name, (_, of_task) in trainer.benchmarks.items()}
        reported = {name: of[reporting(of)] if name == new else of for name, of in units.items()}
        always_read = self.window + self.n_sink
        return {
            "rows": rows,
            "curves": trainer.curves,
            "windows": self.windows,
            "plans": plain(plans_to_repeat),
            "protocol": {
                "text": ids_hash(np.concatenate([part.ravel() for part in windows_of.values()])),
                "tokens": sum(part.size for part in windows_of.values()),
                "window": self.length,
                "kernel": KERNELS,
                "rates": rates,
                "new_domain": new,
                "unit": "documents",
                "units": len(np.unique(reported[new])),
                "documents_of": {name: len(np.unique(of)) for name, of in reported.items()},
                "corpus": f"{Path(self.corpus).name}: {', '.join(texts)}",
                "items": ITEMS,
                "benchmarks": {name: len(of_task) for name, of_task in coded.items()},
                "chance": chances(coded),
                "always_read": always_read,
                "within_window": within(always_read, questions_by_task, coded),
                "tasks": list(questions_by_task),
            },
        }

    def sample(self, run: Setting, numbers: dict) -> dict:
        return first_losses(run.lm, numbers)

    def part(self, run: Setting, numbers: dict) -> dict:
        # The model as it is: what is trained is not kept.
        return {"rows": [{"label": "base", "perplexities": self.as_it_is(run, numbers["protocol"]["new_domain"])}]}

    def as_it_is(self, run: Setting, new: str) -> dict[str, float]:
        """domain -> perplexity of the model before any training; of the `new` one on the windows that report."""
        perplexities = {}
        for name, (_, held_out) in domains(self.corpus, self.rows, run.context).items():
            ids, units = held_out_windows(run.lm, held_out, self.length, self.windows)
            means = dense_of(run.lm, ids, run.context).means
            perplexities[name] = float(np.exp((means[reporting(units)] if name == new else means).mean()))
        return perplexities

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, made_with = numbers["rows"], numbers["protocol"]
        notes = [f"The new domain is {made_with['new_domain']}.", *rests_on(made_with)]
        notes += on_rates(rows, made_with.get("seeds", 1))
        notes += [SEEN] if made_with["model"] == "demo" else []
        notes += [APART] if any(row["read"] in READERS.values() for row in rows) else []
        conclusion = sentence(rows, made_with.get("seeds", 1), chance=made_with.get("chance"))
        return of_row(presented("baselines", conclusion, panels(rows, made_with["rates"]), *notes), rows[0])


def _sizes(kind: str, groups: int) -> list[int | None]:
    sizes: dict[str, list] = {**dict.fromkeys(ADAPTERS, list(RANKS)), "focus": list(dict.fromkeys((groups, 2)))}
    return sizes.get(kind, [None])


def about(line: str, read: str, rate: float | None, parameters: int) -> dict:
    """What a row says of itself."""
    label = line if rate is None else f"{line}, {rate:g}"
    return {"label": label, "line": line, "read": read, "rate": rate, "trained_parameters": parameters}
