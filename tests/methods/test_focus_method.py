"""Focus as a method, by hand: six tokens whose groups are written out, and what each of them then reads."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from analysis.groups.router import FocusRouter
from analysis.methods import METHODS, describe
from analysis.seam.attention import Block
from analysis.seam.reference import _probabilities

Focus = METHODS["focus"]
GROUPS = "AABBAB"  # the group of each token
WEIGHTS = [1, 2, 3, 4, 5, 6]  # exp of the score of each key, for every query
# Window 2 and one sink: the token itself, the one before it, token 0, and the earlier ones of its group.
READ = [[0], [0, 1], [0, 1, 2], [0, 2, 3], [0, 1, 3, 4], [0, 2, 3, 4, 5]]


def one_hot(letters: str) -> torch.Tensor:
    """Memberships bool [1, T, 2]."""
    return torch.tensor([[[letter == "A", letter == "B"] for letter in letters]])


def block(of_tokens: torch.Tensor, weights=WEIGHTS, first: int = 0) -> Block:
    """All queries of a text in one block, one head, the score of a key being the log of its weight."""
    count = of_tokens.shape[1]
    scores = torch.tensor(weights, dtype=torch.float32).log().expand(1, 1, count, count)
    places = torch.arange(count)
    visible = ((places <= places[:, None]) & (places >= first))[None, None]
    return Block(0, scores, visible, places, places, torch.tensor([first]), of_tokens, of_tokens)


def method(**settings) -> Focus:
    return Focus(router=FocusRouter(1, 4, groups=2), **{"window": 2, "n_sink": 1, **settings})


def fractions(read: list[list[int]]) -> torch.Tensor:
    rows = torch.zeros(len(read), len(read))
    for query, keys in enumerate(read):
        for key in keys:
            rows[query, key] = float(Fraction(WEIGHTS[key], sum(WEIGHTS[k] for k in keys)))
    return rows


@pytest.mark.parametrize(
    ("settings", "read"),
    [
        ({}, READ),
        ({"n_sink": 0}, [[0], [0, 1], [1, 2], [2, 3], [0, 1, 3, 4], [2, 3, 4, 5]]),
        ({"n_sink": 0, "window": 1}, [[0], [0, 1], [2], [2, 3], [0, 1, 4], [2, 3, 5]]),
    ],
)
def test_six_tokens_by_hand(settings, read):
    computed = _probabilities(method(**settings), block(one_hot(GROUPS)))[0, 0]
    assert torch.allclose(computed, fractions(read), atol=1e-6)


def test_a_token_of_two_groups_reads_both_and_sinks_follow_the_padding():
    both = one_hot(GROUPS)
    both[0, 5] = True
    computed = _probabilities(method(n_sink=0), block(both))[0, 0]
    assert torch.allclose(computed[5], torch.tensor(WEIGHTS) / 21.0)
    computed = _probabilities(method(), block(one_hot("AA" + "BABA"), first=2))[0, 0]  # two tokens of left padding
    assert (computed[:2] == 0).all() and (computed[:, :2] == 0).all()
    assert torch.allclose(computed[5], torch.tensor([0, 0, 3, 4, 5, 6]) / 18)  # sink 2, group 3, window 4 and itself
    assert torch.allclose(computed[4], torch.tensor([0, 0, 3, 4, 5, 0]) / 12)


@pytest.mark.parametrize("form", ["literal", "centred", "log"])
def test_soft_gates_by_hand(form):
    soft = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [1.0, 0.0]]])
    router = FocusRouter(1, 4, groups=2, gate=form, gate_sharpness=4.0, gate_offset=0.25)
    focus, tokens = Focus(router=router, window=1, reading="soft"), block(soft, weights=[2, 3, 5, 7])
    assert focus.mask(tokens) is None
    computed = focus.scores(tokens)[0, 0]
    for query in range(4):
        for key in range(query):
            affinity = sum(float(a) * float(b) for a, b in zip(soft[0, query], soft[0, key], strict=True))
            score = math.log([2, 3, 5, 7][key])
            gate = {
                "literal": score / (1 + math.exp(-4 * affinity)),
                "centred": score / (1 + math.exp(-4 * (affinity - 0.25))),
                "log": score - math.log(1 + math.exp(-4 * (affinity - 0.25))),
            }[form]
            assert computed[query, key] == pytest.approx(gate, abs=1e-5)
        assert computed[query, query] == tokens.scores[0, 0, query, query], "the window is left as it is"


def test_memberships_by_hand_literal_and_causal():
    torch.manual_seed(0)
    router = FocusRouter(1, 4, groups=3)
    hidden, replacement = torch.randn(1, 5, 4), torch.randn(1, 5, 4)
    router.fit_potential([replacement[0]])
    with torch.no_grad():
        logits = (hidden[0] @ router.projection[0] @ router.centroids[0].T / 0.1).double().numpy()
    not_padding = torch.ones(1, 5, dtype=torch.bool)
    biased = np.exp(logits + router.potential[0].double().numpy())
    balanced = np.exp(logits)
    for _ in range(10):
        balanced /= balanced.sum(0, keepdims=True)
        balanced /= balanced.sum(1, keepdims=True)
    changed = hidden.clone()
    changed[0, 4] = replacement[0, 4]
    for name, wanted in (("causal", biased / biased.sum(1, keepdims=True)), ("literal", balanced)):
        focus = Focus(router=router, reading="soft", membership=name)
        groups, moved = (focus.token_features(0, x, not_padding)[0].detach() for x in (hidden, changed))
        np.testing.assert_allclose(groups, wanted, atol=1e-5)
        assert bool((groups - moved)[:4].abs().max() > 1e-4) == (name == "literal"), "a later token moves earlier ones"


def test_memberships_are_the_routers_and_it_says_what_it_was_made_for():
    router = FocusRouter(1, 4, groups=4, top=2)
    hidden = torch.randn(1, 6, 4)
    hard = Focus.build(router).token_features(0, hidden, None)
    assert hard.dtype == torch.bool and (hard.sum(-1) == 2).all()
    through = Focus.build(router, reading="straight_through").token_features(0, hidden, None)
    assert torch.allclose(through, hard.float(), atol=1e-6) and through.requires_grad
    focus = Focus.build(FocusRouter(1, 4, groups=4, top=2, window=9, n_sink=3))
    assert (focus.top, focus.window, focus.n_sink, focus.addon().K) == (2, 9, 3, 4)
    assert Focus.build(focus.router, window=5).window == 5


def test_every_method_describes_itself_as_plain_data():
    plain = json.loads(json.dumps(describe(), allow_nan=False))
    assert list(plain) == list(METHODS) and len({about["title"] for about in plain.values()}) == len(plain)
    fields = {field["name"]: field for field in plain["focus"]["fields"]}
    assert (fields["window"]["default"], fields["window"]["low"], fields["window"]["type"]) == (128, 1, "int")
    assert all(about["doc"] and about["paper"] and about["title"] for about in plain.values())
    assert all(field["help"] for about in plain.values() for field in about["fields"])
