"""What is computed in another way on an accelerator, so that the host need not ask: run on the processor, it gives the
same numbers."""

import sys

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from analysis.kernels import gpu, packed, ragged, topk
from analysis.kernels.decode import GroupTable
from analysis.kernels.pool import accelerated
from analysis.seam.arguments import as_past
from analysis.seam.attention import apply
from analysis.seam.cache import ByGroup
from tests.contract.test_contract import CASES
from tests.kernels.test_decode import text
from tests.kernels.test_grouped import by_hand, cases, close
from tests.made.attention import defined, grouped_pairs, states
from tests.made.tiny import tiny, token_ids

# They call kernels that no processor has.
REAL = ("dense", "blocks", "gpu", "timing")


class Counted(TorchDispatchMode):
    """How many calls of torch are made inside."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def on_an_accelerator(monkeypatch) -> None:
    """From now on modules believe that tensors lie on one."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "accelerated", None) is accelerated and not name.endswith(REAL):
            monkeypatch.setattr(module, "accelerated", lambda tensor: True)


@settings(max_examples=40)
@given(
    prompt=st.integers(1, 90),
    steps=st.integers(1, 70),
    batch=st.sampled_from([1, 3]),
    shape=st.sampled_from([(3, 2), (6, 6), (1, 1), (64, 3)]),
    window=st.sampled_from([1, 2, 7, 16, 100]),
    n_sink=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_a_step_by_the_table_of_groups_is_the_masked_softmax(prompt, steps, batch, shape, window, n_sink, seed):
    length, (groups, memberships) = prompt + steps, shape
    texts = [
        text(length, groups=groups, memberships=memberships, seed=seed + 100 * n, dtype=torch.float32)
        for n in range(batch)
    ]
    keys, values = (torch.cat([of_text[part] for of_text in texts]) for part in (0, 1))
    members = torch.stack([of_text[2] for of_text in texts])
    members[:, seed % length, groups - 1] = True
    largest, memberships = int(members[:, :prompt].sum(1).max()), int(members.sum(-1).max())
    q = torch.randn(batch, 4, length, 4, generator=torch.Generator().manual_seed(seed + 1))
    read = grouped_pairs(members, window, n_sink)[:, None]  # [B, 1, T, T]
    start = keys[:, :, :prompt], values[:, :, :prompt], members[:, :prompt]
    stored = GroupTable(*start, window, n_sink, largest, memberships)
    for place in range(prompt, length):
        row = slice(place, place + 1)
        stored.put(keys[:, :, row], values[:, :, row], members[:, place])
        past = keys[:, :, : place + 1], values[:, :, : place + 1], read[:, :, row, : place + 1]
        wanted, _ = defined(q[:, :, row], *past, 0.7)
        assert torch.allclose(stored.attend(q[:, :, row], 0.7).double(), wanted, atol=1e-5)
    for ordered, as_given in zip(stored.in_order(), (keys, values), strict=True):
        assert torch.equal(ordered, as_given)


def test_a_step_makes_as_many_calls_for_eight_texts_as_for_one(monkeypatch):
    """Of a step on an accelerator the calls decide, so there is no loop over texts, key-value heads or groups."""
    on_an_accelerator(monkeypatch)

    def calls(batch: int, groups: int, per_head: bool) -> int:
        draw = torch.Generator().manual_seed(0)
        keys, values, q = (torch.randn(batch, 2, 40, 8, generator=draw) for _ in range(3))
        shape = (batch, 40, 2, groups) if per_head else (batch, 40, groups)
        members = torch.nn.functional.one_hot(torch.randint(0, groups, shape[:-1], generator=draw), groups).bool()
        stored = ByGroup(keys[:, :, :39], values[:, :, :39], members[:, :39], 4, 1)
        stored.coming = members[:, 39:]
        with Counted() as counted:
            stored.put(keys[:, :, 39:], values[:, :, 39:])
            read = stored.attend(q[:, :, 39:], 0.3, torch.zeros(2))
        assert read.shape == (batch, 2, 1, 8)
        return counted.calls

    calls_of_one = calls(1, 4, False)
    assert calls(8, 4, False) == calls(1, 16, False) == calls_of_one and calls(8, 4, True) <= calls_of_one + 20


def test_heads_that_hold_others_in_one_call_and_each_in_its_own(monkeypatch):
    draw = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(2, 3, 30, 8, generator=draw) for _ in range(2))
    stays, sinks = torch.rand(2, 3, 30, generator=draw) < torch.rand(2, 3, 1, generator=draw), torch.randn(6)
    stays[..., 0] = True
    apart = ragged.Ragged(keys, values, stays)
    on_an_accelerator(monkeypatch)
    together = ragged.Ragged(keys, values, stays)
    assert len(together._stacks) == 1 < len(apart._stacks) and torch.equal(together.counts, apart.counts)
    for tokens in (1, 1, 3):
        new = torch.randn(2, 2, 3, tokens, 8, generator=draw)
        query = torch.randn(2, 6, tokens, 8, generator=draw)
        for cache in (apart, together):
            cache.put(*new)
        for beside in (None, sinks):
            wanted = apart.attend(query, 0.3, beside)
            assert torch.allclose(together.attend(query, 0.3, beside), wanted, atol=1e-6)


@pytest.mark.slow
@settings(max_examples=40)
@given(cases())
def test_groups_packed_as_the_host_knows_their_sizes(case):
    (batch, heads, kv_heads, length, size), members, window = case
    q, k, v = states(batch, heads, kv_heads, length, size)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(packed, "accelerated", lambda tensor: True)
        monkeypatch.setattr(packed, "of_torch", packed.of_cpu)
        monkeypatch.setattr(gpu, "has_triton", lambda: False)
        assert close(packed.grouped(q, k, v, members, window, size**-0.5), by_hand(q, k, v, members, window))


@pytest.mark.slow
def test_the_largest_scores_of_heads_that_keep_others(monkeypatch):
    q, k, v = states(2, 4, 2, 60, 8)
    counts = [1, 7, 60, 200]
    wanted = topk.topk_attention(q, k, v, counts)
    on_an_accelerator(monkeypatch)
    for ours, reference in zip(topk.topk_attention(q, k, v, counts), wanted, strict=True):
        assert torch.allclose(ours, reference, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [True, False])
def test_methods_in_a_model(monkeypatch, kernels):
    """A prompt and the tokens after it, one by one: as many as the shortest window has."""
    lm, ids = tiny("llama"), token_ids(2, 34)
    wanted = {name: _read(lm, make(), ids, kernels) for name, make in CASES.items()}
    on_an_accelerator(monkeypatch)
    for name, make in CASES.items():
        assert torch.allclose(_read(lm, make(), ids, kernels), wanted[name], atol=2e-5), name


@torch.no_grad()
def _read(lm, method, ids, kernels: bool) -> torch.Tensor:
    with apply(lm, method, kernels=kernels):
        read, logits = lm(ids[:, :30], **as_past(lm, method.cache(lm) if kernels else None), use_cache=True), []
        for place in range(30, ids.shape[1]):
            logits.append(read.logits)
            read = lm(ids[:, place : place + 1], **as_past(lm, read.past_key_values), use_cache=True)
    return torch.cat([*logits, read.logits], 1)
