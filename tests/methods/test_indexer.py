"""The method of learned indexers: what it reads is what its indexer scores highest; it is fitted, kept and found."""

import pytest
import torch

from analysis.errors import NotFitted
from analysis.fitted import Fitted
from analysis.indexers import INDEXERS
from analysis.indexers.reading import read_layers
from analysis.indexers.state import unpacked
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.routing.indexers import token_scores
from tests.made.indexed import made_indexers
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.made.tiny_tokenizer import byte_level

T, WINDOW, SINKS = 40, 4, 1


def read_by(lm, method, ids):
    """bool [layers, H, T, T]: what stood in each softmax."""
    read = torch.zeros(LAYERS, lm.config.num_attention_heads, T, T, dtype=torch.bool)

    def watch(block, probabilities):
        read[block.layer][:, block.rows[:, None], block.columns] = probabilities[0] > 0

    with apply(lm, method, watch=watch), torch.no_grad():
        lm(input_ids=ids, use_cache=False)
    return read


@pytest.mark.parametrize("kind", INDEXERS)
def test_it_reads_the_near_the_first_and_what_scores_highest(kind):
    lm, ids = tiny("llama"), token_ids(1, T)
    config = lm.config
    dim, kv_heads = config.hidden_size // config.num_attention_heads, config.num_key_value_heads
    state = made_indexers(kind, heads=config.num_attention_heads, kv_heads=kv_heads, dim=dim)
    method = METHODS["indexer"].build(state, kind=kind, keys=8, window=WINDOW, n_sink=SINKS)
    read = read_by(lm, method, ids)
    indexers, sizes = unpacked(state, kind, LAYERS)
    # The first layer sees what dense attention sees: its scores of the whole text.
    inputs = {}

    def take(layer, by_reads):
        if layer == 0:
            inputs.update(by_reads)

    read_layers(
        load_model(lm, tokenizer=byte_level()), ids[0].numpy(), {INDEXERS[kind].reads}, take, lambda *block: None
    )
    rows = torch.arange(T)
    scores = token_scores(indexers[0], inputs, rows, T)
    heads = len(read[0])
    for row in range(T):
        for head in range(heads):
            near = {key for key in range(row + 1) if row - key < WINDOW or key < SINKS}
            near |= {key for key in range(row + 1) if sizes.unit > 1 and key // sizes.unit == row // sizes.unit}
            wanted, chosen = set(near), scores[head * len(scores) // heads, row]
            free = [key for key in range(row + 1) if row - key >= WINDOW and key >= SINKS and chosen[key] < 1e8]
            units = {key // sizes.unit: float(chosen[key]) for key in free}
            best = sorted(units, key=lambda unit: (-units[unit], unit))[: max(1, 8 // sizes.unit)]
            wanted |= {key for key in range(row + 1) if key // sizes.unit in best}
            assert set(read[0][head, row].nonzero().flatten().tolist()) == wanted, (kind, head, row)


def test_it_is_fitted_kept_and_found_again_and_refused_before(tmp_path, monkeypatch):
    lm = tiny("llama")
    for method in (METHODS["indexer"](), METHODS["indexer"].build(made_indexers("moba"), kind="dsa")):
        with pytest.raises(NotFitted), apply(lm, method):
            pass
    monkeypatch.setattr("analysis.methods.indexer.TRAINING", {"queries": 8, "steps": 2})
    lm = tiny("llama")
    model = load_model(lm, tokenizer=byte_level())
    method = METHODS["indexer"](window=8).fit(model, torch.cat([token_ids(1, 48, seed=seed) for seed in range(3)]))
    again = Fitted.load(method.fitted.save(tmp_path))
    assert set(again.about["indexers"]) == {"dsa", "qsa", "m3", "seer", "moba", "low_rank"}
    assert again.tensors["dsa.layers.0.self_attn.indexer.wq_b.weight"].dtype == torch.float32
    for kind in again.about["indexers"]:
        with apply(lm, METHODS["indexer"].build(again, kind=kind, keys=4, window=4)), torch.no_grad():
            assert lm(input_ids=token_ids(1, T), use_cache=False).logits.isfinite().all()
    assert METHODS["indexer"].build(made_indexers("moba")).kind == "moba", "the first that was fitted"
