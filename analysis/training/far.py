"""Training of a model that reads far: Llama without query-key norm, begun from a model that knows the language, with
random tokens that repeat (until heads look back) and recall documents mixed into the text.

Warm-up, then one constant rate, then a fall to 0 (warm-up, stable, decay; Hu et al. 2024, Haegele et al. 2024): the
stable part has no planned end, so a shippable model can be branched off from any checkpoint of it (`branch`), and the
run itself goes on.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from analysis.arithmetic import quick
from analysis.errors import BadSetting
from analysis.files import append, write_text, write_whole
from analysis.training.asked import AFTER, PREVIOUS, Asked, asked_loss
from analysis.training.blocked import blocked
from analysis.training.checkpoints import LOG, lines, load_checkpoint, read_log, save_checkpoint
from analysis.training.far_rows import Rows
from analysis.training.pretrain import Recipe, build_model, optimisers, trained
from analysis.training.recall import Source


class Phase(NamedTuple):
    """A part of the training: `upto` this token of the run (None: to its end), the `length` of a sequence and the
    `tokens` of a step, the shares of rows that are `recall` documents and random tokens that come again (`repeats`),
    the `rate` as a factor of the peak rates, and the weight in the loss of what heads are `asked` for on repeats."""

    upto: int | None
    length: int
    tokens: int
    recall: float
    repeats: float = 0.0
    rate: float = 1.0
    asked: float = 0.0


# Text without repeats took the heads that look back away again within 0.4 M tokens, so a few rows stay repeats.
PHASES = (
    Phase(1_000_000, 256, 2048, 0.2, 0.5, 0.6, 1.0),
    Phase(3_000_000, 512, 4096, 0.25, 0.2, 0.8, 1.0),
    Phase(6_000_000, 1024, 8192, 0.25, 0.08, 1.0, 1.0),
    Phase(None, 2048, 8192, 0.25, 0.03, 1.0, 1.0),
)
# Of the heads that the run begins with, one reads the token before in half of its weight; the others did little.
ASKED = (Asked(2, 4, PREVIOUS), Asked(3, 6, AFTER), Asked(4, 4, AFTER), Asked(5, 0, AFTER), Asked(5, 4, AFTER))
FADES = 0.5  # from this part of the falling rate on, recall documents have their last share
# Read on with by a model that is done: half of the rows ask it to look back, most of them among pairs and labels. Its
# bits per byte end where they began, and it finds more (`docs/log.md`).
MORE = (Phase(800_000, 1024, 8192, 0.5, 0.02, 0.5, 1.0), Phase(None, 2048, 8192, 0.5, 0.02, 0.5, 1.0))
MORE_OF = {"loops": 0.02, "copies": 0.1, "facts": 0.2, "pairs": 0.35, "labels": 0.2, "code": 0.08, "register": 0.05}


@dataclass(frozen=True)
class FarRecipe(Recipe):
    """Everything that decides the weights. `tokens` in all; the last `decay` of them at a falling rate, with
    `last_share` recall rows at its end. `read_before`: tokens that the weights it begins with have read (0: it begins
    with none), `natural_before` those of them that were natural text (None: all), `told_before` how they were read.
    `kinds`: share of each kind of recall document (empty: the usual ones)."""

    family: str = "llama_plain"
    tokens_per_pass: int = 1024
    matrix_rate: float = 0.005
    other_rate: float = 0.0016
    tokens: int = 100_000_000
    decay: int = 10_000_000
    answer_weight: float = 2.0
    last_share: float = 0.1
    read_before: int = 0
    natural_before: int | None = None
    told_before: str = ""
    kinds: tuple[tuple[str, float], ...] = ()
    marks: tuple[Phase, ...] = PHASES
    heads_asked: tuple[Asked, ...] = ASKED

    def __post_init__(self):
        if not 0 < self.decay < self.tokens:
            raise BadSetting(f"The rate falls over fewer tokens than there are, not {self.decay:,}/{self.tokens:,}.")
        object.__setattr__(self, "marks", tuple(Phase(*mark) for mark in self.marks))
        object.__setattr__(self, "heads_asked", tuple(Asked(*one) for one in self.heads_asked))
        object.__setattr__(self, "kinds", tuple((name, share) for name, share in self.kinds))
        for part in self.marks:
            made = part.recall + part.repeats
            asked_of_text = part.asked and not part.repeats
            if part.tokens % part.length or part.length > self.context or not 0 <= made <= 1 or asked_of_text:
                raise BadSetting(f"This phase cannot be trained: {part}.")
        object.__setattr__(self, "steps", self.phases()[-1][1])
        super().__post_init__()

    def phases(self) -> list[tuple[int, int, int, int]]:
        """(first step, end step, sequence length, tokens of a step)."""
        made, first, seen = [], 0, 0
        for upto, length, size, *_ in self.marks:
            end = first + max(0, (self.tokens if upto is None else min(upto, self.tokens)) - seen) // size
            if end > first:
                made.append((first, end, length, size))
            seen += (end - first) * size
            first = end
        return made

    def told(self) -> str:
        """How it was trained, for the model card."""
        parts = [
            f"to {self.seen(end) / 1e6:.1f} M tokens of length {length:,} in steps of {size:,}, "
            + ("all repeats" if mark.repeats == 1 else f"{mark.recall:.0%} recall rows")
            + (f", {mark.repeats:.0%} repeats" if 0 < mark.repeats < 1 else "")
            + (f" at {mark.rate:g} times the rates" if mark.rate != 1 else "")
            + (f", heads asked for their keys with weight {mark.asked:g}" if mark.asked else "")
            for (_, end, length, size), mark in zip(self.phases(), self.marks, strict=False)
        ]
        fall = (
            f"Constant rates, then over the last {self.decay / 1e6:.1f} M tokens a fall to 0 (1 - sqrt), in its second "
            f"half with {self.last_share:.0%} recall rows."
        )
        if self.told_before:
            named = ", ".join(f"{share:.0%} were {name}" for name, share in self.kinds)
            begun = f"{self.told_before} Then, {self.read_before / 1e6:.1f} M tokens in all, it read on "
            return f"{begun}{'; '.join(parts)}.{f' Of the recall rows {named}.' if named else ''} {fall}"
        begun = (
            f"The first {self.read_before / 1e6:.1f} M tokens with normed queries and keys (`analysis.training.run`); "
            "then gains and usual lengths went into the projections (`analysis.training.unnormed`), and it read on "
            if self.read_before
            else ""
        )
        return (
            f"{begun}{'; '.join(parts)}. Recall rows are generated texts whose answers stand far before in the same "
            "text (copies, facts, lists of pairs, labels, code, a register; repeats are random tokens that come again),"
            " every name and value drawn anew; their answers "
            f"weigh {self.answer_weight:g} in the loss. {fall} A row lies in one document."
        )

    def natural(self) -> int:
        """Tokens of natural text that the weights have read in the end, as expected from the shares."""
        ends = np.diff([self.seen(step) for step in range(self.steps + 1)])
        before = self.read_before if self.natural_before is None else self.natural_before
        return before + round(sum(size * (1 - sum(self.shares(step))) for step, size in enumerate(ends)))

    def phase(self, step: int) -> int:
        """The phase of a step."""
        return next(n for n, (_, end, _, _) in enumerate(self.phases()) if step < end)

    def seen(self, step: int) -> int:
        """Tokens read after `step` steps."""
        return sum((min(step, end) - first) * size for first, end, _, size in self.phases() if step > first)

    def falling(self, step: int) -> float:
        """How much of the last part is done at the start of a step: 0 before it, to 1."""
        return max(0.0, (self.seen(step) - (self.tokens - self.decay)) / self.decay)

    def rate(self, step: int) -> float:
        """Factor of the peak rates: linear warm-up, that of the phase, in the end 1 - sqrt to 0."""
        warm = min(1.0, (step + 1) / self.warm_up)
        return warm * self.marks[self.phase(step)].rate * (1 - math.sqrt(min(1.0, self.falling(step))))

    def shares(self, step: int) -> tuple[float, float]:
        """Shares of the rows of a step that are recall documents and repeats."""
        part = self.marks[self.phase(step)]
        return self.last_share if self.falling(step) >= FADES else part.recall, part.repeats


def weighted_loss(
    model,
    ids: torch.Tensor,
    weights: torch.Tensor,
    asked: float = 0.0,
    periods: dict[int, int] | None = None,
    heads: tuple[Asked, ...] = (),
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss to descend, nats of each token [B, T]): ids [B, T + 1], weights [B, T].

    With a weight `asked`, what `heads` are asked for on the rows {row: period} that repeat is part of the loss, so much
    of it as there are such rows.
    """
    extra, rows = 0.0, list(periods or ()) if asked else []
    with quick(ids.device):
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
):
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
    step, seconds, made = 0, 0.0, json.loads(json.dumps(asdict(recipe)))
    if checkpoint.exists():
        step, seconds = load_checkpoint(checkpoint, parameters, opts, made)[0].values()
    kept = [entry for entry in read_log(work) if entry["step"] <= step]
    write_text(log, lines(kept))
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
            save_checkpoint(checkpoint, parameters, opts, made, step=step, seconds=seconds)
            saved = time.monotonic()
        if past:
            keep(checkpoint, work / "kept" / f"{past[-1]}.safetensors")
    return model


def one_step(model, parameters: dict, opts: tuple, recipe: FarRecipe, rows: Rows, step: int, device: str) -> dict:
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
        loss, each = weighted_loss(model, some, weights, part.asked, periods, recipe.heads_asked)
        (loss * (len(some) / len(ids))).backward()
        nats.append(each.float().cpu().numpy())
    nats, answer = np.concatenate(nats), answer[:, 1:]
    if not np.isfinite(nats).all():
        raise BadSetting(f"The loss is no number at step {step:,}; lower the rates.")
    torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
    for opt in opts:
        opt.step()
    known = answer & ~repeats[:, None]
    parts = {"loss": nats[~recall & ~repeats], "recall": nats[recall], "answers": nats[known]}
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
    made = replace(recipe, tokens=recipe.seen(step) + decay, decay=decay)
    work = Path(work)
    work.mkdir(parents=True, exist_ok=True)
    with write_whole(work / "checkpoint.safetensors") as place:
        save_file(tensors, place, notes | {"recipe": json.dumps(asdict(made))})
    return made
