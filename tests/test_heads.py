"""The verbs about heads and temperatures on a tiny model, held against tables that are fully made."""

import json
import math

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.models import load_model
from analysis.statistics import CORE, MORE
from analysis.statistics.states import attention_states
from analysis.studies import heads as heads_study
from analysis.studies.heads import head
from analysis.studies.statistics import statistics
from analysis.studies.temperature import temperature
from analysis.studies.temperature_curve import temperature_curve
from analysis.studies.temperatures import recheck, temperatures
from tests.evaluating import TEXT, tiny_models, watched_context
from tests.tiny import FAMILIES, tiny, token_ids


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tiny_models(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def context(home):
    return watched_context(home)


@pytest.fixture(scope="module")
def ask(home, context):
    def run(study, text=TEXT, **arguments):
        return study(str(home / "tiny"), context.add_text("a text", text), **arguments, context=context)

    return run


@pytest.fixture(scope="module")
def tables(home, context):
    """The first window's probabilities [L, H, T, T] of the stock model, and its model."""
    model = load_model(str(home / "tiny"))
    ids = torch.tensor(model.tokenizer(TEXT, add_special_tokens=False)["input_ids"][:64])[None]
    model.lm.set_attn_implementation("eager")
    with torch.no_grad():
        found = model.lm(ids, output_attentions=True, use_cache=False).attentions
    return torch.stack(found)[:, 0].double().numpy()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("t", [1.0, 0.5])
def test_kept_states_give_the_model_s_probabilities_at_any_temperature(family, t):
    lm, ids, seen = tiny(family), token_ids(1, 40), {}
    from analysis.attention import apply

    states = attention_states(load_model(lm), ids[0].numpy())

    def watch(block, p):
        seen.setdefault(block.layer, []).append((block.visible, block.scores, p))

    with torch.no_grad(), apply(lm, METHODS["focal"](by_layer=(t, 1.0, 1.0)), watch=watch):
        lm(ids, use_cache=False)  # only in the first layer do sharpened queries meet the dense model's keys
    for at, (_, _, p) in enumerate(seen[0]):
        assert at == 0
        entropy, largest = states[0].sharpness(t)
        for one in range(4):
            mine = states[0].scores(one, 0, 40, t).softmax(-1)
            torch.testing.assert_close(mine, p[0, one], rtol=0, atol=1e-4)
        np.testing.assert_allclose(largest, p[0].amax(-1), atol=1e-4)
        np.testing.assert_allclose(entropy, torch.special.entr(p[0]).sum(-1), atol=1e-4)


def test_statistics_of_a_text(ask, tables):
    found = ask(statistics, window=5, long_text="first")
    rows, table = found.numbers["rows"], found.tables["heads"]
    assert list(rows[0]) == ["layer", "head", *CORE] and len(rows) == 12 == len(table)
    assert list(table.columns) == ["layer", "head", *CORE, *MORE]
    first, real = tables[..., 0].mean(-1), table["first_token_mass"].to_numpy()
    np.testing.assert_allclose(real, first.ravel(), atol=1e-5)
    np.testing.assert_allclose(table["max_prob"], tables.max(-1).mean(-1).ravel(), atol=1e-5)
    assert list(found.tables["distance"].columns) == ["layer", "head", "low", "high", "mass", "uniform"]
    assert list(found.tables["chance"].columns) == ["layer", *CORE, *MORE] and len(found.tables["tokens"]) == 64
    assert "heads leave more than half" in found.numbers["sentence"] and not found.numbers["without_first"]
    assert 0 < found.numbers["induction_queries"] < 1
    json.dumps(found.numbers)
    apart = ask(statistics, window=5, long_text="first", without_first=True)
    assert "renormalised" in apart.numbers["notes"][-1]
    np.testing.assert_allclose(apart.tables["heads"]["first_token_mass"], real, atol=1e-5)
    assert (apart.tables["heads"]["entropy"] - table["entropy"]).abs().max() > 1e-3


def test_windows_of_a_long_text_are_read_one_by_one(ask):
    found = ask(statistics)
    assert len(found.tables["tokens"]) > 64 and "windows" in " ".join(found.numbers["notes"])
    both = [ask(statistics, long_text=kind).tables["heads"]["entropy"] for kind in ("first", "windows")]
    assert not np.allclose(*both)


def test_a_head_s_pattern_row_and_tile(ask, tables):
    layer, which = 1, 2
    truth = tables[layer, which]
    found = ask(head, layer=layer, head=which, query=40, rows=[30, 41], columns=[3, 20], top=5, window=5)
    assert found.numbers["cell"] == 1 and "own row" in found.numbers["pooling"] and found.numbers["length"] == 64
    np.testing.assert_allclose(found.arrays["pattern"], truth, atol=1e-5)
    np.testing.assert_allclose(found.arrays["tile"], truth[30:41, 3:20], atol=1e-5)
    np.testing.assert_allclose(found.arrays["row"], truth[40], atol=1e-5)
    keys = found.tables["keys"]
    assert list(keys.columns) == ["key", "position", "piece", "word", "distance", "attention"] and len(keys) == 5
    assert keys["attention"].tolist() == sorted(keys["attention"], reverse=True)
    assert set(keys["key"]) == set(np.argsort(-truth[40])[:5]) and (keys["distance"] == 40 - keys["key"]).all()
    queries, summary = found.tables["queries"], found.numbers["summary"]
    np.testing.assert_allclose(queries["max_prob"], truth.max(-1), atol=1e-5)
    assert list(queries.columns) == ["position", *CORE, *MORE] and len(queries) == 64
    whole = ask(statistics, window=5, long_text="first").tables["heads"].query("layer == 1 and head == 2").iloc[0]
    assert summary == pytest.approx({name: whole[name] for name in (*CORE, *MORE)}, abs=1e-5)
    assert found.tables["distance"]["mass"].sum() == pytest.approx(1, abs=1e-5)
    assert found.numbers["chance"]["first_token_mass"] == pytest.approx(np.mean(1 / np.arange(1, 65)), abs=1e-5)
    json.dumps(found.numbers)


@pytest.mark.parametrize("block", [1 << 20, 64 * 5])
def test_a_pooled_pattern_holds_all_mass(ask, tables, monkeypatch, block):
    monkeypatch.setattr(heads_study, "SIDE", 10)
    monkeypatch.setattr(heads_study, "BLOCK_VALUES", block)
    found = ask(head, layer=0, head=1, rows=[54, 64], columns=[0, 10])
    pattern, cell = found.arrays["pattern"], found.numbers["cell"]
    assert cell == 7 and pattern.shape == (10, 10) and "7 queries and 7 keys" in found.numbers["pooling"]
    np.testing.assert_allclose(pattern.sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(pattern[2, 1], tables[0, 1][14:21, 7:14].sum(1).mean(), atol=1e-5)
    np.testing.assert_allclose(pattern[9, 0], tables[0, 1][63:, :7].sum(1).mean(), atol=1e-5)
    assert found.arrays["tile"].shape == (10, 10)


def test_the_first_token_can_be_left_out(ask, tables):
    found = ask(head, layer=2, head=0, without_first=True)
    truth = tables[2, 0].copy()
    truth[:, 0] = 0
    truth[1:] /= truth[1:].sum(1, keepdims=True)
    np.testing.assert_allclose(found.arrays["pattern"], truth, atol=1e-4)
    assert found.tables["keys"]["key"].min() > 0 and "left out" in found.numbers["notes"][-1]
    alone = ask(head, layer=2, head=0, without_first=True, query=0)
    assert alone.tables["keys"].empty and "nothing to read" in alone.numbers["sentence"]


def test_another_window_counts_its_own_tokens(ask):
    found = ask(head, part=1, query=3)
    assert found.numbers["offset"] == 64 and found.tables["keys"]["position"].between(64, 67).all()
    assert found.tables["queries"]["position"].iloc[0] == 64
    with pytest.raises(BadSetting, match="windows, counted from 0"):
        ask(head, part=99)


def test_without_numba_a_head_is_the_same(ask, monkeypatch):
    asked = {"layer": 1, "head": 3, "window": 5}
    compiled = ask(head, **asked)
    monkeypatch.setattr("analysis.statistics.heads.compiled", lambda: False)
    plain = ask(head, **asked)
    assert plain.numbers["summary"] == pytest.approx(compiled.numbers["summary"], abs=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"layer": 3},
        {"head": -1},
        {"query": 64},
        {"top": 0},
        {"rows": [0, 5]},
        {"rows": [5, 5], "columns": [0, 5]},
        {"rows": [0, 300], "columns": [0, 5]},
        {"mass": 2.0},
    ],
)
def test_what_is_no_head_is_refused(ask, wrong):
    with pytest.raises(BadSetting):
        ask(head, **wrong)


def test_a_temperature_of_every_head(ask, tables, context):
    found = ask(temperature, t=[0.5, 2.0], layer=1, head=2, query=40)
    rows = found.tables["heads"]
    assert list(rows.columns) == ["t", "layer", "head", "entropy", "effective_support", "max_prob"]
    assert len(rows) == 3 * 12 and sorted(set(rows["t"])) == [0.5, 1.0, 2.0]
    one = rows[rows["t"] == 1.0]
    np.testing.assert_allclose(one["max_prob"], tables.max(-1).mean(-1).ravel(), atol=1e-5)
    entropy = -np.where(tables > 0, tables * np.log(np.maximum(tables, 1e-300)), 0).sum(-1)
    np.testing.assert_allclose(one["entropy"], entropy.mean(-1).ravel(), atol=1e-4)
    np.testing.assert_allclose(one["effective_support"], np.exp(entropy).mean(-1).ravel(), rtol=1e-4)
    sharper = rows.pivot_table(index="t", values=["entropy", "max_prob"])
    assert sharper["entropy"].is_monotonic_increasing and sharper["max_prob"].is_monotonic_decreasing
    query = found.tables["query"]
    np.testing.assert_allclose(query["before"], tables[1, 2, 40, :41], atol=1e-5)
    squared = tables[1, 2, 40, :41] ** 2
    np.testing.assert_allclose(query["after"], squared / squared.sum(), atol=1e-5)
    assert found.numbers["after"]["entropy"] < found.numbers["before"]["entropy"] and found.numbers["shown"] == 0.5
    assert len(found.tables["layers"]) == 9 and "At temperature 0.5" in found.numbers["sentence"]
    kept = context.kept["sharpness"][1]
    again = ask(temperature, t=[0.5, 3.0], layer=0)
    assert context.kept["sharpness"][1] is kept, "only the new value was computed"
    assert len(again.tables["heads"]) == 3 * 12
    json.dumps(found.numbers)


def test_a_long_text_keeps_one_layer(ask, monkeypatch, context):
    monkeypatch.setattr("analysis.studies.states.KEPT_BYTES", 10)
    context.kept.clear()
    found = ask(temperature, t=[0.5], layer=2)
    assert set(found.tables["heads"]["layer"]) == {2} and "Layer 2 alone" in found.numbers["notes"][-1]
    assert ask(head, layer=1).numbers["layer"] == 1
    context.kept.clear()


@pytest.mark.parametrize("t", [[0.0], [-1.0], [], [1e9], [0.5 + i / 100 for i in range(40)]])
def test_what_is_no_temperature_is_refused(ask, t):
    with pytest.raises(BadSetting):
        ask(temperature, t=t)
    with pytest.raises(BadSetting):
        ask(temperature_curve, t=t)


def test_perplexity_against_temperature(ask):
    found = ask(temperature_curve, t=[0.5, 1.0, 1.5], layers=[0.5], by_layer=[1.0, 0.5, 1.0], long_text="windows")
    curve, dense = found.tables["curve"], found.numbers["perplexity_dense"]
    assert curve["t"].tolist() == [0.5, 1.0, 1.5]
    one = curve[curve["t"] == 1.0].iloc[0]
    assert one["perplexity"] == pytest.approx(dense) and one["difference"] == 0.0
    assert (curve["difference"] - (curve["perplexity"] / dense - 1)).abs().max() < 1e-9
    alone = found.tables["layers"]
    assert alone[["layer", "t"]].values.tolist() == [[0, 0.5], [1, 0.5], [2, 0.5]]
    assert found.numbers["by_layer"]["t"] == [1.0, 0.5, 1.0]
    assert found.numbers["by_layer"]["perplexity"] == pytest.approx(alone["perplexity"][1])
    bins = found.tables["bins"]
    assert set(bins["t"]) == {0.5, 1.0, 1.5} and (bins[bins["t"] == 1.0]["difference"] == 0).all()
    assert bins["n"].gt(0).all() and "saw the future" not in found.numbers["sentence"]
    with pytest.raises(BadSetting, match="3 layers"):
        ask(temperature_curve, by_layer=[1.0])
    json.dumps(found.numbers)


def test_the_curve_is_what_evaluate_measures(ask):
    from analysis.studies.evaluate import evaluate

    methods = [{"name": "focal", "settings": {"t": 0.5}}]
    row = ask(evaluate, methods=methods, window=32).numbers["rows"][0]
    mine = ask(temperature_curve, t=[0.5], window=32, long_text="windows").tables["curve"].iloc[0]
    assert mine["perplexity"] == pytest.approx(row["perplexity"], rel=1e-5)
    assert row["reads_causal"] == row["kv_read"] == pytest.approx(1.0) and row["difference"] != 0.0


def test_the_study_is_stored_and_comes_again(home, tmp_path, context):
    path = tmp_path / "temperature.json"
    asked = {"model": str(home / "tiny"), "length": 32, "windows": 2, "output": str(path), "context": context}
    found = temperatures(rows="story,program", **asked)
    stored = json.loads(path.read_text())
    assert stored["sentence"] == found.numbers["sentence"] and {row["domain"] for row in stored["rows"]} == {
        "story",
        "program",
    }
    for line in (row for part in stored["panels"] for row in part["series"]):
        assert all(value is None or math.isfinite(value) for value in line["y"])
    assert {column["name"] for column in stored["columns"]} <= set(stored["rows"][0])
    assert len([row for row in stored["rows"] if row["layer"] is not None]) == 9
    for kept, now in recheck(stored, context=context).values():
        assert kept == pytest.approx(now)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for at in range(3):
        (corpus / f"{at}.txt").write_text(f"{at} {TEXT}")
    again = temperatures(corpus=str(corpus), **asked)
    assert {row["domain"] for row in again.numbers["rows"]} == {"corpus"}
    with pytest.raises(BadSetting, match="no domain"):
        temperatures(rows="nothing", **asked)
