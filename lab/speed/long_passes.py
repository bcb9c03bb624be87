"""Passes over a long text piece by piece, each measured and kept: by windows, by layers, and one head's attention."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from analysis.commands.groups import Pairs
from analysis.commands.heads import Statistics
from analysis.commands.quality import Evaluate
from analysis.corpus import natural_samples, tokenize
from analysis.declaration.command import Command
from analysis.errors import BadSetting
from analysis.files import clear
from analysis.groups.controls import random_tokens
from analysis.kernels import grouped_attention
from analysis.kernels.parts import now
from analysis.kernels.pool import accelerated
from analysis.methods.windows import StreamingLLM
from analysis.models import Model
from analysis.runs.memory import held
from analysis.seam.attention import apply
from analysis.statistics import HeadReading
from analysis.statistics.reader import Reader
from analysis.studies.context import Context, Reading
from analysis.studies.groups.far import far
from analysis.studies.groups.routers import shared_router
from analysis.studies.text.scoring import score
from analysis.timing import clock, exponent, fastest_dense
from analysis.timing.memory import check_memory, peak_bytes

# Of one head's attention, and the tokens that count as near everywhere.
HEAD_DIM, GROUPS, NEAR = 64, 8, 128
STATISTICS, PAIRS, QUALITY = "statistics", "statistics and pairs, by windows", "Quality, by windows"
GROUPED, DENSE = "grouped", "dense"
SHORTEST = 64  # tokens


def measured(work: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """`seconds`, `cpu_seconds` of all threads, peak `bytes` and `process_bytes` of one call.

    Errors: BadSetting where the system does not say."""
    before = torch.get_device_module(device).memory_allocated() if accelerated(device) else None
    before = before or psutil.Process(os.getpid()).memory_info().rss
    took: list[float] = []

    def timed() -> None:
        began, worked = now(), time.process_time()
        work()
        took.extend((now() - began, time.process_time() - worked))

    peak = peak_bytes(timed, device)
    if peak is None:
        raise BadSetting("This system does not say what a process held at its peak: measure on Linux or a GPU.")
    return {"seconds": took[0], "cpu_seconds": took[1], "bytes": peak, "process_bytes": before + peak}


def together(what: str, length: int, window: int, pieces: list[dict], said: int | None) -> dict[str, Any]:
    """One row: the seconds of all pieces, the most bytes of any."""
    times = {key: sum(piece[key] for piece in pieces) for key in ("seconds", "cpu_seconds")}
    sizes = {key: max(piece[key] for piece in pieces) for key in ("bytes", "process_bytes")}
    row = {"what": what, "length": length, "window": window, "fitted": False, **times, **sizes}
    return row | {"said_bytes": said}


@dataclass(frozen=True)
class Passes:
    """What is read how: `part(decides, make)` keeps what `make` measured, `work` is a folder for what waits."""

    sizes: Any
    lm: Model
    context: Context
    work: Path
    part: Callable[[list, Callable[[], dict]], dict]

    @property
    def about(self) -> list:
        """What decides over a pass beside its text."""
        return [self.lm.parameters, str(self.lm.dtype), str(self.lm.device)]

    def reading(self, window: int, windows: int) -> Reading:
        """So many windows of the bundled texts, repeated."""
        text = "\n\n".join(natural_samples().values())
        text *= 1 + 8 * self.sizes.length // len(text)
        return Reading("text", text, tokenize(self.lm.tokenizer, text, window, windows), [])

    def row(self, what: str, command: type[Command], length: int, window: int, pieces: list[dict]) -> dict:
        """A row, with what a page says before that it takes beside the weights."""
        lm = self.lm
        card = {"width": lm.width, "layers": lm.num_layers, "heads": lm.num_heads, "kv_heads": lm.num_kv_heads}
        card |= {"head_dim": lm.head_dim, "inner": lm.inner, "vocabulary": lm.vocabulary, "dtype": str(lm.dtype)[6:]}
        asked = {"window": window} if command.scores else {}
        return together(what, length, window, pieces, held(command, asked, length, card | {"max_positions": window}))


def attention_rows(passes: Passes) -> list[dict]:
    """One head's attention, grouped and dense, at lengths four times the one before."""
    sizes, context = passes.sizes, passes.context
    device = torch.device(context.torch_device())
    rows: list[dict] = []
    kind = torch.bfloat16 if accelerated(device) else torch.float32
    lengths = [sizes.longest >> shift for shift in (6, 4, 2, 0) if sizes.longest >> shift >= SHORTEST]
    for length in sorted({*lengths, min(sizes.dense, sizes.longest)}):
        context.progress(0.0, f"one head's attention over {length:,} tokens")
        check_memory(length, 1, 1, 1, HEAD_DIM, str(device), str(kind)[6:])
        decides = [length, str(kind), str(device), sizes.seed]
        for what in (GROUPED, DENSE):
            if what == GROUPED or length <= sizes.dense:
                piece = passes.part([what, *decides], partial(_attention, what, length, kind, device, sizes.seed))
                rows.append(together(what, length, length, [piece], None))
            else:
                measured_rows = [row for row in rows if row["what"] == DENSE and not row["fitted"]]
                last, fitted = measured_rows[-1], {"length": length, "window": length, "fitted": True}
                for key in ("seconds", "cpu_seconds"):
                    power = exponent([(row["length"], row[key]) for row in measured_rows])
                    fitted[key] = last[key] * (length / last["length"]) ** power
                rows.append(last | fitted | {"bytes": None, "process_bytes": None})
    return rows


@torch.no_grad()
def _attention(what: str, length: int, kind: torch.dtype, device: torch.device, seed: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, 1, length, HEAD_DIM, generator=draw).to(device, kind) for _ in range(3))
    members = random_tokens(length, GROUPS, 1, seed)[None].to(device)

    def attend(tokens: int) -> None:
        query, key, value = (x[:, :, :tokens] for x in (q, k, v))
        if what == GROUPED:
            grouped_attention(query, key, value, members[:, :tokens], NEAR)
        else:
            dense(query, key, value)

    dense = fastest_dense(*(x[:, :, :1024] for x in (q, k, v)))[1]
    # what is compiled once is no part of it
    clock({what: lambda: attend(1024)}, 1)
    return measured(lambda: attend(length), device)


def pairs_rows(passes: Passes) -> list[dict]:
    """Statistics of all heads, what is read from afar and far pairs in one pass, as Start and its pages ask for them:
    each window goes on from what was kept of those before."""
    sizes, lm, context = passes.sizes, passes.lm, passes.context
    count, pieces = sizes.length // sizes.window, []
    router, control = shared_router(context, lm, "k8-top1")
    for windows in range(1, count + 1):
        context.progress(windows / count, f"{PAIRS}, {windows} of {count}")
        reading = passes.reading(sizes.window, windows)
        content = torch.ones(len(reading.tokens), dtype=torch.bool)
        read = partial(far, context, lm, reading, content, router, control, NEAR)
        pieces.append(passes.part([PAIRS, windows, sizes.window, *passes.about], partial(measured, read, lm.device)))
    return [passes.row(PAIRS, Pairs, sizes.length, sizes.window, pieces)]


def quality_rows(passes: Passes) -> list[dict]:
    """What `evaluate` does with a sliding window."""
    sizes, lm, context = passes.sizes, passes.lm, passes.context
    count, pieces = sizes.length // sizes.window, []
    whole = passes.reading(sizes.window, count)
    lists = {one.name: v for one in fields(whole.tokens) if not isinstance(v := getattr(whole.tokens, one.name), int)}
    for place in range(count):
        context.progress(place / count, f"{QUALITY}, {place + 1} of {count}")
        own = {name: v[place * sizes.window :][: sizes.window] for name, v in lists.items()}
        window = replace(whole, tokens=replace(whole.tokens, **own))
        compare = partial(score, context.aside(), lm, f"{place}", window, {"window": StreamingLLM(window=NEAR)})
        decides = [QUALITY, place, sizes.window, *passes.about]
        pieces.append(passes.part(decides, partial(measured, compare, lm.device)))
    return [passes.row(QUALITY, Evaluate, sizes.length, sizes.window, pieces)]


def alone_rows(passes: Passes) -> list[dict]:
    """Statistics of all heads in one window, layer by layer, of the text and of a quarter of it."""
    lm, rows = passes.lm, []
    for tokens in (passes.sizes.length // 4, passes.sizes.length):
        (ids,) = passes.reading(tokens, 1).windows

        def layer(place: int, make: Callable[[], dict], tokens: int = tokens) -> dict:
            passes.context.progress(place / lm.num_layers, f"{tokens:,} tokens, layer {place + 1} of {lm.num_layers}")
            return passes.part([STATISTICS, tokens, place, *passes.about], make)

        rows.append(passes.row(STATISTICS, Statistics, tokens, tokens, [*by_layer(lm, ids, passes.work, layer)]))
    return rows


@torch.no_grad()
def by_layer(
    lm: Model, ids: np.ndarray, folder: Path, part: Callable[[int, Callable[[], dict]], dict]
) -> Iterator[dict]:
    """Statistics of all heads of one window [T], of a layer at a time: what leaves a layer waits in `folder` for the
    next one. Yields what `measured` gives, and the mean `entropy`."""
    body = lm.lm.base_model
    entered = lambda place: folder / f"{len(ids)}-{place}.safetensors"  # noqa: E731
    batch, real = torch.as_tensor(ids).long()[None], torch.ones(1, len(ids), dtype=torch.bool)

    def make(place: int) -> dict:
        if place:
            hidden = load_file(entered(place))["hidden"].to(lm.device)
        else:
            hidden = body.get_input_embeddings()(batch.to(lm.device))
        left: list[torch.Tensor] = []
        reading = HeadReading(1, lm.num_heads, window=NEAR)
        reading.begin(batch, real)

        def run() -> None:
            with one_layer(body, place, left), apply(lm, Reader(reading), kernels=True):
                body(inputs_embeds=hidden, use_cache=False)

        numbers = measured(run, lm.device)
        save_file({"hidden": left[0].cpu().contiguous()}, entered(place + 1))
        return numbers | {"entropy": float(reading.table()["entropy"].mean())}

    for place in range(lm.num_layers):
        yield part(place, partial(make, place))
        clear(entered(place))
    clear(entered(lm.num_layers))


@contextmanager
def one_layer(body: Any, place: int, left: list[torch.Tensor]) -> Iterator[None]:
    """Inside, a model has this layer alone, and `left` receives what leaves it."""
    layers = body.layers
    keep = lambda module, args, output: left.append(output[0] if isinstance(output, tuple) else output)  # noqa: E731
    handle = layers[place].register_forward_hook(keep)
    body.layers = nn.ModuleList([layers[place]])
    try:
        yield
    finally:
        body.layers = layers
        handle.remove()
