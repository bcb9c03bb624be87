"""The scripts of the pages that stand alone, in node, against Python: tokens, logits, losses, far attention."""

import base64
import math
from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import entr, softmax

from analysis import load_model
from analysis.corpus import sample_texts
from analysis.methods import METHODS
from analysis.metrics.budgets import budget_for_reads
from analysis.pages.page import source
from analysis.pages.try_page import held
from analysis.places import CACHE
from analysis.seam.attention import apply
from tests.made.in_node import NEEDS_NODE, by_node

pytestmark = NEEDS_NODE
TEXTS = (
    "Hester's lamp, it'll burn; they've 1234 of 5678.\n\n  Indented\tline \n\r\n x",
    "naïve café — “quoted” … ½ № Ⅳ ٣ 東京 日本語 한국어 עברית हिन्दी 👩‍👩‍👧 😀\ufeff\u0085\u00a0\u2003end\u3000",
    "def f(x):\n    return x ** 2  # square\n\n\nclass A:\n        pass\n" + "a" * 70 + " " * 9 + "!?!?...",
    "one <|endoftext|> two<|endoftext|>",
    "",
)
ASKED = """
const { gunzipSync } = await import("node:zlib")
const f32 = (packed) => new Float32Array(Uint8Array.from(Buffer.from(packed, "base64")).buffer)
const packed = (numbers) => Buffer.from(Float32Array.from(numbers).buffer).toString("base64")
"""


def node(names: tuple[str, ...], script: str, **sent):
    """What a script prints as JSON that stands behind the named ones; `sent` is what it finds as that."""
    return by_node("\n".join(source(f"{name}.js") for name in names) + ASKED + script, sent)


def numbers(packed: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), np.float32).reshape(*shape, -1)


@cache
def model():
    return held(CACHE / "demo")


@pytest.mark.slow
def test_the_tokenizer_is_python_s():
    texts = [*TEXTS, *(text for _, text in sample_texts().values())]
    script = """const tokenizer = new Tokenizer(sent.tokenizer)
      const found = sent.texts.map((text) => tokenizer.encode(text))
      console.log(JSON.stringify(found.map((ids) => ({ ids, pieces: tokenizer.pieces(ids) }))))"""
    answers = node(("tokenizer",), script, tokenizer=model()[0]["tokenizer"], texts=texts)
    tokenizer = load_model().tokenizer
    for text, answer in zip(texts, answers, strict=True):
        assert answer["ids"] == tokenizer(text, add_special_tokens=False).input_ids
        assert "".join(answer["pieces"]) == text


@pytest.mark.slow
def test_the_forward_pass_is_python_s_whole_in_two_parts_and_with_few_keys():
    text, weights = sample_texts()["story"][1][:400], base64.b64encode(model()[1]).decode()
    lm = load_model()
    ids = lm.tokenizer(text).input_ids
    keys = budget_for_reads(np.ones((1, 1)), 0.2, len(ids))
    script = """
      const { config, manifest } = sent.model, bytes = gunzipSync(Buffer.from(sent.weights, "base64"))
      const tensors = weights(bytes, manifest)
      const model = { config, tensors }, stopped = async () => false, { ids } = sent, middle = 41, kept = []
      const all = await forward(model, ids, { wanted: true, stopped })
      const after = (layer, k, v) => { kept[layer] = { k, v } }
      const first = await forward(model, ids, { last: middle, stopped, after })
      const second = await forward(model, ids, { first: middle, stopped, before: async (layer) => kept[layer] })
      const few = await forward(model, ids, { keys: sent.keys, stopped })
      const parts = packed([...first.losses, ...second.losses]), keys = keysFor(0.2, ids.length)
      const [logits, losses, less] = [all.logits, all.losses, few.losses].map(packed)
      console.log(JSON.stringify({ logits, losses, few: less, parts, keys }))"""
    answer = node(("attention", "reading", "forward"), script, model=model()[0], weights=weights, ids=ids, keys=keys)
    with torch.no_grad():
        logits = lm.lm(torch.tensor([ids])).logits[0].float()
    np.testing.assert_allclose(numbers(answer["logits"], len(ids)), logits.numpy(), atol=1e-2)
    losses = -logits.log_softmax(-1)[range(len(ids) - 1), ids[1:]].numpy()
    np.testing.assert_allclose(numbers(answer["losses"])[:], losses, atol=1e-3)
    np.testing.assert_allclose(numbers(answer["parts"]), losses, atol=1e-3)
    assert answer["keys"] == keys
    with torch.no_grad(), apply(lm, METHODS["oracle_topk"](k=keys)):
        sparse = lm.lm(torch.tensor([ids])).logits[0].float()
    few = -sparse.log_softmax(-1)[range(len(ids) - 1), ids[1:]].numpy()
    np.testing.assert_allclose(numbers(answer["few"]), few, atol=1e-3)
    assert not math.isclose(few.mean(), losses.mean(), abs_tol=1e-2)


HEADS, LENGTH, SIZE, DISTANCE = 4, 30, 8, 7
COUNTS = [30, 9, 4]
SHAPES = [(None, None), (2.0, None), (None, 12), (None, None)]  # soft cap and window of each head


def attention(queries, keys, t: float) -> np.ndarray:
    """float64 [H, T, T] from the definition."""
    back = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    rows = []
    for head, (cap, window) in enumerate(SHAPES):
        scores = queries[head] @ keys[head // 2].T * 0.3 / t
        scores = scores if cap is None else cap * np.tanh(scores / cap)
        scores = np.where((back < 0) | (back >= (window or LENGTH)), -np.inf, scores)
        rows.append(softmax(scores, -1))
    return np.stack(rows)


def of_best(p: np.ndarray, count: int) -> np.ndarray:
    """What lies among the `count` largest of each row."""
    smallest = np.sort(p, -1)[..., -count, None]
    return np.where(p >= smallest, p, 0)


@pytest.mark.parametrize("t", [1.0, 0.4])
def test_what_is_read_from_afar_is_that_of_the_definitions(t):
    random = np.random.default_rng(1)
    queries, keys = random.normal(size=(HEADS, LENGTH, SIZE)), random.normal(size=(2, LENGTH, SIZE))
    queries, keys = (array.astype(np.float16).astype(np.float64) for array in (queries, keys))
    heads = [
        {"name": f"0.{head}", "size": SIZE, "q": head * LENGTH * SIZE, "k": head // 2 * LENGTH * SIZE, "scaling": 0.3}
        | {"cap": SHAPES[head][0], "window": SHAPES[head][1]}
        for head in range(HEADS)
    ]
    script = """
      const read = { ...sent.read, queries: f32(sent.queries), keys: f32(sent.keys) }
      const counts = sent.counts, of = (chosen) => ({ chosen, found: summary(read, chosen, sent.t, counts, counts[1]) })
      const { links, ...found } = merged(read, [of([0, 2]), of([1, 3])], counts.length)
      const list = ([name, some]) => [name, Array.from(some)]
      const plain = (all) => Object.fromEntries(Object.entries(all).map(list))
      const { first, weights } = rowOf(read, read.heads[2], 25, sent.t, 5)
      const row = { first, weights: Array.from(weights) }
      console.log(JSON.stringify({ ...plain(found), links: plain(links), row }))"""
    packed = {
        name: base64.b64encode(array.astype(np.float32).tobytes()).decode()
        for name, array in (("queries", queries), ("keys", keys))
    }
    read = {"length": LENGTH, "distance": DISTANCE, "heads": heads}
    answer = node(("attention", "reading"), script, read=read, t=t, counts=COUNTS, **packed)
    p = attention(queries, keys, t)
    back = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
    sees = np.stack([back < (window or LENGTH) for _, window in SHAPES])
    far = np.where((back >= DISTANCE) & (np.arange(LENGTH) > 0) & sees, p, 0)
    np.testing.assert_allclose(answer["received"], far.sum((0, 1)), atol=1e-4)
    reach = (far > 0).sum(-1, keepdims=True)
    even = np.where(far > 0, far.sum(-1, keepdims=True) / np.maximum(reach, 1), 0)
    np.testing.assert_allclose(answer["expected"], even.sum((0, 1)), atol=1e-4)
    np.testing.assert_allclose(answer["far"], far.sum((1, 2)) / LENGTH, atol=1e-4)
    np.testing.assert_allclose(answer["entropy"], entr(p).sum(-1).mean(-1), atol=1e-3)
    for step, count in enumerate(COUNTS):
        held_keys = of_best(p, count)
        received = np.where(far > 0, held_keys, 0).sum((0, 1))
        np.testing.assert_allclose(np.reshape(answer["kept"], (3, LENGTH))[step], received, atol=1e-4)
        np.testing.assert_allclose(
            np.reshape(answer["held"], (3, HEADS))[step], held_keys.sum((1, 2)) / LENGTH, atol=1e-4
        )
    few = of_best(p, COUNTS[1])
    few = np.where(far > 0, few / few.sum(-1, keepdims=True), 0)
    best = few.max(0)
    shares, places, givers = (np.reshape(answer["links"][name], (2, LENGTH, 4)) for name in ("share", "place", "head"))
    for side, strongest in enumerate((best, best.T)):
        np.testing.assert_allclose(shares[side], -np.sort(-strongest, -1)[:, :4], atol=1e-4)
        for token in range(LENGTH):
            for share, place, giver in zip(shares[side, token], places[side, token], givers[side, token], strict=True):
                if share:
                    pair = (token, place) if side == 0 else (place, token)
                    assert few[giver][pair] == pytest.approx(share, abs=1e-4)
    row = of_best(p[2, 25], 5)
    weights = np.zeros(LENGTH)
    weights[answer["row"]["first"] :][: len(answer["row"]["weights"])] = answer["row"]["weights"]
    np.testing.assert_allclose(weights, row / row.sum(), atol=1e-4)
