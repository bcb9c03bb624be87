"""Training baselines: LoRA, full fine-tuning and Focus' router on a new domain (Focus, tables 1, 3, 4)."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.budgets.cap_rows import two_sides
from analysis.studies.stored.measured import DENSE, KERNELS, READINGS, Arm, Bench, trained_arm
from analysis.studies.stored.panels import how_sure, presented
from analysis.studies.stored.runner import Seeds, Setting, Study, Windows, option
from analysis.studies.stored.trained import TRAINED, PhaseTrainer, phase_2, plain, sample
from analysis.studies.text.held_out import check_range, chosen, domains, held_out_windows, ids_hash
from analysis.studies.training.finetune_rows import panels, row_of, sentence
from analysis.studies.training.finetune_tasks import answers, questions
from analysis.training.focus import finetune as finetune_all
from analysis.training.lora import finetune_lora, lora_copy, trainable
from analysis.training.settings import RouterTraining

METHOD = ("lora", "focus", "full")
RATES = (1e-5, 5e-5, 1e-4, 1e-3)  # the papers' three, and what a small model needs
RANKS, GROUPS = (4, 16), 8
READ = {"trained": "hard groups", "trained, soft": "soft gate"}
NEW = "python"  # the domain that is learned, if there is one of this name
TASK_TOKENS, ITEMS = 256, 16
SEEN = "The bundled model was pretrained on texts of all these kinds: new is only what it saw less of."


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

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.line}, {self.rate:g}"


@dataclass(frozen=True)
class Baseline(Seeds, Windows):
    """What the study can be asked for."""

    method: str | None = option(None, "lora, focus or full, one or several (default: all)")
    rates: list[float] | None = option(None, "learning rates (default: 1e-5,5e-5,1e-4,1e-3)")
    groups: int = option(GROUPS, "number of groups K of Focus, beside 2")
    length: int = option(512, "tokens in a sequence and in a window of text")
    windows: int = option(64, "number of held-out windows of each domain")
    window: int = option(16, "number of recent tokens that Focus always reads")
    n_sink: int = option(4, "number of first tokens that Focus always reads")
    steps: int = option(600, "steps of each training")
    tokens_per_step: int = option(512, "tokens in one step of each training")
    rows: str | None = option(
        None, "domains, the new one first, separated by commas (default: all, with Python as the new one)"
    )

    def check(self, lm: Model) -> None:
        super().check(lm)
        rates = self.rates or RATES
        if any(not 0 < rate < 1 for rate in rates) or len(set(rates)) < len(rates):
            raise BadSetting(
                f"The learning rates are {', '.join(f'{rate:g}' for rate in rates)}: give numbers in 0 to 1, each once."
            )
        check_range("The number of groups", self.groups, 2, 64)


def measure(at: Setting) -> dict:
    """Copies of the model trained on a domain by every method at every rate, measured on it, on the other domains and
    on the generated tasks, paired with the base.

    LoRA has ranks 4 and 16, Focus `groups` groups and 2, of 16 dimensions.
    `rows`: per training and reading `label line read rate trained_parameters new_domain old_domain` (as perplexity)
    `perplexities scores task_score`; `choosing`, nats on the windows that choose a rate; `new`, `old` (nats) and
    `tasks` (share) minus the base, with `_low` and `_high`; the first row is the base. Errors: BadSetting, BadText.
    """
    lm, sizes = at.lm, at.sizes
    kinds, rates = chosen(sizes.method, list(METHOD), "method"), sorted(sizes.rates or RATES)
    texts = domains(sizes.corpus, sizes.rows, at.context)
    new = next(iter(texts)) if sizes.rows or NEW not in texts else NEW
    names = "groups window n_sink steps tokens_per_step length seed".split()
    plan = RouterTraining(**{name: getattr(sizes, name) for name in names}, check_windows=0, calibration_windows=8)
    both = {name: held_out_windows(lm, out, sizes.length, sizes.windows) for name, (_, out) in texts.items()}
    held, units = ({name: pair[at] for name, pair in both.items()} for at in (0, 1))
    ways = [Way(kind, size, rate) for kind in kinds for size in _sizes(kind, sizes.groups) for rate in rates]
    asked = questions(lm, min(TASK_TOKENS, lm.max_positions), ITEMS, sizes.seed)
    about = {"documents": texts[new][0], "windows": held[new], "units": units[new], "held": held, "asked": asked}
    trainer = Baselines.of(at, n_sink=plan.n_sink, expected=sizes.seeds * len(ways) + 1, **about)
    base = trainer.base(plan)
    found = [row_of(_about("base", "dense", None, 0), [base], base, new, units)]
    plans = {}
    for way in ways:
        made = [trainer.way(way, replace(plan, seed=seed), sizes) for seed in sizes.every_seed]
        plans[way.name], parts = made[0]
        for read in parts["reads"]:
            line = way.line if read == "dense" else f"{way.line}, {READ[read]}"
            about = _about(line, READ.get(read, read), way.rate, parts["parameters"])
            found.append(row_of(about, [one["reads"][read] for _, one in made], base, new, units))
    again = {name: one for name, one in plans.items() if one.phase == 1 and one.rate == rates[-1]}
    return {
        "rows": found,
        "windows": sizes.windows,
        "plans": plain(again),
        "protocol": {
            "text": ids_hash(np.concatenate([one.ravel() for one in held.values()])),
            "tokens": sum(one.size for one in held.values()),
            "window": sizes.length,
            "kernel": KERNELS,
            "steps": sizes.steps,
            "seeds": sizes.seeds,
            "rates": rates,
            "new_domain": new,
            "unit": "documents",
            "units": len(np.unique(units[new][two_sides(units[new])])),
            "corpus": f"{Path(sizes.corpus).name}: {', '.join(texts)}",
            "items": ITEMS,
            "tasks": list(asked),
        },
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows, told = numbers["rows"], numbers["protocol"]
    more = [f"The new domain is {told['new_domain']}.", how_sure(told)]
    more += [SEEN] if told["model"] == "demo" else []
    return presented("baselines", sentence(rows, told.get("seeds", 1)), panels(rows, told["rates"]), *more)


def _sizes(kind: str, groups: int) -> list[int | None]:
    return {"lora": list(RANKS), "focus": list(dict.fromkeys((groups, 2))), "full": [None]}[kind]


def _about(line: str, read: str, rate: float | None, parameters: int) -> dict:
    label = line if rate is None else f"{line}, {rate:g}"
    return {"label": label, "line": line, "read": read, "rate": rate, "trained_parameters": parameters}


@dataclass(kw_only=True)
class Baselines(PhaseTrainer):
    """Trains in every way, and reads held-out windows of every domain, `held`, and the questions `asked`."""

    held: dict[str, np.ndarray]
    asked: dict[str, list]

    def base(self, plan: RouterTraining) -> dict:
        """What the base is: `means` and `tasks`."""
        decides, base = self._decides(self._measured(), plan.seed), self._untrained(plan)
        return self.part("baselines-base", decides, lambda _: self._read(self.lm, DENSE, base, plan, 0.0, "base"))

    def way(self, way: Way, plan: RouterTraining, sizes: Baseline) -> tuple[RouterTraining, dict]:
        """(the plan, `parameters` trained and what every reading gives) of one training."""
        name = way.name if sizes.seeds == 1 else f"{way.name}, seed {plan.seed}"
        if way.kind == "focus":
            made, start = replace(plan, groups=way.size, rate=way.rate), None
        else:
            length = self.windows.shape[1]
            made, start = phase_2(replace(plan, base_rate=way.rate), self._untrained(plan), "alone", length)
        decides = self._decides(asdict(made), way.kind, way.size, self._measured())
        train = self._focus if way.kind == "focus" else self._copy
        return made, self.part("baselines", decides, lambda doing: train(way, name, made, start, doing))

    def _focus(self, way: Way, name: str, plan: RouterTraining, start: None, doing: Path) -> dict:
        """The router alone, read hard and through its soft gate."""
        router, reads = self.router(name, plan), {}
        self.done -= 1  # the router and its reading are one unit
        for read, said in READ.items():
            arm = trained_arm(read, router, plan.window)
            reads[read] = self._read(self.lm, arm, router, plan, TRAINED, f"{name}, {said}")
        return {"parameters": router.size, "reads": reads}

    def _copy(self, way: Way, name: str, plan: RouterTraining, start: FocusRouter, doing: Path) -> dict:
        """A copy of the model, with LoRA or whole."""
        checkpoint, told = doing / "training.checkpoint", self.told(name, TRAINED)
        if way.kind == "lora":
            own = finetune_lora(self.lm, start, self.ids, plan, way.size, checkpoint, told)[0]
            parameters = trainable(lora_copy(self.lm, way.size).lm)
        else:
            own = finetune_all(self.lm, start, self.ids, plan, checkpoint, told)[0]
            parameters = sum(p.numel() for p in own.lm.parameters())
        return {"parameters": parameters, "reads": {"dense": self._read(own, DENSE, start, plan, TRAINED, name)}}

    def _measured(self) -> list:
        items = {name: len(one) for name, one in self.asked.items()}
        return [{name: ids_hash(ids) for name, ids in self.held.items()}, items]

    def _untrained(self, plan: RouterTraining) -> FocusRouter:
        return FocusRouter(self.lm.num_layers, self.lm.width, plan.router_settings(), seed=plan.seed)

    def _read(self, lm: Model, arm: Arm, router: FocusRouter, plan: RouterTraining, began: float, name: str) -> dict:
        """`means` domain -> nats per token of each window, `tasks` task -> scores of its items."""
        means = {}
        for domain, ids in self.held.items():
            context = self.within(f"{name}, {domain}", 1 - began, began)
            bench = Bench(lm, router, ids, self.n_sink, None, context, expected=len(self.held) + 1)
            means[domain] = [round(one, 6) for one in bench.measure(arm).means.tolist()]
        method = METHODS["dense"]()
        if arm is not DENSE:
            method = METHODS["focus"].build(router, window=plan.window, n_sink=self.n_sink, **READINGS[arm.name])
        told = self.told(name, 0.0, 0.99)
        return {"means": means, "tasks": answers(lm, method, self.asked, lambda stage: told(0.0, stage))}


finetune = Study("baselines", __doc__, Baseline, measure, shown, sample)
