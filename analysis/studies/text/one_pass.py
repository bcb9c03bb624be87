"""One pass over a text for all pages about it: statistics of all heads, whatever else looks on, queries and keys."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch

from ...models import Model
from ...statistics import HeadReading, Numerics
from ...statistics.reader import Reader, Watch
from ..context import Context, Reading
from .kept import Readings, Tensors
from .states import fits, keep_states

KIND = "statistics of all heads"
# Of a HeadReading.
SUMS = ("sums", "counts", "distance", "own", "own_queries")
# Mass, window, without the first token: what Attention heads opens with.
USUAL = (0.9, 128, False)


def restored(model: Model, options: tuple[float, int, bool], tensors: Tensors | None) -> tuple[HeadReading, Numerics]:
    """The statistics of all heads of a text and how exact their scores are, as `one_pass` kept them, or of nothing yet;
    what is added to them changes nothing kept."""
    numerics = Numerics(model.num_layers, model.layer_numbers)
    about: dict[str, Any] = {"numerics": numerics, "numbers": model.layer_numbers}
    statistics = HeadReading(model.num_layers, model.num_heads, *options, **about)
    if tensors is not None:
        for name in SUMS:
            setattr(statistics, name, tensors[name].numpy().copy())
        numerics.found = tensors["numerics"].numpy().copy()
    return statistics, numerics


def one_pass(
    context: Context,
    model: Model,
    reading: Reading,
    watchers: Sequence[Callable[[int], Watch]] = (),
    enter: Callable[[int, int, torch.Tensor], None] | None = None,
    options: tuple[float, int, bool] = USUAL,
    earlier: tuple[int, Tensors] | None = None,
) -> Tensors:
    """Stream the dense attention of a text, window by window; keeps the statistics of all heads and returns them.
    `earlier`: how many windows were read before, and their statistics: only the others are read.

    `watchers`: `watcher(start)(block, probabilities)` each, for the window that begins at token `start`;
    `enter(start, layer, hidden [T, d])` sees what enters a layer. Queries and keys of the first window stay in memory
    where they fit.
    """
    windows, (skipped, before) = reading.windows, earlier or (0, None)
    statistics, numerics = restored(model, options, before)
    share = 1 / (len(windows) - skipped)
    starts = accumulate(map(len, windows[:-1]), initial=0)
    for index, (ids, start) in enumerate(zip(windows, starts, strict=True)):
        if index < skipped:
            continue
        # Of a part of the text the page says how many windows there are.
        of_all = "" if reading.tokens.shown < reading.tokens.total else f" of {len(windows)}"
        stage, began = f"reading window {index + 1}{of_all}", (index - skipped) * share
        context.progress(began, stage)

        def entered(layer: int, hidden: torch.Tensor, start: int = start) -> None:
            if enter is not None:
                enter(start, layer, hidden)
            # The layers before this one are measured.
            if layer or start:
                table = statistics.table()
                columns = {name: table[name].tolist() for name in table}
                # JSON has no NaN: what was not read yet is null.
                context.show({name: [v if v == v else None for v in values] for name, values in columns.items()})

        keep = index == 0 and fits(model, len(ids))
        reader = Reader(statistics, [watcher(start) for watcher in watchers], entered, keep)
        with context.by_layer(model, began, share, stage):
            statistics.read(model, ids, reader=reader)
        if len(reader.states) == model.num_layers:
            keep_states(context, model, ids, reader.states)
    tensors = {name: torch.from_numpy(getattr(statistics, name)) for name in SUMS}
    tensors["numerics"] = torch.from_numpy(numerics.found)
    return Readings(context, model, windows).keep(KIND, [options], tensors)
