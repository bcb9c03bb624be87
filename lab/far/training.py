"""Training of a model that reads far: random tokens that repeat (until heads look back) and recall documents, mixed
into the text.

Warm-up, then one constant rate, then a fall to 0 (warm-up, stable, decay; Hu et al. 2024, Haegele et al. 2024).
Everything that is read is a pure function of the recipe and the shards: row r of a phase is the same whoever asks for
it, so a run that was stopped goes on with the very next row.
"""

import zlib
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from analysis.errors import BadSetting, BadText
from analysis.models.arithmetic import quick
from analysis.seam.vocabulary import next_tokens
from analysis.training.pretrain import build_model, optimisers, take_steps, trained
from lab.far.kinds import document
from lab.far.recall import Source
from lab.far.recipe import PREVIOUS, Asked, FarRecipe

CHECKPOINT_SECONDS = 240.0  # between two checkpoints


def document_rows(ids: np.ndarray, length: int, rng: np.random.Generator) -> np.ndarray:
    """First tokens of rows of `length` + 1 tokens that each lie within one document, shuffled: int64 [n].

    ids [T] with an end-of-text token (0) before each document. Rows follow one another from a random place of what is
    left over on, so another epoch cuts elsewhere; a document that is shorter than a row is left out.
    """
    begins, starts = np.flatnonzero(np.append(ids, 0) == 0), []
    for first, last in zip(begins[:-1], begins[1:], strict=True):
        count = (last - first - 1) // length
        if count:
            starts.append(first + rng.integers(last - first - count * length) + length * np.arange(count))
    if not starts:
        raise BadText(f"No document has the {length + 1:,} tokens of a row.")
    return rng.permutation(np.concatenate(starts))


class Rows:
    """The rows of every step: `source` the training tokens, `shares` of the natural domains."""

    def __init__(self, recipe: FarRecipe, source: Source, shares: dict[str, float]) -> None:
        self.recipe, self.source, self.shares = recipe, source, shares
        self.epoch = lru_cache(maxsize=2 * len(shares))(self._epoch)
        self.plan = lru_cache(maxsize=2)(self._plan)

    def _epoch(self, domain: str, length: int, epoch: int) -> np.ndarray:
        rng = np.random.default_rng([self.recipe.seed, zlib.crc32(domain.encode()), length, epoch])
        return document_rows(self.source.tokens[domain], length, rng)

    def _plan(self, phase: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of every row of a phase: domain, whether it is a recall document, whether it repeats, number among the
        natural rows of its domain; each [rows]. What a longer run would read first, a shorter one reads as well."""
        first, end, length, size = self.recipe.spans()[phase]
        count, per_step = end - first, size // length
        drawn = [np.random.default_rng([self.recipe.seed, phase, n]).random(count * per_step) for n in range(2)]
        domain = np.searchsorted(np.cumsum(list(self.shares.values()))[:-1], drawn[0], "right")
        shares = np.array([self.recipe.shares(step) for step in range(first, end)]).repeat(per_step, 0).cumsum(1)
        recall, repeats = drawn[1] < shares[:, 0], (drawn[1] >= shares[:, 0]) & (drawn[1] < shares[:, 1])
        number = np.zeros(count * per_step, np.int64)
        for n in range(len(self.shares)):
            natural = (domain == n) & ~recall & ~repeats
            number[natural] = np.arange(natural.sum())
        return domain, recall, repeats, number

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """ids int64 [B, T + 1]; answer bool [B, T + 1], tokens that the row told before; of each row [B], whether it is
        a recall document and whether it is random tokens that come again."""
        phase = self.recipe.phase(step)
        first, _, length, size = self.recipe.spans()[phase]
        domain, recall, repeats, number = self.plan(phase)
        ids, answer, per_step = [], [], size // length
        rows = range((step - first) * per_step, (step - first + 1) * per_step)
        for row in rows:
            if recall[row] or repeats[row]:
                kind, own = "repeats" if repeats[row] else None, dict(self.recipe.kinds)
                sample = document(self.source, self.recipe.seed, row + 1_000_000 * phase, length + 1, kind, own)
                ids.append(sample.ids)
                answer.append(sample.answer)
            else:
                ids.append(self.natural(list(self.shares)[domain[row]], length, int(number[row])))
                answer.append(np.zeros(length + 1, bool))
        of_step = slice(rows.start, rows.stop)
        return np.stack(ids), np.stack(answer), recall[of_step], repeats[of_step]

    def natural(self, domain: str, length: int, number: int) -> np.ndarray:
        """Natural row `number` of a domain, int64 [length + 1]: every row of an epoch once before the next epoch."""
        epoch = 0
        while number >= len(starts := self.epoch(domain, length, epoch)):
            number, epoch = number - len(starts), epoch + 1
        start = starts[number]
        return self.source.tokens[domain][start : start + length + 1].astype(np.int64)


def log_weights(model: PreTrainedModel, hidden: torch.Tensor, layer: int, head: int) -> torch.Tensor:
    """Logarithm of a head's weights [B, T, T] from the input of its layer [B, T, C], float32; minus infinity ahead. A
    Llama without biases."""
    block = model.model.layers[layer]
    attention, x = block.self_attn, block.input_layernorm(hidden)
    size, sharing = attention.head_dim, attention.num_key_value_groups
    q = attention.q_proj(x).unflatten(-1, (-1, size)).transpose(1, 2)[:, head, None]
    k = attention.k_proj(x).unflatten(-1, (-1, size)).transpose(1, 2)[:, head // sharing, None]
    q, k = apply_rotary_pos_emb(q, k, *model.model.rotary_emb(x, torch.arange(x.shape[1], device=x.device)[None]))
    scores = (q @ k.transpose(-1, -2))[:, 0].float() * attention.scaling
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    return torch.log_softmax(scores.masked_fill(ahead, -torch.inf), -1)


def asked_loss(
    model: PreTrainedModel, hidden: tuple[torch.Tensor, ...], periods: list[int], heads: tuple[Asked, ...]
) -> torch.Tensor:
    """Mean over heads of the mean -log weight on the key that a head shall read.

    hidden: the input of each layer [B, T, C]; periods: after how many tokens each sequence begins again. The token
    before counts from the second position on, what followed the earlier copy from the second copy on.

    The circuit that forms by itself need not be the one of the literature (Elhage et al. 2021, Olsson et al. 2022):
    heads may read the third token after the earlier copy, if heads before them carry tokens three places on. Both
    predict alike; the one of the literature is what people look for. Asked for during a few hundred steps, it stays.
    """
    parts = []
    for head in heads:
        weights, rows = log_weights(model, hidden[head.layer], head.layer, head.head), []
        for row, period in zip(weights, periods, strict=True):
            back, first = (1, 1) if head.reads == PREVIOUS else (period - 1, period)
            rows.append(row.diagonal(-back)[first - back :])
        parts.append(-torch.cat(rows).mean())
    return torch.stack(parts).mean()


def weighted_loss(
    model: PreTrainedModel,
    ids: torch.Tensor,
    weights: torch.Tensor,
    asked: float = 0.0,
    periods: dict[int, int] | None = None,
    heads: tuple[Asked, ...] = (),
    products: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss to descend, nats of each token [B, T]): ids [B, T + 1], weights [B, T].

    With a weight `asked`, what `heads` are asked for on the rows {row: period} that repeat is part of the loss, so much
    of it as there are such rows. `products` is the type of the products, that of this machine where it is None.
    """
    repeating = periods if asked and periods else {}
    extra: torch.Tensor | float = 0.0
    with quick(ids.device, products):
        predicted = next_tokens(model, ids[:, :-1], output_hidden_states=bool(repeating))
        nats = predicted.losses(model, ids[:, 1:])
        if repeating:
            hidden = tuple(states[list(repeating)] for states in predicted.body.hidden_states)
            share = len(repeating) / len(ids)
            extra = asked * share * asked_loss(model, hidden, list(repeating.values()), heads)
    return (nats * weights).mean() + extra, nats.detach()


def train_far(
    recipe: FarRecipe,
    source: Source,
    about: dict,
    work: Path,
    device: str = "cpu",
    start: torch.nn.Module | None = None,
    evaluate: Callable[[Any, int], dict] = lambda model, length: {},
    evaluate_every: int = 200,
    stop_at: int | None = None,
    report: Callable[[float, str], None] = lambda fraction, stage: None,
) -> PreTrainedModel:
    """Train (or continue) in `work`; returns the float32 model after the last step or after step `stop_at`.

    `about` is what `mixture.build` returned; `start` a model of the same shape whose weights it begins with;
    `evaluate(model, length)` gives what is logged every `evaluate_every` steps.
    """
    work.mkdir(parents=True, exist_ok=True)
    model = build_model(recipe, about["vocabulary"])
    torch.nn.Module.to(model, device)
    if start is not None:
        model.load_state_dict(start.state_dict())
    parameters = trained(model, None)
    opts = optimisers(parameters, recipe)
    rows = Rows(recipe, source, {name: part["share"] for name, part in about["domains"].items()})
    take, measure = partial(one_step, model, parameters, opts, recipe, rows), partial(evaluate, model)
    training = model, parameters, opts, recipe, work
    take_steps(*training, take, measure, evaluate_every, CHECKPOINT_SECONDS, stop_at, report)
    return model


def one_step(
    model: PreTrainedModel, parameters: dict, opts: tuple, recipe: FarRecipe, rows: Rows, step: int
) -> dict[str, float | None]:
    """One update; nats per token of natural text (`loss`), of recall documents, of their answers, and of the second
    copies of repeats (None: none)."""
    for opt, peak in zip(opts, (recipe.matrix_rate, recipe.other_rate), strict=True):
        opt.param_groups[0]["lr"] = peak * recipe.rate(step)
        opt.zero_grad(set_to_none=True)
    ids, answer, recall, repeats = rows.batch(step)
    per_pass = max(1, recipe.tokens_per_pass // (ids.shape[1] - 1))
    asked, parts = recipe.marks[recipe.phase(step)].asked, []
    for at in range(0, len(ids), per_pass):
        some = torch.from_numpy(ids[at : at + per_pass]).to(model.device)
        answers = answer[at : at + per_pass]
        weights = 1 + (recipe.answer_weight - 1) * torch.from_numpy(answers[:, 1:]).to(model.device)
        # The first token of the second copy is no answer, so that the first answer stands one behind the period.
        periods = {int(row): int(answers[row].argmax()) - 1 for row in np.flatnonzero(repeats[at : at + per_pass])}
        loss, of_tokens = weighted_loss(model, some, weights, asked, periods, recipe.heads_asked, opts[0].products)
        (loss * (len(some) / len(ids))).backward()
        parts.append(of_tokens.float().cpu().numpy())
    nats, answer = np.concatenate(parts), answer[:, 1:]
    if not np.isfinite(nats).all():
        raise BadSetting(f"The loss is no number at step {step:,}; lower the rates.")
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    for opt in opts:
        opt.step()
    losses = {"loss": nats[~recall & ~repeats], "recall": nats[recall], "answers": nats[answer & ~repeats[:, None]]}
    losses["repeats"] = nats[answer & repeats[:, None]]
    return {name: float(values.mean()) if values.size else None for name, values in losses.items()}
