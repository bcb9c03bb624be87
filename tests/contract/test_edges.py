"""The contract at its edges: what must equal dense, what reads the future and says so as a changed later token shows,
what is refused by name, float32 in the seam whatever the model computes in, and the next token in chunks."""

from dataclasses import fields, replace
from types import SimpleNamespace

import psutil
import pytest
import torch
import torch.nn.functional as F
from transformers import LlamaConfig

from analysis.errors import AnalysisError, BadModel, NotFitted
from analysis.methods import METHODS, describe
from analysis.models import load_model, refuse_family
from analysis.seam import vocabulary
from analysis.seam.attention import LayerState, _attention, apply
from analysis.seam.reference import BLOCK_BYTES
from analysis.seam.token_memory import TokenMemory
from analysis.seam.vocabulary import next_tokens
from tests.contract.test_contract import CASES, logits
from tests.made.tiny import BY_KIND, FAMILIES, GROUPED, LAYERS, VERIFIED, VOCABULARY, WIDTH, tiny, token_ids


def test_a_watch_sees_every_probability():
    lm, ids, tables = tiny("mistral"), token_ids(1, 40), {}

    def watch(block, probabilities):
        assert torch.allclose(probabilities.sum(-1), torch.ones(()), atol=1e-5)
        tables.setdefault(block.layer, []).append(probabilities)

    with torch.no_grad():
        stock = lm(ids, output_attentions=True, use_cache=False).attentions
    with apply(lm, METHODS["dense"](), watch=watch):
        logits(lm, input_ids=ids)
    for layer, weights in enumerate(stock):
        assert torch.allclose(torch.cat(tables[layer], 2), weights, atol=1e-6)


def test_beam_search_and_nesting_are_refused():
    lm, ids = tiny("llama"), token_ids(1, 8)
    with apply(lm, METHODS["dense"]()):
        with pytest.raises(AnalysisError, match="3 beams"):
            lm.generate(ids, num_beams=3, max_new_tokens=2)
        with pytest.raises(AnalysisError, match="already applied"), apply(lm, METHODS["dense"]()):
            pass


def test_blocks_of_queries_do_not_change_the_result(monkeypatch):
    lm, ids = tiny("llama"), token_ids()
    for case in CASES.values():
        with apply(lm, case()):
            plain = logits(lm, input_ids=ids)
        with monkeypatch.context() as m, apply(lm, case()):
            m.setattr("analysis.seam.reference.BLOCK_BYTES", 4 * 2 * 4 * 48 * 7)
            assert (logits(lm, input_ids=ids) - plain).abs().max() < 1e-5


@pytest.mark.parametrize("family", ["gpt_neo", "falcon", "bloom", "mpt", "mamba", "rwkv"])
def test_families_that_bypass_the_interface_are_refused_by_name(family):
    from transformers import AutoConfig

    with pytest.raises(BadModel, match="(?i)" + family.replace("_", "-")):
        refuse_family(AutoConfig.for_model(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_already_held_is_taken_as_it_is(family):
    model = load_model(tiny(family))
    assert (model.num_layers, model.num_heads, model.head_dim, model.max_positions) == (LAYERS, 4, 8, 512)
    assert model.num_kv_heads == (4 if family in ("gpt2", "gpt_neox") else 2)
    assert model.width == WIDTH and model.revision.startswith("memory-")


@pytest.mark.slow
def test_sixteen_thousand_tokens_allocate_nothing_of_size_t_by_t():
    length, process, memory = 16384, psutil.Process(), []
    lm = type(tiny("llama"))(
        LlamaConfig(**{**GROUPED, "num_hidden_layers": 1, "max_position_embeddings": length})
    ).eval()
    ids = token_ids(1, length)
    before = process.memory_info().rss

    def watch(block, probabilities):
        assert probabilities.numel() * 4 <= BLOCK_BYTES
        assert block.visible.numel() < length * length // 8
        memory.append(process.memory_info().rss)

    for watching in (None, watch):
        with apply(lm, METHODS["dense"](), watch=watching), torch.no_grad():
            lm.model(ids, use_cache=False)
        memory.append(process.memory_info().rss)
    assert len(memory) > 10
    assert max(memory) - before < length * length * 4, "less than one float32 T x T of a single head"


HEADS, LENGTH, DIM = 2, 160, 16


def read_keys(query, key, method, dtype) -> torch.Tensor:
    """bool [1, H, T, T]: what one layer reads when queries and keys come in `dtype`."""
    reads = []
    state = LayerState(method, 0, TokenMemory(), lambda block, _: reads.append(block.read))
    state.first = torch.zeros(1, dtype=torch.long)
    module = SimpleNamespace(_focuscope=state, training=False)
    query, key = query.to(dtype), key.to(dtype)
    _attention(module, query, key, torch.randn_like(key), None)
    return torch.cat([torch.nn.functional.pad(read, (0, LENGTH - read.shape[-1])) for read in reads], 2)


@pytest.mark.parametrize("offset", [0, 20, 60])
def test_a_common_offset_of_the_scores_changes_no_choice_of_keys(offset):
    """Qwen's biases add the same large number to every score of a query: in bfloat16 the largest keys then tie."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, HEADS, LENGTH, DIM, generator=random).bfloat16().float()
    query[..., 0], key[..., 0] = offset * DIM**0.5, 1.0
    method = METHODS["oracle_topk"](k=16)
    exact = read_keys(query, key, method, torch.float64)
    half = read_keys(query, key, method, torch.bfloat16)
    assert (exact != half).float().mean() < 1e-4, "the same keys as in float64"
    expected = sum(min(i + 1, 16) for i in range(LENGTH)) * HEADS
    assert half.sum() <= expected * 1.001, "ties of rounded scores read more keys than were asked for"


def variants(name: str):
    """(words, method) for every option of every setting of a method."""
    for item in fields(METHODS[name]):
        for option in item.metadata.get("options") or ():
            yield f"{name}, {item.name} {option}", replace(CASES[name](), **{item.name: option})


def leaks(lm, method) -> bool:
    """Whether a token reads what comes after it."""
    ids = token_ids()
    changed = ids.clone()
    changed[:, 30:] = token_ids(seed=9)[:, 30:]
    with apply(lm, method):
        a, b = logits(lm, input_ids=ids), logits(lm, input_ids=changed)
    return bool((a - b)[:, :30].abs().max() > 1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_what_reads_the_future_says_so_and_nothing_else_does(name):
    lm = tiny("llama")
    for words, method in [(name, CASES[name]()), *variants(name)]:
        try:
            method.check(lm)
        except NotFitted:
            continue  # a bucket router that these buckets were not fitted with
        assert leaks(lm, method) == method.reads_future, words


def test_the_catalogue_names_the_options_that_do():
    options = {
        (name, field["name"], option)
        for name, about in describe().items()
        for field in about["fields"]
        for option in field["future"]
    }
    literal = {("focus", "membership", "literal"), ("routing_transformer", "membership", "literal")}
    assert options == literal | {("focal_learned", "mean", "literal")}


ROWS = 5
ALL_FAMILIES = [*BY_KIND, *(pytest.param(name, marks=pytest.mark.slow) for name in VERIFIED)]


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of ROWS places of two texts."""
    monkeypatch.setattr(vocabulary, "LOGITS_BYTES", 4 * 2 * VOCABULARY * ROWS)


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_one_chunk_is_the_stock_model_to_the_bit(family):
    lm, ids = tiny(family), token_ids(2, 37)
    with torch.no_grad():
        wanted = lm(ids, use_cache=False).logits
        ((rows, logits),) = next_tokens(lm, ids).chunks(lm)
        assert (rows.start, rows.stop) == (0, 37) and torch.equal(logits, wanted)
        assert torch.equal(lm(ids, use_cache=False).logits, wanted), "the model is as it came"
        assert torch.equal(next_tokens(lm, ids).last(3).logits(lm), wanted[:, -3:])


@pytest.mark.parametrize("family", ALL_FAMILIES)
def test_many_chunks_say_the_same_with_the_same_gradient(family, small_chunks):
    lm, ids = tiny(family), token_ids(2, 37)
    wanted = lm(ids, use_cache=False).logits
    with torch.no_grad():
        chunks = list(next_tokens(lm, ids).chunks(lm))
    assert [rows.stop - rows.start for rows, _ in chunks] == [ROWS] * 7 + [2]
    torch.testing.assert_close(torch.cat([logits for _, logits in chunks], 1), wanted, rtol=1e-5, atol=1e-5)
    weights = [p for p in lm.parameters() if p.requires_grad]
    nats = F.cross_entropy(wanted[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(2, 36)
    losses = next_tokens(lm, ids).losses(lm, ids[:, 1:])
    torch.testing.assert_close(losses, nats, rtol=1e-5, atol=1e-5)
    both = (torch.autograd.grad(loss.mean(), weights) for loss in (losses, nats))
    for gradients in zip(*both, strict=True):
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_chunks_run_no_layer_and_no_hook_of_the_model(small_chunks):
    lm, ids, calls = tiny("llama"), token_ids(1, 20), []
    handles = [m.register_forward_hook(lambda *_: calls.append(1)) for m in (lm, lm.model.layers[0])]
    with torch.no_grad():
        list(next_tokens(lm, ids).chunks(lm))
    for handle in handles:
        handle.remove()
    assert len(calls) == 2 and "forward" not in vars(lm.model)
