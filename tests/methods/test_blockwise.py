"""Block-sparse prompts as methods: the map of every layer, the kernel beside the mask, dense at the limit."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.block_sparse import block_map
from analysis.seam.attention import apply, ran
from tests.made.tiny import left_padded, tiny, token_ids

PREFILL = {
    "skip_softmax": {"scale": 8.0},
    "vertical_slash": {},
    "flex_prefill": {"gamma": 0.3},
    "xattention": {"stride": 4, "threshold": 0.3},
}
GENEROUS = {"skip_softmax": {"scale": 0.0}, "flex_prefill": {"gamma": 1.0}, "xattention": {"threshold": 1.0}}


def logits(lm, ids, **inputs):
    with torch.no_grad():
        return lm(ids, use_cache=False, **inputs).logits


def test_these_are_all_there_are():
    assert set(PREFILL) == {name for name, made in METHODS.items() if made.saves == "prefill"}


@pytest.mark.parametrize("name", PREFILL)
def test_a_prompt_reads_the_blocks_of_its_map(name):
    lm, ids, seen = tiny("llama"), token_ids(2, 50), []

    class Seen(METHODS[name]):
        def prefill(self, prompt):
            super().prefill(prompt)
            seen.append(block_map(name, prompt.query, prompt.key, 8, **PREFILL[name]))

    reads = []
    with apply(lm, Seen(block=8, **PREFILL[name]), watch=lambda block, _: reads.append(block.read)):
        logits(lm, ids)
    for blocks, read in zip(seen, reads, strict=True):
        pairs = blocks.repeat_interleave(8, 2).repeat_interleave(8, 3)[:, :, :50, :50]
        assert torch.equal(read.expand(2, 4, 50, 50), pairs & torch.ones(50, 50).tril().bool())


@pytest.mark.parametrize("name", PREFILL)
def test_the_kernel_computes_what_the_mask_does(name):
    lm, ids = tiny("qwen3"), token_ids(2, 50)
    options = dict(max_new_tokens=6, do_sample=False, eos_token_id=None)
    method = METHODS[name](block=8, **PREFILL[name])
    with apply(lm, method):
        wanted, tokens = logits(lm, ids), lm.generate(ids, **options)
    with apply(lm, method, kernels=True):
        assert (logits(lm, ids) - wanted).abs().max() < 1e-5
        assert torch.equal(lm.generate(ids, **options), tokens)
        assert {one.phase: one.kernel for one in ran(lm)} == {"prefill": "kept blocks", "decode": "torch dense"}
        assert all("of the blocks are kept" in one.why for one in ran(lm) if one.phase == "prefill")


@pytest.mark.parametrize("name", GENEROUS)
def test_all_blocks_are_dense_and_few_are_not(name):
    lm, ids = tiny("llama"), token_ids(2, 50)
    with apply(lm, Method()):
        wanted = logits(lm, ids)
    with apply(lm, METHODS[name](block=8, **GENEROUS[name])):
        assert torch.equal(logits(lm, ids), wanted)
    if name != "skip_softmax":  # which leaves out what does not matter
        with apply(lm, METHODS[name](block=8, **PREFILL[name])):
            assert (logits(lm, ids) - wanted).abs().max() > 1e-3


def test_padding_begins_no_block():
    lm, (ids, mask) = tiny("llama"), left_padded(2, 50)
    places, method = (mask.cumsum(1) - 1).clamp(min=0), METHODS["xattention"](block=8, **PREFILL["xattention"])
    with apply(lm, method):
        together = logits(lm, ids, attention_mask=mask, position_ids=places)[1:, 5:]
        assert (together - logits(lm, ids[1:, 5:])).abs().max() < 1e-4


def test_a_square_must_fit_into_a_block():
    with pytest.raises(BadSetting, match="stride is 5 and must divide the block of 128"):
        METHODS["xattention"](stride=5).check(tiny("llama"))
