"""The KV cache, the mask and the hidden states are told apart by type: another name for them changes no number."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache

from analysis.errors import BadModel
from analysis.methods import METHODS
from analysis.seam.arguments import Entering, as_past, past_of
from analysis.seam.attention import apply, ran
from analysis.seam.cache import CompactLayer, GroupedLayer, GrowingLayer
from analysis.seam.cache_checks import check_keys
from analysis.seam.layers import has_attention
from analysis.seam.read_on import read_on
from analysis.timing.inference import next_token
from tests.contract.test_contract import AllKeys, router
from tests.made.families import small
from tests.made.renamed import greedy, renamed
from tests.made.tiny import FAMILIES, tiny, token_ids

METHODS_OF_ALL_CACHES = {
    "dense": METHODS["dense"],
    "masked": AllKeys,
    "grouped": lambda: METHODS["focus"].build(router(), window=8),
    "compacted": lambda: METHODS["snapkv"](ratio=0.5, window=3),
}


def stepped(lm, ids, count: int, cache) -> list[int]:
    """Greedy tokens through the model's forward."""
    token, tokens = next_token(lm, ids, cache), []
    for _ in range(count - 1):
        tokens.append(int(token))
        token = next_token(lm, token, cache)
    return [*tokens, int(token)]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS_OF_ALL_CACHES)
@pytest.mark.parametrize("kernels", [False, True])
def test_a_renamed_cache_argument_changes_no_token(method, kernels, tmp_path):
    usual, renamed_lm, ids = tiny("llama"), renamed(tmp_path), token_ids(1, 40)
    make = METHODS_OF_ALL_CACHES[method]
    assert as_past(renamed_lm, None) == {"memory": None} != as_past(usual, None)
    with torch.no_grad(), apply(usual, make(), kernels=kernels):
        wanted = greedy(usual, ids, 12)
        phases = {(layer_run.phase, layer_run.kernel) for layer_run in ran(usual)}
    with torch.no_grad(), apply(renamed_lm, make(), kernels=kernels) as lm:
        assert greedy(lm, ids, 12) == wanted
        assert {(layer_run.phase, layer_run.kernel) for layer_run in ran(lm)} == phases
    with torch.no_grad(), apply(renamed_lm, make(), kernels=kernels) as lm:
        cache = (kernels and make().cache(lm)) or DynamicCache(config=lm.config)
        assert stepped(lm, ids, 12, cache) == wanted
        first = lm(ids, use_cache=True)
        assert isinstance(past_of(first), Cache) and past_of(first).get_seq_length() == 40


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_how_it_takes_its_cache(family):
    lm, ids = tiny(family), token_ids(1, 20)
    (name,) = as_past(lm, None)
    with torch.no_grad():
        returned = lm(ids, use_cache=True)
        one_pass = lm(token_ids(1, 21), use_cache=False).logits[:, -1]
        last = lm(token_ids(1, 21)[:, 20:], **as_past(lm, past_of(returned)), use_cache=True).logits[:, -1]
    assert past_of(returned) is returned[name] and (one_pass - last).abs().max() < 1e-4


def stateful():
    """A small model whose state of a text stands in its modules."""
    lm = small("recurrent_gemma")
    if not has_attention(lm):
        pytest.skip("the attention of this transformers' RecurrentGemma cannot be followed, and it is refused")
    return lm


@pytest.mark.parametrize("family", ["llama", "recurrent_gemma"])
@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_text_is_read_on_twice_from_one_place_with_several_tokens(family, cut):
    """Also where the state of a text stands in the modules, after another text, which is forgotten."""
    lm = tiny(family) if family == "llama" else stateful()
    ids = token_ids(1, 40)
    with torch.no_grad():
        one_pass = lm(ids, use_cache=False).logits
        for method in (None, METHODS["dense"](), AllKeys()):
            with apply(lm, method) if method else nullcontext():
                read_on(lm, token_ids(1, 5, seed=5))
                first, cache = read_on(lm, ids[:, :cut])
                for rows_kept in (0, 3):
                    after, longer = read_on(lm, ids[:, cut:], copy.deepcopy(cache), logits_to_keep=rows_kept)
                    near = dict(atol=1e-6 * float(one_pass.abs().max()), rtol=0)
                    torch.testing.assert_close(after, one_pass[:, cut:][:, -rows_kept:], **near)
                    assert longer.get_seq_length() == 40
            torch.testing.assert_close(first, one_pass[:, :cut], **near)


def test_texts_of_one_and_of_several_tokens_in_a_model_that_keeps_its_state():
    lm, ids = stateful(), token_ids(1, 40)
    with torch.no_grad(), apply(lm, METHODS["dense"]()):
        _, cache = read_on(lm, ids[:, :30])
        with pytest.raises(BadModel, match="token by token"):
            lm(ids[:, 30:], **as_past(lm, cache), use_cache=True)
    lm = stateful()
    with torch.no_grad(), apply(lm, METHODS["dense"]()):
        wanted = lm.generate(token_ids(1, 1), max_new_tokens=6, do_sample=False, eos_token_id=None)
        lm.generate(token_ids(1, 30), max_new_tokens=6, do_sample=False, eos_token_id=None)
        again = lm.generate(token_ids(1, 1), max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert torch.equal(wanted, again)


def test_a_wrapper_that_takes_anything_hands_the_cache_on():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, *args, **kwargs):
            return self.inner(*args, **kwargs)

    assert as_past(Wrapper(tiny("llama")), None) == as_past(tiny("llama"), None)
    with pytest.raises(BadModel, match="takes no KV cache"):
        as_past(nn.Linear(2, 2), None)


def test_an_adapter_around_a_model_runs_as_the_model():
    peft = pytest.importorskip("peft")
    base = copy.deepcopy(tiny("llama"))
    wrapped = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")).eval()
    ids = token_ids(1, 24)
    with torch.no_grad(), apply(tiny("llama"), AllKeys()) as lm:
        wanted = stepped(lm, ids, 8, DynamicCache(config=lm.config))
    with torch.no_grad(), apply(wrapped, AllKeys()) as lm:  # an adapter that was not trained changes nothing
        assert stepped(lm, ids, 8, DynamicCache(config=lm.config)) == wanted


def test_what_enters_is_told_apart_by_type_in_any_order():
    hidden, mask, tables = torch.zeros(2, 5, 8), torch.ones(2, 1, 5, 5), (torch.zeros(1, 5, 4), torch.zeros(1, 5, 4))
    cache, places = DynamicCache(), torch.arange(5)[None]
    for args, kwargs in (
        ((hidden,), dict(a=tables, b=mask, c=cache, d=places)),
        ((), dict(d=places, c=cache, a=tables, b=mask, x=hidden)),
        ((hidden, tables, mask, cache), {}),
    ):
        entering = Entering.of(args, kwargs)
        assert entering.hidden is hidden and entering.mask is mask and entering.tables is tables
        assert entering.cache is cache
    assert Entering.of((hidden,), {"use_cache": False}) == Entering(hidden, None, None, None)


def test_keys_of_a_cache_that_cannot_be_seen_are_refused(monkeypatch):
    """Older keys would be taken for the free room of a static cache."""
    lm, ids = tiny("llama"), token_ids(1, 20)
    with torch.no_grad():
        past = past_of(lm(ids, use_cache=True))
    monkeypatch.setattr("analysis.seam.arguments._is_cache", lambda value: False)
    for method in (METHODS["dense"](), AllKeys()):
        with pytest.raises(BadModel, match="21 keys for a text of 1 tokens"), torch.no_grad(), apply(lm, method):
            lm(ids[:, :1], **as_past(lm, copy.deepcopy(past)), use_cache=True)


def test_keys_of_a_cache_are_checked_and_its_length_has_two_names():
    dynamic = DynamicCache()
    dynamic.update(torch.zeros(1, 1, 4, 2), torch.zeros(1, 1, 4, 2), 0)
    with pytest.raises(BadModel, match="others were dropped"):
        check_keys(dynamic.layers[0], 6, 4)
    check_keys(dynamic.layers[0], 6, 6)
    for layer in (GroupedLayer(), CompactLayer()):
        check_keys(layer, 6, 1)
    with pytest.raises(BadModel):
        check_keys(GrowingLayer(), 6, 1)
    for kind in (GrowingLayer, GroupedLayer, CompactLayer):
        assert kind().get_max_length() == kind().get_max_cache_shape() == -1
