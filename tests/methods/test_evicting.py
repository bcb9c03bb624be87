"""Eviction as methods: which keys stay, by the rules; a cache that really shrinks; questions after it."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.fitted import Fitted
from analysis.methods import METHODS
from analysis.methods.budgets import RULES, in_proportion
from analysis.methods.duo_attention import heads_of_file
from analysis.methods.evicting import evict, model_weights
from analysis.methods.eviction import eviction_scores
from analysis.methods.expected_attention import mean_rotation
from analysis.models import load_model
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply, ran
from analysis.seam.cache import DynamicCache, cache_bytes
from analysis.seam.cache_checks import sees_all
from tests.contract.test_contract import lines, mean_queries
from tests.made.passes import logits, seen
from tests.made.tiny import BY_KIND, LAYERS, left_padded, tiny, token_ids

MEMORY = [name for name, method in METHODS.items() if method.saves == "memory" and "ratio" in method.budget_steps]


STATES = {  # Ada-KV and PyramidKV find by its name what a score needs
    "duo_attention": lambda: Fitted("duo_attention", {"far": torch.arange(LAYERS * 2.0).view(LAYERS, 2)}),
    "triattention": mean_queries,
    "kvzap": lines,
    "csa": lambda: [*range(2, 2 + LAYERS * 4), 9],
}


def built(name, **settings):
    """A method of this name with what it needs made up; windows that fit short texts."""
    fitted = STATES.get(name, lambda: lambda score: STATES[score]())()
    window = {"window": 3} if "window" in vars(METHODS[name]) else {}
    return METHODS[name].build(fitted if METHODS[name].needs else None, **window | settings)


def kept_by(lm, method, ids, **inputs) -> dict[int, torch.Tensor]:
    logits(lm, ids, method, **inputs)
    return dict(method.kept_)


@pytest.mark.parametrize("kind", ["snapkv", "tova", "keydiff"])
def test_a_layer_keeps_what_its_scores_say(kind):
    lm, ids = tiny("llama"), token_ids(2, 40)
    prompts = seen(lm, ids).prompts
    for layer, stays in kept_by(lm, built(kind, ratio=0.7), ids).items():
        states = prompts[layer].query, prompts[layer].key, prompts[layer].value
        assert torch.equal(stays, evict(eviction_scores(kind, *states, window=3), 0.7))
        assert (stays.sum(-1) == int(40 * 0.3)).all()


@pytest.mark.parametrize("family", [*BY_KIND, "granite", "gemma3_text"])
def test_the_weights_that_decide_are_those_of_the_model(family):
    """With its own factor and soft cap, in the layers that keep the whole past."""
    lm, ids = tiny(family), token_ids(2, 40)
    prompts = seen(lm, ids).prompts
    with torch.no_grad():
        stock = lm(ids, output_attentions=True, use_cache=False).attentions
    for layer, whole_past in enumerate(sees_all(lm)):
        assert not whole_past or torch.allclose(model_weights(prompts[layer]), stock[layer], atol=1e-5)


@pytest.mark.parametrize("score", RULES)
def test_a_layer_shares_out_its_keys_by_any_score(score):
    """As many keys in all as an even budget, those that the same rule scores best: what is kept of each head but the
    safe ones is never worth less than what another head of the layer lost."""
    lm, ids, scores_of = tiny("llama"), token_ids(1, 40), {}

    class Watched(METHODS["ada_kv"]):
        def kept_keys(self, layer, scores):
            scores_of[layer] = scores
            return super().kept_keys(layer, scores)

    heads_fitted = built("ada_kv").fitted
    for layer, stays in kept_by(
        lm, Watched(ratio=0.7, score=score, safe=0.0, window=6, fitted=heads_fitted), ids
    ).items():
        assert int(stays.sum()) == 2 * int(40 * 0.3)
        assert scores_of[layer][stays].min() >= scores_of[layer][~stays].max()
    even = kept_by(lm, built(score, ratio=0.7), ids)
    assert {tuple(stays.sum(-1).flatten().tolist()) for stays in even.values()} == {(12, 12)}


def test_allocations_by_hand():
    lm, ids = tiny("llama"), token_ids(1, 40)
    prompts = seen(lm, ids).prompts
    for layer, stays in kept_by(lm, built("ada_kv", ratio=0.75, score="h2o"), ids).items():
        scores = eviction_scores("h2o", prompts[layer].query, prompts[layer].key, prompts[layer].value)
        assert torch.equal(stays, evict(scores, 0.75, "layer"))
    for stays in kept_by(lm, built("h2o", ratio=0.75), ids).values():
        assert (stays.sum(-1) == 10).all() and stays[..., -5:].all()

    def counts(**settings):
        return [int(stays[0, 0].sum()) for stays in kept_by(lm, built("pyramid_kv", **settings), ids).values()]

    assert counts(ratio=0.5, window=4) == [4 + 31, 4 + 16, 4 + 1], "least 16 / 20, most 32 less that"
    short = {"ratio": 0.25, "window": 4}  # 30 of 40 stay, and 40 < 2 (30 - 4)
    assert counts(**short) == [40, 30, 20], "the line ends at what there is"
    even, snapkv = (
        kept_by(lm, method, ids) for method in (built("pyramid_kv", **short, short="even"), built("snapkv", **short))
    )
    assert all(torch.equal(even[layer], stays) for layer, stays in snapkv.items())
    duo = kept_by(lm, built("duo_attention", ratio=0.5, n_sink=3, window=5), ids)  # scores 0 1, 2 3, 4 5
    assert [stays.sum(-1).tolist() for stays in duo.values()] == [[[8, 8]], [[8, 40]], [[40, 40]]]
    assert duo[0][0, 0].nonzero().flatten().tolist() == [0, 1, 2, 35, 36, 37, 38, 39]


def test_calibrated_shares_by_hand():
    """Budgets 2 ... 13 of CSA for 3 layers of 4 heads, the larger of each two that share a key-value head: 3, 5 ... 13.
    Their mean is 8; at 10 keys on average the last gets 13 * 10 / 8."""
    assert in_proportion(np.array([[1, 1], [2, 4]]), 4, 6).tolist() == [[3, 2], [5, 6]], "8 and 6 stand for 6 and 8"
    lm, ids = tiny("llama"), token_ids(1, 40)
    stays = kept_by(lm, built("ada_kv", ratio=0.75, shares="calibrated", score="h2o"), ids)
    counts = torch.stack([stays[layer][0].sum(-1) for layer in range(LAYERS)])
    assert counts.sum() == 10 * 6 and (counts - torch.tensor([[3, 5], [7, 9], [11, 13]]) * 10 / 8).abs().max() < 1
    scores = seen(lm, ids).prompts[2]
    scores = eviction_scores("h2o", scores.query, scores.key, scores.value)
    assert scores[0, 1][stays[2][0, 1]].min() >= scores[0, 1][~stays[2][0, 1]].max()


@pytest.mark.parametrize("name", MEMORY)
def test_a_model_in_float64_keeps_the_same_keys_and_nothing_evicted_is_dense(name):
    lm, ids = tiny("llama"), token_ids(1, 40)
    exact, single = (kept_by(model, built(name, ratio=0.5), ids) for model in (copy.deepcopy(lm).double(), lm))
    assert all(torch.equal(exact[layer], single[layer]) for layer in range(LAYERS))
    lm, ids = tiny("llama"), token_ids(2, 40)
    sinks = {"n_sink": 2} if name == "duo_attention" else {}
    wanted = logits(lm, ids)
    assert torch.equal(logits(lm, ids, built(name, ratio=0.0, cut=20, **sinks)), wanted)
    changed = (logits(lm, ids, built(name, ratio=0.8, cut=20, **sinks)) - wanted).abs()
    assert changed[:, :20].max() == 0 and changed[:, 21:].max() > 1e-3


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_expected_attention_turns_as_the_model_does(family):
    """The mean rotation of positions to come, from the tables of the prompt alone, against the model's own tables."""
    lm = tiny(family)
    tables = seen(lm, token_ids(1, 30)).prompts[0].tables
    rotary = next(module for name, module in lm.named_modules() if name.endswith("rotary_emb"))
    ahead = rotary(torch.zeros(1, 1), torch.arange(30, 62)[None])
    for mean, expected in zip(mean_rotation(tables, 32), ahead, strict=True):
        assert torch.allclose(mean.float(), expected.mean(1, keepdim=True), atol=1e-5)
    assert mean_rotation(None, 32) is None


@pytest.mark.parametrize("name", MEMORY)
def test_the_cache_is_compacted_and_a_question_reads_what_is_left(name):
    """Several tokens after the prompt, then one: as the masked path; and a second question on the same cache."""
    lm, ids, method = tiny("llama"), token_ids(2, 60), built(name, ratio=0.75)
    questions = ids[:, 40:50], ids[:, 50:60]

    def ask(past, question):
        first = lm(question[:, :-1], **as_past(lm, past), use_cache=True)
        last = lm(question[:, -1:], **as_past(lm, past_of(first)), use_cache=True)
        return torch.cat([first.logits, last.logits], 1)

    with apply(lm, method), torch.no_grad():
        past = past_of(lm(ids[:, :40], **as_past(lm, DynamicCache(config=lm.config))))
        dense = cache_bytes(past)[0]
        wanted = [ask(copy.deepcopy(past), question) for question in questions]
    with apply(lm, method, kernels=True), torch.no_grad():
        past = past_of(lm(ids[:, :40], **as_past(lm, method.cache(lm))))
        bytes_held = sum(int(stays.sum()) for stays in method.kept_.values()) * 2 * 8 * 4
        assert cache_bytes(past) == (bytes_held, bytes_held), "bytes of keys and values, and nothing beside"
        assert past.get_seq_length() == 40
        answers = [ask(copy.deepcopy(past), question) for question in questions]
        kernels = {entry.phase: entry.kernel for entry in ran(lm)}
        assert kernels == {"prefill": "dense, then compacted"} | dict.fromkeys(
            ("continued", "decode"), "compacted cache"
        )
    if name != "duo_attention":
        assert bytes_held == dense / 4 or name == "pyramid_kv" and abs(bytes_held / dense - 0.25) < 0.025
    for answer, right in zip(answers, wanted, strict=True):
        assert (answer - right).abs().max() < 1e-5


@pytest.mark.parametrize(("family", "sliding"), [("llama", set()), ("mistral", {0, 1, 2}), ("gemma2", {0, 2})])
def test_padding_begins_no_text_and_layers_with_a_window_keep_all(family, sliding):
    lm, (ids, mask) = tiny(family), left_padded(2, 40)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    together = kept_by(lm, built("h2o", ratio=0.5), ids, attention_mask=mask, position_ids=places)
    alone = kept_by(lm, built("h2o", ratio=0.5), ids[1:, 5:])
    assert together.keys() == alone.keys() == set(range(LAYERS)) - sliding
    assert all(torch.equal(together[layer][1:, :, 5:], stays) for layer, stays in alone.items())


def test_heads_come_from_a_file_and_those_that_retrieve_least_keep_sinks_and_a_window(tmp_path):
    (tmp_path / "full_attention_heads.tsv").write_text("0.5\t1\n0\t0.25\n1\t1\n")
    assert heads_of_file(tmp_path / "full_attention_heads.tsv")["far"].tolist() == [[0.5, 1], [0, 0.25], [1, 1]]
    (tmp_path / "words.tsv").write_text("retrieval\n")
    with pytest.raises(BadSetting, match="holds no table of numbers"):
        heads_of_file(tmp_path / "words.tsv")
    # By hand: of six heads with scores 5 1 / 4 0 / 2 3 tenths, a third are the second of layers 0 and 1; of 10
    # tokens each keeps 2 first ones and 3 last ones.
    scores = torch.tensor([[0.5, 0.1], [0.4, 0.0], [0.2, 0.3]])
    method = METHODS["duo_attention"].build(Fitted("duo_attention", {"far": scores}), ratio=0.34, n_sink=2, window=3)
    assert method.streaming(scores).tolist() == [[False, True], [False, True], [False, False]]
    ends, all_stay = [True] * 2 + [False] * 5 + [True] * 3, [True] * 10
    for layer, wanted in enumerate([[all_stay, ends], [all_stay, ends], [all_stay, all_stay]]):
        prompt = SimpleNamespace(layer=layer, key=torch.zeros(1, 2, 10, 8))
        assert method.kept_keys(layer, method.key_scores(prompt))[0].tolist() == wanted


@pytest.mark.parametrize("length", [48, 256])
def test_a_head_is_scored_by_what_it_gives_to_neither_the_first_token_nor_the_last_128(length):
    """Against dense weights in float64, of query heads that share keys; half of the queries see no far key."""
    lm, ids = tiny("llama"), token_ids(1, length)
    with torch.no_grad():
        weights = torch.cat(lm(ids, output_attentions=True, use_cache=False).attentions).double()  # [L, H, T, T]
    i, j = torch.meshgrid(torch.arange(length), torch.arange(length), indexing="ij")
    wanted = (weights * ((i - j >= 128) & (j > 0))).sum(-1).mean(-1)  # [L, H]
    far = METHODS["duo_attention"]().fit(load_model(lm, tokenizer=None), ids).fitted["far"].double()
    assert torch.allclose(far, wanted.view(LAYERS, 2, -1).mean(2), atol=1e-5)


def test_a_prompt_in_pieces_is_refused():
    lm = tiny("llama")
    with pytest.raises(BadSetting, match="give the whole prompt at once"), apply(lm, built("tova", cut=30)):
        lm(token_ids(1, 20))
