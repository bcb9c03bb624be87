"""The contract at its edges: what must equal dense, what reads the future and says so, what is refused by name."""

import psutil
import pytest
import torch
from transformers import LlamaConfig

from analysis.errors import AnalysisError, BadModel
from analysis.methods import METHODS
from analysis.models import load_model, refuse_family
from analysis.seam.attention import apply
from analysis.seam.reference import BLOCK_BYTES
from tests.contract.test_contract import CASES, logits
from tests.made.tiny import FAMILIES, GROUPED, LAYERS, WIDTH, tiny, token_ids


def test_blocks_of_queries_do_not_change_the_result(monkeypatch):
    lm, ids = tiny("llama"), token_ids()
    for case in CASES.values():
        with apply(lm, case()):
            plain = logits(lm, input_ids=ids)
        with monkeypatch.context() as m, apply(lm, case()):
            m.setattr("analysis.seam.reference.BLOCK_BYTES", 4 * 2 * 4 * 48 * 7)
            assert (logits(lm, input_ids=ids) - plain).abs().max() < 1e-5


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
