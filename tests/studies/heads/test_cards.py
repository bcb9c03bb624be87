"""Cards of heads on a tiny model: what they say against the commands that measure it, out as a file and in again."""

import json

import numpy as np
import pytest

from analysis.commands.heads import HeadCards, ImportCards, Names, Statistics, Why
from analysis.errors import BadSetting
from analysis.metrics.intervals import interval
from analysis.runs.head_notes import note_head, others_of
from tests.made.evaluating import TEXT

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
