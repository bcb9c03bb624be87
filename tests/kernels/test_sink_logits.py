"""Learned sinks, a logit of each head in every sum that belongs to no token: every kernel against the definition."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from analysis.errors import BadSetting
from analysis.kernels import Plan, grouped_attention, planned_attention
from analysis.kernels.biased import biased_attention
from analysis.kernels.blocks import block_attention
from analysis.kernels.decode import GroupMajor
from analysis.kernels.dense import dense
from analysis.kernels.gathered import gathered_attention, paged_attention
from analysis.kernels.native import compiled, one_query
from analysis.kernels.native.one_query import Read, attend
from analysis.kernels.ragged import Ragged
from analysis.kernels.topk import _by_torch, topk_attention
from tests.made.attention import defined, grouped_pairs

SCALE = 0.3
TYPES = [torch.float32, torch.float64, torch.bfloat16]


def bound(dtype):
    return 3e-2 if dtype == torch.bfloat16 else 1e-5


def close(out, wanted, dtype=torch.float32):
    assert out.dtype == dtype and (out.double() - wanted).abs().max() < bound(dtype)


@st.composite
def cases(draw, longest=150):
    """(q, k, v, sinks) of one to three texts, heads that share keys or do not, sizes that fill no vector; sinks that
    take nothing, a part and nearly all."""
    batch, kv_heads, shared = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    length, size = draw(st.integers(1, longest)), draw(st.sampled_from([4, 17, 40]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    heads = kv_heads * shared
    q, k, v = (torch.randn(batch, n, length, size, generator=generator) for n in (heads, kv_heads, kv_heads))
    return q, k, v, torch.randn(heads, generator=generator) * draw(st.sampled_from([0.0, 1.0, 8.0]))


def causal(length, past=0):
    places = torch.arange(past + length)
    return places <= places[past:, None]


@settings(max_examples=40)
@given(cases(), st.integers(1, 9), st.integers(1, 200), st.integers(0, 20), st.booleans())
def test_grouped_attention_by_every_backend(case, groups, window, n_sink, several):
    q, k, v, sinks = case
    batch, _, length, _ = q.shape
    random = torch.rand(batch, length, groups, generator=torch.Generator().manual_seed(window))
    members = (random == random.amax(-1, keepdim=True)) | ((random < 0.3) & several)
    wanted = defined(q, k, v, grouped_pairs(members, window, n_sink)[:, None], SCALE, sinks)
    ways = [("groups", "torch"), ("masked", "torch"), ("masked", "reference")]
    ways += [("groups", "compiled")] if torch.float32 in compiled.programs() else []
    ways += [("causal", "torch")] if window >= length else []
    for kernel, backend in ways:
        plan = Plan(kernel, backend, "", 1.0, 1.0, members, window)
        out, lse = planned_attention(plan, q, k, v, SCALE, n_sink, sinks)
        close(out, wanted[0])
        assert (lse - wanted[1]).abs().max() < 1e-5, (kernel, backend)
    close(grouped_attention(q, k, v, members, window, SCALE, n_sink=n_sink, sink_logits=sinks)[0], wanted[0])


@pytest.mark.skipif(torch.bfloat16 not in compiled.programs(), reason="this processor multiplies no tiles of bfloat16")
@settings(max_examples=20)
@given(cases(), st.integers(1, 60))
def test_grouped_attention_in_tiles_of_bfloat16(case, window):
    q, k, v = (x[..., : x.shape[-1] // 2 * 2].bfloat16() for x in case[:3])
    members = torch.rand(len(q), q.shape[2], 3, generator=torch.Generator().manual_seed(window)) < 0.4
    out, _ = compiled.groups(q, k, v, members, window, SCALE, 0, case[3])
    close(out, defined(q, k, v, grouped_pairs(members, window)[:, None], SCALE, case[3])[0], torch.bfloat16)


@settings(max_examples=30)
@given(cases(), st.integers(1, 30), st.integers(0, 4), st.sampled_from(TYPES), st.booleans())
def test_a_step_of_the_cache_by_group(case, window, n_sink, dtype, by_program):
    *states, sinks = case
    q, k, v = (x[:1].to(dtype) for x in states)
    length = q.shape[2]
    members = torch.rand(length, 5, generator=torch.Generator().manual_seed(window)) < 0.4
    stored = GroupMajor(k, v, members, window, n_sink)
    # the program takes no query where gradients may be asked for
    with torch.set_grad_enabled(not by_program):
        out = stored.attend(q[:, :, -1:], SCALE, sinks)
    read = grouped_pairs(members, window, n_sink)[-1:]
    close(out, defined(q[:, :, -1:], k, v, read, SCALE, sinks)[0], dtype)


@settings(max_examples=30)
@given(cases(), st.sampled_from(TYPES), st.booleans())
def test_one_query_over_what_it_gathers(case, dtype, by_program):
    *states, sinks = case
    q, k, v = (x.to(dtype) for x in states)
    batch, heads, length, _ = q.shape
    read = torch.rand(batch, heads, length, generator=torch.Generator().manual_seed(length)) < 0.5
    read[..., length // 2] = True
    last, wanted = q[:, :, -1:], defined(q[:, :, -1:], k, v, read[:, :, None], SCALE, sinks)
    with torch.set_grad_enabled(not by_program):
        close(gathered_attention(last, k, v, read, SCALE, sinks), wanted[0], dtype)
        skip = (~read[0]).view(torch.uint8)
        out, lse = attend(last[:1], [Read(k[:1], v[:1], skip, 1)], SCALE, sinks)
    close(out, wanted[0][:1], dtype)
    assert (lse - wanted[1][:1]).abs().max() < bound(dtype)
    size = 8
    pages = (length - 1) // size
    chosen = torch.arange(0, pages, 2).expand(batch, heads, -1)
    inside = torch.isin(torch.arange(length) // size, torch.tensor([*range(0, pages, 2), pages]))
    close(paged_attention(last, k, v, chosen, size, SCALE, sinks), defined(last, k, v, inside, SCALE, sinks)[0], dtype)


@settings(max_examples=30)
@given(cases(), st.integers(1, 40), st.sampled_from(TYPES))
def test_the_largest_scores(case, count, dtype):
    """A sink is none of the keys that are counted."""
    *states, sinks = case
    q, k, v = (x.to(dtype) for x in states)
    length = q.shape[2]
    scores = (q.double() @ k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).mT).masked_fill(
        ~causal(length), -torch.inf
    )
    kth = scores.sort(-1, descending=True).values[..., min(count, length) - 1, None]
    read = (scores >= kth) & causal(length)
    wanted, _ = defined(q, k, v, read, SCALE, sinks)
    counts = torch.full(q.shape[:3], count, dtype=torch.int32)
    rows, steps = topk_attention(q, k, v, counts, SCALE, 0, sinks), q[:, :, -1:]
    step = topk_attention(steps, k, v, counts[..., -1:], SCALE, length - 1, sinks)
    by_torch = _by_torch(q, k, v, counts, SCALE, 0, sinks)
    for (out, counted), rows_of in ((rows, slice(None)), (step, slice(length - 1, None)), (by_torch, slice(None))):
        # where bfloat16 makes ties of two keys, more are read
        if torch.equal(counted, read[:, :, rows_of].sum(-1)):
            close(out, wanted[:, :, rows_of], dtype)
        else:
            assert dtype == torch.bfloat16


@settings(max_examples=30)
@given(cases(), st.sampled_from([3, 16, 200]), st.sampled_from(TYPES))
def test_kept_blocks(case, block, dtype):
    *states, sinks = case
    q, k, v = (x.to(dtype) for x in states)
    (batch, heads, length, _), count = q.shape, -(-q.shape[2] // block)
    blocks = torch.rand(batch, heads, count, count, generator=torch.Generator().manual_seed(length)) < 0.5
    read = blocks.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :length, :length] & causal(length)
    out, lse = block_attention(q, k, v, blocks, block, SCALE, sinks)
    wanted, sums = defined(q, k, v, read, SCALE, sinks)
    close(out, wanted, dtype)
    assert (lse - sums).abs().max() < bound(dtype), "also of a query that reads nothing but its sink"


@settings(max_examples=30)
@given(cases(), st.integers(1, 5), st.sampled_from(TYPES))
def test_what_is_left_of_a_prompt(case, new, dtype):
    *states, sinks = case
    q, k, v = (x.to(dtype) for x in states)
    batch, kv_heads, length, _ = k.shape
    stays = torch.rand(batch, kv_heads, length, generator=torch.Generator().manual_seed(length)) < 0.5
    stays[..., 0] = True
    ragged = Ragged(k, v, stays)
    new_states = [x[:, :, -new:] for x in (k, v)]
    ragged.put(*new_states)
    new = new_states[0].shape[2]
    k, v = (torch.cat(pair, 2) for pair in zip((k, v), new_states, strict=True))
    read = torch.cat([stays[:, :, None].expand(-1, -1, new, -1), causal(new).expand(batch, kv_heads, new, new)], -1)
    read = read.repeat_interleave(q.shape[1] // kv_heads, 1)
    close(ragged.attend(q[:, :, -new:], SCALE, sinks), defined(q[:, :, -new:], k, v, read, SCALE, sinks)[0], dtype)


@settings(max_examples=30)
@given(cases(), st.integers(1, 50), st.booleans(), st.sampled_from(TYPES))
def test_dense_attention_causal_and_in_a_window(case, window, padded, dtype):
    *states, sinks = case
    q, k, v = (x.to(dtype) for x in states)
    length = q.shape[2]
    close(
        dense(q, k, v, None, True, SCALE, sink_logits=sinks), defined(q, k, v, causal(length), SCALE, sinks)[0], dtype
    )
    last = q[:, :, -1:]
    all_keys = torch.ones(1, length, dtype=torch.bool)
    close(
        dense(last, k, v, None, False, SCALE, sink_logits=sinks), defined(last, k, v, all_keys, SCALE, sinks)[0], dtype
    )
    mask = (causal(length) & ~causal(length).tril(-window)).expand(len(q), 1, -1, -1).clone()
    if padded:
        # rows that read nothing but their sink
        mask[0, :, :, : length // 2] = False
    close(dense(q, k, v, mask, False, SCALE, sink_logits=sinks), defined(q, k, v, mask, SCALE, sinks)[0], dtype)


@settings(max_examples=15)
@given(cases(longest=140), st.booleans())
def test_a_gate_on_the_scores_and_its_gradients(case, multiply):
    q, k, v, sinks = (x.double().requires_grad_() for x in case)
    length = q.shape[2]
    gate = torch.rand(len(q), length, length, generator=torch.Generator().manual_seed(length)).double().requires_grad_()
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * SCALE
    scores = scores * gate[:, None] if multiply else scores + gate[:, None]
    column = sinks[:, None, None].expand(*scores.shape[:3], 1)
    shares = torch.cat([scores.masked_fill(~causal(length), -torch.inf), column], -1).softmax(-1)[..., :-1]
    wanted = shares @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    out = biased_attention(q, k, v, gate, lambda of, start, stop: of[:, start:stop, :stop], SCALE, multiply, sinks)
    assert (out - wanted).abs().max() < 1e-10
    gradients = [torch.autograd.grad(x.sin().sum(), (q, k, v, gate, sinks)) for x in (out, wanted)]
    for gradient, true in zip(*gradients, strict=True):
        assert (gradient - true).abs().max() < 1e-9


def test_three_keys_by_hand():
    """Scores 0 and a sink of log 2: shares 1/3, 1/4 and 1/5 of as many keys, the rest is the sink's."""
    q = k = torch.zeros(1, 1, 3, 8)
    v = torch.tensor([3.0, 6.0, 9.0]).view(1, 1, 3, 1).expand(1, 1, 3, 8).contiguous()
    sinks, wanted = torch.tensor([2.0]).log(), torch.tensor([3 / 3, 9 / 4, 18 / 5])
    everyone = torch.ones(1, 3, 1, dtype=torch.bool)
    outputs = [
        dense(q, k, v, None, True, 1.0, sink_logits=sinks),
        grouped_attention(q, k, v, everyone, 1, 1.0, sink_logits=sinks)[0],
        topk_attention(q, k, v, [3], 1.0, sink_logits=sinks)[0],
        block_attention(q, k, v, torch.ones(1, 1, 1, 1, dtype=torch.bool), 4, 1.0, sinks)[0],
    ]
    for out in outputs:
        torch.testing.assert_close(out[0, 0, :, 0], wanted, atol=1e-6, rtol=0)


def test_what_has_no_gradient_beside_sinks_says_so():
    q, sinks = torch.randn(1, 2, 5, 8), torch.zeros(2, requires_grad=True)
    members = torch.ones(1, 5, 1, dtype=torch.bool)
    with pytest.raises(BadSetting, match="no gradient"):
        dense(q, q, q, None, True, 1.0, sink_logits=sinks)
    with pytest.raises(BadSetting, match="no gradient"):
        grouped_attention(q, q, q, members, 2, backend="torch", sink_logits=sinks)
    with torch.no_grad():
        assert dense(q, q, q, None, True, 1.0, sink_logits=sinks).isfinite().all()
    assert one_query.compiled(q) is False


@pytest.mark.gpu
@pytest.mark.parametrize("dtype, atol", [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_on_a_gpu(dtype, atol):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 333, 64, generator=generator).to(dtype) for n in (8, 2, 2))
    sinks, on_gpu = torch.randn(8, generator=generator), (q.cuda(), k.cuda(), v.cuda())
    in_window = causal(333) & ~causal(333).tril(-40)
    outputs = [
        (dense(*on_gpu, None, True, SCALE, sink_logits=sinks.cuda()), causal(333)),
        (dense(*on_gpu, in_window[None, None].cuda(), False, SCALE, sink_logits=sinks.cuda()), in_window),
        (topk_attention(*on_gpu, [333] * 8, SCALE, sink_logits=sinks.cuda())[0], causal(333)),
    ]
    for out, read in outputs:
        assert (out.cpu().double() - defined(q, k, v, read, SCALE, sinks)[0]).abs().max() < atol
