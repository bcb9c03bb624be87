"""The study of named heads: gains and what is left of them by hand, the register's answers, and tiny once for real."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.corpus import sample_texts
from analysis.errors import BadSetting
from analysis.models import load_model
from analysis.studies.context import Context
from lab.tuning import induction as studied
from tests.made.studied import asker, part_again, studied_home


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("induction"))


@pytest.fixture
def named(monkeypatch):
    """Two heads of the tiny model count as induction heads."""

    def scores(model, length, sequences, seed):
        made = np.zeros((model.config.num_hidden_layers, model.config.num_attention_heads))
        made[1, 0], made[1, 1] = 0.9, 0.4
        return made, made

    monkeypatch.setattr(studied, "circuit_scores", scores)


def test_gains_by_hand():
    full = np.array([[[4.0, 4.0, 4.0], [1.0, 2.0, 3.0]]])  # [draws, new or again, units]: gains 3, 2, 1
    without = np.array([[[5.0, 5.0, 5.0], [4.5, 4.5, 4.5]]])
    row = studied._row("task", "arm", 2, {"arm": without, studied.ALL: full})
    assert (row["new"], row["again"], row["gain"]) == (5.0, 4.5, 0.5) and row["kept"] == pytest.approx(0.25)
    drawn = np.concatenate([full, full + 1])
    row = studied._row("task", "arm", 2, {"arm": drawn, studied.ALL: full})
    assert row["kept"] == pytest.approx(1.0) and row["again"] == 2.5, "over the draws"


def test_it_says_how_much_is_left_and_a_part_comes_again(home, named, tmp_path):
    sizes = {"length": 16, "sequences": 3, "draws": 2, "output": str(tmp_path / "i.json")}
    made = asker(studied.induction, home)(**sizes).numbers
    rows = {(row["task"], row["arm"]): row for row in made["rows"]}
    assert [one[:2] for one in made["named"]] == [[1, 0], [1, 1]]
    assert list(rows) == [(studied.RANDOM, arm) for arm in (studied.ALL, studied.NAMED, studied.DRAWN)], "64 tokens"
    assert rows[studied.RANDOM, studied.ALL]["kept"] == 1 and rows[studied.RANDOM, studied.DRAWN]["heads"] == 2
    assert rows[studied.RANDOM, studied.NAMED]["gain"] != rows[studied.RANDOM, studied.ALL]["gain"]
    assert "2 of 12 heads have an induction score above 0.3 (1.0, 1.1)" in made["sentence"]
    stored = json.loads((tmp_path / "i.json").read_text(), parse_constant=pytest.fail)
    assert part_again(studied.induction, stored, home, corpus="")
    again = studied.induction.recheck(stored, context=Context(state=home / "state", browser=False))
    assert again and all(now == pytest.approx(kept, rel=1e-3) for kept, now in again.values())


def test_the_answers_of_the_register_are_found_with_and_without_its_pages(monkeypatch):
    text = sample_texts()["register"][1]
    seen = []

    def ablated(lm, window, heads, by, seed):
        seen.append(lm.tokenizer.decode(window[0].tolist()))
        return np.arange(1, window.shape[1], dtype=np.float32)[None]  # the loss of a token is its place

    monkeypatch.setattr(studied, "ablated", ablated)
    at = SimpleNamespace(lm=load_model("demo"), sizes=studied.Sizes())
    new, again = studied._register(at, [])
    assert len(new) == len(again) == 28 and (np.diff(new) > 0).all() and (np.diff(again) > 0).all()
    shift = again - new
    assert shift == pytest.approx(shift[0], abs=2), "the same tokens, further down"
    assert "Perpetua lies at berth 41. The master" in seen[1] and "The master of the Perpetua" not in seen[0]
    assert text.endswith(seen[1][-200:])


def test_without_such_heads_it_says_so(home, tmp_path):
    made = asker(studied.induction, home)(above=1.0, length=16, sequences=2, output=str(tmp_path / "i.json")).numbers
    assert made["named"] == [] and made["sentence"].startswith("No head has an induction score above 1")
    assert {row["arm"] for row in made["rows"]} == {studied.ALL}
    with pytest.raises(BadSetting, match="not by 'noise'"):
        asker(studied.induction, home)(by="noise", length=16, output=str(tmp_path / "i.json"))
