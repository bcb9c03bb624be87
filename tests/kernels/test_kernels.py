"""Grouped attention is exact: against float64 on random shapes, by hand on tiny ones, and it says what it runs."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.kernels import compiled, cpu, grouped_attention, plan, reference, window
from analysis.kernels.merge import merge, merges, read_sinks
from analysis.timing import peak_bytes

KERNELS = {"groups": cpu.groups, "masked": cpu.masked}
COMPILED = {"compiled": compiled.groups}
IN_FLOAT32 = KERNELS | (COMPILED if torch.float32 in compiled.programs() else {})
IN_TILES = pytest.mark.skipif(torch.bfloat16 not in compiled.programs(), reason="this processor has no tiles")


def made(batch, heads, kv_heads, length, size, dtype=torch.float32, seed=0):
    """Unit-normal q, k, v."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, n, length, size, generator=draw).to(dtype) for n in (heads, kv_heads, kv_heads)]


def one_group(length, groups, batch=1, seed=0):
    """Each token in one random group: bool [B, T, K]."""
    chosen = torch.randint(groups, (batch, length), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(chosen, groups).bool()


def by_hand(q, k, v, members, window):
    """The definition in one line each, T x T, float64: out, lse, and the pairs that are kept."""
    q, k, v = q.double(), *(x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    place = torch.arange(q.shape[2], device=q.device)
    shared = (members[:, :, None] & members[:, None]).any(-1)
    keep = (shared | (place[:, None] - place < window)) & (place[:, None] >= place)
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~keep[:, None], float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1), keep


@st.composite
def cases(draw):
    """Shapes, memberships and a window: T 1..700, K 1..16, 0..K groups per token, empty groups, heads shared."""
    length, groups, batch = draw(st.integers(1, 700)), draw(st.integers(1, 16)), draw(st.integers(1, 3))
    kv_heads, size = draw(st.sampled_from([1, 2])), draw(st.sampled_from([4, 17, 32, 64]))
    window = draw(st.one_of(st.integers(1, 140), st.integers(1, 900)))
    random = torch.rand(batch, length, groups, generator=torch.Generator().manual_seed(draw(st.integers(0, 999))))
    kind = draw(st.sampled_from(["one", "at most one", "exactly k", "any", "sparse", "none"]))
    if kind in ("one", "at most one"):
        members = random == random.amax(-1, keepdim=True)
        members &= (random.amax(-1, keepdim=True) > 0.4) | (kind == "one")
    elif kind == "exactly k":
        chosen = random.topk(draw(st.integers(1, groups)), -1).indices
        members = torch.zeros_like(random, dtype=torch.bool).scatter_(-1, chosen, True)
    else:
        members = random < {"any": 0.5, "sparse": 0.1, "none": 0.0}[kind]
    if draw(st.booleans()):
        members[..., draw(st.integers(0, groups - 1))] = False
    return (batch, kv_heads * draw(st.sampled_from([1, 2])), kv_heads, length, size), members, window


@pytest.fixture
def small_blocks(monkeypatch):
    """Everything that is done in pieces is done in small ones: few tokens then have borders of all kinds."""
    for module, name, size in ((cpu, "SPAN", 90), (cpu, "MASKED_ROWS", 100), (window, "TOKENS", 64)):
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(reference, "BLOCK", 50)


@pytest.mark.slow
@settings(max_examples=220)
@given(cases(), st.booleans())
def test_every_kernel_is_exact_in_float32(case, doubled):
    exact_in_float32(case, doubled)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_every_kernel_is_exact_in_small_blocks(small_blocks, case):
    exact_in_float32(case, False)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_every_kernel_is_exact_in_small_blocks_of_a_hundred_cases(small_blocks, case):
    exact_in_float32(case, False)


def exact_in_float32(case, doubled):
    """The planned kernel and every other one against the definition in float64; the count of pairs too."""
    shape, members, window = case
    q, k, v = made(*shape)
    q = q * 2 if doubled else q
    out, lse, keep = by_hand(q, k, v, members, window)
    chosen = plan(members, window, shape[1], shape[-1], q.dtype, "cpu")
    assert chosen.pairs == int(keep.sum())
    found = {chosen.kernel: grouped_attention(q, k, v, members, window)}
    for name, kernel in IN_FLOAT32.items():
        found.setdefault(name, kernel(q, k, v, members, window, shape[-1] ** -0.5))
    for name, (mine, sums) in found.items():
        assert (mine - out).abs().max() < (1e-5 if doubled else 5e-6), (name, chosen)
        assert (sums - lse).abs().max() < 1e-5 and sums.dtype == torch.float32, (name, chosen)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_the_reference_is_the_definition_and_has_gradients(small_blocks, case):
    shape, members, window = case
    q, k, v = (x.double().requires_grad_() for x in made(*shape))
    out, lse, _ = by_hand(q, k, v, members, window)
    mine, sums = grouped_attention(q, k, v, members, window, backend="reference")
    assert (mine - out).abs().max() < 1e-12 and (sums - lse).abs().max() < 1e-12
    wanted = torch.autograd.grad((out.sin().sum() + lse.cos().sum()), (q, k, v))
    got = torch.autograd.grad((mine.sin().sum() + sums.cos().sum()), (q, k, v))
    assert max((a - b).abs().max() for a, b in zip(wanted, got, strict=True)) < 1e-10


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("window", [1, 100, 300])
def test_half_precision_errs_like_its_rounding(dtype, bound, several, window):
    q, k, v = made(2, 4, 2, 600, 32, dtype)
    members = one_group(600, 8, 2) | (one_group(600, 8, 2, seed=5) & several)
    out, lse, _ = by_hand(q, k, v, members, window)
    for kernel in (KERNELS | (COMPILED if dtype in compiled.programs() else {})).values():
        mine, sums = kernel(q, k, v, members, window, 32**-0.5)
        assert mine.dtype == dtype and (mine - out).abs().max() < bound and (sums - lse).abs().max() < 2e-3


@IN_TILES
@settings(max_examples=40)
@given(cases())
def test_tiles_of_bfloat16_err_like_their_rounding(case):
    """Scores and sums in float32: the logsumexp is exact; weights and values are rounded to 8 bits."""
    shape, members, window = case
    shape = (*shape[:-1], shape[-1] // 2 * 2)  # numbers come in pairs
    q, k, v = made(*shape, torch.bfloat16)
    out, lse, _ = by_hand(q, k, v, members, window)
    mine, sums = compiled.groups(q, k, v, members, window, shape[-1] ** -0.5)
    assert mine.dtype == torch.bfloat16 and (mine - out).abs().max() < 2e-2 and (sums - lse).abs().max() < 1e-5


@settings(max_examples=40)
@given(cases(), st.integers(1, 40))
def test_sinks_are_read_by_all_whatever_computes(case, n_sink):
    """First tokens far back and of other groups, none counted twice: where they are merged, and in the program's own
    pass over the window."""
    shape, members, window = case
    q, k, v = made(*shape)
    out, lse, _ = by_hand(q, k, v, members, window)
    wanted, sums = read_sinks(out, lse, q.double(), k.double(), v.double(), members, window, n_sink, shape[-1] ** -0.5)
    for backend in ("auto", "torch"):
        mine, found = grouped_attention(q, k, v, members, window, backend=backend, n_sink=n_sink)
        assert (mine - wanted).abs().max() < 1e-5 and (found - sums).abs().max() < 1e-5, backend


@IN_TILES
def test_tiles_run_on_what_has_other_strides_and_say_what_they_do_not_take():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in made(2, 4, 2, 300, 16, torch.bfloat16))
    members = one_group(300, 4, 2)
    out, lse, _ = by_hand(q, k, v, members, 20)
    mine, sums = grouped_attention(q, k, v, members, 20)
    assert plan(members, 20, 4, 16, q.dtype, "cpu").backend == "compiled"
    assert (mine - out).abs().max() < 2e-2 and (sums - lse).abs().max() < 1e-5
    assert plan(members, 20, 4, 17, q.dtype, "cpu", backend="auto").backend == "torch"
    with pytest.raises(BadSetting, match="bfloat16 on cpu with 4 groups and heads of 17"):
        plan(members, 20, 4, 17, q.dtype, "cpu", backend="compiled")


def test_models_hand_over_strided_tensors():
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in made(2, 4, 2, 300, 16))
    members = one_group(300, 4, 2)
    out, lse, _ = by_hand(q, k, v, members, 20)
    for kernel in IN_FLOAT32.values():
        mine, sums = kernel(q, k, v, members, 20, 0.25)
        assert (mine - out).abs().max() < 5e-6 and (sums - lse).abs().max() < 1e-5
    q, k, v = (x.mT.contiguous().mT for x in (q, k, v))  # not even a row in one piece
    assert (grouped_attention(q, k, v, members, 20)[0] - out).abs().max() < 5e-6


@pytest.mark.parametrize(
    "members, window, out, read",
    [
        # groups a b a b, only the token itself is near: 1, 2, (1+3)/2, (2+4)/2
        ([[1, 0], [0, 1], [1, 0], [0, 1]], 1, [1, 2, 2, 3], [1, 1, 2, 2]),
        # the same with a window of 2: token 2 reads 0, 1, 2 and token 3 reads 1, 2, 3
        ([[1, 0], [0, 1], [1, 0], [0, 1]], 2, [1, 1.5, 2, 3], [1, 2, 3, 3]),
        # token 1 in no group, token 3 in both: token 1 reads itself, token 3 reads 0, 2 and itself
        ([[1, 0], [0, 0], [0, 1], [1, 1]], 1, [1, 2, 3, 8 / 3], [1, 1, 1, 3]),
    ],
)
def test_four_tokens_by_hand(members, window, out, read):
    q = k = torch.zeros(1, 1, 4, 1)  # every score is 0: the mean of what is read
    v = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 4, 1)
    members = torch.tensor(members).bool()
    for kernel in (None, *IN_FLOAT32.values()):
        given = (q, k, v, members, window) if kernel is None else (q, k, v, members[None], window, 1.0)
        mine, lse = (kernel or grouped_attention)(*given)
        torch.testing.assert_close(mine.flatten(), torch.tensor(out).float(), atol=1e-6, rtol=0)
        torch.testing.assert_close(lse.flatten().exp(), torch.tensor(read).float(), atol=1e-5, rtol=0)


def test_a_row_whose_only_score_is_zero_is_not_taken_for_an_empty_one():
    """The CPU kernel says lse 0 of a row without keys, and also of a row with one key of score 0."""
    q, k, v = torch.zeros(1, 1, 200, 8), *made(1, 1, 1, 200, 8)[1:]
    members = one_group(200, 2)
    out, lse = cpu.groups(q, k, v, members, 2, 1.0)
    wanted, sums, _ = by_hand(q, k, v, members, 2)
    assert (out - wanted).abs().max() < 5e-6 and (lse - sums).abs().max() < 1e-5


@pytest.mark.parametrize("kernel", IN_FLOAT32.values())
@pytest.mark.parametrize("several", [False, True])
def test_no_kernel_holds_t_by_t(kernel, several):
    length = 16384
    members = one_group(length, 8) | (one_group(length, 8, seed=3) & several)
    q, k, v = made(1, 1, 1, length, 8)
    most = peak_bytes(lambda: kernel(q, k, v, members, 128, 0.3), torch.device("cpu"))
    if most is None:
        pytest.skip("this system does not say how much memory a call takes")
    assert most < length * length, "not even a T x T of bytes"


# --- merging ------------------------------------------------------------------------------------------------------


def test_merging_by_hand():
    out, lse = merge(torch.tensor([[1.0]]), torch.tensor([2.0]).log(), torch.tensor([[5.0]]), torch.tensor([6.0]).log())
    assert out.item() == pytest.approx((2 * 1 + 6 * 5) / 8) and lse.exp().item() == pytest.approx(8)
    empty = torch.tensor([float("-inf")])
    for parts in (([[9.0]], empty, [[3.0]], lse), ([[3.0]], lse, [[9.0]], empty)):
        out, total = merge(torch.tensor(parts[0]), parts[1], torch.tensor(parts[2]), parts[3])
        assert out.item() == 3 and total == lse


def test_a_row_of_which_subtraction_leaves_nothing_is_zeros():
    """A sharp head reads key 0 alone, far back in its group; taken away as if the window held it, nothing is left."""
    q = torch.full((1, 1, 6, 4), 100.0)
    k = torch.zeros(1, 1, 6, 4)
    k[:, :, 0] = 100.0
    members = torch.ones(1, 6, 1, dtype=torch.bool)
    members[:, 1:5] = (
        False  # tokens 0 and 5 are of the group: two of its last two, while token 0 left the window of two
    )
    found = merges(q, k, torch.ones(1, 1, 6, 4), members, 2)
    assert found["subtraction"] == {"cosine": pytest.approx(5 / 6), "lowest": 0.0, "error": 1.0}
    assert found["exact overlap"]["error"] < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_subtracting_the_overlap_fails_and_disjoint_sets_hold(dtype):
    q, k, v = made(1, 4, 2, 1024, 64, dtype)
    found = merges(q * 4, k, v, one_group(1024, 4), 128)  # scores that spread as those of trained heads
    rounding = 1e-5 if dtype == torch.float32 else 8e-2
    assert found["disjoint"]["error"] < rounding and found["disjoint"]["lowest"] > 0.999
    assert found["subtraction"]["cosine"] < 0.85 and found["subtraction"]["error"] > 1  # the paper: 0.79
    assert found["exact overlap"]["error"] < 10 * rounding
    with pytest.raises(BadSetting, match="at most 4,096 tokens, and these are 4,097"):
        merges(*made(1, 1, 1, 4097, 8), one_group(4097, 2), 128)
