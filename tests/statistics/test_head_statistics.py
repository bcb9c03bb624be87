"""Statistics of every head against tables that are fully made, number by number in float64; the numerics of a layer,
its largest score and how far its weights lie from float64."""

import contextlib
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from transformers import LlamaConfig

import analysis
from analysis.errors import BadSetting, BadText, TooLarge
from analysis.models import load_model
from analysis.statistics import CORE, HeadReading, Numerics, attention_statistics, head_labels
from analysis.statistics.inputs import check_room, masks
from analysis.statistics.states import attention_states
from tests.made.full_tables import ALL, agree, few, materialised, read
from tests.made.tiny import BY_KIND, FAMILIES, GROUPED, LAYERS, left_padded, tiny, token_ids


@pytest.mark.parametrize("without_first", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_all_families_equal_the_full_tables(family, without_first):
    lm, ids = tiny(family), few(batch=1)
    agree(read(lm, ids, without_first=without_first), materialised(lm, ids, without_first=without_first))


@pytest.mark.slow
@pytest.mark.parametrize("family", BY_KIND)
def test_padded_batches_equal_the_full_tables(family):
    lm, (ids, mask) = tiny(family), left_padded(3, 30)
    ids = torch.where(mask.bool(), few(batch=3, length=30), ids)
    agree(read(lm, ids, mask), materialised(lm, ids, mask))
    right = mask.flip(1)
    agree(read(lm, ids.flip(1), right), materialised(lm, ids.flip(1), right))


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_torch_gives_the_same_numbers(family, monkeypatch):
    lm, (ids, mask) = tiny(family), left_padded(2, 30)
    for arguments in ({}, {"mask": mask}):
        for without_first in (False, True):
            compiled = read(lm, ids, without_first=without_first, head=(1, 2), **arguments)
            with monkeypatch.context() as patched:
                patched.setattr("analysis.statistics.reader.accelerated", lambda tensor: True)
                plain = read(lm, ids, without_first=without_first, head=(1, 2), query_block=7, **arguments)
            for name in ("means", "distances", "queries"):
                a, b = (getattr(reading, name)() for reading in (compiled, plain))
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("block", [1, 7, 40, 500])
def test_blocks_and_threads_change_nothing(block):
    lm, ids = tiny("llama"), few(length=40)
    all_at_once, threads = read(lm, ids).table(), torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        parts = read(lm, ids, query_block=block).table()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(all_at_once, parts, atol=1e-5)


def test_the_door_and_a_model_that_stays_as_it_is():
    model, ids = load_model(tiny("qwen3")), few(batch=1)[0]
    table = analysis.attention_statistics(model, ids.tolist(), mass=0.9, window=5)
    assert list(table.columns) == ["layer", "head", *CORE] and len(table) == LAYERS * 4
    pair = attention_statistics(model, torch.stack([ids, ids]).numpy(), 0.9, 5, query_block=9)
    np.testing.assert_allclose(table, pair, atol=1e-5)
    assert not any(m._forward_pre_hooks or hasattr(m, "_focuscope") for m in model.lm.modules())
    assert model.lm.config._attn_implementation == "eager"


def test_what_the_pass_computes_is_dense_attention():
    for family in FAMILIES:
        lm, ids, outputs = tiny(family), few(), []
        handle = lm.base_model.register_forward_hook(lambda m, a, out, into=outputs: into.append(out[0]))
        try:
            with torch.no_grad():
                lm.base_model(ids, use_cache=False)
            read(lm, ids)
        finally:
            handle.remove()
        assert (outputs[0] - outputs[1]).abs().max() < 1e-4, family


def test_several_texts_add_up_and_queries_are_kept():
    lm, a, b = tiny("mistral"), few(1, 1, 40), few(2, 1, 9)
    reading = HeadReading(LAYERS, 4, window=5, head=(2, 1))
    for ids in (a, b):
        reading.read(load_model(lm), ids)
    alone = [read(lm, ids).table()["entropy"] for ids in (a, b)]
    np.testing.assert_allclose(reading.table()["entropy"], (alone[0] * 40 + alone[1] * 9) / 49, atol=1e-5)
    queries = reading.queries()
    assert list(queries.columns) == ["position", *ALL] and len(queries) == 49
    wanted = reading.table().query("layer == 2 and head == 1").iloc[0]
    np.testing.assert_allclose(queries[list(ALL)].mean(), wanted[list(ALL)], atol=1e-5)


def test_chance_is_reading_all_visible_keys_alike():
    reading = read(tiny("mistral"), few(batch=1, length=30))
    chance, observed = reading.chance(), np.minimum(np.arange(30) + 1, 12)
    assert list(chance.columns) == ["layer", *ALL] and len(chance) == LAYERS
    assert np.allclose(chance["entropy"], np.log(observed).mean())
    assert np.allclose(chance["max_prob"], (1 / observed).mean())
    assert np.allclose(chance["top_p_rank"], np.ceil(0.9 * observed - 1e-6).mean())
    full = read(tiny("llama"), few(batch=1, length=30)).chance()
    assert np.allclose(full["entropy"], np.log(np.arange(30) + 1).mean())


def test_by_hand():
    """Three tokens a b a under a model that reads all keys alike: its projections are zero."""
    lm = copy_without_queries()
    table = read(lm, torch.tensor([[5, 6, 5]]), window=2).table().iloc[0]
    assert table["entropy"] == pytest.approx((0 + math.log(2) + math.log(3)) / 3, abs=1e-6)
    assert table["max_prob"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3, abs=1e-6)
    assert table["top_p_rank"] == 2  # 1, 2 and 3 keys
    assert table["first_token_mass"] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3, abs=1e-6)
    assert table["window_mass"] == pytest.approx((1 + 1 + 2 / 3) / 3, abs=1e-6)
    assert table["mean_distance"] == pytest.approx((0 + 1 / 2 + 1) / 3, abs=1e-6)
    assert table["previous_token"] == pytest.approx((1 / 2 + 1 / 3) / 2, abs=1e-6)
    assert table["induction"] == pytest.approx(1 / 3, abs=1e-6)  # only the last token was there before; b follows


@pytest.mark.parametrize("numba", [True, False])
def test_far_peaks_by_hand(numba, monkeypatch):
    """Eight tokens, far from 3 back: the last query puts .4 .2 .05 .05 on its far keys 1 to 4 of 8 visible ones, the
    fourth .3 on its only one of 5; key 0 is the sink and no far key, whatever it draws."""
    if not numba:
        monkeypatch.setattr("analysis.statistics.heads.accelerated", lambda tensor: True)
    weights = torch.zeros(8, 8)
    weights[7] = torch.tensor([0.1, 0.4, 0.2, 0.05, 0.05, 0.1, 0.05, 0.05])
    weights[4, :5] = torch.tensor([0.5, 0.3, 0.1, 0.05, 0.05])
    for row in (0, 1, 2, 3, 5, 6):
        weights[row, : row + 1] = 1 / (row + 1)  # even
    scores, hidden = weights.log(), torch.ones(8, 8).triu(1).bool()
    reading = HeadReading(1, 1, window=3, head=(0, 0))
    reading.begin(torch.arange(8)[None], torch.ones(1, 8, dtype=torch.bool))
    even = torch.zeros(8, 8).masked_fill(hidden, float("-inf"))
    reading.measure(scores.masked_fill(hidden, float("-inf")), even, 0)
    result = reading.queries()["far_peaks"].to_numpy()
    np.testing.assert_allclose(result[4:], [0.3 - 1 / 5, 0, 0, 0.7 - 4 / 8], atol=1e-6)
    assert np.isnan(result[:4]).all(), "no far key but the sink"
    assert reading.table()["far_peaks"].item() == pytest.approx((0.1 + 0 + 0 + 0.2) / 4, abs=1e-6)
    assert reading.chance()["far_peaks"].item() == pytest.approx(0, abs=1e-6), "even reading is what chance gives"


def test_labels_by_hand():
    """The first that fits, at its threshold; NaN fits nothing."""
    chance = pd.DataFrame({"layer": [0], "entropy": [5.0], "induction": [0.02]})
    plain = {"first_token_mass": 0.1, "previous_token": 0.1, "induction": 0.02, "far_peaks": 0.0, "entropy": 3.0}
    plain |= {"window_mass": 0.5, "layer": 0}
    changes = {
        "sink": {"first_token_mass": 0.5, "previous_token": 0.4},
        "previous token": {"previous_token": 0.3, "induction": 0.9},
        "induction": {"induction": 0.06, "far_peaks": 0.4},
        "far": {"far_peaks": 0.05, "window_mass": 0.9},
        "diffuse": {"entropy": 4.0},
        "local": {"window_mass": 0.9},
        "mixed": {"previous_token": np.nan, "induction": np.nan, "far_peaks": np.nan},
    }
    heads = pd.DataFrame([plain | change for change in changes.values()])
    assert head_labels(heads, chance) == list(changes)


def copy_without_queries():
    lm = type(tiny("llama"))(LlamaConfig(**GROUPED)).eval()
    with torch.no_grad():
        for layer in lm.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    return lm


@pytest.mark.slow
def test_sixteen_thousand_tokens_of_one_layer_need_no_table():
    length, process = 16384, psutil.Process()
    small = {"num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1}
    small["max_position_embeddings"] = length
    lm = type(tiny("llama"))(LlamaConfig(**{**GROUPED, **small})).eval()
    reading, before = HeadReading(1, 1), process.memory_info().rss
    reading.read(load_model(lm), token_ids(1, length))
    assert process.memory_info().rss - before < length * length * 4 / 4, "a quarter of one head's T x T"
    assert reading.table()["entropy"].between(1, math.log(length)).all()


@pytest.mark.parametrize("change", [{"mass": 0.0}, {"mass": 1.5}, {"window": 0}, {"query_block": 0}, {"window": 2.5}])
def test_bad_settings_are_refused(change):
    with pytest.raises(BadSetting):
        attention_statistics(load_model(tiny("llama")), few()[0], **change)


@pytest.mark.parametrize(
    "ids, mask, error",
    [(wrong, None, BadText) for wrong in ([], [[1.5]], [[[1]]], [5000], [-1])]
    + [(token_ids(1, 513), None, TooLarge), (few(), torch.zeros_like(few()), BadText), (few(), [1, 0], BadSetting)],
)
def test_bad_texts_are_refused(ids, mask, error):
    with pytest.raises(error):
        attention_statistics(load_model(tiny("llama")), ids, attention_mask=mask)


def test_masks_of_windows_and_padded_texts_take_room_too(monkeypatch):
    ids, padded = token_ids(1, 512), {"padded": True}
    item = 4 * (14 * 32 + 3 * 48)  # bytes of a token in the tiny models
    for spare, refused in ((512**2 - 1000, True), (512**2 + 1000, False)):
        memory = type("Memory", (), {"available": (512 * item + spare) / 0.9})
        monkeypatch.setattr("psutil.virtual_memory", lambda memory=memory: memory)
        check_room(load_model(tiny("llama")), ids)
        for model, extra in ((load_model(tiny("mistral")), {}), (load_model(tiny("llama")), padded)):
            with pytest.raises(TooLarge, match="give at most") if refused else contextlib.nullcontext():
                check_room(model, ids, **extra)
    assert masks(tiny("gemma2").config, True) == 2, "of both kinds of its layers"


HEADS, LENGTH, DIM = 2, 40, 16


def looked(offset: float, kind: torch.dtype, **module) -> tuple[float, float, float]:
    """One layer whose scores all carry the same `offset`, in a type."""
    random = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, HEADS, LENGTH, DIM, generator=random).bfloat16().float()
    query[..., 0], key[..., 0] = offset * DIM**0.5, 1.0
    result = Numerics(1)
    result.look(0, query.to(kind), key.to(kind), SimpleNamespace(**module))
    return tuple(result.found[0])


def test_large_scores_lie_apart_in_the_type_of_the_model_and_caps_and_windows_count():
    largest, local, in_model_type = looked(60, torch.bfloat16)
    assert 60 < largest < 75 and local < 1e-4 and in_model_type > 0.02
    _, local, in_model_type = looked(60, torch.float32)
    assert local == in_model_type < 1e-4
    assert looked(0, torch.bfloat16)[2] < in_model_type + 0.02, "small scores are told apart by few digits"
    assert looked(60, torch.float32, attn_logit_softcapping=20.0)[0] <= 20
    query, key = torch.ones(1, 1, 4, 2), torch.tensor([9.0, 1.0, 1.0, 1.0])[None, None, :, None] * torch.ones(2)
    far, near = Numerics(1), Numerics(1)
    far.look(0, query, key, SimpleNamespace(scaling=1.0))
    near.look(0, query[:, :, 1:], key[:, :, 1:], SimpleNamespace(scaling=1.0, sliding_window=2))
    assert (far.found[0, 0], near.found[0, 0]) == (18, 2)


def test_every_layer_of_a_reading_is_looked_at():
    from analysis.models import load_model

    model, ids = load_model(tiny("llama")), token_ids(1, LENGTH)[0].numpy()
    numerics = Numerics(model.num_layers)
    HeadReading(model.num_layers, model.num_heads, numerics=numerics).read(model, ids)
    table = numerics.table()
    assert table["layer"].tolist() == list(range(LAYERS)) and (table["difference"] < 1e-5).all()
    for layer, states in attention_states(model, ids).items():
        scores = torch.stack([states.scores(head, 0, LENGTH) for head in range(model.num_heads)])
        largest = scores.masked_fill(scores.isinf(), 0.0).abs().max().item()
        assert 0.2 * largest < table["largest_score"][layer] <= largest * (1 + 1e-5)
    assert np.isfinite(table.to_numpy()).all()


@pytest.mark.parametrize("length", [1, 3])
def test_short_texts(length):
    result = Numerics(1)
    result.look(0, torch.ones(1, 2, length, 4), torch.ones(1, 1, length, 4), SimpleNamespace())
    assert result.found[0].tolist() == [2.0, 0.0, 0.0]
