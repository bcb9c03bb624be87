"""Heads as the data folder of HeadVis (Luger, Kamath et al. 2026), by the contract of its `data_pipeline.py` at
github.com/anthropics/headvis: `config.json`, `scatter_data.json`, `heads/L{layer}H{head}.json`; without its clouds of
vectors, which it does without."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...corpus import Tokens, tokenize
from ...files import write_text
from ...models import Model
from ...seam.attention import Block
from ...statistics import HeadReading
from ...statistics.reader import Reader
from ..context import Context

# Tokens of a sequence, sequences in all, and their tenths by the largest attention.
LENGTH, SEQUENCES, INTERVALS = 256, 40, 10
# Of a query, the keys that are written, from this attention on.
KEYS, LEAST = 8, 0.005
EDGES = [0, *(2**power for power in range(9))]
TOKENS, DIGITS = 50, 4
METRICS = {  # our statistic -> its axis in HeadVis, what it is
    "previous_token": ("previous_token_score", "mean attention to the token right before"),
    "induction": ("induction_score", "mean attention to tokens that follow earlier copies of the query's token"),
    "entropy": ("pattern_entropy", "mean entropy of a query's attention, nats"),
    "mean_distance": ("qk_distance", "mean tokens back, weighted by attention"),
    "max_prob": ("max_prob", "mean of a query's largest attention"),
    "top_p_rank": ("top_p_rank", "mean number of keys that hold 90% of the attention"),
    "first_token_mass": ("first_token_mass", "mean attention to the first token"),
    "far_peaks": ("far_peaks", "attention to the four strongest keys 128 or more tokens back, above chance"),
}
Cell = tuple[int, int]


class _Sequence:
    """What each head reads in one sequence: `pairs` (query * length + key, attention) of its strongest keys, `most`:
    its largest attention beside that to the token itself and to the first."""

    def __init__(self, tokens: Tokens, span: slice) -> None:
        self.pieces, self.ids, self.length = tokens.pieces[span], tokens.ids[span], span.stop - span.start
        self.pairs: dict[Cell, list[tuple[np.ndarray, np.ndarray]]] = {}
        self.most: Counter[Cell] = Counter()

    def watch(self, block: Block, probabilities: Tensor) -> None:
        """Add a block of probabilities [1, H, n, m]."""
        rows, columns = block.rows[:, None], block.columns
        best, place = probabilities[0].topk(min(KEYS, len(columns)))  # [H, n, k]
        flat = (rows * self.length + columns[place]).cpu().numpy()
        others = probabilities[0].masked_fill((rows == columns) | (columns == 0), 0.0)
        for head, (most, values) in enumerate(zip(others.amax((1, 2)).tolist(), best.cpu().numpy(), strict=True)):
            cell, strong = (block.layer, head), values >= LEAST
            self.pairs.setdefault(cell, []).append((flat[head][strong], values[strong]))
            self.most[cell] = max(self.most[cell], most)

    def written(self, cell: Cell, number: int, interval: int) -> dict[str, Any]:
        """As HeadVis reads it."""
        indices, values = (np.concatenate(parts) for parts in zip(*self.pairs[cell], strict=True))
        return {
            "sequence_id": number,
            "interval": interval,
            "tokens": self.pieces,
            "attention_indices": indices.tolist(),
            "attention_values": [_rounded(value) for value in values],
            "seq_len": self.length,
            "max_activation": _rounded(self.most[cell]),
        }


def write_headvis(
    folder: Path, lm: Model, texts: list[str], cells: list[Cell], about: dict, *, context: Context
) -> None:
    """Write the folder of these heads [(layer, head)], from sequences drawn evenly from the texts; `about`: what stands
    in its config as the origin of the numbers."""
    tokens = [tokenize(lm.tokenizer, text, min(LENGTH, lm.max_positions)) for text in texts]
    spans = [(each, slice(*span)) for each in tokens for span in each.spans if span[1] - span[0] > 1]
    drawn = np.linspace(0, len(spans) - 1, min(SEQUENCES, len(spans))).astype(int)
    sequences = [_Sequence(*spans[place]) for place in drawn]
    reading = HeadReading(lm.num_layers, lm.num_heads, numbers=lm.layer_numbers)
    for number, sequence in enumerate(sequences):
        context.progress(number / len(sequences), "sequences for HeadVis")
        reading.read(lm, torch.from_numpy(sequence.ids), reader=Reader(reading, [sequence.watch]))
    (folder / "heads").mkdir(parents=True)
    (folder / "attributions").mkdir()
    places = {number: place for place, number in enumerate(lm.layer_numbers)}
    intervals = min(INTERVALS, len(sequences))
    for layer, head in cells:
        content = _of_head(sequences, (places[layer], head), intervals)
        _write(folder / "heads" / f"L{layer}H{head}.json", content)
    table = reading.table().set_index(["layer", "head"]).loc[cells]
    # A statistic that some head has no value of is no axis.
    axes = {name: METRICS[name] for name in METRICS if table[name].notna().all()}
    rows = table[[*axes]].round(DIGITS).rename(columns={name: axis for name, (axis, _) in axes.items()})
    _write(folder / "scatter_data.json", rows.reset_index().to_dict("records"))
    for name in ("server_config", "attributions/manifest"):
        _write(folder / f"{name}.json", {})
    config = {
        "model_name": lm.name,
        "heads": cells,
        "n_layers": lm.num_layers,
        "n_heads": lm.num_heads,
        "n_intervals": intervals,
        "metrics": [axis for axis, _ in axes.values()],
        "metric_descriptions": dict(axes.values()),
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"}],
        "custom_tables": [{"key": f"top_{side}_tokens", "label": f"Top {side} tokens"} for side in ("query", "key")],
        "statistics_display": {"mean_max_activation": {"label": "Mean max activation", "format": "default"}},
        "pipeline_config": about | {"sequences": len(sequences), "sequence_length": LENGTH, "keys_of_a_query": KEYS},
    }
    _write(folder / "config.json", config)


def _of_head(sequences: list[_Sequence], cell: Cell, intervals: int) -> dict[str, Any]:
    most = np.array([sequence.most[cell] for sequence in sequences])
    tenths = np.empty(len(most), int)
    tenths[np.argsort(most, kind="stable")] = np.arange(len(most)) * intervals // len(most) + 1
    listed = [one.written(cell, number, int(tenths[number])) for number, one in enumerate(sequences)]
    sides: dict[str, Counter[str]] = {"query": Counter(), "key": Counter()}
    distances: list[int] = []
    for sequence in listed:
        for index, value in zip(sequence["attention_indices"], sequence["attention_values"], strict=True):
            query, key = divmod(index, sequence["seq_len"])
            distances.append(query - key)
            sides["query"][sequence["tokens"][query]] += value
            sides["key"][sequence["tokens"][key]] += value
    return {
        "sequences": listed,
        "qk_distance_histogram": _histogram(distances, EDGES),
        **{
            f"top_{side}_tokens": [
                {"token": token, "weight": _rounded(weight / weights.total())}
                for token, weight in weights.most_common(TOKENS)
            ]
            for side, weights in sides.items()
        },
        "histogram": _histogram(most, [round(0.1 * tenth, 1) for tenth in range(11)]),
        "statistics": {"mean_max_activation": _rounded(most.mean())},
    }


def _histogram(values: Any, edges: list) -> dict[str, list]:
    return {"bin_edges": edges, "bin_values": np.histogram(values, edges)[0].tolist()}


def _rounded(value: Any) -> float:
    return round(float(value), DIGITS)


def _write(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n")
