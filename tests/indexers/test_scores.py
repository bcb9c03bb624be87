"""Indexers compute what their classes in transformers hand to `topk`, with copied weights: scores and choice."""

import importlib
from types import SimpleNamespace

import pytest
import torch

from analysis import indexer_scores
from analysis.errors import BadSetting

T, HIDDEN, HEADS, DIM, ROTATED, RANK, TOP = 40, 24, 3, 16, 8, 12, 6
SIZES = {"hidden_size": HIDDEN, "rms_norm_eps": 1e-6, "index_n_heads": HEADS, "index_head_dim": DIM}
DSA = SIZES | {"qk_rope_head_dim": ROTATED, "index_topk": TOP, "q_lora_rank": RANK}
M3 = SIZES | {"index_block_size": 8, "index_topk_blocks": 2, "index_local_blocks": 0}
QSA = {"hidden_size": HIDDEN, "rms_norm_eps": 1e-6, "indexer_n_heads": HEADS, "indexer_kv_heads": 1}
QSA |= {"indexer_head_dim": DIM, "indexer_budget": 8, "indexer_compress_ratio": 4}


def random_indexer(module, name, config):
    """The indexer class of an installed transformers with random weights, in float32."""
    try:
        room = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    except ModuleNotFoundError:
        pytest.skip(f"the installed transformers has no {module}")
    if not hasattr(room, name):
        pytest.skip(f"the installed transformers has no {name}")
    torch.manual_seed(1)
    indexer = getattr(room, name)(SimpleNamespace(**config), 0).float()
    for weight in indexer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return indexer


@pytest.fixture
def inputs(monkeypatch):
    """Hidden states, query residuals, tables, the causal mask, and what `topk` is handed."""
    draw = torch.Generator().manual_seed(7)
    hidden, residual = (torch.randn(T, size, generator=draw) for size in (HIDDEN, RANK))
    angles = torch.outer(torch.arange(T), 10_000 ** (-torch.arange(0, ROTATED, 2) / ROTATED)).repeat(1, 2)
    handed, stock = [], torch.Tensor.topk

    def recorded(x, *args, **kwargs):
        handed.append(x.clone())
        return stock(x, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "topk", recorded)
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    return SimpleNamespace(
        hidden=hidden, residual=residual, cos=angles.cos(), sin=angles.sin(), causal=causal, handed=handed
    )


def assert_close(ours, theirs):
    assert torch.equal(ours.isneginf(), theirs.isneginf())
    finite = ~theirs.isneginf()
    assert (ours[finite] - theirs[finite]).abs().max() <= 1e-5 * max(1, theirs[finite].abs().max())


@pytest.mark.parametrize(
    "kind, module, name",
    [("dsa", "deepseek_v32", "DeepseekV32Indexer"), ("glm", "glm_moe_dsa", "GlmMoeDsaIndexer")],
)
def test_dsa_and_glm_are_their_classes(inputs, kind, module, name):
    indexer = random_indexer(module, name, DSA)
    tables = inputs.cos[None], inputs.sin[None]
    with torch.no_grad():
        mask = torch.zeros(1, T, T).masked_fill(~inputs.causal, -torch.inf)
        chosen = indexer(inputs.hidden[None], inputs.residual[None], tables, mask, None)
    # an older class returns the mask of what it chose
    theirs = inputs.handed[0][0]
    state = dict(indexer.named_parameters())
    ours = indexer_scores(kind, state, inputs.hidden, inputs.cos, inputs.sin, inputs.residual)
    assert_close(ours, theirs)
    if not chosen.is_floating_point():
        assert torch.equal(ours[TOP:].topk(TOP).indices.sort().values, chosen[0, TOP:].long().sort().values)
    swapped = {"dsa": "glm", "glm": "dsa"}[kind]
    pairs = indexer_scores(swapped, state, inputs.hidden, inputs.cos, inputs.sin, inputs.residual)
    assert (pairs[-1] - ours[-1]).abs().max() > 1e-2


def test_m3_is_its_class(inputs):
    indexer = random_indexer("minimax_m3_vl", "MiniMaxM3VLIndexer", M3)
    places = torch.arange(T)[None]
    with torch.no_grad():
        chosen = indexer(inputs.hidden[None], (inputs.cos[None], inputs.sin[None]), None, places)[0]
    ours = indexer_scores("m3", dict(indexer.named_parameters()), inputs.hidden, inputs.cos, inputs.sin)
    assert ours.shape == (HEADS, T, T)
    blocks = ours.unflatten(-1, (-1, 8)).amax(-1)
    assert_close(blocks, inputs.handed[0][0])
    assert torch.equal(blocks[:, 16:].topk(2).indices.sort().values, chosen[:, 16:].sort().values)


def test_qsa_is_its_class(inputs):
    indexer = random_indexer("qwen4_exp", "Qwen4ExpTextQSAIndexer", QSA)
    tables = inputs.cos[None], inputs.sin[None]
    with torch.no_grad():
        read = indexer(inputs.hidden[None], tables, inputs.causal[None, None], None)[0, 0]
    ours = indexer_scores("qsa", dict(indexer.named_parameters()), inputs.hidden, inputs.cos, inputs.sin, block=4)
    assert ours.shape == (T, T // 4)
    handed = list(inputs.handed)
    for query in range(T):
        complete = (query + 1) // 4
        assert bool(ours[query, complete:].isneginf().all())
        if complete:
            assert_close(ours[query, :complete], handed.pop(0))
        best = ours[query].topk(min(2, complete)).indices.tolist()
        tokens = {4 * group + place for group in best for place in range(4)} | set(range(4 * complete, query + 1))
        assert set(read[query].nonzero().flatten().tolist()) == tokens


def test_it_stays_in_float64_and_refuses_what_it_cannot_score(inputs):
    state = {"q_proj.weight": torch.randn(2 * DIM, HIDDEN), "k_proj.weight": torch.randn(DIM, HIDDEN)}
    state |= {"q_norm.weight": torch.zeros(DIM), "k_norm.weight": torch.zeros(DIM)}
    wide = indexer_scores("m3", state, inputs.hidden.double(), inputs.cos, inputs.sin)
    assert wide.dtype == torch.float64 and wide.shape == (2, T, T)
    for kind, tensors, about in (("moba", {}, {}), ("dsa", {}, {}), ("qsa", {}, {})):
        with pytest.raises(BadSetting):
            indexer_scores(kind, tensors, inputs.hidden, inputs.cos, inputs.sin, **about)
