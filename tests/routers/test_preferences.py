"""TriAttention's score against its formula written out, and the queries it is calibrated on against the projections."""

import cmath
import math

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, CohereConfig, Glm4Config, LlamaConfig

import analysis
from analysis.errors import BadModel, BadSetting
from analysis.models import load_model
from analysis.routers.preferences import OFFSETS, query_statistics
from tests.made.tiny import GROUPED, tiny, token_ids


def written_out(mean, size, keys, positions, now, rates, offsets, scale):
    """The formula of the paper by loops, one key of one head at a time."""
    heads, half = mean.shape
    scores = torch.empty(heads, keys.shape[1], dtype=torch.float64)
    for h in range(heads):
        for place, key in enumerate(keys[h * len(keys) // heads].double()):
            far, near = 0.0, 0.0
            for f in range(half):
                q, k = complex(mean[h, f]), complex(float(key[f]), float(key[f + half]))
                delta = cmath.phase(q * k.conjugate())
                for o in offsets:
                    angle = (now - int(positions[place]) + o) * float(rates[f]) + delta
                    far += abs(q) * abs(k) * math.cos(angle) / len(offsets)
                near += (float(size[h, f]) - abs(q)) * abs(k)
            scores[h, place] = scale**2 * (far + near)
    return scores


def drawn(heads=4, kv_heads=2, length=11, size=8, dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    mean = torch.view_as_complex(torch.randn(heads, size // 2, 2, generator=draw, dtype=torch.float64))
    spread = torch.rand(heads, size // 2, generator=draw, dtype=torch.float64)
    keys = torch.randn(kv_heads, length, size, generator=draw, dtype=torch.float64).to(dtype)
    return mean, mean.abs() + spread, keys


@pytest.mark.parametrize("offsets, scale", [(None, 1.0), ((1, 3), 1.2), (range(1, 4), 0.5)])
def test_scores_are_the_formula_written_out(offsets, scale):
    mean, size, keys = drawn(dtype=torch.float32)
    rates = 1.0 / 10_000 ** (torch.arange(4, dtype=torch.float64) / 4)
    positions = torch.arange(11) * 977 + 30_000
    scores = analysis.triattention_scores(mean, size, keys, positions, 60_000, rates.float(), offsets, scale)
    wanted = written_out(mean, size, keys, positions, 60_000, rates.float(), tuple(offsets or OFFSETS), scale)
    assert scores.shape == (4, 11) and scores.dtype == torch.float64
    assert ((scores - wanted).abs() / wanted.abs()).max() < 1e-6


def test_an_example_that_can_be_redone_on_paper():
    """One frequency of a quarter turn a token; E q = 3 and E|q| = 5; keys 1 and i at positions 0 and 1, `now` 2.

    Each gets (5 - 3) * 1 for its length. With an offset of 1 the key 1 is 3 quarter turns back, 3 cos(270) = 0, and the
    key i 2 turns back and itself one ahead, 3 cos(180 - 90) = 0. With an offset of 2: 3 cos(360) and 3 cos(270 - 90).
    """
    mean, size = torch.tensor([[3.0 + 0j]]), torch.tensor([[5.0]])
    keys, places, rate = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), torch.arange(2), torch.tensor([math.pi / 2])
    for offset, wanted in ((1, [2.0, 2.0]), (2, [5.0, -1.0])):
        scores = analysis.triattention_scores(mean, size, keys, places, 2, rate, [offset])
        assert scores[0].tolist() == pytest.approx(wanted, abs=1e-6)


def test_what_does_not_fit_or_does_not_rotate_is_refused():
    mean, size, keys = drawn()
    for part in ((mean[:3], size[:3]), (mean[:, :2], size[:, :2])):
        with pytest.raises(BadSetting, match="do not belong together"):
            analysis.triattention_scores(*part, keys, torch.arange(11), 11, torch.ones(4))
    with pytest.raises(BadSetting, match="at least one offset"):
        analysis.triattention_scores(mean, size, keys, torch.arange(11), 11, torch.ones(4), [])
    with pytest.raises(BadModel, match="no rotary positions"):
        query_statistics(load_model(tiny("gpt2")), [token_ids(1, 8)[0].numpy()])


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "rope_theta": 10_000.0, "original_max_position_embeddings": 64}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED = {
    "yarn": lambda: LlamaConfig(**GROUPED, rope_parameters=YARN),
    "llama3": lambda: LlamaConfig(**GROUPED, rope_parameters=LLAMA3),
    "cohere, interleaved": lambda: CohereConfig(**GROUPED),
    "glm4, interleaved and partial": lambda: Glm4Config(**GROUPED, head_dim=8, attention_bias=False),
}


def random_model(name):
    if name not in SCALED:
        return tiny(name)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(SCALED[name](), attn_implementation="eager").eval()


class Scores(analysis.METHODS["dense"]):
    """Notes the logits of the model itself, with rotated queries and keys, before any scaling."""

    dense = False

    def encode_tokens(self, layer, query, key, past, module, tables):
        self.seen = getattr(self, "seen", {}) | {layer: (query[0].double(), key[0].double())}


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt_neox", "gemma2", "olmo2", *SCALED])
def test_a_mean_query_turned_ahead_gives_the_logits_of_the_model(name):
    """Of one query alone E q is that query: turned to its own position it gives every key the model's own product, and
    R is 1. Every way of pairing, scaling and leaving out sizes goes through here."""
    lm = random_model(name)
    model, ids = load_model(lm), token_ids(1, 24)
    scores = Scores()
    with analysis.apply(lm, scores), torch.no_grad():
        lm(ids)
    all_queries, first_query = (query_statistics(model, [window.numpy()]) for window in (ids[0], ids[0, :1]))
    assert first_query.concentration() == pytest.approx(np.ones((3, 4))) and (all_queries.concentration() < 1).any()
    for layer, about in enumerate(all_queries.frequencies):
        query, key = scores.seen[layer]
        assert sorted([*about.real.tolist(), *about.imaginary.tolist()]) == list(range(query.shape[-1]))
        turned = about.pairs(key)  # as the model rotated them
        mean = first_query.mean[layer]  # the query of position 0, before its rotation
        logits = torch.einsum("hf,hlf->hl", mean, turned.repeat_interleave(len(query) // len(key), 0).conj()).real
        wanted = torch.einsum("hd,hld->hl", query[:, 0], key.repeat_interleave(len(query) // len(key), 0))
        assert torch.allclose(logits * about.factor, wanted, rtol=1e-4, atol=1e-3 * float(wanted.abs().max()))
        # and the mean of all queries is that of each turned back by the rates, whatever the tables say
        places = torch.arange(24, dtype=torch.float64)[:, None] * about.rates
        back = about.pairs(query) * torch.polar(torch.full_like(places, 1 / about.factor), -places)
        assert (back.mean(1) - all_queries.mean[layer]).abs().max() < 1e-3 * float(all_queries.size[layer].max())
        assert (back.abs().mean(1) - all_queries.size[layer]).abs().max() < 1e-3 * float(all_queries.size[layer].max())


def test_a_preference_over_distance_is_the_product_of_mean_query_and_mean_key():
    lm = tiny("llama")
    statistics = query_statistics(load_model(lm), list(token_ids(2, 24).numpy()))
    about, distances = statistics.frequencies[1], np.array([0, 1, 5, 1000])
    q, k = statistics.mean[1][3], statistics.key[1][1]
    for distance, value in zip(distances, statistics.preference(1, 3, distances), strict=True):
        parts = [
            abs(complex(a)) * abs(complex(b)) * math.cos(distance * float(w) + cmath.phase(complex(a * b.conj())))
            for a, b, w in zip(q, k, about.rates, strict=True)
        ]
        assert value == pytest.approx(sum(parts), rel=1e-6)
