"""One text with ever fewer keys, token by token, on a tiny model: what agrees with the sweep, and what is refused."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting, BadText
from analysis.studies.budgets.calibrate import calibrate
from analysis.studies.budgets.lost_keys import lost_keys
from analysis.studies.budgets.reads_sweep import reads_sweep
from analysis.studies.budgets.reads_text import reads_text
from tests.made.calibrated import csa_context, csa_home, keys, text

SHARES = [1, 0.4, 0.1]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models and a policy of text 1."""
    home = csa_home(tmp_path_factory.mktemp("reads-text"))
    context = csa_context(home)
    calibrate(str(home / "tiny"), keys(context, 1), window=32, tokens=320, caps=[], context=context)
    return home


def test_it_is_the_sweep_of_one_text_token_by_token(home):
    context = csa_context(home)
    (key,) = keys(context, 2)
    made = reads_text(str(home / "tiny"), key, shares=SHARES, window=32, context=context)
    numbers = json.loads(json.dumps(made.numbers, allow_nan=False))
    swept = reads_sweep(str(home / "tiny"), [key], shares=SHARES, window=32, tokens=1 << 20, context=context)
    apart, places = made.arrays["difference"], made.arrays["position"]
    assert apart.shape == (3, len(places)) and places[:31].tolist() == list(range(1, 32)) and places[31] == 33
    for row, other, change in zip(numbers["rows"], swept.numbers["rows"], apart, strict=True):
        for name in ("share", "total", "reads_causal", "difference", "worst_bin", "worst_bin_difference"):
            assert row[name] == pytest.approx(other[name], abs=1e-6), name
        assert np.expm1(change.mean()) == pytest.approx(row["difference"], abs=1e-5)
        low, high = row["bins"][-1]["perplexity_low"], row["bins"][-1]["perplexity_high"]
        assert low < row["bins"][-1]["perplexity"] < high
    assert np.abs(apart[0]).max() < 1e-4 < np.abs(apart[2]).max()
    assert np.exp(made.arrays["loss"].mean()) == pytest.approx(numbers["rows"][0]["perplexity_dense"], rel=1e-5)
    assert len(made.tables["tokens"]) == numbers["window"] * numbers["windows"] and len(made.tables["bins"]) == 48


def test_the_worst_token_and_its_key_are_those_of_the_verb_on_lost_keys(home):
    context = csa_context(home)
    (key,) = keys(context, 2)
    made = reads_text(str(home / "tiny"), key, shares=SHARES, window=32, context=context)
    worst, at = made.numbers["lost"][2], int(made.arrays["difference"][2].argmax())
    assert worst["position"] == made.arrays["position"][at]
    assert worst["difference"] == pytest.approx(made.arrays["difference"][2].max(), rel=1e-4)
    recipe = {"name": "policy", "reads": 0.1}
    asked = {"cap": 1 << 20, "position": worst["position"], "window": 32}
    again = lost_keys(str(home / "tiny"), key, recipe, **asked, context=context).numbers
    assert again["key"] == worst["key"] and again["sentence"] == worst["sentence"]
    assert again["difference"] == pytest.approx(worst["difference"], abs=1e-4)


def test_what_the_policy_has_seen_is_not_scored(home):
    context = csa_context(home)
    (half,) = keys(context, 1)
    made = reads_text(str(home / "tiny"), half, shares=[0.4], window=32, context=context)
    assert "only windows of its second half" in " ".join(made.numbers["notes"])
    starts = made.tables["tokens"]["start"].to_numpy()
    assert starts[made.arrays["position"]].min() >= len(text(1)) // 2
    with pytest.raises(BadText, match="no whole window lies in the second"):
        reads_text(str(home / "tiny"), half, shares=[0.4], window=32, long_text="first", context=context)
    calibrate(str(home / "tiny"), keys(context, 3, 4), window=32, tokens=320, caps=[], name="two", context=context)
    (seen,) = keys(context, 3)
    with pytest.raises(BadSetting, match="text 3 calibrated the policy two"):
        reads_text(str(home / "tiny"), seen, "two", shares=[0.4], window=32, context=context)
    assert reads_text(str(home / "tiny"), *keys(context, 4), "two", shares=[0.4], window=32, context=context)
