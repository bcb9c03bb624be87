"""Made models that studies are asked about, and a context that watches over what they report."""

from collections.abc import Callable
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from analysis.studies.context import Context
from tests.made.tiny_tokenizer import save_model


def save_models(folder: Path, **lengths: int) -> Path:
    """Random models by name, each with the tokens it reads; the one called `even` finds every token alike."""
    for name, positions in lengths.items():
        save_model(folder / name, max_position_embeddings=positions)
    if "even" in lengths:
        even = LlamaForCausalLM.from_pretrained(folder / "even")
        with torch.no_grad():
            even.lm_head.weight.zero_()
        even.save_pretrained(folder / "even")
    return folder


def clean(context: Context) -> bool:
    """No method and no hook is on the model, so that others may use it."""
    lm = context._model and context._model[1].lm
    return not lm or not any(hasattr(m, "_focuscope") or m._forward_pre_hooks for m in lm.modules())


def watched(state: Path, progress: Callable[[float, str], object] | None = None) -> Context:
    """A context of the command line; no study may report while a method is on its model, and none outside 0 to 1."""

    # Requests of other sessions are served while a study reports: they would run with its method.
    def report(fraction, stage):
        assert clean(context) and 0 <= fraction <= 1 and stage, stage
        if progress is not None:
            progress(fraction, stage)

    context = Context(progress=report, state=state, browser=False)
    return context
