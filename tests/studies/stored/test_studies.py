"""The verbs on the bundled model: tables as the pages read them, controls, notes, and texts of every kind."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from analysis.corpus import sample_texts
from analysis.errors import BadText
from analysis.jobs.client import PLACE
from analysis.methods import METHODS
from analysis.studies import STUDIES
from tests.made.asking import SHORT

TOKENS = "position window piece start end word content".split()
PAIRS = "layer head group query_position key_position distance affinity attention uniform query key".split()
PAIRS += ["query_named", "key_named", "kind"]
COLUMNS = {
    "start": {
        "tokens": [*TOKENS, "received"],
        "pairs": PAIRS,
        "distance": "low high mass uniform".split(),
    },
    "groups": {
        "tokens": TOKENS,
        "layers": "layer dominance confidence dominance_random confidence_random dominance_shuffled "
        "confidence_shuffled balanced".split(),
        "groups": "group tokens share confidence label purity purity_random purity_random_low purity_random_high "
        "share_random share_shuffled layer".split(),
        "words": "group rank word count lift layer".split(),
    },
    "pairs": {
        "tokens": TOKENS,
        "pairs": PAIRS,
        "controls": "layer arm pairs_share mass_share lift".split(),
        "distance": "arm low high pairs_share mass_share lift".split(),
    },
}
ARMS = ["this router", "random centroids", "random tokens", "shuffled text"]
PROTOCOL = "verb model revision text tokens window seed dtype device kernel threads machine versions date".split()


@pytest.mark.parametrize("verb", COLUMNS)
def test_tables_have_the_columns_that_pages_read_and_numbers_are_json(verb, run):
    result = run(verb, **({"min_distance": 32} if verb != "groups" else {}))
    assert {name: list(table.columns) for name, table in result.tables.items()} == COLUMNS[verb]
    assert not any(table.index.hasnans for table in result.tables.values())
    protocol = json.loads(json.dumps(result.numbers, allow_nan=False))["protocol"]
    assert set(PROTOCOL) <= set(protocol) and protocol["verb"] == verb and protocol["model"] == "demo"
    assert protocol["tokens"] == len(result.tables["tokens"]) and re.fullmatch("[0-9a-f]{12}", protocol["text"])
    tokens = result.tables["tokens"]
    spans = dict.fromkeys(zip(tokens["start"], tokens["end"], strict=True))
    assert "".join(SHORT[a:b] for a, b in spans) == SHORT and tokens["position"].tolist() == list(range(len(tokens)))


def test_pickers_offer_the_methods_in_their_order():
    assert list(METHODS) == list(json.loads(PLACE.read_text())["methods"])


def test_groups_shares_and_arrays_agree(run, bundled):
    result, layers = run("groups"), bundled.model().num_layers
    groups, count = result.tables["groups"], len(result.tables["tokens"])
    assert np.allclose(groups.groupby("layer")[["share", "share_random", "share_shuffled"]].sum(), 1)
    assert groups.groupby("layer")["tokens"].sum().tolist() == [count] * layers
    assert len(groups) == layers * result.numbers["K"]
    group = result.arrays["group"]
    assert group.dtype == np.int16 and group.shape == (layers, count)
    assert result.arrays["pca"].shape == (layers, count, 2) and result.arrays["pca_variance"].shape == (layers, 2)
    sure = result.arrays["confidence"]
    assert sure.shape == (layers, count) and (sure >= 1 / result.numbers["K"]).all() and (sure <= 1).all()
    for row in groups.itertuples():
        assert row.tokens == (group[row.layer] == row.group).sum()
        if row.tokens == 0:
            assert row.label == "empty" and np.isnan(row.purity)
        else:
            confidences = sure[row.layer][group[row.layer] == row.group]
            assert 0 < row.purity <= 1 and row.confidence == pytest.approx(confidences.mean())
    for row in result.tables["layers"].itertuples():
        assert row.dominance == pytest.approx(groups[groups["layer"] == row.layer]["share"].max())
    assert (result.tables["words"]["count"] >= 2).all() and (result.tables["words"]["lift"] > 1).all()


def test_pairs_are_sorted_far_and_inside_one_group(run):
    result, groups = run("pairs", min_distance=32), run("groups")
    pairs, tokens = result.tables["pairs"], result.tables["tokens"]
    assert len(pairs) and pairs["attention"].is_monotonic_decreasing and (pairs["distance"] >= 32).all()
    assert (pairs["distance"] == pairs["query_position"] - pairs["key_position"]).all()
    assert tokens["content"].to_numpy()[pairs[["query_position", "key_position"]].to_numpy()].all()
    assert (pairs["query"].to_numpy() == tokens["word"].to_numpy()[pairs["query_position"]]).all()
    group = groups.arrays["group"]
    if result.numbers["router"]["top"] == 1:
        for side in ("query_position", "key_position"):
            assert (group[pairs["layer"], pairs[side]] == pairs["group"]).all()
    assert pairs["uniform"].to_numpy() == pytest.approx(1 / (pairs["query_position"].to_numpy() + 1))
    assert (pairs["key_position"] > 0).all(), "the first token is the sink, never a pair"
    assert result.numbers["same_group_pairs"] <= result.numbers["far_pairs"]


@pytest.mark.slow
def test_filters_are_honoured(run):
    rows = run("pairs", min_distance=32).tables["pairs"]
    for name in ("layer", "group", "head"):
        wanted = int(rows[name].iloc[0])
        chosen = run("pairs", min_distance=32, **{name: wanted}).tables["pairs"]
        assert len(chosen) and (chosen[name] == wanted).all()
    assert len(run("pairs", min_distance=32, top=3).tables["pairs"]) == 3
    far = run("pairs", min_distance=64).tables["pairs"]
    assert (far["distance"] >= 64).all()
    anything = run("pairs", min_distance=32, content=False).tables
    assert not anything["tokens"]["content"].to_numpy()[anything["pairs"]["key_position"]].all()


def test_a_chosen_head_decides_every_arm(run):
    all_heads, third = (run("pairs", min_distance=32, **options).tables["controls"] for options in ({}, {"head": 3}))
    for arm in ARMS:
        a, b = (t[t["arm"] == arm]["mass_share"].to_numpy() for t in (all_heads, third))
        assert not np.allclose(a, b), arm


@pytest.mark.slow
def test_four_arms_on_a_long_text_and_random_tokens_at_chance(run, bundled):
    result = run("pairs", sample_texts()["story"][1], long_text="first")
    controls = result.tables["controls"]
    assert controls.groupby("layer")["arm"].agg(set).map(lambda arms: arms == set(ARMS)).all()
    assert len(controls) == 4 * bundled.model().num_layers
    random = controls[controls["arm"] == "random tokens"]
    assert random["lift"].between(0.9, 1.1).all() and random["pairs_share"].between(0.11, 0.14).all()
    assert controls["pairs_share"].between(0, 1).all() and controls["mass_share"].between(0, 1).all()
    bins = result.tables["distance"]
    assert set(bins["arm"]) == set(ARMS) and bins["low"].min() == 128
    assert "times the attention that chance" in result.numbers["sentence"]


def test_the_first_look_says_what_its_numbers_say(run):
    result = run("start", min_distance=32)
    numbers, tokens = result.numbers, result.tables["tokens"]
    assert len(numbers["sentences"]) == 3 and numbers["min_distance"] == 32
    assert f"{numbers['far_share']:.0%} of what the heads read lies 32 or more tokens back" in numbers["sentences"][0]
    assert 0 < numbers["far_share"] < 1 and 0 < numbers["far_share_uniform"] < 1 and 0 < numbers["sink_share"] < 1
    last = tokens["position"].max()
    assert tokens["received"][tokens["position"] > last - 32].isna().all() and np.isnan(tokens["received"][0])
    assert (tokens["received"].dropna() >= 0).all() and tokens["received"].notna().sum() == last - 32
    distance = result.tables["distance"]
    assert distance["mass"].sum() + numbers["sink_share"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("verb", ["groups", "pairs"])
def test_a_seed_decides_everything(verb, run, bundled):
    options = {"min_distance": 32} if verb == "pairs" else {}
    first = run(verb, seed=0, **options)
    again = STUDIES[verb](text=bundled.add_text("again", SHORT), seed=0, **options, context=bundled)
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(table, again.tables[name])
    assert all(np.array_equal(value, again.arrays[name]) for name, value in first.arrays.items())
    without_date = [{k: v for k, v in r.numbers["protocol"].items() if k != "date"} for r in (first, again)]
    assert without_date[0] == without_date[1]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Hello there", "😀😃😄🫨" * 3, "the cat " * 20, "שלום עולם مرحبا", "紅樓夢第一回"])
def test_texts_shorter_than_the_distance_give_empty_tables_and_say_so(text, run):
    pairs = run("pairs", text)
    assert pairs.tables["pairs"].empty and list(pairs.tables["pairs"].columns) == COLUMNS["pairs"]["pairs"]
    assert pairs.numbers["far_pairs"] == 0 and pairs.tables["controls"]["lift"].isna().all()
    assert any("a far pair needs at least 130" in note for note in pairs.numbers["notes"])
    assert pairs.numbers["sentence"].startswith("No two tokens at least 128 apart")
    first, groups = run("start", text), run("groups", text)
    assert len(first.numbers["sentences"]) == 3 and "nan" not in " ".join(first.numbers["sentences"])
    layers = len(groups.tables["layers"])
    assert groups.tables["groups"]["tokens"].sum() == layers * len(groups.tables["tokens"])
    assert "nan" not in groups.numbers["sentence"]
    json.dumps([r.numbers for r in (pairs, first, groups)], allow_nan=False)


def test_one_token_is_refused_and_bytes_of_an_unknown_script_are_counted(run):
    for verb in ("inspect", "start", "groups", "pairs"):
        with pytest.raises(BadText, match="1 token and attention needs at least 2"):
            run(verb, "a")
    assert run("inspect", "😀" * 5).numbers["byte_fallback_share"] > 0.3
    assert run("inspect", "plain words only").numbers["notes"] == []
    assert run("start", "😀" * 20, min_distance=8).tables["pairs"].empty, "an emoji is no content word"


@pytest.mark.slow
def test_texts_of_many_windows_and_of_one_window_and_one_token(run, bundled):
    text = "\n".join(text for _, text in sample_texts().values()) * 2
    size = bundled.model().max_positions
    numbers, first = run("inspect", text).numbers, run("inspect", text, long_text="first").numbers
    assert numbers["tokens"] > 5000 and numbers["windows"] == -(-numbers["tokens"] // size) > 4
    assert (first["windows"], first["shown"], first["tokens"]) == (1, size, numbers["tokens"])
    assert len(numbers["notes"]) == len(first["notes"]) == 1
    window = run("groups", text).tables["tokens"]["window"].to_numpy()
    assert len(window) == numbers["tokens"] and (np.diff(window) >= 0).all() and window.max() == numbers["windows"] - 1
    size, word = bundled.model().max_positions, " the"
    exact, longer = run("groups", "a" + word * (size - 1)), run("groups", "a" + word * size)
    assert exact.tables["tokens"]["window"].max() == 0 and not any("windows" in note for note in exact.numbers["notes"])
    assert longer.tables["tokens"]["window"].value_counts().tolist() == [size, 1]
    assert "nan" not in longer.numbers["sentence"]
