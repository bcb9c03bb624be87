"""What the streamed statistics of every head should be, from tables that are fully made, in float64."""

import math

import numpy as np
import pytest
import torch

from analysis.models import load_model
from analysis.statistics import CORE, MORE, HeadReading

ALL = (*CORE, *MORE)


def few(seed=0, batch=2, length=48):
    """Tokens of which many come again."""
    return torch.randint(3, 12, (batch, length), generator=torch.Generator().manual_seed(seed))


def one_row(p, query, first, real, ids, window, visible, sink):
    """The numbers of one query, from its probabilities over all keys (those of `visible`)."""
    keys = np.flatnonzero(visible)
    order, total, rank = sorted(p[keys], reverse=True), 0.0, 0
    while total < 0.9 * (1 - 1e-7) and rank < len(order):
        total, rank = total + order[rank], rank + 1
    follow = [
        j for j in range(1, query) if real[j - 1] and real[j] and ids[j - 1] == ids[query] and visible_key(j, first)
    ]
    far = [p[j] for j in keys if query - j >= window and j != sink]
    return {
        "entropy": -sum(x * math.log(x) for x in p[keys] if x > 0),
        "max_prob": max(p[keys]),
        "top_p_rank": rank,
        "window_mass": sum(p[j] for j in keys if query - j < window),
        "mean_distance": sum(p[j] * (query - j) for j in keys),
        "previous_token": p[query - 1] if query > first else math.nan,
        "induction": sum(p[j] for j in follow) if follow else math.nan,
        "far_peaks": sum(sorted(far)[-4:]) - min(4, len(far)) / len(keys) if far else math.nan,
    }


def visible_key(j, first):
    return j >= first


def materialised(lm, ids, mask=None, window=5, without_first=False):
    """What HeadReading collects, from the stock model's tables: means, distance."""
    real = torch.ones_like(ids).bool() if mask is None else mask.bool()
    padding = {} if mask is None else {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}
    with torch.no_grad():
        tables = lm(ids, output_attentions=True, use_cache=False, **padding).attentions
    # layers that are no softmax attention have none; compressed entries stand behind the tokens, and they and a learned
    # sink take a part of each row
    length = ids.shape[1]
    tables = [x[..., :length] for x in tables if x is not None and x.shape[-2] == length <= x.shape[-1]]
    tables = [table / table.sum(-1, keepdim=True).clamp(min=1e-30) for table in tables]
    # an indexer of the model's own hides other keys from other heads
    alike = not any(word in name for name in vars(lm.config.get_text_config()) for word in ("index_", "sparse_"))
    return measured(tables, ids, real, window, without_first, alike)


def measured(tables, ids, real=None, window=5, without_first=False, alike=False):
    """Means and distances of tables [B, H, T, T] whose rows sum to 1; `real` bool [B, T] where no padding is; `alike`:
    all heads of a layer see the same keys."""
    real = torch.ones_like(ids).bool() if real is None else real
    heads, length = tables[0].shape[1], ids.shape[1]
    rows = {name: [[[] for _ in range(heads)] for _ in tables] for name in ALL}
    distance = np.zeros((len(tables), heads, 32))
    counts = 0
    for text in range(len(ids)):
        first = int(real[text].int().argmax())
        for layer, table in enumerate(tables):
            for head in range(heads):
                for query in range(length):
                    if not real[text, query]:
                        continue
                    p = table[text, head, query].double().numpy().copy()
                    # read by no head: a sharp one gives keys that it sees exactly nothing
                    is_read = (table[text, :, query] > 0).any(0).numpy() if alike else p > 0
                    visible = is_read & real[text].numpy() & (np.arange(length) <= query)
                    rows["first_token_mass"][layer][head].append(p[first])
                    start = first
                    if without_first:
                        visible[first], start = False, first + 1
                        if not visible.any():
                            continue
                        p[first] = 0.0
                        p /= p.sum()
                    values = one_row(p, query, start, real[text].numpy(), ids[text].numpy(), window, visible, first)
                    for name, value in values.items():
                        rows[name][layer][head].append(value)
                    counts += layer == head == 0
                    for j in np.flatnonzero(visible):
                        distance[layer, head, (query - j).item().bit_length()] += p[j]
    means = {name: np.array([[np.nanmean(v) if v else np.nan for v in row] for row in of]) for name, of in rows.items()}
    return means, distance / counts


def read(lm, ids, mask=None, window=5, **options):
    model = load_model(lm)
    reading = HeadReading(model.num_layers, model.num_heads, window=window, **options)
    reading.read(model, ids, mask)
    return reading


def agree(reading, truth):
    means, distance = truth
    table = reading.table()
    layers, heads = distance.shape[:2]
    assert table[["layer", "head"]].values.tolist() == [list(place) for place in np.ndindex(layers, heads)]
    for name in ALL:
        np.testing.assert_allclose(table[name], means[name].ravel(), atol=1e-4, err_msg=name)
    bins = reading.distances()
    for row in bins.itertuples():
        assert (row.low, row.high) == (0, 1) or row.high == 2 * row.low
        assert row.mass == pytest.approx(distance[row.layer, row.head, row.low.bit_length()], abs=1e-5)
    assert bins["mass"].sum() == pytest.approx(layers * heads, abs=1e-3) == bins["uniform"].sum()
