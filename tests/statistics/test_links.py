"""The strongest far links of every token, streamed by blocks, against whole tables of attention."""

import numpy as np
import pytest
import torch

from analysis.seam.attention import Block
from analysis.statistics import FarLinks
from analysis.statistics.links import MOST

LAYERS, HEADS, WINDOWS = 3, 2, (40, 23)


def tables(seed: int) -> list[list[torch.Tensor]]:
    """Causal attention [H, t, t] of each window in each layer."""
    draw = torch.Generator().manual_seed(seed)
    windows = []
    for size in WINDOWS:
        scores = torch.randn(LAYERS, HEADS, size, size, generator=draw) * 3
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        windows.append(list(torch.softmax(scores.masked_fill(future, -torch.inf), -1)))
    return windows


def streamed(attention, min_distance: int, size: int) -> FarLinks:
    links, start = FarLinks(sum(WINDOWS), HEADS, min_distance), 0
    for window in attention:
        for layer, table in enumerate(window):
            for rows in torch.arange(table.shape[1]).split(size):
                reach = int(rows[-1]) + 1
                attention_rows, columns = table[None, :, rows, :reach], torch.arange(reach)
                visible = (columns <= rows[:, None])[None, None]
                block = Block(layer, attention_rows, visible, rows, columns, torch.zeros(1, dtype=torch.long))
                links.window(start)(block, attention_rows)
        start += window[0].shape[1]
    return links


def strongest(attention, min_distance: int) -> list[list[list[tuple]]]:
    """[reads, readers][token] -> the MOST strongest (share, place, head), each place once."""
    best_links: list[list[dict]] = [[{} for _ in range(sum(WINDOWS))] for _ in range(2)]
    start = 0
    for window in attention:
        for layer, table in enumerate(window):
            for head, query, key in np.ndindex(*table.shape):
                if key and query - key >= min_distance:
                    link = (float(table[head, query, key]), layer * HEADS + head)
                    for side, near_end, far_end in ((0, query, key), (1, key, query)):
                        links = best_links[side][start + near_end]
                        links[start + far_end] = max(link, links.get(start + far_end, (0.0, 0)))
        start += window[0].shape[1]
    order = lambda links: sorted(((share, place, head) for place, (share, head) in links.items()), reverse=True)  # noqa: E731
    return [[order(links)[:MOST] for links in side] for side in best_links]


@pytest.mark.parametrize("seed, min_distance, size", [(0, 5, 7), (1, 1, 64), (2, 16, 3)])
def test_links_are_those_of_the_whole_tables(seed, min_distance, size):
    attention = tables(seed)
    links = streamed(attention, min_distance, size)
    for side, tokens in enumerate(strongest(attention, min_distance)):
        for token, wanted in enumerate(tokens):
            got = links.place[side, token].tolist()
            assert got == [place for _, place, _ in wanted] + [-1] * (MOST - len(wanted))
            assert links.head[side, token, : len(wanted)].tolist() == [head for *_, head in wanted]
            shares = links.share[side, token, : len(wanted)].tolist()
            assert shares == pytest.approx([share for share, *_ in wanted])
