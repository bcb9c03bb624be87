"""A trained router read with every k, on a tiny model: what equals dense, what stands beside, stopping, refusals."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.context import Context
from tests.made.studied import asker, part_again, studied_home

SIZES = {"router": "k4-top1", "length": 32, "windows": 9}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """With a router that counts as trained for two groups per token beside."""
    home = studied_home(tmp_path_factory.mktemp("top"))
    model = load_model(str(home / "tiny"))
    router = FocusRouter(model.num_layers, model.width, groups=4, top=2, window=4, n_sink=1, seed=5)
    for kind in ("", "random-"):
        about = {"model": model.name, "revision": model.revision, "corpus": "corpus", "kind": "trained"}
        router.save(home / "state" / "focus" / f"{kind}k4-top2.safetensors", **about)
    return home


@pytest.fixture
def ask(home, tmp_path):
    return asker(NAMED["top"], home, corpus=str(home / "corpus"), output=str(tmp_path / "t.json"), **SIZES)


@pytest.mark.slow
def test_from_half_the_groups_on_all_is_read(ask, home, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "t.json").read_text(), parse_constant=pytest.fail)
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["router"], row["k"]): row for row in numbers["rows"]}
    assert list(rows) == [*(("k4-top1", k) for k in (1, 2, 3, 4)), ("k4-top2", 2)]
    for (_, k), row in rows.items():
        assert row["equals_dense"] == (k > 2) == (row["pairs_share"] == 1.0) == (row["furthest"] < 1e-3)
        assert ("against_random" in row) == (k <= 2) and row["formula"] == 4 / k
        assert row["distant_share"] <= row["pairs_share"] <= 1 and row["ideal"] == 1 / row["pairs_share"]
        if k <= 2:
            assert row["window_pairs_share"] == pytest.approx(row["pairs_share"], abs=0.04)
            apart = row["against_dense"] - row["random_against_dense"]
            assert row["against_random"] == pytest.approx(apart, abs=1e-6)
    assert rows["k4-top1", 1]["pairs_share"] < rows["k4-top1", 2]["pairs_share"]
    assert numbers["sentence"].count("k = ") == 4 and "dense attention and equal it" in numbers["sentence"]
    first = numbers["panels"][0]
    assert first["x_values"] == [1, 2, 3, 4]
    paper = {line["name"]: line["y"] for line in first["series"] if line["paper"]}
    assert paper["GPT-2 124M, paper"] == pytest.approx([82.9 / 42.8, 41.3 / 42.8, 47.2 / 42.8, 47.2 / 42.8])
    assert part_again(NAMED["top"], stored, home)
    again = NAMED["top"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert len(again) == 5 and all(now == pytest.approx(kept, abs=1e-5) for kept, now in again.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"router": "k5-top1"}, "is not there"),
        ({"windows": 1}, "number of windows of text is 1"),
        ({"n_sink": 65}, "number of sinks is 65"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(**given)
