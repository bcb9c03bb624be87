"""How likely a model finds each answer: by hand, from the cache as in whole passes, and at positions it never saw; what
it writes, token for token as whole passes, and its score by hand."""

from math import log2

import numpy as np
import pytest
import torch

from analysis.errors import AnalysisError, BadModel
from analysis.methods import METHODS
from analysis.models import Model, load_model
from analysis.probes.pieces import Item
from analysis.probes.rotary import base_for, reach, rotary_base
from analysis.probes.scoring import SECOND, TURNS, answer_logs, answer_written, chosen, control, margin, turned
from analysis.probes.written import MORE, budget, graded, ndcg, order, plain, stands
from analysis.seam.attention import apply
from tests.contract.test_contract import CASES
from tests.made.tiny import tiny, token_ids
from tests.made.tiny_tokenizer import byte_level
from tests.probes.test_probes import make, pieces, places  # noqa: F401


def test_the_likeliest_is_chosen_and_ties_share_the_point():
    assert [chosen(np.log([0.5, 0.3, 0.2]), right) for right in range(3)] == [1, 0, 0]
    assert chosen(np.zeros(4), 2) == 0.25 and chosen(np.array([1.0, 1.0, 0.0]), 1) == 0.5
    assert margin(np.array([1.0, 4.0, 2.5]), 1) == 1.5 and margin(np.array([1.0, 4.0, 2.5]), 0) == -3


def model_of(family: str) -> Model:
    return load_model(tiny(family), tokenizer=byte_level())


def whole_pass(model: Model, method, item: Item) -> np.ndarray:
    """The same log-probabilities, one pass over prompt and answer for each candidate."""
    sums = []
    for answer in item.candidates:
        ids = torch.as_tensor(np.concatenate([item.ids, answer]))[None]
        with apply(model, method), torch.no_grad():
            logs = torch.log_softmax(model.lm(ids, use_cache=False).logits[0].float(), -1)
        rows = torch.arange(len(item.ids) - 1, len(item.ids) - 1 + len(answer))
        sums.append(logs[rows, torch.as_tensor(answer)].sum().item())
    return np.array(sums)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral", "gemma2"])
@pytest.mark.parametrize("case", CASES)
def test_going_on_from_the_cache_equals_whole_passes(family, case):
    """Every method, also where the model slides a window or keeps a soft cap."""
    ids = token_ids(1, 56, seed=3)[0].numpy()
    item = Item(ids[:40], ids[40:].reshape(4, 4), 0, None, 30)
    model = model_of(family)
    try:
        CASES[case]().check(model.lm)
    except BadModel:
        return  # a method that no such model can run, which it says
    assert answer_logs(model, CASES[case](), item) == pytest.approx(whole_pass(model, CASES[case](), item), abs=1e-3)


@pytest.mark.parametrize("turn", TURNS)
def test_keys_are_dropped_where_the_turn_says(turn):
    """As one pass over all of it, in which what the prompt leaves is cut at that place."""
    ids = token_ids(1, 80, seed=3)[0].numpy()
    item, second = (Item(part[:24], part[24:].reshape(4, 4), 1, None, 18) for part in (ids[:40], ids[40:]))
    model, rule = model_of("llama"), {"ratio": 0.75, "window": 4}
    read, further = turned(item, turn, second)
    assert len(read) == {"question unknown": 18, "question known": 24, SECOND: 18 + 6 + 4}[turn]
    joined = Item(np.concatenate([read, further]), item.candidates, item.right, None, 18)
    wanted = whole_pass(model, METHODS["snapkv"](**rule, cut=len(read)), joined)
    assert answer_logs(model, METHODS["snapkv"](**rule), item, turn, second) == pytest.approx(wanted, abs=1e-3)


def test_a_membership_that_sees_the_future_is_refused():
    from tests.contract.test_contract import router

    item = Item(token_ids(1, 40)[0].numpy(), np.array([[3, 4], [5, 6]]), 0, None, 30)
    with pytest.raises(AnalysisError):
        answer_logs(model_of("llama"), METHODS["focus"].build(router(), membership="literal"), item)


def test_the_control_is_the_question_after_plain_text(pieces):  # noqa: F811
    item = make(pieces, "uuid_needle", 600)
    alone = control(pieces, item, np.random.default_rng(0))
    assert alone.ids[alone.question :].tolist() == item.ids[item.question :].tolist() and alone.question == 128
    assert not places(alone.ids, item.answer) and alone.right == item.right
    short = make(pieces, "uuid_needle", 130)
    assert control(pieces, short, np.random.default_rng(0)).question <= short.question


# --- positions beyond the context -------------------------------------------------------------------------------------


def test_dynamic_ntk_is_that_of_transformers_also_beyond_the_context():
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    model = model_of("llama")
    config = type(model.lm.config)(**model.lm.config.to_dict())
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    for length in (300, 512, 700, 1024):
        wanted, _ = ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=length)
        with rotary_base(model, base_for(model, "dynamic_ntk", 2.0, 5e5, length)):
            frequencies = model.lm.model.rotary_emb.inv_freq
            assert torch.allclose(frequencies, wanted, rtol=1e-5), length
    from transformers import LlamaForCausalLM

    model = model_of("llama")
    config = type(model.lm.config)(**model.lm.config.to_dict())
    config.rope_parameters = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    stock = LlamaForCausalLM(config).eval()
    stock.load_state_dict(model.lm.state_dict())
    ids = token_ids(1, 700)
    with torch.no_grad():
        wanted = stock(ids, use_cache=False).logits
        with rotary_base(model, base_for(model, "dynamic_ntk", 2.0, 5e5, 700)):
            logits = model.lm(ids, use_cache=False).logits
        plain = model.lm(ids, use_cache=False).logits
    assert (logits - wanted).abs().max() < 1e-3 and (plain - wanted).abs().max() > 1e-2


def test_how_far_positions_reach_and_that_another_base_is_gone_afterwards():
    model = model_of("llama")
    assert reach(model, "as_trained", 2.0) == 512 and reach(model, "dynamic_ntk", 2.0) == 1024
    assert base_for(model, "longer", 2.0, 5e5, 1000) is None and base_for(model, "base", 2.0, 5e5, 100) == 5e5
    assert base_for(model, "dynamic_ntk", 2.0, 5e5, 512) is None
    with pytest.raises(BadModel, match="no rotary positions"):
        reach(model_of("gpt2"), "longer", 2.0)
    model = model_of("qwen3")
    module = model.lm.model.rotary_emb
    before = module.inv_freq
    with pytest.raises(ZeroDivisionError), rotary_base(model, 500_000.0):
        assert module.inv_freq[1] == pytest.approx(500_000 ** (-2 / 8))
        raise ZeroDivisionError
    assert module.inv_freq is before


@pytest.mark.parametrize("name", ["dense", "streaming_llm"])
def test_the_likeliest_token_each_time_as_whole_passes_have_it(name):
    model, method = model_of("llama"), METHODS[name]()
    item = Item(token_ids(1, 40, seed=3)[0].numpy(), np.array([[3, 4], [5, 6]]), 0, None, 30)
    written, ids = answer_written(model, method, item, 6), item.ids.tolist()
    with apply(model, method), torch.no_grad():
        for token in written:
            assert token == model.lm(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()
            ids.append(int(token))
    ends = ["\n" in model.tokenizer.decode([token]) for token in written]
    assert not any(ends[:-1]) and (len(written) == 6 or ends[-1])


@pytest.mark.parametrize("answer, text, right", [
    ("Paris", "It is Paris.", True),
    ("The Hague", "in the hague!", True),
    ("Paris", "Parisian", False),
    ("12-b", "12b", True),
    ("the", "the", False),
])  # fmt: skip
def test_an_answer_counts_in_whole_words_without_capitals_points_and_articles(answer, text, right):
    assert stands(answer, text) is right


def test_lines_end_and_rankings_are_graded_by_hand(pieces):  # noqa: F811
    item = make(pieces, "several_needles")
    line, wrong = pieces.ids("\n"), item.candidates[item.right - 1]
    assert graded(pieces, item, item.answer) == graded(pieces, item, np.concatenate([wrong, item.answer])) == 1
    assert graded(pieces, item, np.concatenate([wrong, line, item.answer])) == 0 == graded(pieces, item, wrong)
    best = 2 / log2(2) + 1 / log2(3)
    assert ndcg([0, 1, 2], (2, 1, 0)) == 1 and ndcg([], (2, 1, 0)) == 0
    assert ndcg([1, 0], (2, 1, 0)) == pytest.approx((1 / log2(2) + 2 / log2(3)) / best)
    assert ndcg([2, 0], (2, 1, 0)) == pytest.approx(2 / log2(3) / best)
    assert order("b, then a and b", ["a", "b", "c"]) == [1, 0] and plain("A  Cat's") == "cats"
    assert ndcg([*range(12)], (*[0] * 11, 1)) == 0, "the first ten places count"


def test_a_ranking_is_graded_by_its_order_and_has_room_to_list_all(pieces):  # noqa: F811
    item = make(pieces, "reranking", 900, choices=3)
    ranked = [item.candidates[place] for place in np.argsort([-value for value in item.relevance])]
    assert graded(pieces, item, np.concatenate(ranked)) == 1
    assert 0 < graded(pieces, item, np.concatenate(ranked[::-1])) < 1
    size = item.candidates.shape[1]
    assert budget(item, 2000) == size * 3 * 3 + MORE and budget(item, 900) == size
    assert (
        budget(make(pieces, "uuid_needle", choices=3), 2000) == make(pieces, "uuid_needle").candidates.shape[1] + MORE
    )
