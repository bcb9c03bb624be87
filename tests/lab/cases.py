"""What every study is asked for here: tiny models, short windows and few steps, so that each runs in seconds."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.training.recipe import Recipe
from analysis.training.settings import RouterTraining
from tests.made.models import clean

WINDOWS = {"length": 32, "windows": 9}
ROUTED = {"router": "k4-top1", **WINDOWS}
TRAINED = {"window": 4, "n_sink": 1, "steps": 2, "tokens_per_step": 64, "seeds": 1}
FOCAL = WINDOWS | {"tokens_per_step": 64, "seeds": 2}
SMALL = {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "intermediate": 48}


def two_named_heads(model: Any, length: int, sequences: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of induction by which two heads of the tiny model count."""
    scores = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
    scores[1, 0], scores[1, 1] = 0.9, 0.4
    return scores, scores


@dataclass(frozen=True)
class Case:
    """A study asked for something small.

    `options` are those of its command; `corpus` and `model` name folders of the home; `patches` place constants of the
    lab that no option sets; studies of one `work` folder share what they have in common.
    """

    options: dict[str, Any]
    corpus: str = "corpus"
    model: str = "tiny"
    patches: dict[str, Any] = field(default_factory=dict)
    work: str = ""


CASES = {
    "ablations": Case(
        WINDOWS
        | TRAINED
        | {"tokens_per_step": 32, "base_rate": 1e-3}
        | {"rows": "groups=4,groups=8,iterations=3,iterations=10,window=64"},
    ),
    "groups": Case(ROUTED),
    "figure-one": Case(WINDOWS | {"repeats": 1, "new_tokens": 4}),
    "causality": Case(ROUTED),
    "pruned": Case(ROUTED),
    "top": Case(ROUTED),
    "step-cost": Case({"length": 32, "repeats": 2}, corpus=""),
    "dominance": Case(TRAINED | {"steps": 3, "groups": 4, "length": 32}),
    "finetuning": Case(WINDOWS | TRAINED | {"groups": 4, "windows": 3, "base_rate": 1e-3}, corpus="three"),
    "lengths": Case(
        TRAINED | {"length": 16, "windows": 40, "window": 3, "steps": 3, "tokens_per_step": 32, "rows": "16,32,64,128"},
    ),
    "pretraining": Case(
        WINDOWS | {"steps": 20, "tokens_per_step": 64, "seeds": 2},
        patches={"lab.focus.pretraining.SMALL": Recipe(**SMALL)},
    ),
    "focus-printed": Case(
        WINDOWS | {"steps": 8, "tokens_per_step": 64, "window": 4, "rates": [1e-3, 1e-2], "seeds": 1}
    ),
    "focal-temperatures": Case(
        FOCAL | {"rows": "dense,0.4,learned,literal,adapted,plain", "steps": 40},
        patches={"lab.focal.arms.LAYERS": 1},
        work="focal",
    ),
    "focal-limits": Case(
        FOCAL | {"rows": "dense,5-10", "steps": 40}, patches={"lab.focal.arms.LAYERS": 1}, work="focal"
    ),
    "focal-scaling": Case(FOCAL | {"rows": "context", "steps": 4}, patches={"lab.focal.arms.LAYERS": 1}),
    "focal-tasks": Case(
        {"length": 32, "windows": 6, "lengths": [256], "items": 2, "steps": 3, "tokens_per_step": 64, "rate": 3e-2}
        | {"seeds": 1},
        model="long",
    ),
    "length-extension": Case({"windows": 2, "steps": 2, "tokens_per_step": 128, "seeds": 1}),
    "indexers": Case(
        {"length": 64, "windows": 6, "calibrate": 3, "min_distance": 8, "steps": 1, "others_steps": 1, "seeds": 1}
        | {"inside": 2, "needles": 4, "needle_length": 256},
        corpus="five",
        model="long",
        patches={
            "lab.harness.taught.GROUPS": RouterTraining(groups=4, steps=2, tokens_per_step=64, window=8, n_sink=1)
        },
    ),
    "query-router": Case({"length": 32, "windows": 4, "steps": 12, "caps": [3, 8], "seeds": 1}, corpus="five"),
    "calibration": Case({"length": 32, "windows": 2}, corpus="two"),
    "allocation": Case(
        {"length": 48, "windows": 6, "calibrate": 2, "select": 2},
        patches={"lab.budgets.allocation.KEYS": (4, 12), "lab.budgets.allocation.EVENLY": (0.0, 0.5)},
    ),
    "equal-bytes": Case({"length": 32, "windows": 6, "continuation": 6}),
    "transfer": Case({"length": 48, "windows": 3, "continuation": 16}),
    "long-decoding": Case(
        {"names": 4, "items": 2, "budgets": [6, 60], "every": 4, "rows": "snapkv,kvzap,newest", "seeds": 2}, corpus=""
    ),
    "prefill": Case({"lengths": "32,48", "windows": 3, "continuation": 8, "rows": "skip_softmax,flex_prefill"}),
    "circuit": Case({"steps": 2, "seeds": 1}, corpus=""),
    "induction": Case(
        {"length": 16, "sequences": 3, "draws": 2},
        corpus="",
        patches={"lab.tuning.induction.circuit_scores": two_named_heads},
    ),
    "why-circuit": Case(
        {"length": 16, "sequences": 5, "heads": 2, "draws": 2},
        corpus="",
        patches={"lab.tuning.why_circuit.circuit_scores": two_named_heads, "lab.tuning.why_circuit.QUERIES": 5},
    ),
    "alignment": Case(
        TRAINED | {"length": 32, "windows": 6, "rates": [1e-2], "instruct_steps": 30, "instruct_rate": 1e-2},
        model="long",
        patches={"lab.tuning.alignment.ITEMS": 2, "lab.tuning.alignment.COPIES": 40},
    ),
    "recall-documents": Case(
        {"length": 256, "windows": 6, "items": 2, "tokens": 32_768, "shares": [0.5], "seeds": 1}, model="far"
    ),
}


def quiet(fraction: float, stage: str) -> None:
    """Progress that nobody looks at."""


@contextmanager
def patched(name: str):
    """The lab with the constants of a case in their places."""
    with pytest.MonkeyPatch.context() as patch:
        for place, value in CASES[name].patches.items():
            patch.setattr(place, value)
        yield


def ask(name: str, home: Path, output: Path, progress=quiet, **options: Any):
    """The result of a study asked for its case, `options` overriding that; no progress may be told while a method is
    on the model."""
    case = CASES[name]
    arguments: dict[str, Any] = {"model": str(home / case.model), "output": str(output), **case.options}
    arguments |= {"corpus": str(home / case.corpus)} if case.corpus else {}

    def report(fraction: float, stage: str) -> None:
        assert clean(context) and 0 <= fraction <= 1 and stage
        progress(fraction, stage)

    context = Context(progress=report, state=home / "state", browser=False)
    with patched(name):
        return NAMED[name](**arguments | options, context=context)
