"""Which kernel runs and why, and what grouped attention refuses."""

import pytest
import torch

from analysis.errors import BadSetting
from analysis.groups.controls import random_tokens
from analysis.kernels import grouped_attention, native, plan
from analysis.kernels.members import kept_pairs
from analysis.kernels.native import compiled
from analysis.kernels.reference import kept

BUILT = pytest.mark.skipif(not compiled.programs(), reason="no C++ compiler is here")
FLOAT, HALF = torch.float32, torch.bfloat16
ONE = random_tokens(4096, 8, 1)


def chosen(members, window=128, dtype=FLOAT, device="cpu", head_dim=64, backend="auto"):
    return plan(members, window, 8, head_dim, dtype, device, backend)


@pytest.mark.parametrize("backend", ["torch", pytest.param("compiled", marks=BUILT)])
def test_one_group_per_token_runs_by_groups_and_says_what_it_costs(backend):
    built = chosen(random_tokens(16384, 8, 1), backend=backend)
    assert (built.kernel, built.backend) == ("groups", backend) and built.cost < 0.5
    assert 1 / built.retained == pytest.approx(7.2, abs=0.2)
    assert built.retained < built.computed < 2 * built.retained


def test_without_a_compiler_torch_runs(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    assert chosen(ONE).backend == "torch"
    with pytest.raises(BadSetting, match="at most 31 groups, and needs a C\\+\\+ compiler; this is float32 on cpu"):
        chosen(ONE, backend="compiled")


def test_several_groups_run_by_lowest_shared_group_where_that_pays_and_else_masked():
    built = chosen(random_tokens(32768, 16, 2))
    assert built.kernel == "lowest shared group" and built.cost < 0.6
    assert built.retained == pytest.approx(0.242 + 0.758 * 2 * 128 / 32768, abs=0.01)
    built = chosen(random_tokens(4096, 8, 3))  # 82% of the pairs, computed 1.1 times
    assert built.kernel == "masked" and built.cost == 1.5 and built.retained > 0.8
    q, members = torch.randn(1, 2, 300, 8), random_tokens(300, 8, 3)
    assert plan(members, 2, 2, 8, FLOAT, "cpu").kernel == "masked"
    dense = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert (grouped_attention(q, q, q, members, 2)[0] - dense).abs().max() > 0.1, "masked dense is not dense"


@pytest.mark.parametrize(
    "members, window, kernel",
    [
        (random_tokens(100, 8, 1), 100, "causal"),
        (random_tokens(1, 4, 1), 1, "causal"),
        (random_tokens(500, 4, 4), 5, "causal"),
        # any two of three of four groups overlap; of two of four they need not
        (random_tokens(500, 4, 3), 5, "causal"),
        (random_tokens(500, 4, 2), 5, None),
        (random_tokens(500, 4, 3) & (torch.arange(500) != 17)[:, None], 5, None),
        (random_tokens(500, 4, 1) | torch.tensor([False, True, False, False]), 5, "causal"),
    ],
)
def test_a_mask_that_is_causal_runs_plain_dense(members, window, kernel):
    built = chosen(members, window)
    assert (built.kernel == "causal") == (built.retained == 1) == (kernel == "causal")


def test_pairs_are_counted_exactly_also_where_bit_sets_are_many():
    draw = torch.Generator().manual_seed(0)
    for groups in (8, 15, 31, 64):
        members = torch.rand(2, 130, groups, generator=draw) < 1.5 / groups
        members[0, 3, groups - 1] = members[0, 99, groups - 1] = True  # the highest bit
        for window in (1, 9, 500):
            assert kept_pairs(members, window) == int(kept(members, torch.arange(130), 130, window).sum())


@pytest.mark.parametrize(
    "options, backend, kernel",
    [
        ({"backend": "reference"}, "reference", "masked"),
        ({"dtype": torch.float64}, "reference", "masked"),
        ({"device": "meta"}, "reference", "masked"),
        ({"dtype": HALF, "device": "cuda"}, "torch", "groups"),
        # no multiple of 8
        ({"dtype": HALF, "device": "cuda", "head_dim": 20}, "reference", "masked"),
        # 240 dimensions and 8 groups fill a head of 256 at most
        ({"dtype": HALF, "device": "cuda", "head_dim": 256}, "torch", "masked"),
        ({"device": "cuda"}, "torch", "masked"),
        ({"dtype": torch.float16}, "torch", "groups"),
        ({"window": 4096}, "torch", "causal"),
        ({"members": random_tokens(4096, 32, 1)}, "torch", "groups"),
        pytest.param({}, "compiled", "groups", marks=BUILT),
    ],
    ids=str,
)
def test_what_runs_where(options, backend, kernel):
    built = chosen(**{"members": ONE} | options)
    assert (built.backend, built.kernel) == (backend, kernel)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"backend": "magic"}, "'magic' and must be one of auto, reference, compiled, torch, flash_attn"),
        ({"backend": "torch", "dtype": torch.float64}, "not float64: use auto or reference"),
        ({"backend": "torch", "device": "meta"}, "tensors are on meta"),
        ({"backend": "flash_attn", "dtype": HALF, "device": "cuda"}, "needs the package flash-attn"),
        ({"backend": "torch", "dtype": torch.float16, "device": "cuda", "head_dim": 20}, "this one is 20"),
        pytest.param({"backend": "compiled", "dtype": HALF, "head_dim": 17}, "heads of 17"),
    ],
    ids=str,
)
def test_backends_refuse_what_they_cannot_do(options, message):
    with pytest.raises(BadSetting, match=message):
        chosen(ONE, **options)


def tensors():
    return [torch.randn(2, heads, 40, 8) for heads in (4, 2, 2)]


def test_a_gradient_that_the_kernel_lacks_is_refused_and_the_reference_has_it():
    q, k, v = tensors()
    q.requires_grad_()
    members = random_tokens(40, 4, 1)
    with pytest.raises(BadSetting, match="has no gradient"):
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
def test_what_does_not_fit_together_is_refused(case):
    q, k, v = tensors()
    change, words = BAD[case]
    with pytest.raises(BadSetting, match=words):
        grouped_attention(**{"q": q, "k": k, "v": v, "members": random_tokens(40, 4, 1), "window": 3} | change(q, k, v))


@pytest.mark.parametrize("window, members", [(w, random_tokens(40, 8, k)) for w, k in ((3, 1), (3, 3), (99, 1))])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_nan_in_q_is_counted(window, members, backend):
    for name, places in (("q", [(0, 1, 5, 2), (1, 0, 39, 0)]), ("k", [(0, 1, 5, 2)])):
        arguments = dict(zip("qkv", tensors(), strict=True))
        for place in places:
            arguments[name][place] = float("nan")
        with pytest.raises(BadSetting, match=f"{len(places)} of the [0-9,]+ values of {name} are NaN or infinite"):
            grouped_attention(**arguments, members=members, window=window, backend=backend)
