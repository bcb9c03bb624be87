"""What leaves of heads: the folder for HeadVis, read back by what its `data_pipeline.py` says of each field, against
dense attention of transformers; and cards of heads, against the commands that measure them, out as a file and in
again."""

import json
from collections import Counter

import numpy as np
import pytest

from analysis.commands.heads import HeadCards, ImportCards, Names, Statistics, Why
from analysis.errors import BadSetting
from analysis.metrics.intervals import interval
from analysis.runs.head_notes import note_head, others_of
from tests.made.evaluating import TEXT, stock_tables

SIZE = 64


@pytest.fixture(scope="module")
def folder(ask, tmp_path_factory):
    """The folder of two heads on two texts."""
    place = tmp_path_factory.mktemp("headvis") / "data"
    ask(HeadCards, texts=[TEXT, TEXT[40:]], heads="0.1,1.2", writers="none", headvis=str(place))
    return place


def read(folder, name: str):
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_config_and_scatter_name_the_heads_and_a_folder_that_is_there_is_left_alone(folder, ask):
    config, rows = read(folder, "config"), read(folder, "scatter_data")
    assert config["heads"] == [[0, 1], [1, 2]] == [[row["layer"], row["head"]] for row in rows]
    names = {config["head_data_pattern"].format(layer=layer, head=head) for layer, head in config["heads"]}
    assert names == {path.name for path in (folder / "heads").iterdir()}
    assert set(rows[0]) == {"layer", "head", *config["metrics"]}
    assert set(config["metric_descriptions"]) == set(rows[0]) - {"layer", "head"}
    assert (config["has_umap"], config["umap_heads"], read(folder, "server_config")) == (False, [], {})
    # One window of a text is one sequence, so that the same numbers come from the command of one text.
    table = ask(Statistics, text=TEXT).tables["heads"].set_index(["layer", "head"])
    assert rows[1]["previous_token_score"] == pytest.approx(table.loc[(1, 2), "previous_token"], abs=0.05)
    content = read(folder, "heads/L0H1")
    for listed in (*config["custom_plots"], *config["custom_tables"]):
        assert content[listed["key"]]
    assert set(config["statistics_display"]) == set(content["statistics"])
    with pytest.raises(BadSetting):
        ask(HeadCards, texts=[TEXT], heads="0.1", writers="none", headvis=str(folder))


def test_sequences_hold_the_attention_of_their_tokens_in_sparse_places(folder, home):
    stock = stock_tables(home)[1, 2]
    content = read(folder, "heads/L1H2")
    listed, config = content["sequences"], read(folder, "config")
    (first,) = (sequence for sequence in listed if sequence["sequence_id"] == 0)
    assert first["seq_len"] == len(first["tokens"]) == SIZE and "".join(first["tokens"]).startswith("the cat sat")
    queries, keys = np.divmod(first["attention_indices"], SIZE)
    np.testing.assert_allclose(first["attention_values"], stock[queries, keys], atol=1e-4)
    for query in range(SIZE):
        strongest = np.sort(stock[query])[::-1][:8]
        assert (queries == query).sum() == (strongest >= 0.005).sum()
    beside = stock * ~np.eye(SIZE, dtype=bool)
    assert first["max_activation"] == pytest.approx(beside[1:, 1:].max(), abs=1e-4)
    activations = {sequence["interval"]: [] for sequence in listed}
    for sequence in listed:
        activations[sequence["interval"]].append(sequence["max_activation"])
    assert sorted(activations) == list(range(1, config["n_intervals"] + 1))
    assert all(max(activations[low]) <= min(activations[low + 1]) for low in range(1, config["n_intervals"]))


def test_histograms_and_tokens_add_up_the_pairs_that_are_written(folder):
    content = read(folder, "heads/L0H1")
    distances, weights = [], Counter()
    for sequence in content["sequences"]:
        queries, keys = np.divmod(sequence["attention_indices"], sequence["seq_len"])
        distances += (queries - keys).tolist()
        for query, value in zip(queries, sequence["attention_values"], strict=True):
            weights[sequence["tokens"][query]] += value
    drawn = content["qk_distance_histogram"]
    assert len(drawn["bin_edges"]) == len(drawn["bin_values"]) + 1
    assert drawn["bin_values"][:3] == [
        sum(low <= distance < high for distance in distances) for low, high in ((0, 1), (1, 2), (2, 4))
    ]
    best = content["top_query_tokens"]
    assert [row["weight"] for row in best] == sorted((row["weight"] for row in best), reverse=True)
    assert best[0]["weight"] == pytest.approx(weights[best[0]["token"]] / weights.total(), abs=1e-4)
    assert sum(content["histogram"]["bin_values"]) == len(content["sequences"])


TEXTS = [TEXT, TEXT[40:], TEXT[80:], TEXT[120:], TEXT[160:]]


@pytest.mark.slow
def test_a_card_says_what_the_commands_measure_and_comes_in_again(ask, context, home, tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUSCOPE_STATE", str(tmp_path))
    lm, path = context.model(str(home / "tiny")), tmp_path / "cards.json"
    note_head(tmp_path, lm.name, lm.revision, "1.2", name="mine", note="reads back")
    answer = ask(HeadCards, texts=TEXTS, heads="0.1,1.2", writers="all", output=str(path))
    cards = {(card["layer"], card["head"]): card for card in answer.numbers["cards"]}
    assert list(cards) == [(0, 1), (1, 2)] and (cards[1, 2]["name"], cards[1, 2]["note"]) == ("mine", "reads back")
    tables = [ask(Statistics, text=text).tables["heads"].set_index(["layer", "head"]) for text in TEXTS]
    wanted = interval([table.loc[(1, 2), "entropy"] for table in tables])
    row = next(row for row in cards[1, 2]["statistics"] if row["statistic"] == "entropy")
    assert [row["mean"], row["low"], row["high"]] == pytest.approx([wanted.mean, wanted.low, wanted.high])
    named = [row["name"] for row in ask(Names).numbers["rows"] if (row["layer"], row["head"]) == (1, 2)]
    assert [row["name"] for row in cards[1, 2]["names"]] == named
    writers = ask(Why, text=TEXT, layer=1, head=2).tables["writers"]
    best = {row["side"]: row for row in reversed(cards[1, 2]["why"])}
    for side, rows in writers.groupby("side"):
        assert best[side]["writer"] == rows["writer"].iloc[0]
        assert np.isclose(best[side]["share"], rows["share"].iloc[0])
    assert json.loads(path.read_text())["cards"] == answer.numbers["cards"]
    few = ask(HeadCards, texts=TEXTS[:2], heads="0.1", writers="none").numbers["cards"][0]
    assert few["why"] == [] and all(row["low"] is None and len(row["points"]) <= 2 for row in few["statistics"])

    ask(ImportCards, table=str(path))
    theirs = others_of(tmp_path, lm.name, lm.revision)["cards"]
    assert theirs["1.2"]["name"] == "mine" and set(theirs) <= {"0.1", "1.2"}
    for wrong, message in (({"format": "x"}, "no cards"), (json.loads(path.read_text()) | {"revision": "z"}, "about")):
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        with pytest.raises(BadSetting, match=message):
            ask(ImportCards, table=str(tmp_path / "wrong.json"))


@pytest.mark.parametrize("arguments", [{"heads": "9.9"}, {"heads": "first"}, {"output": "cards.txt"}])
def test_what_there_is_no_card_of_is_refused(ask, arguments):
    with pytest.raises(BadSetting):
        ask(HeadCards, writers="none", **arguments)
