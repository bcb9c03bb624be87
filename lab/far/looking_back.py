"""When does a tiny model learn to look back? Random tokens that come again, and the loss of the second copy by step.

A head that finds the last place where the current token stood and reads what followed it (induction, Elhage et al.
2021, Olsson et al. 2022) needs a head before it that reads the previous token. On random tokens that repeat, nothing
else helps: the first copy costs ln(vocabulary) whatever is learned, and the second falls to near 0 once both heads are
there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from analysis.errors import BadSetting
from analysis.seam.layers import attention_as
from analysis.seam.vocabulary import next_tokens
from analysis.training.pretrain import build_model
from analysis.training.recipe import Recipe

# First tokens of a second copy, which nothing can tell.
SETTLED = 4
# Random tokens that are written twice.
RANDOM = 128


@dataclass(frozen=True)
class Circuit:
    """One run: `family` (`llama_plain`, or `llama` with normalised queries and keys), the AdamW rate, the seed.

    A sequence of `length` tokens repeats a random segment of `shortest` to length/2 tokens: with one and the same
    distance for all, a head could read a fixed number of positions back and would need no match.
    """

    family: str = "llama_plain"
    rate: float = 2e-3
    seed: int = 0
    steps: int = 1600
    sequences: int = 32
    length: int = 64
    shortest: int = 8
    vocabulary: int = 256
    layers: int = 2
    width: int = 128
    heads: int = 4
    warm_up: int = 50
    measured_every: int = 50
    measured_on: int = 32
    # Nats of the second copy at which a run ends.
    formed: float = 0.3

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.length // 2:
            raise BadSetting(f"A segment of {self.shortest} tokens must fit twice into {self.length}.")

    def model(self) -> PreTrainedModel:
        """The freshly initialised model."""
        recipe = Recipe(
            family=self.family,
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            kv_heads=self.heads,
            intermediate=3 * self.width,
            context=self.length,
            tokens_per_step=self.length,
            seed=self.seed,
        )
        return build_model(recipe, self.vocabulary)


def repeated(
    sequences: int, length: int, vocabulary: int, rng: np.random.Generator, segment: tuple[int, int]
) -> torch.Tensor:
    """Random tokens 1..vocabulary-1 that repeat: int64 [sequences, length], each with its own period in `segment`."""
    tokens = rng.integers(1, vocabulary, (sequences, length))
    periods = rng.integers(segment[0], segment[1] + 1, sequences)
    return torch.from_numpy(np.stack([np.resize(row[:n], length) for row, n in zip(tokens, periods, strict=True)]))


@torch.no_grad()
def copy_losses(
    model: PreTrainedModel, length: int, sequences: int, vocabulary: int, seed: int = 0
) -> tuple[float, float]:
    """Mean nats per token of the first and the second copy of `length` random tokens; the second without its first 4.

    Chance is ln(vocabulary) for both; a model with an induction circuit has the second near 0.
    """
    ids = repeated(sequences, 2 * length, vocabulary, np.random.default_rng([seed, length]), (length, length))
    ids = ids.to(next(model.parameters()).device)
    nats = next_tokens(model, ids[:, :-1]).losses(model, ids[:, 1:])  # [B, T-1]; entry p: token p + 1
    return nats[:, : length - 1].mean().item(), nats[:, length - 1 + SETTLED :].mean().item()


@torch.no_grad()
def circuit_scores(
    model: PreTrainedModel, length: int = RANDOM, sequences: int = 4, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(previous-token score, induction score) of every head, each [layers, heads], on random tokens written twice.

    Previous token: mean weight on the token before. Induction: in the second copy, mean weight on the token that
    followed the first copy of the current one. Chance is about 1 / positions; 1 is a perfect head.
    """
    rng = np.random.default_rng([seed, length])
    ids = repeated(sequences, 2 * length, model.config.vocab_size, rng, (length, length)).to(model.device)
    # The only attention that gives weights.
    with attention_as(model, "eager"):
        read = model(input_ids=ids, use_cache=False, output_attentions=True)
    previous, induction = [], []
    for weights in read.attentions:  # [B, H, T, T]
        previous.append(weights.diagonal(-1, 2, 3).mean((0, 2)))
        behind = weights.diagonal(1 - length, 2, 3)  # query i reads key i - (length - 1), [B, H, T - length + 1]
        # From the second copy's first token on.
        induction.append(behind[..., 1:].mean((0, 2)))
    return torch.stack(previous).float().cpu().numpy(), torch.stack(induction).float().cpu().numpy()


def train_circuit(plan: Circuit, report: Callable[[dict], None] = lambda entry: None) -> list[dict]:
    """Train one model; every `measured_every` steps {step, tokens, loss, first, second}: nats per token on new random
    tokens twice, of half the length each."""
    model, curve = plan.model(), []
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(1, plan.steps + 1):
        rng = np.random.default_rng([plan.seed, step])
        ids = repeated(plan.sequences, plan.length, plan.vocabulary, rng, (plan.shortest, plan.length // 2))
        optimiser.param_groups[0]["lr"] = plan.rate * min(1.0, step / plan.warm_up)
        optimiser.zero_grad(set_to_none=True)
        loss = next_tokens(model, ids[:, :-1]).losses(model, ids[:, 1:]).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if not math.isfinite(loss.item()):
            raise BadSetting(f"The loss is no number at step {step:,}; lower the rate, now {plan.rate}.")
        if step % plan.measured_every == 0 or step == plan.steps:
            first, second = copy_losses(model, plan.length // 2, plan.measured_on, plan.vocabulary)
            tokens = step * plan.sequences * plan.length
            curve.append({"step": step, "tokens": tokens, "loss": loss.item(), "first": first, "second": second})
            report(curve[-1])
            if second < plan.formed:
                break
    return curve
