"""One model of each kind of attention, against what the definitions give in float64: statistics, sharpness at a
temperature, heads taken out, keys dropped after a prompt."""

import copy
import sys

import numpy as np
import pytest
import torch

from analysis.methods import METHODS
from analysis.models import load_model
from analysis.probes.ablation import Without
from analysis.seam.attention import apply, ran
from analysis.seam.cache_checks import sees_all
from analysis.seam.layers import attention_modules
from analysis.statistics import attention_statistics
from analysis.statistics.states import attention_states
from tests.made import families, full_tables
from tests.made.families import token_ids
from tests.made.tiny_tokenizer import byte_level

# Learned sinks, a hybrid with output gates, MLA, an indexer, sizes of heads that differ, numbers added to the scores.
KEEPING = ("gpt_oss", "qwen3_next", "deepseek_v3", "deepseek_v32", "gemma4_text", "doge")
# And compressed entries, in layers of which none keeps the whole past.
FAMILIES = (*KEEPING, "deepseek_v4")
LENGTH, PROMPT, WINDOW, RATIO = 44, 32, 4, 0.75


class Definition:
    """Softmax attention of every layer as it is defined, in float64, in the place of the model's own eager one.

    Afterwards `tables` holds the weights [B, H, T, T] of every layer, `sinks` what its learned sinks took [B, H, T],
    and `entries` what the keys behind those of the tokens did, of layers that have some. `edit(module, scores, groups)`
    may change the scores [B, H, T, T] of so many key-value heads before the softmax.
    """

    def __init__(self, lm, edit=None):
        self.edit, self.tables, self.sinks, self.entries = edit, [], [], []
        self.modeling = sys.modules[type(lm).__module__]
        self.eager = self.modeling.eager_attention_forward

    def __enter__(self):
        self.modeling.eager_attention_forward = self.attend
        return self

    def __exit__(self, *error):
        self.modeling.eager_attention_forward = self.eager

    def attend(self, module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, **options):
        assert not options.get("softcap"), "none of these models has a cap"
        mask = attention_mask
        shared, length, total = query.shape[1] // key.shape[1], query.shape[2], key.shape[2]
        keys, values = (x.double().repeat_interleave(shared, 1) for x in (key, value))
        scores = query.double() @ keys.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        # what may be read of the others stands in the mask
        future = torch.nn.functional.pad(torch.ones(length, length, dtype=torch.bool).triu(1), (0, total - length))
        scores = scores.masked_fill(future, -torch.inf)
        if mask is not None:
            hidden = ~mask if mask.dtype == torch.bool else mask < torch.finfo(mask.dtype).min / 2
            added = torch.zeros(()) if mask.dtype == torch.bool else mask.masked_fill(hidden, 0.0)
            scores = (scores + added.double()).masked_fill(hidden, -torch.inf)
        if self.edit is not None:
            scores = torch.cat([self.edit(module, scores[..., :length], key.shape[1]), scores[..., length:]], -1)
        weights, sink = scores.exp(), getattr(module, "sinks", None)
        outside = torch.zeros(()) if sink is None else sink.double().exp()[:, None]
        summed = weights.sum(-1) + outside
        weights = weights / summed[..., None]
        self.tables.append(weights[..., :length])
        self.sinks.append(outside / summed)
        if total > length:
            self.entries.append(weights[..., length:].sum(-1))
        out = (weights @ values).to(value.dtype).transpose(1, 2).contiguous()
        return out, weights.to(value.dtype)


def small(family):
    """(the small model, tokens of a text)."""
    lm = families.small(family)
    return lm, token_ids(lm, length=LENGTH)


def logits(lm, ids):
    with torch.no_grad():
        return lm(ids, use_cache=False).logits


def defined(lm, ids, edit=None):
    """(logits, the definition with its tables)."""
    with Definition(lm, edit) as definition:
        return logits(lm, ids), definition


@pytest.mark.parametrize("family", FAMILIES)
def test_statistics_are_those_of_the_definition(family):
    """Shares, entropies and distances among tokens, whatever a learned sink took."""
    lm, ids = small(family)
    _, definition = defined(lm, ids)
    among = [table / table.sum(-1, keepdim=True) for table in definition.tables]
    full_tables.agree(full_tables.read(lm, ids), full_tables.measured(among, ids))


@pytest.mark.parametrize("family", ["gpt_oss", "granite_swa", "deepseek_v4"])
def test_the_mass_of_a_sink_is_that_of_the_definition(family):
    lm, ids = small(family)
    truth = torch.cat([share.mean((0, 2)) for share in defined(lm, ids)[1].sinks])
    table = attention_statistics(load_model(lm, tokenizer=byte_level()), ids[0])
    np.testing.assert_allclose(table["sink_mass"], truth, atol=1e-5)
    assert truth.min() > 0.01, "the sinks take a part"


def test_the_mass_of_compressed_entries_is_that_of_the_definition():
    """In the layers that compress; that of a text too short for one entry is nothing."""
    lm, ids = small("deepseek_v4")
    model = load_model(lm, tokenizer=byte_level())
    truth = torch.stack([share.mean((0, 2)) for share in defined(lm, ids)[1].entries])
    table = attention_statistics(model, ids[0]).pivot(index="layer", columns="head", values="entry_mass")
    np.testing.assert_allclose(table.iloc[1:], truth, atol=1e-5)
    assert table.iloc[0].isna().all() and truth.min() > 0.01, "the first layer has a window alone"
    assert (attention_statistics(model, ids[0, :3])["entry_mass"].dropna() == 0).all()


@pytest.mark.parametrize("kernels", [False, True])
def test_a_method_chooses_among_tokens_and_compressed_entries_stay(kernels):
    lm, ids = small("deepseek_v4")
    back = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    near = defined(lm, ids, lambda module, scores, groups: scores.masked_fill(back >= WINDOW, -torch.inf))[0]
    with apply(lm, METHODS["streaming_llm"](n_sink=0, window=WINDOW), kernels=kernels):
        assert (logits(lm, ids) - near).abs().max() < 1e-4 * max(1, near.abs().max())
    assert (logits(lm, ids) - near).abs().max() > 1e-3, "it matters"


@pytest.mark.parametrize("t", [0.5, 1.0])
def test_sharpness_at_a_temperature_is_among_tokens(t):
    """A sink's logit is no score and has no temperature, so it is left out as in every statistic."""
    lm, ids = small("gpt_oss")
    queries = []
    _, definition = defined(lm, ids, lambda module, scores, groups: queries.append(scores) or scores)
    for layer, states in attention_states(load_model(lm, tokenizer=byte_level()), ids[0].numpy()).items():
        p = (queries[layer][0] / t).softmax(-1)
        entropy, largest = states.sharpness(t)
        np.testing.assert_allclose(entropy, torch.special.entr(p).sum(-1), atol=1e-4)
        np.testing.assert_allclose(largest, p.amax(-1), atol=1e-5)


def test_a_temperature_acts_on_the_scores_and_not_on_the_sinks():
    lm, ids = small("gpt_oss")
    cold, _ = defined(lm, ids, lambda module, scores, groups: scores / 0.5)
    with apply(lm, METHODS["focal"](t=0.5)):
        assert (logits(lm, ids) - cold).abs().max() < 1e-4 * cold.abs().max()
    assert (logits(lm, ids) - cold).abs().max() > 1e-2 * cold.abs().max(), "a temperature that changes something"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_taken_out_is_one_whose_columns_are_zero(family):
    """After its output gate, where there is one: 0 times a gate is 0."""
    lm, ids = small(family)
    layer, head = len(attention_modules(lm)) - 1, 1
    changed = copy.deepcopy(lm)
    module = attention_modules(changed)[layer]
    heads = lm.config.num_attention_heads
    with torch.no_grad():
        if family == "deepseek_v4":
            # a head is some groups of it, [groups x outputs, inputs]
            module.o_a_proj.weight.unflatten(0, (heads, -1))[head] = 0
        else:
            module.o_proj.weight.unflatten(1, (heads, -1))[:, head] = 0
    with apply(lm, Without([(layer, head)])):
        without = logits(lm, ids)
    assert (without - logits(changed, ids)).abs().max() < 1e-5 * max(1, without.abs().max())
    assert (without - logits(lm, ids)).abs().max() > 1e-4


def snapkv(weights, groups):
    """The score of every key by SnapKV's definition: what the last queries weigh it with, with its neighbours."""
    scores, length = weights.new_empty(groups, weights.shape[-1]), weights.shape[-1]
    by_group = weights[:, -WINDOW:].unflatten(0, (groups, -1)).mean((1, 2))  # [G, L]
    for key in range(length - WINDOW):
        near = [by_group[:, place] for place in range(key - 2, key + 3) if 0 <= place < length - WINDOW]
        scores[:, key] = sum(near) / 5
    scores[:, length - WINDOW :] = torch.inf
    return scores


def tova(weights, groups):
    """By TOVA's: what the last token weighs it with, mean over all heads."""
    scores = weights[:, -1].mean(0).repeat(groups, 1)
    scores[:, -1] = torch.inf
    return scores


@pytest.mark.parametrize("rule", [snapkv, tova])
@pytest.mark.parametrize("family", KEEPING)
def test_keys_dropped_after_a_prompt_are_masked_ones_of_the_definition(family, rule):
    """Of layers whose KV cache keeps the whole past; with nothing to drop it is dense attention."""
    lm, ids = small(family)
    keeps_past = {module.layer_idx: keeps for module, keeps in zip(attention_modules(lm), sees_all(lm), strict=True)}
    method = METHODS[rule.__name__]
    of_rule = dict(window=WINDOW) if rule is snapkv else {}

    def drop(module, scores, groups):
        if not keeps_past[module.layer_idx]:
            return scores
        sink = getattr(module, "sinks", None)
        weights = scores[0, :, :PROMPT, :PROMPT].exp()
        outside = 0.0 if sink is None else sink.double().exp()[:, None, None]
        worth = rule(weights / (weights.sum(-1, keepdim=True) + outside), groups)
        gone = worth.argsort(dim=-1, stable=True)[:, : PROMPT - int(PROMPT * (1 - RATIO))]
        hidden = torch.zeros_like(scores[0], dtype=torch.bool)
        for head in range(len(hidden)):
            hidden[head, PROMPT:, gone[head * groups // len(hidden)]] = True
        read = scores.masked_fill(hidden, -torch.inf)
        # what an indexer chose and the rule dropped leaves a query its nearest key
        unread = read.amax(-1, keepdim=True) == -torch.inf
        places = torch.where(scores > -torch.inf, torch.arange(LENGTH), -1)
        nearest = places == places.amax(-1, keepdim=True)
        return torch.where(unread & nearest, scores, read)

    wanted, _ = defined(lm, ids, drop)
    with apply(lm, method(ratio=RATIO, cut=PROMPT, **of_rule)):
        dropped = logits(lm, ids)
    stock = logits(lm, ids)
    assert (dropped - wanted).abs().max() < 1e-4 * max(1, stock.abs().max())
    assert (dropped - stock).abs().max() > 1e-3, "it matters"
    with apply(lm, method(ratio=0.0, cut=PROMPT, **of_rule)):
        assert (logits(lm, ids) - stock).abs().max() <= 1e-5 * max(1, stock.abs().max())


def test_where_no_kernel_takes_what_a_model_has_the_masked_pass_runs_and_says_so():
    lm, ids = small("deepseek_v3")
    with apply(lm, METHODS["snapkv"](window=WINDOW), kernels=True):
        logits(lm, ids)
        assert {entry.kernel for entry in ran(lm)} == {"masked blocks"}
        assert all("size" in entry.why for entry in ran(lm) if "mask" not in entry.why)
