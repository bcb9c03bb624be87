"""Focus as a method, by hand: six tokens whose groups are written out, and what each of them then reads."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting, NotFitted
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS, describe
from analysis.seam.attention import Block, apply
from analysis.seam.reference import _probabilities
from tests.made.tiny import LAYERS, WIDTH, tiny, token_ids

Focus = METHODS["focus"]
GROUPS = "AABBAB"  # the group of each token
WEIGHTS = [1, 2, 3, 4, 5, 6]  # exp of the score of each key, for every query
READ = [  # window 2 and one sink: the token itself, the one before it, token 0, and the earlier ones of its group
    [0],
    [0, 1],
    [0, 1, 2],
    [0, 2, 3],
    [0, 1, 3, 4],
    [0, 2, 3, 4, 5],
]


def one_hot(letters: str) -> torch.Tensor:
    """Memberships bool [1, T, 2]."""
    return torch.tensor([[[letter == "A", letter == "B"] for letter in letters]])


def block(of_tokens: torch.Tensor, weights=WEIGHTS, first: int = 0) -> Block:
    """All queries of a text in one block, one head, the score of a key being the log of its weight."""
    count = of_tokens.shape[1]
    scores = torch.tensor(weights, dtype=torch.float32).log().expand(1, 1, count, count)
    at = torch.arange(count)
    visible = ((at <= at[:, None]) & (at >= first))[None, None]
    return Block(0, scores, visible, at, at, torch.tensor([first]), of_tokens, of_tokens)


def method(**settings) -> Focus:
    return Focus(router=FocusRouter(1, 4, groups=2), **{"window": 2, "n_sink": 1, **settings})


def fractions(read: list[list[int]]) -> torch.Tensor:
    rows = torch.zeros(len(read), len(read))
    for query, keys in enumerate(read):
        for key in keys:
            rows[query, key] = float(Fraction(WEIGHTS[key], sum(WEIGHTS[k] for k in keys)))
    return rows


def test_six_tokens_by_hand():
    got = _probabilities(method(), block(one_hot(GROUPS)))[0, 0]
    assert torch.allclose(got, fractions(READ), atol=1e-6)
    assert got[5, 4] == pytest.approx(5 / 19) and got[5, 1] == 0 and got[3, 1] == 0 and got[4, 2] == 0


def test_six_tokens_without_a_sink_and_with_a_window_of_one():
    without = [[0], [0, 1], [1, 2], [2, 3], [0, 1, 3, 4], [2, 3, 4, 5]]
    assert torch.allclose(_probabilities(method(n_sink=0), block(one_hot(GROUPS)))[0, 0], fractions(without), atol=1e-6)
    alone = [[0], [0, 1], [2], [2, 3], [0, 1, 4], [2, 3, 5]]
    got = _probabilities(method(n_sink=0, window=1), block(one_hot(GROUPS)))[0, 0]
    assert torch.allclose(got, fractions(alone), atol=1e-6)


def test_a_token_of_two_groups_reads_both():
    both = one_hot(GROUPS)
    both[0, 5] = True
    got = _probabilities(method(n_sink=0), block(both))[0, 0]
    assert torch.allclose(got[5], torch.tensor(WEIGHTS) / 21.0) and torch.allclose(
        got[:5], fractions(READ[:1] + [[0, 1], [1, 2], [2, 3], [0, 1, 3, 4], []])[:5], atol=1e-6
    )


def test_sinks_are_counted_from_the_first_real_token():
    padded = block(one_hot("AA" + "BABA"), first=2)  # two tokens of left padding
    got = _probabilities(method(), padded)[0, 0]
    assert (got[:2] == 0).all() and (got[:, :2] == 0).all()
    assert torch.allclose(got[5], torch.tensor([0, 0, 3, 4, 5, 6]) / 18)  # sink 2, group 3, window 4 and itself
    assert torch.allclose(got[4], torch.tensor([0, 0, 3, 4, 5, 0]) / 12)


@pytest.mark.parametrize("form", ["literal", "centred", "log"])
def test_soft_gates_by_hand(form):
    soft = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [1.0, 0.0]]])
    router = FocusRouter(1, 4, groups=2, gate=form, gate_sharpness=4.0, gate_offset=0.25)
    made = Focus(router=router, window=1, reading="soft")
    given = block(soft, weights=[2, 3, 5, 7])
    assert made.mask(given) is None
    got = made.scores(given)[0, 0]
    for query in range(4):
        for key in range(query):
            affinity = sum(float(a) * float(b) for a, b in zip(soft[0, query], soft[0, key], strict=True))
            score = math.log([2, 3, 5, 7][key])
            gate = {
                "literal": score / (1 + math.exp(-4 * affinity)),
                "centred": score / (1 + math.exp(-4 * (affinity - 0.25))),
                "log": score - math.log(1 + math.exp(-4 * (affinity - 0.25))),
            }[form]
            assert got[query, key] == pytest.approx(gate, abs=1e-5)
        assert got[query, query] == given.scores[0, 0, query, query], "the window is left as it is"


def test_memberships_by_hand_literal_and_causal():
    torch.manual_seed(0)
    router = FocusRouter(1, 4, groups=3)
    hidden, other = torch.randn(1, 5, 4), torch.randn(1, 5, 4)
    router.fit_potential([other[0]])
    with torch.no_grad():
        logits = (hidden[0] @ router.projection[0] @ router.centroids[0].T / 0.1).double().numpy()
    real = torch.ones(1, 5, dtype=torch.bool)
    causal = Focus(router=router, reading="soft").token_features(0, hidden, real)[0].detach()
    biased = np.exp(logits + router.potential[0].double().numpy())
    np.testing.assert_allclose(causal, biased / biased.sum(1, keepdims=True), atol=1e-5)
    literal = Focus(router=router, reading="soft", membership="literal").token_features(0, hidden, real)[0].detach()
    balanced = np.exp(logits)
    for _ in range(10):
        balanced /= balanced.sum(0, keepdims=True)
        balanced /= balanced.sum(1, keepdims=True)
    np.testing.assert_allclose(literal, balanced, atol=1e-5)
    changed = hidden.clone()
    changed[0, 4] = other[0, 4]
    for name, moves in (("causal", False), ("literal", True)):
        made = Focus(router=router, reading="soft", membership=name)
        moved = (made.token_features(0, hidden, real) - made.token_features(0, changed, real))[0, :4].abs().max()
        assert (moved > 1e-4) if moves else (moved == 0)


def test_hard_and_straight_through_memberships():
    router = FocusRouter(1, 4, groups=4, top=2)
    hidden = torch.randn(1, 6, 4)
    hard = Focus.build(router).token_features(0, hidden, None)
    assert hard.dtype == torch.bool and (hard.sum(-1) == 2).all()
    through = Focus.build(router, reading="straight_through").token_features(0, hidden, None)
    assert torch.allclose(through, hard.float(), atol=1e-6) and through.requires_grad


def test_decoding_with_literal_membership_is_refused():
    with pytest.raises(BadSetting, match="token by token"):
        method(membership="literal").token_features(0, torch.randn(1, 1, 4), None)


def test_the_router_says_what_it_was_made_for():
    made = Focus.build(FocusRouter(1, 4, groups=4, top=2, window=9, n_sink=3))
    assert (made.top, made.window, made.n_sink, made.addon().K) == (2, 9, 3, 4)
    assert Focus.build(made.router, window=5).window == 5


def test_more_groups_than_the_router_has_are_refused():
    lm = tiny("llama")
    with pytest.raises(BadSetting, match="top is 5 and the router has 4 groups"):
        with apply(lm, Focus.build(FocusRouter(LAYERS, WIDTH, groups=4), top=5)):
            pass
    with pytest.raises(NotFitted):
        Focus().check(lm)
    with torch.no_grad():
        lm(token_ids())


def test_every_method_describes_itself_as_plain_data():
    told = json.loads(json.dumps(describe(), allow_nan=False))
    assert list(told) == list(METHODS)
    fields = {field["name"]: field for field in told["focus"]["fields"]}
    assert set(fields) == {"top", "window", "n_sink", "membership", "reading"}
    assert (fields["window"]["default"], fields["window"]["low"], fields["window"]["type"]) == (128, 1, "int")
    assert fields["membership"]["options"] == ["causal", "prefix", "literal"] and fields["top"]["price"] == "live"
    assert all(about["doc"] and about["paper"] and about["title"] for about in told.values())
    assert all(field["help"] for about in told.values() for field in about["fields"])
