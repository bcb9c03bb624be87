"""Ever fewer keys: shares, totals and the worst positions, on a tiny model."""

import json

import pytest

from analysis.errors import BadSetting
from analysis.metrics.budgets import budget_for_reads
from analysis.studies.budgets.reads_sweep import reads_sweep
from analysis.studies.budgets.recipes import policy_for
from tests.made.calibrated import csa_context, csa_home, keys


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models."""
    return csa_home(tmp_path_factory.mktemp("reads"))


def test_from_everything_to_next_to_nothing(home):
    context = csa_context(home)
    given = {"texts": keys(context, 2), "shares": [0.1, 1, 0.4], "window": 32, "tokens": 96}
    result = reads_sweep(str(home / "tiny"), **given, context=context)
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    rows, ranks = numbers["rows"], policy_for(context, context.model(str(home / "tiny"))).ranks
    assert [row["share"] for row in rows] == [1, 0.4, 0.1]
    assert [row["total"] for row in rows] == [budget_for_reads(ranks, share, 32) for share in (1, 0.4, 0.1)]
    assert rows[0]["reads_causal"] == 1 and abs(rows[0]["difference"]) < 1e-5
    assert all(row["reads_causal"] >= row["share"] - 1e-9 for row in rows)
    assert rows[2]["reads_causal"] < rows[1]["reads_causal"] < 0.45 and rows[2]["reads_full"] < rows[2]["reads_causal"]
    worst = rows[2]["bins"][rows[2]["worst_bin"]]
    assert abs(worst["difference"]) == max(abs(one["difference"]) for one in rows[2]["bins"])
    assert set(result.tables["bins"]["share"]) == {1, 0.4, 0.1} and "at positions" in numbers["sentence"]


@pytest.mark.parametrize("shares", [[], [0], [1.5], [True], ["x"]])
def test_bad_shares_are_refused(home, shares):
    with pytest.raises(BadSetting, match="The shares are"):
        reads_sweep(str(home / "tiny"), ["x"], shares=shares, context=csa_context(home))
