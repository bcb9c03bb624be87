"""Models with learned sinks: every kernel computes what the masked path does, in the layers whose keys it knows."""

import functools

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from analysis.methods import METHODS
from analysis.seam.attention import apply, ran
from tests.conftest import all_of_them
from tests.contract.test_contract import RULES, AllKeys, logits
from tests.contract.test_kernels import KERNELS, MASKED, expected
from tests.made.tiny import GROUPED, LAYERS, token_ids

WINDOW, SLIDING = 12, 1
SIZES = GROUPED | dict(sliding_window=WINDOW, layer_types=["full_attention", "sliding_attention", "full_attention"])
FAMILIES = {
    "gpt_oss": dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "granite_swa": dict(attention_multiplier=8**-0.5),
}


@functools.cache
def model(family: str):
    """A tiny random model whose sinks take a part of every row and whose second layer has a window."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {family}")
    torch.manual_seed(0)
    config = CONFIG_MAPPING[family](**SIZES, **FAMILIES[family])
    lm = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in lm.named_parameters():
            if "sinks" in name:
                parameter.normal_()
            elif "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
    lm.generation_config.pad_token_id = 0
    return lm


def kernels_of(layers_run, phase: str, sliding: bool) -> set[str]:
    return {entry.kernel for entry in layers_run if entry.phase == phase and (entry.layer == SLIDING) == sliding}


# Sinks and windows sit in both alike; the experts of one take longest.
@pytest.mark.parametrize("family", [pytest.param("gpt_oss", marks=pytest.mark.slow), "granite_swa"])
def test_kernels_compute_what_the_masked_path_does(family, pytestconfig, monkeypatch):
    monkeypatch.setattr("analysis.kernels.grouped.relative_cost", lambda *shape: (0.0, 1.0))  # short texts too
    lm, ids, failed = model(family), token_ids(2, 40), []
    count = 5
    options = dict(max_new_tokens=count, do_sample=False, eos_token_id=None)
    for case, make in KERNELS.items():
        if case in RULES and not all_of_them(pytestconfig):
            continue
        with apply(lm, make()):
            wanted, tokens = logits(lm, input_ids=ids), lm.generate(ids, **options)
        with apply(lm, make(), kernels=True):
            difference = float((logits(lm, input_ids=ids) - wanted).abs().max())
            same_tokens = torch.equal(lm.generate(ids, **options), tokens)
            layers_run = ran(lm)
        by_phase = {phase: kernels_of(layers_run, phase, sliding=False) for phase in ("prefill", "decode")}
        wanted_kernels = {"prefill": {"torch dense"}, "decode": {"torch dense"}}
        if case == "csa eviction":
            # beside learned sinks nothing is freed
            wanted_kernels = {"prefill": {MASKED}, "decode": {MASKED}}
        elif case != "dense":
            wanted_kernels = expected(case, by_phase)
        if not same_tokens or difference > 1e-5 or by_phase != wanted_kernels:
            failed.append(f"{case}: {difference:.1e}, same tokens {same_tokens}, {by_phase} for {wanted_kernels}")
        assert sum(entry.calls for entry in layers_run) == LAYERS * (1 + count)
        in_window = {"torch dense"} if case == "dense" else {MASKED}
        assert kernels_of(layers_run, "prefill", sliding=True) == in_window, case
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("family", FAMILIES)
def test_dense_attention_is_the_stock_model_s(family):
    """By torch's kernel in layers with and without a window, padded too."""
    lm, ids = model(family), token_ids(2, 40)
    padding = torch.ones_like(ids)
    padding[1, :7] = 0
    for options in ({}, {"attention_mask": padding}):
        stock = logits(lm, input_ids=ids, **options)
        with apply(lm, METHODS["dense"]()):
            dense = logits(lm, input_ids=ids, **options)
            assert {entry.kernel for entry in ran(lm)} == {"torch dense"}
        real = padding.bool() if options else slice(None)
        assert (dense - stock)[real].abs().max() < 1e-5


def test_what_no_kernel_takes_beside_sinks_says_so():
    """A gradient, and a method that does not say that its kernel takes them."""
    lm, ids = model("gpt_oss"), token_ids(1, WINDOW - 2)

    class Unaware(AllKeys):
        def attend(self, call):
            raise AssertionError("it would leave the sinks out")

    with torch.no_grad(), apply(lm, Unaware(), kernels=True):
        lm(ids, use_cache=False)
        assert {entry.kernel for entry in ran(lm)} == {MASKED} and all("sink" in entry.why for entry in ran(lm))
    for method in ("dense", "focal", "tova"):
        with apply(lm, METHODS[method](), kernels=True):
            out = lm(ids, use_cache=False).logits
            assert {entry.kernel for entry in ran(lm)} == {MASKED}
        sinks = [parameter for name, parameter in lm.named_parameters() if "sinks" in name]
        assert all(gradient.abs().max() > 0 for gradient in torch.autograd.grad(out.sin().sum(), sinks))


def test_a_gate_has_gradients_beside_sinks():
    lm, ids = model("gpt_oss"), token_ids(1, WINDOW - 2)
    gradients = []
    for kernels in (False, True):
        with apply(lm, KERNELS["focus soft"](), kernels=kernels):
            out = lm(ids, use_cache=False).logits
            assert {entry.kernel for entry in ran(lm)} == {"gate on the scores" if kernels else MASKED}
        sinks = [parameter for name, parameter in lm.named_parameters() if "sinks" in name]
        gradients.append(torch.autograd.grad(out.sin().sum(), sinks))
    for gradient, wanted in zip(*gradients, strict=True):
        assert (gradient - wanted).abs().max() < 1e-4 * max(1, wanted.abs().max())
