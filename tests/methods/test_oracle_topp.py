"""Oracle top-p: the fewest keys that hold a share of the attention, by hand."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.seam.attention import apply
from tests.made.tiny import tiny, token_ids


def test_the_fewest_keys_that_hold_the_share():
    seen = []
    with torch.no_grad(), apply(tiny("llama"), METHODS["oracle_topp"](p=0.7), watch=lambda *both: seen.append(both)):
        tiny("llama")(token_ids(1, 40), use_cache=False)
    for block, mass in seen:
        scores = block.scores.double().masked_fill(~block.visible, -torch.inf)
        weights = torch.softmax(scores, -1)[0]
        for head in range(4):
            for i in (0, 7, 39):
                order, total, keys = weights[head, i].argsort(descending=True).tolist(), 0.0, set()
                for key in order:
                    if total >= 0.7:
                        break
                    keys.add(key)
                    total += float(weights[head, i, key])
                assert set(block.read[0, head, i].nonzero().flatten().tolist()) == keys
                assert mass[0, head, i].sum() == pytest.approx(1, abs=1e-5)


def test_the_whole_share_is_dense():
    lm, ids = tiny("gpt2"), token_ids(1, 30)
    with torch.no_grad():
        with apply(lm, Method()):
            wanted = lm(ids, use_cache=False).logits
        with apply(lm, METHODS["oracle_topp"](p=1.0)):
            assert torch.equal(lm(ids, use_cache=False).logits, wanted)
    with pytest.raises(BadSetting, match="p of Oracle top-p is 0.0"):
        METHODS["oracle_topp"](p=0.0)
