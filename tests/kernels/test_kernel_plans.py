"""Which kernel runs and why, and what grouped attention refuses."""

import pytest
import torch

from analysis.errors import AnalysisError, BadSetting
from analysis.groups.controls import random_tokens
from analysis.kernels import compiled, grouped_attention, plan
from analysis.kernels.members import kept_pairs
from analysis.kernels.reference import kept

BUILT = pytest.mark.skipif(not compiled.programs(), reason="no C++ compiler is here")


def chosen(members, window=128, dtype=torch.float32, device="cpu", **more):
    return plan(members, window, 8, 64, dtype, device, **more)


@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=BUILT)])
def test_one_group_per_token_runs_by_groups_and_says_what_it_costs(backend):
    made = chosen(random_tokens(16384, 8, 1), backend=backend)
    assert (made.kernel, made.backend) == ("groups", backend) and made.cost < 0.5 and "of dense" in made.why
    assert 1 / made.retained == pytest.approx(7.2, abs=0.2)
    assert made.retained < made.computed < 2 * made.retained


def test_without_a_compiler_torch_runs(monkeypatch):
    monkeypatch.setattr(compiled, "programs", dict)
    assert chosen(random_tokens(16384, 8, 1)).backend == "torch"
    with pytest.raises(
        BadSetting, match="at most 31 groups, and needs a C\\+\\+ compiler; this is float32 on cpu with 8 groups"
    ):
        chosen(random_tokens(4096, 8, 1), backend="compiled")


@BUILT
def test_the_compiled_kernel_runs_where_it_can_and_a_dense_plan_stays_with_torch():
    members = random_tokens(4096, 8, 1)
    assert chosen(members).backend == "compiled" and chosen(members, dtype=torch.float16).backend == "torch"
    assert chosen(random_tokens(4096, 32, 1)).backend == "torch", "a bit for each group"
    assert chosen(members, window=4096).backend == chosen(random_tokens(4096, 4, 3)).backend == "torch"


def test_several_groups_run_by_lowest_shared_group_where_that_pays():
    made = chosen(random_tokens(32768, 16, 2))
    assert made.kernel == "lowest shared group" and made.cost < 0.6
    assert made.retained == pytest.approx(0.242 + 0.758 * 2 * 128 / 32768, abs=0.01)


def test_where_sparse_cannot_win_masked_dense_runs_and_says_so():
    made = chosen(random_tokens(4096, 8, 3))  # 82% of the pairs, computed 1.1 times
    assert made.kernel == "masked" and "would take" in made.why and made.retained > 0.8
    unmasked = torch.randn(1, 2, 300, 8)
    members = random_tokens(300, 8, 3)
    assert plan(members, 2, 2, 8, torch.float32, "cpu").kernel == "masked"
    out = grouped_attention(unmasked, unmasked, unmasked, members, 2)[0]
    dense = torch.nn.functional.scaled_dot_product_attention(unmasked, unmasked, unmasked, is_causal=True)
    assert (out - dense).abs().max() > 0.1, "masked dense is not dense"


@pytest.mark.parametrize(
    "members, window, said",
    [
        (random_tokens(100, 8, 1), 100, "The window of 100 tokens covers all 100"),
        (random_tokens(500, 4, 4), 5, "4 or more of 4 groups"),
        (random_tokens(500, 4, 3), 5, "3 or more of 4 groups, so any two share one"),
        (random_tokens(500, 4, 1) | torch.tensor([False, True, False, False]), 5, "One group holds every token"),
        (random_tokens(1, 4, 1), 1, "covers all 1"),
    ],
)
def test_a_mask_that_is_causal_runs_plain_dense(members, window, said):
    made = chosen(members, window)
    assert made.kernel == "causal" and said in made.why and made.retained == 1


def test_half_the_groups_are_not_enough():
    """With 2 k = K two tokens may share nothing."""
    assert chosen(random_tokens(500, 4, 2), 5).kernel != "causal"
    some = random_tokens(500, 4, 3)
    some[17] = False
    assert chosen(some, 5).kernel != "causal", "one token without groups is enough"


def test_pairs_are_counted_exactly_also_where_bit_sets_are_many():
    draw = torch.Generator().manual_seed(0)
    for groups in (8, 15, 31, 64):
        members = torch.rand(2, 130, groups, generator=draw) < 1.5 / groups
        members[0, 3, groups - 1] = members[0, 99, groups - 1] = True  # the highest bit
        for window in (1, 9, 500):
            assert kept_pairs(members, window) == int(kept(members, torch.arange(130), 130, window).sum())
    assert kept_pairs(random_tokens(9, 4, 4)[None], 1) == 45


def test_backends_that_are_asked_for():
    members = random_tokens(4096, 8, 1)
    made = chosen(members, backend="reference")
    assert made.backend == "reference" and made.computed == 1 and made.retained < 0.3
    assert chosen(members, dtype=torch.float64).backend == "reference"
    assert chosen(members, device="meta").backend == "reference"
    assert chosen(members, dtype=torch.bfloat16, device="cuda").kernel == "groups"
    assert chosen(members, dtype=torch.float32, device="cuda").kernel == "masked"
    wide = plan(random_tokens(4096, 32, 1), 128, 8, 240, torch.bfloat16, "cuda")
    assert wide.kernel == "masked" and "240 head dimensions and 32 groups exceed" in wide.why
    assert plan(members, 128, 8, 20, torch.bfloat16, "cuda").backend == "reference", "20 is no multiple of 8"


REFUSED = {
    "an unknown backend": (dict(backend="magic"), "'magic' and must be one of auto, reference, compiled, torch"),
    "flash-attn that is absent": (dict(backend="flash_attn"), "which is not installed"),
    "float64 on torch": (dict(backend="torch", dtype=torch.float64), "not float64: use reference"),
    "a device torch has no kernel for": (dict(backend="torch", device="meta"), "tensors are on meta"),
    "an odd head size on a GPU": (dict(backend="torch", dtype=torch.float16, device="cuda", head_dim=20), "one is 20"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_backends_refuse_what_they_cannot_do(case):
    given, said = REFUSED[case]
    size, kind, device = given.pop("head_dim", 64), given.pop("dtype", torch.float32), given.pop("device", "cpu")
    with pytest.raises(BadSetting, match=said) as error:
        plan(random_tokens(300, 4, 1), 9, 8, size, kind, device, **given)
    assert str(error.value).endswith(".")


def tensors(dtype=torch.float32, heads=4, kv_heads=2):
    return [torch.randn(2, n, 40, 8).to(dtype) for n in (heads, kv_heads, kv_heads)]


def test_a_gradient_that_the_kernel_lacks_is_refused_and_the_reference_has_it():
    q, k, v = tensors()
    q.requires_grad_()
    members = random_tokens(40, 4, 1)
    with pytest.raises(BadSetting, match="has no gradient: use the backend reference, or torch.no_grad()"):
        grouped_attention(q, k, v, members, 4)
    with torch.no_grad():
        grouped_attention(q, k, v, members, 4)
    out, lse = grouped_attention(q, k, v, members, 4, backend="reference")
    (out.sum() + lse.sum()).backward()
    assert q.grad.abs().sum() > 0


BAD = {
    "three dimensions": (lambda q, k, v: dict(q=q[0]), r"q \[4, 40, 8\], k \[2, 2, 40, 8\]"),
    "another length": (lambda q, k, v: dict(q=q[:, :, :30]), "must agree and G divide H"),
    "heads that do not divide": (lambda q, k, v: dict(q=q[:, :3]), "G divide H"),
    "values of another size": (lambda q, k, v: dict(v=v[..., :4]), "none empty, and got"),
    "no tokens": (lambda q, k, v: dict(q=q[:, :, :0], k=k[:, :, :0], v=v[:, :, :0]), "none empty"),
    "mixed types": (lambda q, k, v: dict(v=v.double()), "torch.float32 and torch.float64"),
    "whole numbers": (lambda q, k, v: dict(q=q.int(), k=k.int(), v=v.int()), "one floating type"),
    "members of no bool": (lambda q, k, v: dict(members=torch.ones(2, 40, 4)), r"and are float32 \[2, 40, 4\]"),
    "members of another length": (lambda q, k, v: dict(members=torch.ones(2, 39, 4).bool()), r"bool \[2, 39, 4\]"),
    "members of another batch": (lambda q, k, v: dict(members=torch.ones(3, 40, 4).bool()), r"bool \[3, 40, 4\]"),
    "too many groups": (lambda q, k, v: dict(members=torch.ones(40, 65).bool()), "K from 1 to 64"),
    "no groups": (lambda q, k, v: dict(members=torch.ones(40, 0).bool()), "K from 1 to 64"),
    "no window": (lambda q, k, v: dict(window=0), "The window is 0 and must be a whole number from 1 on"),
    "half a window": (lambda q, k, v: dict(window=1.5), "The window is 1.5"),
    "no scale": (lambda q, k, v: dict(scale=0.0), "The scale is 0.0 and must be above 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_together_is_one_sentence(case):
    q, k, v = tensors()
    change, said = BAD[case]
    given = {"q": q, "k": k, "v": v, "members": random_tokens(40, 4, 1), "window": 3} | change(q, k, v)
    with pytest.raises(AnalysisError, match=said) as error:
        grouped_attention(**given)
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


@pytest.mark.parametrize("window, members", [(w, random_tokens(40, 8, k)) for w, k in ((3, 1), (3, 3), (99, 1))])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_nan_in_q_is_counted(window, members, backend):
    q, k, v = tensors()
    q[0, 1, 5, 2] = q[1, 0, 39, 0] = float("nan")
    with pytest.raises(BadSetting, match="2 of the 2,560 values of q are NaN or infinite"):
        grouped_attention(q, k, v, members, window, backend=backend)
    q, k, v = tensors()
    k[0, 1, 5, 2] = float("inf")
    with pytest.raises(BadSetting, match="1 of the 1,280 values of k are NaN or infinite"):
        grouped_attention(q, k, v, members, window, backend=backend)
