"""Attention over blocks: any map against a masked oracle in float64; maps of blocks by hand and by loops."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

import analysis
from analysis.errors import BadSetting
from analysis.kernels import blocks as module
from analysis.kernels.blocks import BLOCK, block_attention, block_mask
from analysis.methods.block_sparse import block_map
from tests.made.attention import defined, states

KINDS = ("skip_softmax", "vertical_slash", "flex_prefill", "xattention")


def read(blocks, length, block):
    """bool [B, H, T, T]: the pairs of a map."""
    pairs = blocks.repeat_interleave(block, 2).repeat_interleave(block, 3)[:, :, :length, :length]
    return pairs & torch.ones(length, length, dtype=torch.bool).tril()


def oracle(q, k, v, blocks, block, scale=None):
    return defined(q, k, v, read(blocks, q.shape[2], block), scale)


def close(computed, wanted, atol):
    (out, lse), (right, sums) = computed, wanted
    assert torch.allclose(out.double(), right, atol=atol)
    assert torch.equal(lse.isinf(), sums.isinf())
    assert torch.allclose(lse.double().nan_to_num(neginf=0.0), sums.nan_to_num(neginf=0.0), atol=atol)


@settings(max_examples=40)
@given(st.data())
def test_any_map_equals_the_masked_oracle(data):
    batch, kv_heads, group = (data.draw(st.integers(1, 2)) for _ in range(3))
    length, block = data.draw(st.integers(1, 90)), data.draw(st.sampled_from([1, 3, 8, 16, 100]))
    kind = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    q, k, v = states(batch, kv_heads * group, kv_heads, length, data.draw(st.sampled_from([1, 4, 12])), dtype=kind)
    count = -(-length // block)
    share, seed = data.draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])), data.draw(st.integers(0, 99))
    blocks = torch.rand(batch, kv_heads * group, count, count, generator=torch.Generator().manual_seed(seed)) < share
    scale = data.draw(st.sampled_from([None, 0.5]))
    result = block_attention(q, k, v, blocks, block, scale)
    close(result, oracle(q, k, v, blocks, block, scale), 4e-2 if kind == torch.bfloat16 else 1e-5)
    assert result[0].dtype == kind and result[1].dtype in (torch.float32, torch.float64)


@pytest.mark.parametrize("kind, atol", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_all_blocks_are_dense(kind, atol):
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in states(2, 6, 2, 333, 16, dtype=kind))
    blocks = torch.ones(2, 6, 3, 3, dtype=torch.bool)
    dense = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    out, lse = analysis.block_attention(q, k, v, blocks)
    assert torch.allclose(out, dense, atol=atol)
    assert torch.allclose(lse.double(), oracle(q, k, v, blocks, 128)[1], atol=atol)


def test_what_is_left_out_is_not_touched():
    q, k, v = states(1, 2, 1, 64, 8)
    blocks = torch.eye(4, dtype=torch.bool).expand(1, 2, 4, 4).clone()
    blocks[:, :, 3, 1] = True
    wanted = block_attention(q, k, v, blocks, 16)
    k[:, :, :16], v[:, :, 32:48] = torch.nan, torch.nan
    for after, before in zip(block_attention(q, k, v, blocks, 16), wanted, strict=True):
        assert torch.equal(after[:, :, 16:32], before[:, :, 16:32]) and torch.equal(after[:, :, 48:], before[:, :, 48:])


@pytest.mark.slow
@pytest.mark.parametrize(("length", "block"), [(70, 16), (300, 16), (300, 48), (300, 128), (520, 256)])
def test_on_an_accelerator_flex_attention_is_given_the_same_blocks(length, block, monkeypatch):
    """What `block_attention` does there, with FlexAttention as it is before compilation; blocks that its kernels do not
    have are parts of larger ones."""
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = states(2, 4, 2, length, 8)
    blocks = block_map("xattention", q, k, block=block)
    assert all(size % BLOCK == 0 for size in block_mask(blocks, length, block).BLOCK_SIZE)
    monkeypatch.setattr(module, "_flex", lambda: flex_attention)
    monkeypatch.setattr(module, "accelerated", lambda tensor: True)
    close(block_attention(q, k, v, blocks, block, 0.3), oracle(q, k, v, blocks, block, 0.3), 1e-5)


# --- maps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 15, 64, 90])
def test_a_map_is_lower_triangular_with_its_diagonal(kind, length):
    q, k, _ = states(2, 4, 2, length, 8)
    blocks = analysis.block_map(kind, q, k, block=16)
    count = -(-length // 16)
    assert blocks.shape == (2, 4, count, count) and blocks.dtype == torch.bool
    assert blocks.diagonal(dim1=2, dim2=3).all() and not blocks.triu(1).any()


@pytest.mark.parametrize(
    "kind, generous",
    [
        ("skip_softmax", {"scale": 0.0}),
        ("vertical_slash", {"vertical": 90}),
        ("flex_prefill", {"gamma": 1.0}),
        ("xattention", {"threshold": 1.0}),
    ],
)
def test_a_generous_map_keeps_everything(kind, generous):
    q, k, v = states(1, 2, 1, 90, 8)
    blocks = block_map(kind, q, k, block=16, **generous)
    assert blocks.equal(torch.ones_like(blocks).tril())


def test_skip_softmax_by_a_loop():
    q, k, _ = states(1, 4, 2, 75, 8, seed=3)
    q[..., 0], k[:, :, 3, 0] = 4.0, 4.0  # all queries like one key of the first block
    result = block_map("skip_softmax", q, k, block=16, scale=20.0)
    edge = math.log(20.0 / 75)
    for head in range(4):
        scores = q[0, head].double() @ k[0, head // 2].double().T / math.sqrt(8)
        for row in range(5):
            retained = set()
            for i in range(16 * row, min(75, 16 * row + 16)):
                largest = -math.inf
                for column in range(row + 1):
                    best = max(float(scores[i, j]) for j in range(16 * column, min(i + 1, 16 * column + 16)))
                    retained |= {column} if best - largest > edge else set()
                    largest = max(largest, best)
            assert set(result[0, head, row].nonzero().flatten().tolist()) == retained | {row}
    assert not result.tril().equal(torch.ones_like(result).tril()), "something is skipped"


@pytest.mark.parametrize("kind", ["skip_softmax", "xattention"])
def test_several_small_blocks_are_judged_at_once_as_one_by_one(kind, monkeypatch):
    """300 rows in blocks of 16: stretches of 128, 128 and 32 rows, and 12 that remain."""
    q, k, _ = states(2, 4, 2, 300, 8, seed=7)
    together = block_map(kind, q * 4, k, block=16)
    monkeypatch.setattr(module, "BLOCK", 1)
    alone = block_map(kind, q * 4, k, block=16)
    assert together.equal(alone) and not alone.equal(torch.ones_like(alone).tril())


def test_vertical_slash_by_hand():
    """All queries look at key 41 and at the token 130 before them."""
    length, size = 256, 256
    q, k = torch.zeros(1, 1, length, size), torch.eye(length)[None, None].clone()
    for i in range(length):
        q[0, 0, i, 41] = 300.0
        if i >= 130:
            q[0, 0, i, i - 130] = 300.0
    result = block_map("vertical_slash", q, k, block=16, vertical=31, slash=101)[0, 0]
    for row in range(16):
        # columns below 30 and 41; distances below 100 and 130: blocks up to ceil(99 / 16) = 7, and 8 and 9, back
        wanted = {0, 1, 2} | set(range(row - 9, row + 1))
        assert set(result[row].nonzero().flatten().tolist()) == {j for j in wanted if 0 <= j <= row}


def test_xattention_by_a_loop():
    q, k, _ = states(1, 2, 1, 64, 4, seed=5)
    q = q * 12
    result = block_map("xattention", q, k, block=16, stride=4, threshold=0.7)
    for head in range(2):
        scores = q[0, head].double() @ k[0, 0].double().T
        summed = torch.full((16, 16), -math.inf, dtype=torch.float64)
        for n in range(16):
            for m in range(n + 1):
                summed[n, m] = sum(scores[4 * n + 3 - s, 4 * m + s] for s in range(4)) / math.sqrt(4) / 4
        shares = torch.softmax(summed, -1).unflatten(0, (4, 4)).unflatten(2, (4, 4)).sum((1, 3))
        for row in range(4):
            retained, total = {0, row}, 0.0
            for column in sorted(range(row + 1), key=lambda column, row=row: -float(shares[row, column])):
                if total >= 0.7 * 4:
                    break
                retained.add(column)
                total += float(shares[row, column])
            assert set(result[0, head, row].nonzero().flatten().tolist()) == retained
    assert result.sum() < 2 * 10, "something is left out"


def test_flex_prefill_takes_blocks_where_means_tell_and_lines_elsewhere():
    q, k, _ = states(1, 1, 1, 64, 8)
    flat = torch.zeros_like(q)  # every query gives every key the same: means say so too
    by_blocks = block_map("flex_prefill", flat, k, block=16, gamma=0.45)[0, 0]
    # rows of the pooled map: 1, 1/2 1/2, 1/3 .., 1/4 ..; the first row and both of the second reach 0.45 of 4
    assert by_blocks.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    lines = block_map("flex_prefill", q * 9, k, block=16, gamma=0.5, tau=0.0)[0, 0]
    scores = (q[0, 0, -16:] * 9 @ k[0, 0].T / math.sqrt(8)).masked_fill(torch.ones(16, 64).triu(49).bool(), -math.inf)
    weights = torch.softmax(scores, -1)
    columns, total = set(), 0.0
    for column in weights.sum(0).argsort(descending=True).tolist():
        if total >= 0.5 * 16:
            break
        columns.add(column // 16)
        total += float(weights[:, column].sum())
    assert columns <= set(lines[3].nonzero().flatten().tolist())


@pytest.mark.parametrize(
    "kind, settings, message",
    [
        ("best", {}, "no block map 'best'"),
        ("xattention", {"gamma": 1.0}, "no setting 'gamma'; it has: stride, threshold"),
        ("xattention", {"block": 10, "stride": 3}, "must divide the block of 10"),
        ("flex_prefill", {"gamma": 1.5}, "gamma"),
        ("vertical_slash", {"vertical": 0}, "vertical"),
    ],
)
def test_bad_settings_of_maps_are_refused(kind, settings, message):
    with pytest.raises(BadSetting, match=message):
        block_map(kind, *states(1, 2, 1, 9, 4)[:2], **settings)


def test_states_that_do_not_belong_together_are_refused():
    q, k, v = states(1, 2, 1, 9, 4)
    one_block = torch.ones(1, 2, 1, 1, dtype=torch.bool)
    for call in (
        lambda: block_map("flex_prefill", q, k[..., :3]),
        lambda: block_attention(q, k, v, one_block, 4),
        lambda: block_attention(q, k, v[:, :, 1:], one_block),
    ):
        with pytest.raises(BadSetting):
            call()
