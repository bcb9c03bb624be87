"""The study of named heads: gains and what is left of them by hand, and the register's answers."""

import numpy as np
import pytest

from analysis.corpus import sample_texts
from analysis.models import load_model
from lab.tuning import induction as studied


def test_gains_by_hand():
    full = np.array([[[4.0, 4.0, 4.0], [1.0, 2.0, 3.0]]])  # [draws, new or again, units]: gains 3, 2, 1
    without = np.array([[[5.0, 5.0, 5.0], [4.5, 4.5, 4.5]]])
    row = studied._row("task", "arm", 2, {"arm": without, studied.ALL: full})
    assert (row["new"], row["again"], row["gain"]) == (5.0, 4.5, 0.5) and row["kept"] == pytest.approx(0.25)
    drawn = np.concatenate([full, full + 1])
    row = studied._row("task", "arm", 2, {"arm": drawn, studied.ALL: full})
    assert row["kept"] == pytest.approx(1.0) and row["again"] == 2.5, "over the draws"


def test_what_is_left_without_the_named_heads(stored):
    study = stored("induction")
    rows = {(row["task"], row["arm"]): row for row in study["rows"]}
    assert [head[:2] for head in study["named"]] == [[1, 0], [1, 1]]
    assert list(rows) == [(studied.RANDOM, arm) for arm in (studied.ALL, studied.NAMED, studied.DRAWN)], "64 tokens"
    assert rows[studied.RANDOM, studied.ALL]["kept"] == 1 and rows[studied.RANDOM, studied.DRAWN]["heads"] == 2
    assert rows[studied.RANDOM, studied.NAMED]["gain"] != rows[studied.RANDOM, studied.ALL]["gain"]


def test_the_answers_of_the_register_are_found_with_and_without_its_pages(monkeypatch):
    text = sample_texts()["register"][1]
    windows = []

    def ablated(lm, window, heads, by, seed):
        windows.append(lm.tokenizer.decode(window[0].tolist()))
        return np.arange(1, window.shape[1], dtype=np.float32)[None]  # the loss of a token is its place

    monkeypatch.setattr(studied, "ablated", ablated)
    new, again = studied.Induction().register(load_model("demo"), [])
    assert len(new) == len(again) == 28 and (np.diff(new) > 0).all() and (np.diff(again) > 0).all()
    shift = again - new
    assert shift == pytest.approx(shift[0], abs=2), "the same tokens, further down"
    assert "Perpetua lies at berth 41. The master" in windows[1] and "The master of the Perpetua" not in windows[0]
    assert text.endswith(windows[1][-200:])


def test_without_such_heads_nothing_is_taken(ask):
    numbers = ask("induction", above=1.0).numbers
    assert numbers["named"] == [] and {row["arm"] for row in numbers["rows"]} == {studied.ALL}
