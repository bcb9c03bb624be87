"""Made models that studies are asked about, and a context that watches over what they report."""

from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from analysis.studies.context import Context
from tests.made.tiny_tokenizer import save_model


def save_models(folder: Path, **most: int) -> Path:
    """Random models by name, each with the tokens it reads; the one called `even` finds every token alike."""
    for name, positions in most.items():
        save_model(folder / name, max_position_embeddings=positions)
    if "even" in most:
        even = LlamaForCausalLM.from_pretrained(folder / "even")
        with torch.no_grad():
            even.lm_head.weight.zero_()
        even.save_pretrained(folder / "even")
    return folder


def watched(state: Path) -> Context:
    """A context of the command line; no study may report while a method is on its model, and none outside 0 to 1."""

    def progress(fraction, stage):
        held = made._model and made._model[1].lm
        assert not held or not any(hasattr(m, "_focuscope") for m in held.modules()), stage
        assert 0 <= fraction <= 1 and stage

    made = Context(progress=progress, state=state, browser=False)
    return made
