"""The verb `pitfalls`: what torch says here of a row without keys, merges by definition, collisions by their chance."""

import json
import math

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.kernels.merge import merge
from analysis.papers.beside import collisions
from analysis.statistics.states import States
from analysis.studies import STUDIES
from analysis.studies.grids import pitfalls as room
from analysis.studies.grids.pitfalls import RULES, empty_row
from tests.made.asking import SHORT


def test_an_empty_row_is_what_this_torch_says():
    """If torch mends its kernel, finding 6 has to be told anew: then this fails."""
    row = empty_row()
    assert row.wrong and row.lse == 0.0 and row.error > 0.1 and row.error_right == 0.0
    assert not row.gradient and row.upper_left
    alone, empty = torch.ones(1, 2), torch.zeros(1, 2)
    assert torch.equal(merge(empty, torch.tensor([-math.inf]), alone, torch.tensor([0.3]))[0], alone)


def test_found_keys_follow_their_chance():
    """Random queries and keys: shares found in one and in two tables as at a right angle, and sums without bias."""
    draw = torch.Generator().manual_seed(1)
    query, key = (torch.randn(2, 256, 1024, generator=draw) for _ in range(2))
    by_rule = room._found(States(query, key, 1 / 1024, None), room.MagicPIG(), draw)
    shares = {name: np.mean([head[0] for head in heads]) for name, heads in by_rule.items()}
    ratios = {name: np.mean([head[1] for head in heads]) for name, heads in by_rule.items()}
    two, single, mixed = (name for name, _, _ in RULES)
    for name, enough in ((two, 2), (single, 1), (mixed, 1)):
        assert shares[name] == pytest.approx(collisions(0.0, 10, 150, enough), rel=0.5)
    assert ratios[single] == pytest.approx(1, abs=0.05) and ratios[two] == pytest.approx(1, abs=0.1)
    assert ratios[mixed] > 3


def test_the_bundled_model_shows_both(bundled):
    text = bundled.add_text("a text", SHORT)
    result = STUDIES["pitfalls"](text=text, context=bundled)
    ways = result.numbers["merges"]
    assert ways["disjoint"]["cosine"] == pytest.approx(1, abs=1e-6) == ways["exact overlap"]["cosine"]
    assert ways["subtraction"]["cosine"] < 0.999
    two, single, mixed = result.tables["rows"].to_dict("records")
    assert single["found"] > 2 * two["found"] and single["found"] == mixed["found"] and mixed["ratio"] > 5
    assert two["found_low"] <= two["found"] <= two["found_high"] and two["heads"] == 48
    chance = result.numbers["by_chance"]
    for name, enough in (("one", 1), ("two", 2)):
        assert chance[name] == pytest.approx(collisions(0.0, 10, 150, enough), rel=1e-6)
    json.dumps(result.numbers, allow_nan=False)
    protocol = result.numbers["protocol"]
    assert protocol["versions"]["torch"] == torch.__version__
    assert protocol["command"].startswith("python -m analysis pitfalls")


def test_what_cannot_be_measured_is_refused(bundled):
    with pytest.raises(BadSetting, match="puts a token into 2 groups"):
        STUDIES["pitfalls"](text=bundled.add_text("a text", SHORT), router="k8-top2", context=bundled)
    with pytest.raises(BadSetting, match="tokens and 64 are needed"):
        STUDIES["pitfalls"](text=bundled.add_text("short", "Too short."), context=bundled)
