"""Training of a model that reads far: Llama without query-key norm, begun from a model that knows the language, with
random tokens that repeat (until heads look back) and recall documents mixed into the text.

Warm-up, then one constant rate, then a fall to 0 (warm-up, stable, decay; Hu et al. 2024, Haegele et al. 2024): the
stable part has no planned end, so a shippable model can be branched off from any checkpoint of it (`branch`), and the
run itself goes on.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from analysis.errors import BadSetting
from analysis.files import append, write_text, write_whole
from analysis.models.arithmetic import quick
from analysis.training.checkpoints import LOG, lines, load_checkpoint, read_log, save_checkpoint
from analysis.training.pretrain import build_model, optimisers, trained
from lab.far.asked import Asked, asked_loss
from lab.far.blocked import blocked
from lab.far.recall import Source
from lab.far.recipe import FarRecipe
from lab.far.rows import Rows


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
    extra, rows = 0.0, list(periods or ()) if asked else []
    with quick(ids.device, products):
        read = model(input_ids=ids[:, :-1], use_cache=False, output_hidden_states=bool(rows))
        if rows:
            hidden = tuple(one[rows] for one in read.hidden_states)
            extra = asked * len(rows) / len(ids) * asked_loss(model, hidden, [periods[row] for row in rows], heads)
    logits = read.logits.float().flatten(0, 1)  # [B * T, V]
    nats = F.cross_entropy(logits, ids[:, 1:].flatten(), reduction="none").view(weights.shape)
    return (nats * weights).mean() + extra, nats.detach()


def train_far(
    recipe: FarRecipe,
    source: Source,
    about: dict,
    work: Path,
    device: str = "cpu",
    start: torch.nn.Module | None = None,
    evaluate: Callable[[object, int, int], dict] = lambda model, step, length: {},
    evaluate_every: int = 200,
    checkpoint_seconds: float = 240.0,
    keep_at: tuple[int, ...] = (),
    stop_at: int | None = None,
    report: Callable[[float, str], None] = lambda fraction, stage: None,
) -> PreTrainedModel:
    """Train (or continue) in `work`; returns the float32 model after the last step or after step `stop_at`.

    `about` is what `mixture.build` returned; `start` a model of the same shape whose weights it begins with;
    `evaluate(model, step, length)` gives what is logged every `evaluate_every` steps; the checkpoint after each number
    of tokens in `keep_at` is kept as well, `kept/<step>`.
    """
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    model = build_model(recipe, about["vocabulary"]).to(device)
    if start is not None:
        model.load_state_dict(start.state_dict())
    parameters = trained(model, None)
    opts = optimisers(parameters, recipe)
    log, checkpoint = work / LOG, work / "checkpoint.safetensors"
    step, seconds, stored_recipe = 0, 0.0, json.loads(json.dumps(asdict(recipe)))
    if checkpoint.exists():
        step, seconds = load_checkpoint(checkpoint, parameters, opts, stored_recipe)[0].values()
    entries = [entry for entry in read_log(work) if entry["step"] <= step]
    write_text(log, lines(entries))
    rows = Rows(recipe, source, {name: part["share"] for name, part in about["domains"].items()})
    losses, usual, saved = [], [], time.monotonic()
    while step < min(recipe.steps, stop_at or recipe.steps):
        began = time.monotonic()
        with blocked(model):
            losses.append(one_step(model, parameters, opts, recipe, rows, step, device))
        step += 1
        usual = [*usual[-30:], time.monotonic() - began]
        seconds += min(usual[-1], 5 * statistics.median(usual))
        entry = {"step": step, "tokens": recipe.seen(step), "seconds": round(seconds, 1)}
        length = recipe.phases()[recipe.phase(step - 1)][2]
        if step % 20 == 0 or step == recipe.steps:
            part = {name: [one[name] for one in losses if one[name] is not None] for name in losses[0]}
            part = {name: round(statistics.mean(values), 4) for name, values in part.items() if values}
            entry |= {"length": length, "rate": round(recipe.rate(step - 1), 4)} | part
            losses = []
        if step % evaluate_every == 0 or step == recipe.steps:
            model.eval()
            entry |= evaluate(model, step, length)
            model.train()
        if len(entry) > 3:
            append(log, lines([entry]))
            report(recipe.seen(step) / recipe.tokens, json.dumps(entry))
        past = [mark for mark in keep_at if recipe.seen(step - 1) < mark <= recipe.seen(step)]
        if past or time.monotonic() - saved > checkpoint_seconds or step in (recipe.steps, stop_at):
            save_checkpoint(checkpoint, parameters, opts, stored_recipe, step=step, seconds=seconds)
            saved = time.monotonic()
        if past:
            keep(checkpoint, work / "kept" / f"{past[-1]}.safetensors")
    return model


def one_step(
    model: PreTrainedModel, parameters: dict, opts: tuple, recipe: FarRecipe, rows: Rows, step: int, device: str
) -> dict:
    """One update; nats per token of natural text (`loss`), of recall documents, of their answers, and of the second
    copies of repeats (None: none)."""
    for opt, peak in zip(opts, (recipe.matrix_rate, recipe.other_rate), strict=True):
        opt.param_groups[0]["lr"] = peak * recipe.rate(step)
        opt.zero_grad(set_to_none=True)
    ids, answer, recall, repeats = rows.batch(step)
    per_pass = max(1, recipe.tokens_per_pass // (ids.shape[1] - 1))
    part, nats = recipe.marks[recipe.phase(step)], []
    for at in range(0, len(ids), per_pass):
        some = torch.from_numpy(ids[at : at + per_pass]).to(device)
        weights = 1 + (recipe.answer_weight - 1) * torch.from_numpy(answer[at : at + per_pass, 1:]).to(device)
        second = answer[at : at + per_pass].argmax(1)  # its first token is no answer
        periods = {int(row): int(second[row]) - 1 for row in np.flatnonzero(repeats[at : at + per_pass])}
        loss, of_tokens = weighted_loss(model, some, weights, part.asked, periods, recipe.heads_asked, opts[0].products)
        (loss * (len(some) / len(ids))).backward()
        nats.append(of_tokens.float().cpu().numpy())
    nats, answer = np.concatenate(nats), answer[:, 1:]
    if not np.isfinite(nats).all():
        raise BadSetting(f"The loss is no number at step {step:,}; lower the rates.")
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    for opt in opts:
        opt.step()
    answers = answer & ~repeats[:, None]
    parts = {"loss": nats[~recall & ~repeats], "recall": nats[recall], "answers": nats[answers]}
    parts["repeats"] = nats[answer & repeats[:, None]]
    return {name: float(values.mean()) if values.size else None for name, values in parts.items()}


def keep(checkpoint: Path, place: Path) -> None:
    """A checkpoint that stays: the run replaces its file and does not write into it, so a link is enough."""
    place.parent.mkdir(exist_ok=True)
    with write_whole(place) as draft:
        os.link(checkpoint, draft)


def branch(checkpoint: Path, work: Path, recipe: FarRecipe, decay: int) -> FarRecipe:
    """Begin a run in `work` that goes on from a checkpoint of `recipe` with a rate that falls from here over `decay`
    tokens, and ends; returns its recipe, to be given to `train_far`."""
    with safe_open(checkpoint, "pt") as file:
        notes, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    step = json.loads(notes["about"])["step"]
    branched = replace(recipe, tokens=recipe.seen(step) + decay, decay=decay)
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    with write_whole(work / "checkpoint.safetensors") as place:
        save_file(tensors, place, notes | {"recipe": json.dumps(asdict(branched))})
    return branched
