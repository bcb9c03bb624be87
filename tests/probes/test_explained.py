"""Who explains a head over many pairs: margins by hand, and a writer removed against the model with edited weights."""

import numpy as np
import pytest
import torch

from analysis.models import load_model
from analysis.probes.explained import Explaining, removals, strongest_pairs
from analysis.probes.moved import moved
from analysis.probes.why import explained_by
from analysis.probes.writers import Stream
from analysis.statistics.states import attention_states
from tests.contract.test_contract import copy_of
from tests.made.tiny import tiny, token_ids
from tests.made.tiny_tokenizer import byte_level

LAYER, HEAD = 2, 1


@pytest.fixture(scope="module")
def explaining():
    ids = token_ids(1)[0].numpy()
    model = load_model(tiny("llama"), tokenizer=byte_level())
    pairs = strongest_pairs(attention_states(model, ids, [LAYER])[LAYER], HEAD, 12)
    return Explaining(model, ids, LAYER, HEAD, pairs, 0)


def test_the_strongest_pairs_are_those_of_the_full_table(explaining):
    with torch.no_grad():
        table = tiny("llama")(explaining.ids[None], output_attentions=True).attentions[LAYER][0, HEAD]
    table[:, 0] = 0
    best = table.max(-1)
    queries = np.sort(np.argsort(-best.values.numpy(), kind="stable")[:12])
    clear = [query for query in queries if best.values[query] >= 0.1 and query > 6]
    assert explaining.pairs.tolist() == [[query, int(best.indices[query])] for query in clear]


def test_parts_add_up_to_the_margin_and_removals_come_in_order(explaining):
    explained = explaining.explained()
    for side in ("query", "key"):
        rows = explained.writers[explained.writers["side"] == side]
        assert rows["margin"].sum() == pytest.approx(explained.margin.mean(), abs=1e-4)
        assert rows["share"].sum() == pytest.approx(1, abs=1e-4)
    assert explained.together.sum() == pytest.approx(explained.margin.mean(), abs=1e-4)
    states = attention_states(explaining.model, explaining.ids.numpy(), [LAYER])[LAYER]
    for (query, key), alternatives, margin in zip(explaining.pairs, explaining.others, explained.margin, strict=True):
        scores = states.scores(HEAD, query, query + 1)[0]
        assert key not in alternatives and alternatives.max() <= query
        assert margin == pytest.approx(float(scores[key] - scores[alternatives].mean()), abs=1e-3)
    explained = explaining.explained()
    rows = list(removals(explaining, explained, 3, "zero"))
    assert len(rows) == 3
    assert all(row.low <= row.slope <= row.high and row.pairs == len(explaining.pairs) for row in rows)
    assert "bias" not in {row.writer for row in rows}


@pytest.mark.parametrize("by", ["zero", "mean"])
@pytest.mark.parametrize("writer", ["L1.H2", "L1.mlp"])
def test_a_removed_writer_is_the_stream_without_it(explaining, by, writer):
    """What stands right below a layer changes nothing between: the model with that writer edited out is the measure."""
    lm = copy_of(tiny("llama"))
    block = lm.model.layers[1]
    module = block.mlp if writer == "L1.mlp" else block.self_attn.o_proj
    outputs = {}

    def edit(module, args, out):
        written = out if writer == "L1.mlp" else args[0][..., 16:24] @ module.weight[:, 16:24].T
        return out - written + (written.mean(1, keepdim=True) if by == "mean" else 0)

    if writer == "L1.H2":
        # the block above the head in its layer is given, so it must not follow
        handle = block.mlp.register_forward_hook(lambda m, a, o: outputs.setdefault("mlp", o))
        with torch.no_grad():
            lm(explaining.ids[None])
        handle.remove()
        block.mlp.forward = lambda x: outputs["mlp"]
    module.register_forward_hook(edit)
    prompt = Stream(lm, explaining.ids, LAYER, [0]).prompt
    factor = explaining.written.factor
    queries, keys = explaining.pairs.T
    stream = explaining.written
    wanted = factor * (prompt.query[0, HEAD, queries].double() * stream.model_keys[explaining.key]).sum(-1)
    removed = explaining.removed("query", writer, by)
    np.testing.assert_allclose(removed.measured, wanted - explaining.logits, atol=1e-4)
    left = explaining.logits.numpy() + removed.predicted
    again = removed.rescaled * left - explaining.logits.numpy()
    np.testing.assert_allclose(removed.measured, again, atol=1e-4, err_msg="what differs is the norm of what is left")
    wanted = factor * (stream.model_queries[explaining.query] * prompt.key[0, HEAD // 2, keys].double()).sum(-1)
    np.testing.assert_allclose(explaining.removed("key", writer, by).measured, wanted - explaining.logits, atol=1e-4)
    if by == "zero":
        row = stream.writers.index(writer)
        part = stream.queries[row, explaining.query] * stream.model_keys[explaining.key]
        np.testing.assert_allclose(removed.predicted, -factor * part.sum(-1), atol=1e-4)


def test_later_writers_follow_in_the_model_that_runs_without_one(explaining):
    """The edited model itself, a head of the first layer at zero."""
    lm = copy_of(tiny("llama"))
    with torch.no_grad():
        lm.model.layers[0].self_attn.o_proj.weight[:, 16:24] = 0
    prompt = Stream(lm, explaining.ids, LAYER, [0]).prompt
    queries, keys = explaining.pairs.T
    stream = explaining.written
    query = prompt.query[0, HEAD, queries].double()
    wanted = stream.factor * (query * stream.model_keys[explaining.key]).sum(-1) - explaining.logits
    removed = explaining.removed("query", "L0.H2", "zero")
    np.testing.assert_allclose(removed.followed, wanted, atol=1e-4)
    assert abs(removed.followed - removed.measured).max() > 1e-3
    assert explaining.removed("key", "L0.mlp", "mean").followed is not None
    assert explaining.removed("key", "embedding", "mean").followed is None


def test_what_was_moved_is_the_direct_way_to_the_vocabulary():
    """One value times its share, projected, scaled as the last norm scaled, times the vocabulary; shares of all keys
    add up to 1."""
    lm, ids, query = tiny("llama"), token_ids(1)[0], 9
    shares, changes = [], []
    for key in range(query + 1):
        stream = Stream(lm, ids, LAYER, [query, key])
        explained = explained_by(stream, LAYER, HEAD, query, key)
        movement = moved(stream, explained)
        shares.append(movement.share)
        changes.append((explained, stream, movement.change))
    assert sum(shares) == pytest.approx(1, abs=1e-4)
    explained, stream, change = changes[5]
    columns = slice(8 * HEAD, 8 * HEAD + 8)
    with torch.no_grad():
        read = explained.attention * stream.prompt.value[0, HEAD // 2, 5]
        wrote = lm.model.layers[LAYER].self_attn.o_proj.weight[:, columns] @ read
        ends = []
        handle = lm.model.norm.register_forward_pre_hook(lambda module, args: ends.append(args[0][0, query]))
        lm(ids[None])
        handle.remove()
        scale = (ends[0].pow(2).mean() + lm.config.rms_norm_eps) ** -0.5
        wanted = lm.lm_head.weight @ (wrote * scale * lm.model.norm.weight)
    np.testing.assert_allclose(change, wanted - wanted.mean(), atol=1e-4)
