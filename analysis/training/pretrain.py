"""Pretraining of the bundled model on a mixture of token shards: the model, the optimisers, one loop.

What is read at which step is a pure function of the recipe and the shards (`mixture.plan`) and nothing is dropped out,
so the step is the whole position: a run that was stopped continues to the weights it would have reached anyway.
"""

import contextlib
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from ..errors import BadSetting
from ..files import append, write_text
from ..groups.router import FocusRouter
from ..methods import METHODS
from ..methods.base import Method
from ..methods.focal import FocalWeights
from ..seam.attention import apply
from .checkpoints import LOG, lines, load_checkpoint, read_log, save_checkpoint
from .mixture import plan
from .muon import AdamW, Muon
from .recipe import Recipe
from .yardsticks import bits_by_domain, token_losses

# Tokens of each domain at an evaluation inside the run.
EVALUATED = 32_768
BETAS = (0.9, 0.95)
Parameters = dict[str, torch.nn.Parameter]


def build_model(recipe: Recipe, vocabulary: int, end: int = 0) -> transformers.PreTrainedModel:
    """A freshly initialised model: Qwen3 (Llama with per-head query-key norm), Llama or GPT-2; residual outputs start
    at 0. `end`: the token that ends a text."""
    torch.manual_seed(recipe.seed)
    shared: dict[str, Any] = {"vocab_size": vocabulary, "bos_token_id": end, "eos_token_id": end}
    shared["tie_word_embeddings"] = True
    if recipe.family == "gpt2":
        sizes: dict[str, Any] = {"n_positions": recipe.context, "n_embd": recipe.width, "n_layer": recipe.layers}
        sizes |= {"n_head": recipe.heads, "n_inner": recipe.intermediate}
        sizes |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **shared))
    else:
        kind = "Llama" if recipe.family == "llama_plain" else "Qwen3"
        sizes = {"hidden_size": recipe.width, "intermediate_size": recipe.intermediate}
        sizes |= {"num_hidden_layers": recipe.layers, "num_attention_heads": recipe.heads}
        sizes |= {"num_key_value_heads": recipe.kv_heads, "head_dim": recipe.width // recipe.heads}
        sizes |= {"max_position_embeddings": recipe.context}
        sizes |= {"rope_parameters": {"rope_type": "default", "rope_theta": recipe.rope_base}}
        config = getattr(transformers, f"{kind}Config")(**sizes, **shared)
        model = getattr(transformers, f"{kind}ForCausalLM")(config)
    # Every block of the network begins as the identity.
    for name, weight in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight", "c_proj.weight")):
            torch.nn.init.zeros_(weight)
    return model


def training_method(recipe: Recipe, device: str) -> Method | None:
    """The registry's method to train with, or None for dense.

    Focus trains a router from the first step: soft gate, groups balanced over each row (literal), a window of a 16th of
    the context (the paper's 128 at 2,048).
    """
    if recipe.attention == "dense":
        return None
    kind = METHODS[recipe.attention]
    if recipe.attention == "focus":
        router = FocusRouter(recipe.layers, recipe.width, window=recipe.context // 16, seed=recipe.seed)
        return kind.build(router.to(device), reading="soft", membership="literal")
    if recipe.attention == "focal_learned":
        offset = {} if recipe.offset is None else {"offset": recipe.offset}
        weights = FocalWeights(recipe.layers, recipe.width, **offset)
        limits = {name: getattr(recipe, name) for name in ("mean", "tau_min", "tau_max")}
        # Who reads with these weights later reads as they were trained.
        weights.about |= limits
        return kind.build(weights.to(device), **limits)
    return kind.build(t=recipe.t)


def trained(model: torch.nn.Module, method: Method | None) -> Parameters:
    """Everything that is trained, by name: the model's parameters and the method's (`addon.*`)."""
    addon = method.addon() if method else None
    extra = {f"addon.{name}": p for name, p in addon.named_parameters()} if addon is not None else {}
    return {f"model.{name}": p for name, p in model.named_parameters()} | extra


def optimisers(parameters: Parameters, recipe: Recipe) -> tuple[Muon | AdamW, torch.optim.AdamW]:
    """Muon for the hidden matrices (updates scaled to AdamW's size), AdamW for embeddings, norms, biases, add-ons; or
    AdamW for both, with one weight decay, as Focal Attention's section 3.2 trains."""
    outside = ("addon.", "embed", "wte", "wpe", "lm_head")
    matrices = {name: p for name, p in parameters.items() if p.ndim == 2 and not any(part in name for part in outside)}
    remaining = [p for name, p in parameters.items() if name not in matrices]
    decay, hidden = recipe.weight_decay, list(matrices.values())
    if recipe.optimiser == "adamw":
        rest = torch.optim.AdamW(remaining, lr=recipe.other_rate, betas=BETAS, weight_decay=decay)
        return AdamW(hidden, lr=recipe.matrix_rate, betas=BETAS, weight_decay=decay), rest
    rest = torch.optim.AdamW(remaining, lr=recipe.other_rate, betas=BETAS, weight_decay=0.0)
    return Muon(hidden, lr=recipe.matrix_rate, weight_decay=decay), rest


def train(
    recipe: Recipe,
    train_tokens: dict[str, np.ndarray],
    valid_tokens: dict[str, np.ndarray],
    about: dict,
    work: Path,
    device: str = "cpu",
    evaluate_every: int = 200,
    checkpoint_seconds: float = 300.0,
    stop_at: int | None = None,
    report: Callable[[float, str], None] = lambda fraction, stage: None,
    made_with: Callable[[Recipe, str], Method | None] = training_method,
) -> tuple[transformers.PreTrainedModel, Method | None]:
    """Train (or continue) in `work`; returns (model in float32, method or None) after the last step
    or after step `stop_at`. `made_with(recipe, device)` gives the method.

    `work/log.jsonl` is that of `take_steps`, with valid bits per byte of every domain on evenly spaced windows of the
    phase's length.
    """
    model = build_model(recipe, about["vocabulary"], about.get("end", 0))
    torch.nn.Module.to(model, device)
    method = made_with(recipe, device)
    parameters = trained(model, method)
    opts = optimisers(parameters, recipe)
    stream = np.concatenate(list(train_tokens.values()))
    shares = {name: part["share"] for name, part in about["domains"].items()}
    counts = {name: len(tokens) for name, tokens in train_tokens.items()}
    rows = plan(recipe.phases(), recipe.tokens_per_step, counts, shares, recipe.seed)

    def take(step: int) -> dict[str, float | None]:
        phase = recipe.phase(step)
        first, _, length = recipe.phases()[phase]
        count = recipe.tokens_per_step // length
        starts = rows[phase][(step - first) * count : (step - first + 1) * count]
        return {"loss": _step(model, method, parameters, opts, recipe, stream, starts, length, step)}

    def evaluate(length: int) -> dict:
        limit, per_pass = max(1, EVALUATED // length), max(1, recipe.tokens_per_pass // length)
        bits = bits_by_domain(model, valid_tokens, about, length, limit, per_pass)
        return {f"valid_{name}": value for name, value in bits.items()}

    # The kernels of focal attention are dense attention of other queries; Focus' gate needs none.
    kernels = recipe.attention.startswith("focal")
    with apply(model, method, kernels=kernels) if method else contextlib.nullcontext():
        training = model, parameters, opts, recipe, work
        take_steps(*training, take, evaluate, evaluate_every, checkpoint_seconds, stop_at, report)
    return model, method


def take_steps(
    model: transformers.PreTrainedModel,
    parameters: Parameters,
    opts: tuple[Muon | AdamW, torch.optim.AdamW],
    recipe: Recipe,
    work: Path,
    take: Callable[[int], dict[str, float | None]],
    evaluate: Callable[[int], dict],
    evaluate_every: int,
    checkpoint_seconds: float,
    stop_at: int | None,
    report: Callable[[float, str], None],
) -> None:
    """Go on in `work` to the last step of a recipe, or to step `stop_at`: `take(step)` makes one update and gives its
    losses by name, nats per token (None: of nothing), `evaluate(length)` what is logged every `evaluate_every` steps.

    `work/log.jsonl`: one line per 20 steps, the mean losses since the line before. `seconds` leaves pauses out: a step
    that took over five times the usual counts as the usual.
    """
    log, checkpoint = work / LOG, work / "checkpoint.safetensors"
    step, seconds, recipe_fields = 0, 0.0, json.loads(json.dumps(asdict(recipe)))
    if checkpoint.exists():
        step, seconds = load_checkpoint(checkpoint, parameters, opts, recipe_fields)[0].values()
    write_text(log, lines([entry for entry in read_log(work) if entry["step"] <= step]))
    usual: list[float] = []
    losses: list[dict[str, float | None]] = []
    saved = time.monotonic()
    while step < min(recipe.steps, stop_at or recipe.steps):
        began, length = time.monotonic(), recipe.phases()[recipe.phase(step)][2]
        losses.append(take(step))
        step += 1
        last, usual = step == recipe.steps, [*usual[-30:], time.monotonic() - began]
        middle = statistics.median(usual)
        # A pause of the machine is no training.
        seconds += min(usual[-1], 5 * middle)
        entry: dict[str, Any] = {"step": step, "tokens": recipe.seen(step), "seconds": round(seconds, 1)}
        if step % 20 == 0 or last:
            entry |= {"length": length, "rate": recipe.rate(step - 1)}
            for name in losses[0]:
                values = [loss for of_step in losses if (loss := of_step[name]) is not None]
                entry |= {name: round(statistics.mean(values), 4)} if values else {}
            losses = []
        if step % evaluate_every == 0 or last:
            model.eval()
            entry |= evaluate(length)
            model.train()
        # Steps at which nothing was measured are no entry of the log.
        if len(entry) > 3:
            append(log, lines([entry]))
            left = middle * (recipe.steps - step) / 60
            report(recipe.seen(step) / recipe.seen(recipe.steps), f"{json.dumps(entry)} about {left:.0f} minutes left")
        if time.monotonic() - saved > checkpoint_seconds or last or step == stop_at:
            save_checkpoint(checkpoint, parameters, opts, recipe_fields, step=step, seconds=seconds)
            saved = time.monotonic()


def _step(
    model: transformers.PreTrainedModel,
    method: Method | None,
    parameters: Parameters,
    opts: tuple[Muon | AdamW, torch.optim.AdamW],
    recipe: Recipe,
    stream: np.ndarray,
    starts: np.ndarray,
    length: int,
    step: int,
) -> float:
    """One update on the rows of `length` tokens that begin at `starts`; the mean loss in nats per token."""
    # A control of the groups draws them anew for every text.
    begin = getattr(method, "begin", lambda *turn: None)
    for opt, peak in zip(opts, (recipe.matrix_rate, recipe.other_rate), strict=True):
        opt.param_groups[0]["lr"] = peak * recipe.rate(step)
        opt.zero_grad(set_to_none=True)
    loss, per_pass = 0.0, max(1, recipe.tokens_per_pass // length)
    device = next(model.parameters()).device
    for first_row in range(0, len(starts), per_pass):
        places = starts[first_row : first_row + per_pass, None] + np.arange(length + 1)
        ids = torch.from_numpy(stream[places].astype(np.int64)).to(device)  # [B, T + 1]
        begin(step + 1, first_row)
        part = token_losses(model, ids, opts[0].products).mean() * (len(ids) / len(starts))
        part.backward()
        loss += part.item()
    if not math.isfinite(loss):
        peaks = recipe.matrix_rate, recipe.other_rate
        raise BadSetting(f"The loss is no number at step {step:,}; lower the rates, now {peaks}.")
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    for opt in opts:
        opt.step()
    return loss
