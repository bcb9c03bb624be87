"""The contract matrix of the kernels: each computes what the masked path does, and runs only where it is exact."""

from dataclasses import replace

import pytest
import torch

from analysis.methods import METHODS
from analysis.seam.arguments import as_past, past_of
from analysis.seam.attention import apply, ran
from tests.conftest import all_of_them
from tests.contract.test_contract import CASES, AllKeys, copy_of, every_case, logits, router
from tests.made.tiny import BY_KIND, LAYERS, tiny, token_ids


def with_empty_groups():
    sparse_router = router(6)
    sparse_router.potential[:, 2:] = -1e4
    return METHODS["focus"].build(sparse_router)


def whole_prompt(case: str):
    """The method of a case with the whole first call for its prompt, as it generates."""
    method = CASES[case]()
    return lambda: replace(method, cut=0)


AT_THE_END = {case: whole_prompt(case) for case in CASES if METHODS[case.split()[0]].saves != "reads"}
KERNELS = (
    CASES
    | AT_THE_END
    | {
        "focus literal gate": lambda: METHODS["focus"].build(router().variant(gate="literal"), reading="soft"),
        "focus straight through": lambda: METHODS["focus"].build(router(6, 2), reading="straight_through", n_sink=2),
        "focus window 1": lambda: METHODS["focus"].build(router(6, 2), window=1),
        "focus window beyond the text": lambda: METHODS["focus"].build(router(), window=500),
        "focus with empty groups": with_empty_groups,
    }
)
MASKED = "masked blocks"
GROUPED_KERNELS = {f"{name} ({by})" for name in ("groups", "lowest shared group") for by in ("torch", "compiled")}


def expected(case: str, ran_here: dict[str, set[str]]) -> dict[str, set[str]]:
    """The kernels of a case by phase where they are exact; of grouped attention, whichever of its kernels ran."""
    name = case.split()[0]
    if case in ("focus soft", "focus literal gate", "focus straight through"):
        return {"prefill": {"gate on the scores"}, "decode": {MASKED}}
    if name == "focus":
        assert ran_here["prefill"] <= ({"causal (torch)"} if "beyond" in case else GROUPED_KERNELS)
        return {"prefill": ran_here["prefill"], "decode": {"group-major cache"}}
    if case in AT_THE_END:
        memory = METHODS[name].saves == "memory"
        prompt, step = ("dense, then compacted", "compacted cache") if memory else ("kept blocks", "torch dense")
        return {"prefill": {prompt}, "decode": {step}}
    masked = {"prefill": {MASKED}, "decode": {MASKED}}
    kernels = {
        "focal": {"prefill": {"torch dense"}, "decode": {"torch dense"}},
        "focal_learned": {"prefill": {"torch dense"}, "decode": {"torch dense"}},
        "csa": {"prefill": {"top-k of all scores"}, "decode": {"gathered top-k"}},
        # its first layer reads everything
        "quest": {"prefill": {"torch dense", MASKED}, "decode": {"torch dense", "gathered pages"}},
        "bucket_routing": {"prefill": {MASKED}, "decode": {"gathered buckets"}},
        "indexer": {"prefill": {"chosen keys"}, "decode": {"gathered keys"}},
    }
    if case == "csa eviction":
        # without a cache there is nothing to free
        return {"prefill": {"evicting cache", MASKED}, "decode": {"evicting cache"}}
    # packed keys are unpacked for the masked pass
    return masked if case == "csa int4" else kernels.get(name, masked)


@pytest.mark.parametrize("family", BY_KIND)
def test_kernels_compute_what_the_masked_path_does(family, pytestconfig, monkeypatch):
    # On one as many again as the prompt has; else past the next page of 4 tokens.
    count = 41 if family == "llama" and all_of_them(pytestconfig) else 5
    monkeypatch.setattr("analysis.kernels.grouped.relative_cost", lambda *shape: (0.0, 1.0))  # short texts too

    def check(case, lm):
        ids = token_ids(2, 40)
        options = dict(max_new_tokens=count, do_sample=False, eos_token_id=None)
        before = {id(m): set(m.__dict__) for m in lm.modules()}
        with apply(lm, KERNELS[case]()):
            wanted, tokens = logits(lm, input_ids=ids), lm.generate(ids, **options)
            assert case == "dense" or {entry.kernel for entry in ran(lm)} == {"masked blocks"}
        with apply(lm, KERNELS[case](), kernels=True):
            assert (logits(lm, input_ids=ids) - wanted).abs().max() < 1e-5
            assert torch.equal(lm.generate(ids, **options), tokens)
            used = ran(lm)
        assert ran(lm) == [] and {id(m): set(m.__dict__) for m in lm.modules()} == before
        assert {entry.layer for entry in used} == set(range(LAYERS)) and all(entry.why.endswith(".") for entry in used)
        assert sum(entry.calls for entry in used) == LAYERS * (1 + count)
        by_phase = {phase: {entry.kernel for entry in used if entry.phase == phase} for phase in ("prefill", "decode")}
        bounded = family in ("mistral", "gemma2")  # their layers have windows or caps, which no kernel takes
        if case != "dense":
            assert by_phase == ({"prefill": {MASKED}, "decode": {MASKED}} if bounded else expected(case, by_phase))

    every_case(family, check, pytestconfig, KERNELS)


def test_a_kernel_runs_only_where_it_is_exact():
    lm, ids = tiny("llama"), token_ids(1, 20)
    method = METHODS["focus"].build(router())

    def why(model=lm, used=method, **settings):
        with apply(model, used, kernels=True, **settings):
            model(ids, use_cache=False)
            return {entry.kernel: entry.why for entry in ran(model)}.get("masked blocks", "")

    with torch.no_grad():
        assert why() == "" and "watches" in why(watch=lambda block, probabilities: None)
        assert why(used=METHODS["focus"].build(router(), reading="soft")) == ""
        for options in ({"reading": "straight_through"}, {"membership": "literal"}):
            assert why(used=METHODS["focus"].build(router(), **options)) == ""
        assert "no kernel of its own" in why(used=AllKeys())
    with apply(lm, method, kernels=True):
        lm(ids, use_cache=False)
        assert {entry.kernel for entry in ran(lm)} == {"gate on the scores"}, "the others have no gradient"
    training = copy_of(tiny("gpt2")).train()
    with torch.no_grad():
        assert "dropout" in why(training)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_kernels_in_other_types(dtype):
    lm, ids = copy_of(tiny("llama")).to(dtype), token_ids(2, 40)
    close = 0.1 if dtype == torch.bfloat16 else 1e-6  # the reference takes its softmax in float32
    for case in ("focus", "focus top 2 with sinks"):
        with apply(lm, CASES[case]()):
            wanted = logits(lm, input_ids=ids)
        with apply(lm, CASES[case](), kernels=True), torch.no_grad():
            first = lm(ids[:, :39], **as_past(lm, CASES[case]().cache(lm)), use_cache=True)
            last = lm(ids[:, 39:], **as_past(lm, past_of(first)), use_cache=True).logits
        assert (torch.cat([first.logits, last], 1) - wanted).abs().max() < close
