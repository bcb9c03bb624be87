"""Small models trained from scratch on one text, with the tokenizer of another model."""

from pathlib import Path
from typing import Any

import numpy as np

from analysis.methods.base import Method
from analysis.models import Model
from analysis.training.pretrain import train
from analysis.training.recipe import Recipe


def pretrained(
    lm: Model, recipe: Recipe, ids: np.ndarray, valid: np.ndarray, work: Path, **more: Any
) -> tuple[Any, Method | None]:
    """(transformers model, method or None) trained on the tokens `ids` with the vocabulary of `lm`, in `work`, where a
    training that was stopped goes on; `valid` are looked at, `more` is that of `train`."""
    text = lm.tokenizer.decode(valid[:4096], skip_special_tokens=True)
    size = {"tokens": len(valid), "bytes": max(1, len(text.encode()) * len(valid) // len(valid[:4096]))}
    about = {"vocabulary": len(lm.tokenizer), "domains": {"text": {"share": 1.0, "valid": size}}}
    return train(recipe, {"text": ids}, {"text": valid}, about, work, str(lm.device), **more)
