"""Focus with groups in some layers alone: what these and the others read, with kernels and from a cache."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods.focus import Focus
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.statistics import attention_inputs
from analysis.take.carry import carry
from tests.made.tiny import tiny, token_ids

WINDOW = 3


@pytest.fixture(scope="module")
def routed():
    model = load_model(tiny("llama"))
    router = FocusRouter(model.num_layers, model.width, groups=4, window=WINDOW, grouped_layers=[1])
    ids = token_ids(1, 40, seed=3)
    return model, router.fit_potential(attention_inputs(model, [ids[0].numpy()])), ids


def test_only_the_named_layers_read_by_groups(routed):
    """Layer 0 is dense, so what enters layer 1 is what enters it in the model as it is; its groups tell what it
    reads, pair by pair."""
    model, router, ids = routed
    read = {}
    with apply(model, Focus.build(router), watch=lambda b, p: read.setdefault(b.layer, p[0] > 0)), torch.no_grad():
        model.lm(ids)
    causal = torch.ones(40, 40).tril() > 0
    assert torch.equal(read[0], causal.expand_as(read[0])) and torch.equal(read[2], causal.expand_as(read[2]))
    members = router.members(1, attention_inputs(model, [ids[0].numpy()])[1]).float()
    near = torch.arange(40)[:, None] - torch.arange(40) < WINDOW
    wanted = causal & (near | (members @ members.T > 0))
    assert torch.equal(read[1], wanted.expand_as(read[1])) and not torch.equal(wanted, causal)


@pytest.mark.parametrize("reading", ["hard", "soft"])
def test_kernels_and_the_masked_pass_agree(routed, reading):
    model, router, ids = routed
    logits = []
    for kernels in (False, True):
        with apply(model, Focus.build(router, reading=reading), kernels=kernels), torch.no_grad():
            logits.append(model.lm(ids).logits)
    assert torch.allclose(*logits, atol=1e-5)


def test_a_token_after_a_prompt_reads_the_same_from_the_cache(routed):
    model, router, ids = routed
    method = Focus.build(router)
    with apply(model, method, kernels=True), torch.no_grad():
        one_pass, cache = model.lm(ids).logits[:, -1], method.cache(model.lm)
        model.lm(ids[:, :-1], past_key_values=cache, use_cache=True)
        last = model.lm(ids[:, -1:], past_key_values=cache, use_cache=True).logits[:, -1]
    assert torch.allclose(last, one_pass, atol=1e-5)


def test_what_cannot_leave_is_refused_and_the_choice_comes_back_from_its_file(routed, tmp_path):
    model, router, _ = routed
    with pytest.raises(BadSetting, match="groups in every layer only"):
        carry("focus", Focus.build(router), model.num_layers)
    router.save(tmp_path / "r")
    assert FocusRouter.load(tmp_path / "r").grouped == [1]
