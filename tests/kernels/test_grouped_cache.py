"""Decoding by group: the group-major cache in a model against the masked reference, in every state it can be in."""

import pytest
import torch

from analysis.errors import AnalysisError
from analysis.methods import METHODS
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply, ran
from analysis.seam.cache import GroupedCache, GroupedLayer, GrowingCache, cache_bytes
from analysis.seam.token_memory import TokenMemory
from tests.contract.test_contract import router
from tests.made.tiny import left_padded, tiny, token_ids

Focus = METHODS["focus"]


def stepped(lm, ids, cache, start):
    """Logits of a prompt of `start` tokens and of the others one by one."""
    pieces = [ids[:, :start], *ids[:, start:].split(1, 1)]
    with torch.no_grad():
        return torch.cat([lm(piece, **as_past(lm, cache), use_cache=True).logits for piece in pieces], 1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("options", [{}, {"n_sink": 3}, {"window": 1}, {"window": 100}])
def test_steps_equal_one_masked_pass(batch, options):
    lm, ids, method = tiny("llama"), token_ids(batch, 60), Focus.build(router(6, 2), **options)
    with apply(lm, method), torch.no_grad():
        one_pass = lm(ids, use_cache=False).logits
    with apply(lm, method, kernels=True):
        cache = method.cache(lm)
        assert (stepped(lm, ids, cache, 20) - one_pass).abs().max() < 1e-5
        assert all(isinstance(layer, GroupedLayer) and layer.is_sorted for layer in cache.layers)
        kernels = {entry.kernel for entry in ran(lm) if entry.phase == "decode"}
    stored, read = cache_bytes(cache)
    assert cache.get_seq_length() == 60 and kernels == {"group-major cache"} and 0 < read < stored


def test_more_text_or_another_window_sorts_the_past_anew():
    """A second prompt on the same cache: back to the order of the text, and sorted anew at the next token."""
    lm, ids, method = tiny("qwen3"), token_ids(2, 50), Focus.build(router(), n_sink=2)
    with apply(lm, method), torch.no_grad():
        one_pass = lm(ids, use_cache=False).logits
    with apply(lm, method, kernels=True), torch.no_grad():
        cache = method.cache(lm)
        result = [stepped(lm, ids[:, :30], cache, 20)]
        for rows in (slice(30, 45), slice(45, 46), slice(46, 47), slice(47, 50)):
            result.append(lm(ids[:, rows], **as_past(lm, cache), use_cache=True).logits)
        phases = {(entry.phase, entry.kernel): entry for entry in ran(lm) if entry.layer == 0}
    assert (torch.cat(result, 1) - one_pass).abs().max() < 1e-5
    assert phases["decode", "group-major cache"].calls == 12 and ("continued", "masked blocks") in phases
    layer, members, keys = GroupedLayer(), torch.rand(1, 40, 3) < 0.4, torch.randn(1, 2, 40, 8)
    layer.update(keys, keys)
    layer.sort(members, 4, 0)
    first = layer.held.texts[0]
    layer.sort(members, 4, 0)
    assert layer.held.texts[0] is first
    layer.sort(members, 9, 1)
    assert layer.held.texts[0] is not first and torch.equal(layer.restore()[0], keys)
    layer.reset()
    assert layer.get_seq_length() == 0 and not layer.is_sorted


def test_a_cache_of_another_apply_and_beams_are_refused():
    lm, ids = tiny("llama"), token_ids(1, 40)
    with apply(lm, Focus.build(router()), kernels=True):
        cache = GroupedCache(lm.config)
        stepped(lm, ids, cache, 30)
    with apply(lm, Focus.build(router()), kernels=True), pytest.raises(AnalysisError, match="holds 40 tokens .* saw 0"):
        lm(ids[:, :1], **as_past(lm, cache), use_cache=True)
    lm = tiny("llama")
    with apply(lm, Focus.build(router()), kernels=True), pytest.raises(AnalysisError, match="3 beams"):
        lm.generate(token_ids(1, 8), num_beams=3, max_new_tokens=2)
    with pytest.raises(AnalysisError, match="greedy"):
        GrowingCache(lm.config).layers[0].reorder_cache(torch.tensor([0]))


def test_a_sampled_or_padded_text_is_the_same():
    lm, ids, drawn = tiny("llama"), token_ids(2, 25), []
    for kernels in (False, True):
        with apply(lm, Focus.build(router(6, 2)), kernels=kernels):
            torch.manual_seed(3)
            drawn.append(lm.generate(ids, max_new_tokens=30, do_sample=True, top_k=20, num_return_sequences=2))
    assert torch.equal(*drawn)
    lm, (ids, mask) = tiny("llama"), left_padded(2, 30)
    options = dict(input_ids=ids, attention_mask=mask, max_new_tokens=12, do_sample=False)
    with apply(lm, Focus.build(router())):
        wanted = lm.generate(**options)
    with apply(lm, Focus.build(router()), kernels=True):
        assert torch.equal(lm.generate(**options), wanted)
        assert {(entry.kernel, "padding" in entry.why) for entry in ran(lm)} == {("masked blocks", True)}


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "gemma2"])
def test_the_growing_cache_is_dense_attention(family):
    lm, ids = tiny(family), token_ids(2, 20)
    options = dict(max_new_tokens=20, do_sample=False)
    stock = lm.generate(ids, **options)
    assert torch.equal(lm.generate(ids, **as_past(lm, GrowingCache(lm.config)), **options), stock)


def test_the_memory_grows_in_place_and_starts_anew():
    memory = TokenMemory()
    memory.extend(0, torch.zeros(1, 100, 2), 0)
    memory.extend(0, torch.ones(1, 1, 2), 100)
    place = memory.keys(0, 101).data_ptr()
    for past in range(101, 140):
        memory.extend(0, torch.ones(1, 1, 2), past)
    assert memory.keys(0, 140).data_ptr() == place and memory.keys(0, 140).sum() == 80
    memory.extend(0, torch.full((1, 1, 2), 5.0), 3)
    assert memory.keys(0, 4)[0, :, 0].tolist() == [0, 0, 0, 5]
