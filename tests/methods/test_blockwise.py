"""Block-sparse prompts as methods: the map of every layer is what is read; dense at the limit."""

import pytest
import torch

from analysis.methods import METHODS
from analysis.methods.block_sparse import BLOCK_RULES, block_map
from tests.made.passes import logits, seen, watched
from tests.made.tiny import tiny, token_ids

PREFILL = {
    "skip_softmax": {"scale": 8.0},
    "vertical_slash": {},
    "flex_prefill": {"gamma": 0.3},
    "xattention": {"stride": 4, "threshold": 0.3},
}
GENEROUS = {"skip_softmax": {"scale": 0.0}, "flex_prefill": {"gamma": 1.0}, "xattention": {"threshold": 1.0}}


def test_these_are_all_there_are():
    assert set(PREFILL) == set(BLOCK_RULES) == {name for name, method in METHODS.items() if method.saves == "prefill"}


@pytest.mark.parametrize("name", PREFILL)
def test_a_prompt_reads_the_blocks_of_its_map(name):
    lm, ids = tiny("llama"), token_ids(2, 50)
    prompts, read = seen(lm, ids).prompts, watched(lm, METHODS[name](block=8, **PREFILL[name]), ids)
    # later layers see what earlier ones left out, so their states are other ones
    blocks = block_map(name, prompts[0].query, prompts[0].key, 8, **PREFILL[name])
    pairs = blocks.repeat_interleave(8, 2).repeat_interleave(8, 3)[:, :, :50, :50]
    assert torch.equal(read[0][0].read.expand(2, 4, 50, 50), pairs & torch.ones(50, 50).tril().bool())


@pytest.mark.parametrize("name", GENEROUS)
def test_all_blocks_are_dense_and_few_are_not(name):
    lm, ids = tiny("llama"), token_ids(2, 50)
    wanted = logits(lm, ids)
    assert torch.equal(logits(lm, ids, METHODS[name](block=8, **GENEROUS[name])), wanted)
    if name != "skip_softmax":  # which leaves out what does not matter
        assert (logits(lm, ids, METHODS[name](block=8, **PREFILL[name])) - wanted).abs().max() > 1e-3
