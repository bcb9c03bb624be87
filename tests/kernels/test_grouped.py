"""Grouped attention is exact: every kernel against the definition in float64, and by hand on tiny shapes."""

import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.nn.attention import varlen

from analysis.errors import BadSetting
from analysis.kernels import grouped_attention, packed, plan, reference
from analysis.kernels.merge import merge, merges, read_sinks
from analysis.kernels.native import compiled
from analysis.timing.memory import peak_bytes
from tests.made.attention import defined, grouped_pairs, states

TILES = torch.bfloat16 in compiled.programs()
IN_TILES = pytest.mark.skipif(not TILES, reason="this processor has no tiles")


def masked(*arguments) -> tuple:
    return packed.dense(*arguments, causal=False)


KERNELS = {"groups": packed.grouped, "masked": masked}
IN_FLOAT32 = KERNELS | ({"compiled": compiled.groups} if compiled.programs() else {})


def one_group(length, groups, batch=1, seed=0):
    """Each token in one random group: bool [B, T, K]."""
    chosen = torch.randint(groups, (batch, length), generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.one_hot(chosen, groups).bool()


def by_hand(q, k, v, members, window):
    """The definition: out, lse, and the pairs that are kept."""
    keep = grouped_pairs(members, window)
    return *defined(q, k, v, keep[:, None]), keep


def close(computed, wanted, atol=5e-6, sums=1e-5):
    return (computed[0] - wanted[0]).abs().max() < atol and (computed[1] - wanted[1]).abs().max() < sums


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


def exact_in_float32(case, stretch=1.0):
    """The planned kernel and every other one against the definition in float64; the count of pairs too."""
    shape, members, window = case
    q, k, v = states(*shape)
    q = q * stretch
    out, lse, keep = by_hand(q, k, v, members, window)
    chosen = plan(members, window, shape[1], shape[-1], q.dtype, "cpu")
    assert chosen.pairs == int(keep.sum())
    result = {chosen.kernel: grouped_attention(q, k, v, members, window)}
    for name, kernel in IN_FLOAT32.items():
        result.setdefault(name, kernel(q, k, v, members, window, shape[-1] ** -0.5))
    for name, pair in result.items():
        assert close(pair, (out, lse), 5e-6 * stretch) and pair[1].dtype == torch.float32, (name, chosen)


@pytest.mark.slow
@settings(max_examples=220)
@given(cases(), st.sampled_from([1.0, 2.0]))
def test_every_kernel_is_exact_in_float32(case, stretch):
    exact_in_float32(case, stretch)


@pytest.fixture(scope="module")
def small_blocks():
    """Everything that is done in pieces is done in small ones: few tokens then have borders of all kinds."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, size in ((packed, "DENSE_ROWS", 100), (packed, "BAND_TOKENS", 64), (reference, "BLOCK", 50)):
            patch.setattr(module, name, size)
        yield


@settings(max_examples=30)
@given(case=cases())
def test_every_kernel_is_exact_in_small_blocks(small_blocks, case):
    exact_in_float32(case)


@settings(max_examples=25)
@given(case=cases())
def test_the_reference_is_the_definition_and_has_gradients(small_blocks, case):
    shape, members, window = case
    q, k, v = (x.double().requires_grad_() for x in states(*shape))
    out, lse, _ = by_hand(q, k, v, members, window)
    result, sums = grouped_attention(q, k, v, members, window, backend="reference")
    assert close((result, sums), (out, lse), 1e-12, 1e-12)
    wanted = torch.autograd.grad((out.sin().sum() + lse.cos().sum()), (q, k, v))
    got = torch.autograd.grad((result.sin().sum() + sums.cos().sum()), (q, k, v))
    assert max((a - b).abs().max() for a, b in zip(wanted, got, strict=True)) < 1e-10


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3)])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("window", [1, 100, 300])
def test_half_precision_errs_like_its_rounding(dtype, bound, several, window):
    q, k, v = states(2, 4, 2, 600, 32, dtype)
    members = one_group(600, 8, 2) | (one_group(600, 8, 2, seed=5) & several)
    wanted = by_hand(q, k, v, members, window)
    for kernel in (KERNELS | ({"compiled": compiled.groups} if dtype in compiled.programs() else {})).values():
        result = kernel(q, k, v, members, window, 32**-0.5)
        assert result[0].dtype == dtype and close(result, wanted, bound, 2e-3)


@IN_TILES
@settings(max_examples=40)
@given(cases())
def test_tiles_of_bfloat16_err_like_their_rounding(case):
    """Scores and sums in float32: the logsumexp is exact; weights and values are rounded to 8 bits."""
    shape, members, window = case
    shape = (*shape[:-1], shape[-1] // 2 * 2)  # numbers come in pairs
    q, k, v = states(*shape, torch.bfloat16)
    result = compiled.groups(q, k, v, members, window, shape[-1] ** -0.5)
    assert result[0].dtype == torch.bfloat16 and close(result, by_hand(q, k, v, members, window), 2e-2)


@settings(max_examples=40)
@given(cases(), st.integers(1, 40))
def test_sinks_are_read_by_all_whatever_computes(case, n_sink):
    """First tokens far back and of other groups, none counted twice: where they are merged, and in the program's own
    pass over the window."""
    shape, members, window = case
    q, k, v = states(*shape)
    out, lse, _ = by_hand(q, k, v, members, window)
    wanted = read_sinks(out, lse, q.double(), k.double(), v.double(), members, window, n_sink, shape[-1] ** -0.5)
    for backend in ("auto", "torch"):
        assert close(grouped_attention(q, k, v, members, window, backend=backend, n_sink=n_sink), wanted, 1e-5), backend


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=IN_TILES)])
def test_models_hand_over_strided_tensors(dtype):
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in states(2, 4, 2, 300, 16, dtype))
    members, atol = one_group(300, 4, 2), 5e-6 if dtype == torch.float32 else 2e-2
    wanted = by_hand(q, k, v, members, 20)
    assert close(grouped_attention(q, k, v, members, 20), wanted, atol)
    for kernel in IN_FLOAT32.values() if dtype == torch.float32 else ():
        assert close(kernel(q, k, v, members, 20, 0.25), wanted)
    q, k, v = (x.mT.contiguous().mT for x in (q, k, v))  # not even a row in one piece
    assert close(grouped_attention(q, k, v, members, 20), wanted, atol)


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
    result = [grouped_attention(q, k, v, members, window)]
    result += [kernel(q, k, v, members[None], window, 1.0) for kernel in IN_FLOAT32.values()]
    for mean, lse in result:
        torch.testing.assert_close(mean.flatten(), torch.tensor(out).float(), atol=1e-6, rtol=0)
        torch.testing.assert_close(lse.flatten().exp(), torch.tensor(read).float(), atol=1e-5, rtol=0)


def test_a_row_whose_only_score_is_zero_is_not_taken_for_an_empty_one():
    """The CPU kernel says lse 0 of a row without keys, and also of a row with one key of score 0."""
    q, k, v = torch.zeros(1, 1, 200, 8), *states(1, 1, 1, 200, 8)[1:]
    members = one_group(200, 2)
    assert close(packed.grouped(q, k, v, members, 2, 1.0), by_hand(q, k, v, members, 2))


@pytest.mark.parametrize("name", IN_FLOAT32)
@pytest.mark.parametrize("several", [False, True])
def test_no_kernel_holds_t_by_t(name, several):
    length = 16384
    members = one_group(length, 8) | (one_group(length, 8, seed=3) & several)
    q, k, v = states(1, 1, 1, length, 8)
    peak = peak_bytes(lambda: IN_FLOAT32[name](q, k, v, members, 128, 0.3), torch.device("cpu"))
    if peak is None:
        pytest.skip("this system does not say how much memory a call takes")
    assert peak < length * length, "not even a T x T of bytes"


# --- the call that runs on a GPU -----------------------------------------------------------------------------------


def stand_in(transposed: bool, shares: bool) -> Callable:
    """`varlen_attn` of torch 2.11 (which lets no heads share) or later, computed text by text as on the CPU; the code
    and the documentation of 2.13 give the logsumexp in different shapes."""

    def older(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, scale=None, window_size=(-1, -1)):
        assert return_aux.lse and window_size[1] == 0 and max_q == int((cu_seq_q[1:] - cu_seq_q[:-1]).max())
        window = None if window_size[0] == -1 else window_size[0] + 1
        out, lse = packed.of_cpu(q, k, v, cu_seq_q, max_q, scale, window)
        return out, lse.T if transposed else lse

    def newer(*states, enable_gqa=False, **options):
        assert enable_gqa == (states[0].shape[1] != states[1].shape[1])
        return older(*states, **options)

    return newer if shares else older


@pytest.mark.parametrize("transposed, shares", [(True, True), (False, False)])
def test_the_call_on_a_gpu_gets_what_its_signature_takes(transposed, shares, monkeypatch):
    monkeypatch.setattr(varlen, "varlen_attn", stand_in(transposed, shares))
    for length in (4, 150):  # four tokens of four heads: a logsumexp whose shape says nothing
        q, k, v = (x[0].transpose(0, 1) for x in states(1, 4, 2, length, 8))
        starts = torch.tensor([0, length // 3, length], dtype=torch.int32)
        for window in (None, 9):
            wanted = packed.of_cpu(q, k, v, starts, length - length // 3, 0.7, window)
            assert close(packed.of_torch(q, k, v, starts, length - length // 3, 0.7, window), wanted)


def flash_attn_varlen_func(q, k, v, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal, window_size, return_attn_probs):
    """The call of flash-attn 2.8, which gives (out, lse [H, N], None) where probabilities are asked for."""
    assert causal and return_attn_probs and window_size[1] == 0 and q.shape[-1] % 8 == 0
    window = None if window_size[0] == -1 else window_size[0] + 1
    return *packed.of_cpu(q, k, v, cu_q, max_q, softmax_scale, window), None


@pytest.mark.parametrize("several", [False, True])
def test_flash_attn_runs_the_same_algorithm(several, monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=flash_attn_varlen_func))
    q, k, v = states(2, 4, 2, 150, 16)
    members = one_group(150, 5, 2) | (one_group(150, 5, 2, seed=3) & several)
    computed = packed.grouped(q, k, v, members, 9, 0.25, flash_attn=True)
    assert close(computed, by_hand(q, k, v, members, 9))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 3e-2), (torch.float16, 4e-3), (torch.float32, 1e-5)])
@pytest.mark.parametrize("groups, several", [(8, False), (8, True), (1, False)])
@pytest.mark.parametrize("size", [64, 128])
def test_on_a_gpu(dtype, bound, groups, several, size):
    q, k, v = (x.cuda() for x in states(2, 8, 4, 1500, size, dtype))
    members = (one_group(1500, groups, 2) | (one_group(1500, groups, 2, seed=3) & several)).cuda()
    members[1, 700:710] = False
    wanted = [x.cuda() for x in by_hand(*(x.cpu() for x in (q, k, v, members)), 128)[:2]]
    assert close(grouped_attention(q, k, v, members, 128), wanted, bound, max(1e-4, bound / 10))
    if dtype != torch.float32 and groups > 1:
        assert close(packed.grouped(q, k, v, members, 128, size**-0.5), wanted, bound, bound / 10)


# --- merging -------------------------------------------------------------------------------------------------------


def test_merging_by_hand_and_where_subtraction_leaves_nothing():
    out, lse = merge(torch.tensor([[1.0]]), torch.tensor([2.0]).log(), torch.tensor([[5.0]]), torch.tensor([6.0]).log())
    assert out.item() == pytest.approx((2 * 1 + 6 * 5) / 8) and lse.exp().item() == pytest.approx(8)
    empty = torch.tensor([float("-inf")])
    for parts in (([[9.0]], empty, [[3.0]], lse), ([[3.0]], lse, [[9.0]], empty)):
        out, total = merge(torch.tensor(parts[0]), parts[1], torch.tensor(parts[2]), parts[3])
        assert out.item() == 3 and total == lse
    # A sharp head reads key 0 alone, far back in its group; taken away as if the window held it, nothing is left.
    q = torch.full((1, 1, 6, 4), 100.0)
    k = torch.zeros(1, 1, 6, 4)
    k[:, :, 0] = 100.0
    members = torch.ones(1, 6, 1, dtype=torch.bool)
    # tokens 0 and 5 are of the group: two of its last two, while token 0 left the window of two
    members[:, 1:5] = False
    result = merges(q, k, torch.ones(1, 1, 6, 4), members, 2)
    assert result["subtraction"] == {"cosine": pytest.approx(5 / 6), "lowest": 0.0, "error": 1.0}
    assert result["exact overlap"]["error"] < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_subtracting_the_overlap_fails_and_disjoint_sets_hold(dtype):
    q, k, v = states(1, 4, 2, 1024, 64, dtype)
    result = merges(q * 4, k, v, one_group(1024, 4), 128)  # scores that spread as those of trained heads
    rounding = 1e-5 if dtype == torch.float32 else 8e-2
    assert result["disjoint"]["error"] < rounding and result["disjoint"]["lowest"] > 0.999
    assert result["subtraction"]["cosine"] < 0.85 and result["subtraction"]["error"] > 1  # the paper: 0.79
    assert result["exact overlap"]["error"] < 10 * rounding
    with pytest.raises(BadSetting, match="at most 4,096 tokens, and these are 4,097"):
        merges(*states(1, 1, 1, 4097, 8), one_group(4097, 2), 128)
