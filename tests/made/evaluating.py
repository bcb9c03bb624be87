"""Tiny models whose attention is far from uniform, so that reading less matters, and the text that they read."""

from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from analysis.models import load_model
from analysis.studies.context import Context
from tests.made.models import watched
from tests.made.tiny_tokenizer import llama_like, once, save_model

TEXT = "the cat sat on the mat and the cat saw a dog — “hi” 😀 漢字\n" * 12


def tiny_models(home: Path) -> Path:
    """Saves to `home` the model `tiny`, which reads 64 tokens, and `begins`, whose texts begin with a special token."""
    return once("tiny_models", _sharpened, home)


def _sharpened(home: Path) -> None:
    for folder, tokenizer in {"tiny": None, "begins": llama_like()}.items():
        lm = LlamaForCausalLM.from_pretrained(save_model(home / folder, tokenizer))
        with torch.no_grad():
            for name, weight in lm.named_parameters():
                weight.mul_(20 if "q_proj" in name or "k_proj" in name else 4 if "o_proj" in name else 1)
        lm.save_pretrained(home / folder)


def watched_context(home: Path) -> Context:
    """A watched context of these models."""
    return watched(home / "state")


def stock_tables(home: Path) -> np.ndarray:
    """Probabilities [L, H, T, T] of the tiny model as transformers computes them, on the first 64 tokens of TEXT."""
    model = load_model(str(home / "tiny"))
    ids = torch.tensor(model.tokenizer(TEXT, add_special_tokens=False)["input_ids"][:64])[None]
    model.lm.set_attn_implementation("eager")
    with torch.no_grad():
        tables = model.lm(ids, output_attentions=True, use_cache=False).attentions
    return torch.stack(tables)[:, 0].double().numpy()
