"""The numbers of attention.js, which live pictures draw, against Python's on the same rounded queries and keys."""

import numpy as np
import pytest
from scipy.special import entr, softmax

from app.ui.packed import halves
from app.ui.painted import PARTS
from tests.made.in_node import NEEDS_NODE, by_node

HEADS, LENGTH, SIZE, SCALING = 4, 40, 16, 0.3
SCRIPT = """
const queries = floats(sent.queries), keys = floats(sent.keys), { size, length, scaling } = sent
const answers = sent.asked.map(({ head, query, t, cap, window }) => {
  const first = firstKey(query, window), group = Math.floor(head / 2)
  const row = scores(queries, (head * length + query) * size, keys, group * length * size, size, scaling, first, query)
  const weights = softmax(row, t, cap)
  return { first, weights: [...weights], ...sharpness(row, t, cap), top: topKeys(weights, 3, first) }
})
console.log(JSON.stringify(answers))
"""
ASKED = [
    {"head": head, "query": query, "t": t, "cap": cap, "window": window}
    for head, query, cap, window in ((0, 39, None, None), (1, 0, None, None), (3, 25, 2.0, None), (2, 30, None, 8))
    for t in (0.1, 0.4, 1.0, 2.0)
]


def by_python(queries, keys, head, query, t, cap, window) -> tuple[int, np.ndarray]:
    """(first visible key, weights) in float64."""
    first = 0 if window is None else max(0, query - window + 1)
    row = keys[head // 2, first : query + 1] @ queries[head, query] * SCALING / t
    row = row if cap is None else cap * np.tanh(row / cap)
    return first, softmax(row)


@NEEDS_NODE
def test_every_number_is_python_s_on_the_same_rounded_queries_and_keys():
    random = np.random.default_rng(0)
    queries = random.normal(scale=2, size=(HEADS, LENGTH, SIZE)).astype(np.float16)
    keys = random.normal(scale=2, size=(HEADS // 2, LENGTH, SIZE)).astype(np.float16)
    keys[0, 0, :4] = (6e-8, -6e-5, 65504, 0)  # the smallest of float16, one without a leading 1, the largest
    sent = {"queries": halves(queries), "keys": halves(keys), "asked": ASKED}
    sent |= {"size": SIZE, "length": LENGTH, "scaling": SCALING}
    program = (PARTS / "attention.js").read_text() + SCRIPT
    for case, answer in zip(ASKED, by_node(program, sent), strict=True):
        first, weights = by_python(queries.astype(float), keys.astype(float), **case)
        entropy = entr(weights).sum()
        assert answer["first"] == first
        np.testing.assert_allclose(answer["weights"], weights, atol=1e-5)
        wanted = [entropy, np.exp(entropy), weights.max()]
        assert [answer[name] for name in ("entropy", "support", "largest")] == pytest.approx(wanted, abs=1e-3)
        keys_of_top, shares = zip(*answer["top"], strict=True)
        assert shares == pytest.approx(np.sort(weights)[::-1][:3], abs=1e-5)
        assert weights[np.array(keys_of_top) - first] == pytest.approx(shares, abs=1e-5)
