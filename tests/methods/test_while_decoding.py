"""Cuts to a budget while text is written on: which keys leave, by the definitions, and tokens as under a mask."""

import math
from dataclasses import replace

import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import load_model
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import cache_bytes
from analysis.seam.held import NEVER
from tests.made.passes import logits, seen
from tests.made.tiny import BY_KIND, LAYERS, left_padded, tiny, token_ids
from tests.methods.test_evicting import built as of_short_texts

NAMES = ("h2o", "snapkv", "tova", "keydiff", "expected_attention", "triattention", "kvzap", "ada_kv", "pyramid_kv")
PROMPT, NEW, BUDGET, EVERY = 20, 17, 12, 4
CUT = {"budget": BUDGET, "every": EVERY}


def built(name, **settings):
    return of_short_texts(name, **CUT | settings)


class Masked(Method):
    """Dense attention over what had not left when a token read, of what each layer lost."""

    def __init__(self, left):
        super().__init__()
        self.left = left

    def mask(self, block):
        if block.layer not in self.left:
            return None
        left = self.left[block.layer]
        readable = torch.ones(*left.shape[:2], len(block.rows), len(block.columns), dtype=torch.bool)
        for row, place in enumerate(block.rows.tolist()):
            covered = min(left.shape[2], len(block.columns))
            readable[:, :, row, :covered] = left[:, :, :covered] > place
        return readable.repeat_interleave(block.sharing, 1)


def written(lm, method, ids, new=NEW, kernels=True, **inputs):
    """Greedy tokens after a prompt, and what had left by the end."""
    with apply(lm, method, kernels=kernels), torch.no_grad():
        out = lm.generate(ids, max_new_tokens=new, do_sample=False, eos_token_id=None, **inputs)
    return out, dict(method.left_)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_a_dense_model_masked_by_what_left(name, kernels):
    lm, ids = tiny("llama"), token_ids(2, PROMPT)
    out, left = written(lm, built(name), ids, kernels=kernels)
    assert any((left_at != NEVER)[:, :, PROMPT:].any() for left_at in left.values()), "new tokens leave too"
    wanted = logits(lm, out, Masked(left))[:, PROMPT - 1 : -1].argmax(-1)
    assert torch.equal(out[:, PROMPT:], wanted)
    assert not torch.equal(out, written(lm, METHODS["tova"](ratio=0.0), ids)[0]), "the mask changes something"


@pytest.mark.parametrize("family", BY_KIND)
@pytest.mark.parametrize("name", ["snapkv", "expected_attention"])
def test_one_pass_chooses_as_decoding_does(name, family):
    """The same keys leave in one pass over the whole text, in steps, in pieces, and through the compacted cache."""
    lm, ids = tiny(family), token_ids(2, PROMPT)
    out, left = written(lm, built(name), ids)
    again = built(name, cut=PROMPT)
    with apply(lm, again), torch.no_grad():
        lm(out[:, :-1], use_cache=False)
    pieces = built(name)
    with apply(lm, pieces, kernels=True), torch.no_grad():
        cache = pieces.cache(lm)
        for part in (out[:, :PROMPT], out[:, PROMPT : PROMPT + 11], out[:, PROMPT + 11 : -1]):
            last = lm(part, **as_past(lm, cache), use_cache=True).logits[:, -1]
    assert last.argmax(-1).tolist() == out[:, -1].tolist()
    for layer, left_at in left.items():
        for other_way in (again, pieces):
            left_too = other_way.left_[layer]
            assert torch.equal(left_too[:, :, : left_at.shape[2]], left_at)
            assert (left_too[:, :, left_at.shape[2] :] == NEVER).all()


@pytest.mark.parametrize("name", ["h2o", "expected_attention", "tova"])
def test_padding_begins_no_text(name):
    lm, (ids, mask) = tiny("llama"), left_padded(2, PROMPT)
    inputs = {"attention_mask": mask}
    out, left = written(lm, built(name), ids, **inputs)
    alone, left_alone = written(lm, built(name), ids[1:, 5:])
    assert torch.equal(out[1:, 5:], alone)
    for layer, left_at in left_alone.items():
        left_padded_at = left[layer][1:, :, 5:]
        assert torch.equal(torch.where(left_padded_at == NEVER, NEVER, left_padded_at - 5), left_at)


def softmax(scores):
    high = max(scores)
    shares = [math.exp(score - high) for score in scores]
    return [share / sum(shares) for share in shares]


def weights(queries, keys, places_of, group, rows):
    """[row][place] -> weight of each query head, over what its head holds."""
    weights_of = []
    for head, query in enumerate(queries):
        places = places_of[head // group]
        per_row = []
        for row in rows:
            read = [place for place in places if place <= row]
            shares = softmax(
                [float(query[row] @ keys[head // group, place]) / len(query[row]) ** 0.5 for place in read]
            )
            per_row.append(dict(zip(read, shares, strict=True)))
        weights_of.append(per_row)
    return weights_of


def by_hand(name, queries, keys, prompt, total, window=3, protected=False):
    """[G] -> {place: at}, from the definitions alone: states [H, T, D] and [G, T, D] of the whole text."""
    kv_heads, group = len(keys), len(queries) // len(keys)
    places_of, left = [list(range(prompt)) for _ in keys], [{} for _ in keys]
    for now in range(prompt, total + 1, EVERY):
        if now > prompt:
            places_of = [places + list(range(now - EVERY, now)) for places in places_of]
        first = now == prompt
        if first and protected:
            continue
        rows = {"h2o": range(0 if first else now - EVERY, now), "snapkv": range(now - window, now)}
        read = weights(queries, keys, places_of, group, rows.get(name, range(now - 1, now)))
        for head in range(kv_heads):
            places, shared = places_of[head], read[head * group : (head + 1) * group]
            if name == "h2o":
                score = {p: sum(row.get(p, 0) for per_row in shared for row in per_row) / group for p in places}
            elif name == "tova":
                score = {p: sum(per_row[-1].get(p, 0) for per_row in read) / len(read) for p in places}
                score[now - 1] = math.inf
            elif name == "snapkv":
                before = places[: len(places) - window]
                mean = [sum(row.get(p, 0) for per_row in shared for row in per_row) / window / group for p in before]
                score = {p: sum(mean[max(0, i - 2) : i + 3]) / 5 for i, p in enumerate(before)}
                score |= dict.fromkeys(places[len(places) - window :], 2.0)
            else:
                units = torch.stack([keys[head, p] / keys[head, p].norm() for p in places])
                mean = units.mean(0)
                score = {p: -float(unit @ mean) / float(mean.norm()) for p, unit in zip(places, units, strict=True)}
            stay = set(range(prompt)) if protected else set()
            free = [p for p in places if p not in stay]
            if name == "h2o":
                stay |= set(free[len(free) - BUDGET // 2 :])
            best = sorted([p for p in free if p not in stay], key=lambda p: (score[p], p), reverse=True)
            stay |= set(best[: BUDGET - len(stay & set(free))])
            left[head] |= {p: now for p in places if p not in stay}
            places_of[head] = [p for p in places if p in stay]
    return left


@pytest.mark.parametrize("protected", [False, True])
@pytest.mark.parametrize("name", ["h2o", "snapkv", "tova", "keydiff"])
def test_what_leaves_by_the_definitions(name, protected):
    lm, ids, total = tiny("llama"), token_ids(1, PROMPT + NEW), PROMPT + NEW

    class Watched(METHODS[name]):
        def encode_tokens(self, layer, query, key, past, module, tables):
            states[layer] = query[0].double(), key[0].double()

    states = {}
    settings = {"window": 3} if name == "snapkv" else {}
    method = Watched(**CUT, cut=PROMPT, prompt_keys="protected" if protected else "counted", **settings)
    logits(lm, ids, method)
    for layer, (queries, keys) in states.items():
        wanted = by_hand(name, queries, keys, PROMPT, total, protected=protected)
        for head, gone in enumerate(wanted):
            left_at = method.left_[layer][0, head]
            assert {int(p): int(left_at[p]) for p in (left_at != NEVER).nonzero()[:, 0]} == gone


def test_bytes_are_counted_and_a_head_never_holds_more_than_budget_and_stretch():
    lm, ids = tiny("llama"), token_ids(1, PROMPT)
    of_key = 2 * 8 * 4
    # of all heads and layers, in kilobytes of 1,024 bytes
    in_bytes = built("h2o", budget=5, unit="kilobytes")
    for method, capacity in ((built("h2o"), BUDGET), (in_bytes, 5 * 1024 // (LAYERS * 2 * of_key))):
        with apply(lm, method, kernels=True), torch.no_grad():
            cache, token = method.cache(lm), ids
            for _ in range(NEW):
                token = lm(token, **as_past(lm, cache), use_cache=True).logits[:, -1:].argmax(-1)
                counts = {float(layer.held.counts.max()) for layer in cache.layers}
                assert counts == {float(capacity + (cache.get_seq_length() - PROMPT) % EVERY)}
                assert cache_bytes(cache)[0] == LAYERS * 2 * (capacity + EVERY) * of_key, "room for a stretch"
                assert method.remembered_bytes == LAYERS * 2 * EVERY * (4 * 8 + 2 * 8) * 4, "queries and two tables"


def test_without_a_budget_all_is_as_before_and_a_key_can_be_put_back():
    lm, ids = tiny("llama"), token_ids(1, PROMPT)
    dense = lm.generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    for method in (built("snapkv", budget=4096), METHODS["snapkv"](ratio=0.0, window=3)):
        assert torch.equal(written(lm, method, ids)[0], dense)
    _, left = written(lm, built("tova"), ids)
    place = int((left[1][0, 1] == PROMPT).nonzero()[0, 0])
    _, again = written(lm, replace(built("tova"), put_back=(1, 1, place)), ids)
    assert again[1][0, 1, place] == NEVER and again[1][0, 0, place] == PROMPT
    remaining = [(left_of[1][0] == NEVER).sum(-1).tolist() for left_of in (left, again)]
    assert remaining[0] == remaining[1], "another key leaves in its place"


@pytest.mark.parametrize(
    ("name", "settings", "why"),
    [
        ("snapkv", {"storage": "int4"}, "choose storage full"),
        ("triattention", {"share": "union"}, "each head keep its own"),
        ("ada_kv", {"score": "kvzip_plus"}, "choose another score"),
    ],
)
def test_what_cannot_be_cut_again_is_refused(name, settings, why):
    with pytest.raises(BadSetting, match=why):
        built(name, **settings).check(tiny("llama"))
    with pytest.raises(BadSetting, match="holds no key of each head"):
        built("tova", budget=1, unit="kilobytes").check(load_model("demo").lm)
    assert seen(tiny("llama"), token_ids(1, 4)).prompts[0].places is None


def test_a_head_that_holds_less_is_scored_by_what_it_holds():
    """TriAttention's scores have mean 0 and deviation 1 over the keys that are there."""
    lm = tiny("llama")
    method = built("triattention")
    method.check(lm)
    prompt = seen(lm, token_ids(1, 10)).prompts[0]
    short = torch.arange(10).expand(1, 2, -1).clone()
    short[:, 0, :4] = -1
    scores = method.key_scores(replace(prompt, places=short, now=10))
    alone = replace(prompt, key=prompt.key[:, :, 4:], places=short[..., 4:], now=10)
    assert torch.allclose(scores[0, 0, 4:], method.key_scores(alone)[0, 0], atol=1e-6)
    assert torch.equal(scores[0, 1], method.key_scores(prompt)[0, 1])
