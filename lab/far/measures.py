"""What is logged while the model that reads far is trained: language, the circuit, and whether needles are found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.metrics.quality import perplexity
from analysis.models import load_model
from analysis.probes.pieces import Pieces
from analysis.probes.scoring import answer_logs, chosen
from analysis.probes.tasks import TASKS, Ask
from analysis.seam.attention import apply
from analysis.seam.layers import attention_as
from analysis.training.yardsticks import bits_by_domain, context_gain
from lab.far.looking_back import copy_losses, repeated

RANDOM = 128  # random tokens that are written twice


@torch.no_grad()
def circuit_scores(
    model: PreTrainedModel, length: int = RANDOM, sequences: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(previous-token score, induction score) of every head, each [layers, heads], on random tokens written twice.

    Previous token: mean weight on the token before. Induction: in the second copy, mean weight on the token that
    followed the first copy of the current one. Chance is about 1 / positions; 1 is a perfect head.
    """
    vocabulary, rng = model.config.vocab_size, np.random.default_rng([seed, length])
    ids = torch.from_numpy(repeated(sequences, 2 * length, vocabulary, rng, (length, length)))
    with attention_as(model, "eager"):  # the only one that gives weights
        read = model(input_ids=ids.to(model.device), use_cache=False, output_attentions=True)
    previous, induction = [], []
    for weights in read.attentions:  # [B, H, T, T]
        previous.append(weights.diagonal(-1, 2, 3).mean((0, 2)))
        behind = weights.diagonal(1 - length, 2, 3)  # query i reads key i - (length - 1), [B, H, T - length + 1]
        induction.append(behind[..., 1:].mean((0, 2)))  # from the second copy's first token on
    return torch.stack(previous).float().cpu().numpy(), torch.stack(induction).float().cpu().numpy()


CHOICES = 4  # answers to each of the program's own questions


def needles(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    text: str,
    task: str,
    length: int,
    items: int = 24,
    choices: int = CHOICES,
    method: Method | None = None,
) -> float:
    """Share of the program's own long-context questions that dense attention, or `method`, answers rightly (chance 1 /
    choices)."""
    lm, pieces, right = load_model(model, tokenizer=tokenizer), Pieces(tokenizer, text), []
    for n in range(items):
        place = {"examples": 8} if TASKS[task].axis == "examples" else {"depth": (n % 5) / 4}
        item = TASKS[task].make(pieces, Ask(length, choices, **place), np.random.default_rng([n, length]))
        right.append(chosen(answer_logs(lm, method or METHODS["dense"](), item), item.right))
    return round(float(np.mean(right)), 3)


def cost_of_window(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    valid: dict,
    shares: dict[str, float],
    window: int = 64,
    windows: int = 8,
) -> float:
    """By which share the perplexity of the mixture {domain: uint16[T]} is higher when only the last `window` tokens are
    read, on `windows` evenly spaced windows of the whole context of each domain."""
    lm, nats = load_model(model, tokenizer=tokenizer), []
    context = lm.max_positions
    for method in (METHODS["dense"](), METHODS["streaming_llm"](window=window, n_sink=0)):
        losses = {}
        for name, ids in valid.items():
            rows = ids[: len(ids) // context * context].reshape(-1, context)
            rows = rows[np.linspace(0, len(rows) - 1, min(windows, len(rows))).round().astype(int)]
            with apply(lm, method):
                losses[name] = perplexity(lm, rows.reshape(-1), context).losses.mean()
        nats.append(sum(shares[name] * loss for name, loss in losses.items()))
    return float(np.exp(nats[1] - nats[0]) - 1)


def tasks(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    text: str,
    length: int = 1024,
    items: int = 48,
    window: int = 128,
) -> dict:
    """Task -> {`dense`, `window`}: shares of right answers with dense attention and with a window, and `items`."""
    near = METHODS["streaming_llm"](window=window)
    return {
        name: {
            "dense": needles(model, tokenizer, text, name, length, items),
            "window": needles(model, tokenizer, text, name, length, items, method=near),
            "items": items,
        }
        for name in TASKS
    }


@dataclass
class Measures:
    """`measures(model, step, length)` for `train_far`: cheap ones at every call, dear ones every `dear_every` steps."""

    valid: dict[str, np.ndarray]
    about: dict
    tokenizer: PreTrainedTokenizerFast
    text: str
    tokens: int = 8192
    dear_every: int = 1000

    def __call__(self, model: PreTrainedModel, step: int, length: int) -> dict:
        previous, induction = circuit_scores(model)
        first, second = copy_losses(model, RANDOM, 4, model.config.vocab_size)
        bits = bits_by_domain(model, self.valid, self.about, length, max(1, self.tokens // length))
        measured = {f"valid_{name}": value for name, value in bits.items()}
        measured |= {"first_copy": round(first, 3), "second_copy": round(second, 3)}
        measured |= {"previous_token": round(float(previous.max()), 3), "induction": round(float(induction.max()), 3)}
        measured["induction_heads"] = int((induction > 0.3).sum())
        if step % self.dear_every == 0:
            measured |= {
                f"needle_{n}": needles(model, self.tokenizer, self.text, "uuid_needle", n) for n in (256, 1024)
            }
            measured |= {f"gain_{name}": self.gain(model, name) for name in self.valid if name != "wikitext"}
        return measured

    def gain(self, model: PreTrainedModel, name: str) -> list[float | None]:
        """[nats, low, high] that the full context gains at positions from 768 on, on few windows; None without an
        interval."""
        gain = context_gain(model, self.valid[name], windows=8, samples=32)
        return [None if gain[part] is None else round(gain[part], 4) for part in ("nats", "low", "high")]
