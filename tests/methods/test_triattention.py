"""TriAttention as a method: calibrated on a model's own queries, its keys chosen alone or by all layers together."""

import pytest
import torch

import analysis
from analysis.errors import BadModel, BadSetting, NotFitted
from analysis.methods import METHODS
from analysis.methods.evicting import evict
from analysis.models import load_model
from analysis.routers.preferences import query_statistics
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import keys_held, most_bytes
from tests.made.passes import logits, seen
from tests.made.tiny import LAYERS, tiny, token_ids

TriAttention = METHODS["triattention"]


def fitted(lm, **settings):
    fit = TriAttention().fit(load_model(lm), token_ids(2, 48, seed=5)).fitted
    return TriAttention.build(fit, **settings)


def z_scores(lm, ids):
    """[L][H, L]: the exported score of keys before their rotation, to mean 0 and deviation 1, by its parts."""
    statistics = query_statistics(load_model(lm), list(token_ids(2, 48, seed=5).numpy()))
    prompts, rows = seen(lm, ids).prompts, []
    for layer, about in enumerate(statistics.frequencies):
        key = about.pairs(prompts[layer].key[0])  # rotated
        places = torch.arange(ids.shape[1])
        back = key * torch.polar(torch.ones(1).double(), -(places[:, None] * about.rates)) / about.factor
        halves = torch.cat([back.real, back.imag], -1)
        about_queries = statistics.mean[layer], statistics.size[layer]
        scores = analysis.triattention_scores(
            *about_queries, halves, places, ids.shape[1], about.rates, scale=about.factor
        )
        rows.append((scores - scores.mean(-1, keepdim=True)) / scores.std(-1, keepdim=True, correction=0))
    return rows


@pytest.mark.parametrize("family", ["llama", "gpt_neox", "qwen3"])
def test_each_head_keeps_what_the_exported_score_says(family):
    lm, ids = tiny(family), token_ids(1, 40)
    for group in ("max", "mean"):
        method = fitted(lm, ratio=0.7, group=group)
        logits(lm, ids, method)
        for layer, z in enumerate(z_scores(lm, ids)):
            kv_heads = method.kept_[layer].shape[1]
            grouped = z.unflatten(0, (kv_heads, -1))
            wanted = evict((grouped.amax(1) if group == "max" else grouped.mean(1)).float()[None], 0.7)
            assert torch.equal(method.kept_[layer], wanted)


def test_layers_that_choose_together_keep_the_same_tokens_and_free_the_rest():
    lm, ids = tiny("llama"), token_ids(1, 40)
    z = torch.stack(z_scores(lm, ids)).unflatten(1, (2, 2)).float()  # [L, G, H / G, T]
    for share, wanted in (("per_head", z.amax(2).mean(0)), ("union", z.amax((0, 1, 2)).expand(2, -1))):
        method = fitted(lm, ratio=0.7, share=share)
        with apply(lm, method, kernels=True), torch.no_grad():
            cache = method.cache(lm)
            first = lm(ids, **as_past(lm, cache), use_cache=True).logits
            assert keys_held(cache) == int(40 * 0.3) and most_bytes(cache) > 0
            later = lm(ids[:, :3], **as_past(lm, cache), use_cache=True).logits
        assert all(torch.equal(method.kept_[layer], evict(wanted[None], 0.7)) for layer in range(LAYERS))
        assert torch.allclose(first, logits(lm, ids), atol=1e-4), "the prompt reads itself densely"
        # a cache that frees nothing: what was dropped is masked
        with apply(lm, method), torch.no_grad():
            plain = lm(ids, use_cache=True).past_key_values
            masked = lm(ids[:, :3], past_key_values=plain, use_cache=True).logits
        assert torch.allclose(later, masked, atol=1e-4)
        with pytest.raises(BadSetting, match="a call of its own"):
            logits(lm, ids, fitted(lm, share=share, cut=20))


def test_what_it_cannot_run_on_is_refused():
    lm = tiny("llama")
    with pytest.raises(NotFitted, match="fit-method triattention"), apply(lm, TriAttention()):
        pass
    with pytest.raises(BadModel, match="no rotary positions"), apply(tiny("gpt2"), fitted(lm)):
        pass
    with pytest.raises(BadSetting, match="fit it on this model"), apply(tiny("gpt_neox"), fitted(load_other())):
        pass


def load_other():
    from transformers import AutoModelForCausalLM, LlamaConfig

    from tests.made.tiny import GROUPED

    return AutoModelForCausalLM.from_config(LlamaConfig(**GROUPED, head_dim=16), attn_implementation="eager").eval()
