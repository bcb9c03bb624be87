"""Training baselines: LoRA, full fine-tuning and Focus' router on a new domain (Focus, tables 1, 3, 4)."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.stored import trained
from analysis.studies.stored.measured import DENSE, KERNELS, READINGS, Arm, trained_arm
from analysis.studies.stored.panels import how_sure
from analysis.studies.stored.trained import TRAINED, Trainer, checked, phase_2
from analysis.studies.text.domains import domains
from analysis.studies.text.held_out import (
    check_range,
    held_out_windows,
    ids_hash,
    make_folder,
    places,
    read_part,
    write,
)
from analysis.studies.text.sizes import check_sizes, chosen, command
from analysis.studies.training.finetune_shown import columns, panels, row_of, sentence
from analysis.studies.training.finetune_tasks import answers, questions
from analysis.training.focus import finetune as finetune_all
from analysis.training.lora import finetune_lora, lora_copy, router_parameters, trainable
from analysis.training.settings import RouterTraining

METHOD = ("lora", "focus", "full")
RATES = (1e-5, 5e-5, 1e-4, 1e-3)  # the papers' three, and what a small model needs
RANKS, GROUPS = (4, 16), 8
READ = {"trained": "hard groups", "trained, soft": "soft gate"}
NEW = "python"  # the domain that is learned, if there is one of this name
TASK_TOKENS, ITEMS = 256, 16
NOTES = (
    "Every arm starts from the same base and reads the same sequences in the same order; the state after the last step "
    "counts. Focus trains its router alone, its centroids at ten times the rate; LoRA adds to the attention's "
    "projections (alpha twice the rank). Differences are paired with the base, window by window and item by item.",
    "Of the new domain's windows the first half chooses each arm's rate and the second half is told.",
    "Tasks are the generated long-context tasks: forced choice among four, chance is 25 %.",
)


@dataclass(frozen=True)
class Way:
    """One training: what, its rank or its number of groups, and its learning rate."""

    kind: str
    size: int | None
    rate: float

    @property
    def line(self) -> str:
        """Its name without the rate."""
        return {"lora": f"LoRA r={self.size}", "focus": f"Focus K={self.size}", "full": "full fine-tuning"}[self.kind]


def finetune(
    method: str | None = None,
    corpus: str = "",
    model: str = "demo",
    rates: list[float] | None = None,
    groups: int = GROUPS,
    length: int = 512,
    windows: int = 32,
    window: int | None = None,
    n_sink: int | None = None,
    steps: int = 600,
    tokens_per_step: int = 512,
    rows: str | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Train copies of the model on a domain by `method` (of METHOD, joined by commas; all) at every rate, and measure
    them on it, on the other domains and on the generated tasks, paired with the base.

    LoRA has ranks 4 and 16, Focus `groups` groups and 2, of 16 dimensions. `rows`: domains, the first is the new one
    (default: Python, if the corpus has it). What was trained is kept in `work`; the result goes to `output` (default
    `<state>/studies/baselines.json`).
    numbers: `rows` (per training and reading: `label line read rate trained_parameters new_domain old_domain` (as
    perplexity) `perplexities scores task_score`; `choosing`, nats on the windows that choose a rate; `new`, `old`
    (nats) and `tasks` (share) minus the base, with `_low` and `_high`; the first row is the base), `columns`, `panels`,
    `sentence`, `notes`, `plans`, `path`. table: `rows`.
    Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_sizes(lm, length, windows, window, n_sink)
    kinds, rates = chosen(method, list(METHOD), "method"), sorted(rates or RATES)
    if any(not 0 < rate < 1 for rate in rates) or len(set(rates)) < len(rates):
        raise BadSetting(
            f"The learning rates are {', '.join(f'{rate:g}' for rate in rates)}: give numbers in 0 to 1, each once."
        )
    check_range("The number of groups", groups, 2, 64)
    texts = domains(corpus, rows, context)
    new = next(iter(texts)) if rows or NEW not in texts else NEW
    path, folder = places(context, lm, "baselines", output, work)
    make_folder(folder)
    plan = RouterTraining(
        groups=groups, window=16 if window is None else window, n_sink=4 if n_sink is None else n_sink, steps=steps,
        tokens_per_step=tokens_per_step, length=length, seed=seed, check_windows=0, calibration_windows=8,
    )  # fmt: skip
    held = {name: held_out_windows(lm, out, length, windows) for name, (_, out) in texts.items()}
    ways = [Way(kind, size, rate) for kind in kinds for size in _sizes(kind, groups) for rate in rates]
    asked = questions(lm, min(TASK_TOKENS, lm.max_positions), ITEMS, seed)
    trainer = Baselines(lm, texts[new][0], held[new], plan.n_sink, folder, context, len(ways) + 1, 0, held, asked)
    base = trainer.base(plan)
    found = [row_of(_about("base", "dense", None, 0), base, base, new) | {"rate": None}]
    plans = {}
    for way in ways:
        plans[f"{way.line}, {way.rate:g}"], parts = trainer.way(way, plan)
        for read, part in parts["reads"].items():
            line = way.line if read == "dense" else f"{way.line}, {READ[read]}"
            found.append(row_of(_about(line, READ.get(read, read), way.rate, parts["parameters"]), part, base, new))
    numbers = {
        "sentence": sentence(found),
        "rows": found,
        "columns": columns(),
        "panels": panels(found, rates),
        "notes": [*NOTES, f"The new domain is {new}.", how_sure(windows - windows // 2), *_seen(lm)],
        "protocol": protocol(
            "study baselines", lm, ids_hash(np.concatenate([one.ravel() for one in held.values()])),
            sum(one.size for one in held.values()), window=length, seed=seed, kernel=KERNELS, steps=steps, rates=rates,
            new_domain=new, corpus=f"{Path(corpus).name}: {', '.join(texts)}", items=ITEMS, tasks=list(asked),
            command=_command(
                lm, method=method, rates=None if rates == sorted(RATES) else ",".join(f"{rate:g}" for rate in rates),
                groups=None if groups == GROUPS else groups, window=window, sinks=n_sink, length=length,
                windows_count=windows, steps=steps, tokens_per_step=tokens_per_step, rows=rows, seed=seed,
            ),
        ),
    }  # fmt: skip
    again = {name: one for name, one in plans.items() if one.phase == 1 and one.rate == rates[-1]}
    write(path, numbers | checked(lm, again))
    table = pd.DataFrame(found).drop(columns=["perplexities", "scores"])
    return Result(numbers | {"path": str(path)}, {"rows": table})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, plan -> (what is stored, what comes out now)."""
    return trained.recheck(stored, context=context)


def _command(lm: Model, **options) -> str:
    """The command that asks for the same again: the verb where it takes an option that `study` has not."""
    own = any(options[name] is not None for name in ("method", "rates", "groups", "window", "sinks"))
    said = command("baselines", lm, **options)
    return said.replace("study baselines", "finetune") if own else said


def _sizes(kind: str, groups: int) -> list[int | None]:
    return {"lora": list(RANKS), "focus": list(dict.fromkeys((groups, 2))), "full": [None]}[kind]


def _about(line: str, read: str, rate: float | None, parameters: int) -> dict:
    label = line if rate is None else f"{line}, {rate:g}"
    return {"label": label, "line": line, "read": read, "rate": rate, "trained_parameters": parameters}


def _seen(lm: Model) -> list[str]:
    if lm.name != "demo":
        return []
    return ["The bundled model was pretrained on texts of all these kinds: new is only what it saw less of."]


@dataclass
class Baselines(Trainer):
    """Trains in every way, and reads held-out windows of every domain, `held`, and the questions `asked`."""

    held: dict[str, np.ndarray] | None = None
    asked: dict[str, list] | None = None

    def base(self, plan: RouterTraining) -> dict:
        """What the base is: `means` and `tasks`."""
        path = self.work / f"baselines-base-{self._key(self._measured(), plan.seed)}.json"
        found = read_part(path)
        if found is None:
            found = self._read(self.lm, DENSE, self._untrained(plan), plan.window, 0.0, "base")
            write(path, found)
        self.done += 1
        return found

    def way(self, way: Way, plan: RouterTraining) -> tuple[RouterTraining, dict]:
        """(the plan, `parameters` trained and what every reading gives) of one training."""
        name, length = f"{way.line}, {way.rate:g}", self.windows.shape[1]
        if way.kind == "focus":
            made = replace(plan, groups=way.size, rate=way.rate)
        else:
            made, start = phase_2(replace(plan, base_rate=way.rate), self._untrained(plan), "alone", length)
        key = self._key(asdict(made), way.kind, way.size, self._measured())
        path = self.work / f"baselines-{key}.json"
        found = read_part(path)
        if found is None and way.kind == "focus":
            router = self.router(name, made)
            self.done -= 1  # the router and its reading are one unit
            found = {"parameters": router_parameters(self.lm.num_layers, self.lm.width, way.size, made.d_s)}
            arms = {read: trained_arm(read, router, made.window) for read in READ}
            found["reads"] = {
                read: self._read(self.lm, arm, router, made.window, TRAINED, f"{name}, {READ[read]}")
                for read, arm in arms.items()
            }
            write(path, found)
        elif found is None:
            checkpoint, told = path.with_suffix(".checkpoint"), self._told(name, TRAINED)
            if way.kind == "lora":
                own = finetune_lora(self.lm, start, self.ids, made, way.size, checkpoint, told)[0]
                parameters = trainable(lora_copy(self.lm, way.size).lm)
            else:
                own = finetune_all(self.lm, start, self.ids, made, checkpoint, told)[0]
                parameters = sum(p.numel() for p in own.lm.parameters())
            read = self._read(own, DENSE, start, made.window, TRAINED, name)
            found = {"parameters": parameters, "reads": {"dense": read}}
            write(path, found)
            checkpoint.unlink(missing_ok=True)
        self.done += 1
        return made, found

    def _measured(self) -> list:
        items = {name: len(one) for name, one in self.asked.items()}
        return [{name: ids_hash(ids) for name, ids in self.held.items()}, items]

    def _untrained(self, plan: RouterTraining) -> FocusRouter:
        return FocusRouter(self.lm.num_layers, self.lm.width, plan.router_settings(), seed=plan.seed)

    def _read(self, lm: Model, arm: Arm, router: FocusRouter, window: int, began: float, name: str) -> dict:
        """`means` domain -> nats per token of each window, `tasks` task -> scores of its items."""
        means = {}
        for domain, ids in self.held.items():
            bench = self._bench(lm, router, ids, None, len(self.held) + 1, began, f"{name}, {domain}")
            means[domain] = [round(one, 6) for one in bench.measure(arm).means.tolist()]
        if arm is DENSE:
            method = METHODS["dense"]()
        else:
            method = METHODS["focus"].of(router, window=window, n_sink=self.n_sink, **READINGS[arm.name])
        told = self._told(name, 0.0, 0.99)
        return {"means": means, "tasks": answers(lm, method, self.asked, lambda stage: told(0.0, stage))}
