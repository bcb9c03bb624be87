"""Literal against causal membership, the gate's forms and the price of a step, on a tiny model."""

import json

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods.focus import Focus
from analysis.studies import NAMED
from lab.focus.arms import arms
from lab.focus.causality import far_gates, group_agreement
from tests.made.studied import asker, studied_home

SIZES = {"router": "k4-top1", "length": 32, "windows": 9}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("causality"))


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "c.json")}
    return asker(NAMED["causality"], home, **given, **SIZES)


@pytest.mark.slow
def test_only_literal_membership_reads_the_future_in_every_form(ask, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "c.json").read_text(), parse_constant=pytest.fail)
    rows = {(row["gate"], row["reading"], row["membership"]): row for row in numbers["rows"]}
    assert len(rows) == 10 and stored["rows"] == numbers["rows"]
    for (_, _, membership), row in rows.items():
        assert row["reads_future"] == (membership == "literal") == (row["moved"] > 1e-4)
        assert row["predictions_changed"] == 0 or membership == "literal"
    for (gate, reading, membership), row in rows.items():
        if reading == "soft":
            assert row["pairs_share"] == 1.0 and (row["smallest_gate"] >= 0.5) == (gate == "literal")
            assert rows[None, "hard", membership]["smallest_gate"] == 0 <= row["smallest_gate"] <= row["mean_gate"]
    differences = {(row["gate"], row["reading"]): row for row in numbers["literal_minus_causal"]}
    for (gate, reading), row in differences.items():
        apart = rows[gate, reading, "literal"]["loss"] - rows[gate, reading, "causal"]["loss"]
        assert row["mean"] == pytest.approx(apart, abs=1e-6) and row["units"] == 6 and row["low"] <= row["high"]
    assert len(numbers["group_agreement"]) == 3 and 0 < numbers["prediction_agreement"] <= 1
    assert numbers["sentence"].startswith("Literal membership reads the future. ")
    assert "literal 0.5" in numbers["sentence"] and "Of 4 comparisons" in numbers["sentence"]


@pytest.mark.slow
def test_what_the_study_of_groups_measured_is_not_measured_again(ask, home, tmp_path):
    work, stages = str(tmp_path / "w"), []
    ask(work=work, window=8)
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "g.json"), "work": work, **SIZES, "window": 8}
    asker(arms, home, **given)(lambda fraction, stage: stages.append(stage))
    assert not any(stage.startswith(("dense,", "trained,")) and " of 9" in stage for stage in stages)
    assert any(stage.startswith("window 8,") for stage in stages)


def test_gates_of_far_pairs_by_hand():
    router = FocusRouter(1, 4, groups=2, window=2, gate_sharpness=4.0, gate_offset=0.5)
    groups = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    far = [0.0, 1.0, 0.0]  # affinities of (2, 0), (3, 0), (3, 1), the window being 2
    for gate, wanted in {
        "literal": [1 / (1 + np.exp(-4 * a)) for a in far],
        "centred": [1 / (1 + np.exp(-4 * (a - 0.5))) for a in far],
        "log": [1 / (1 + np.exp(-4 * (a - 0.5))) for a in far],
    }.items():
        method = Focus.build(router.variant(gate=gate), reading="soft")
        assert far_gates(method, groups).tolist() == pytest.approx(wanted)
    assert far_gates(Focus.build(router), groups).tolist() == far
    assert far_gates(Focus.build(router, n_sink=1), groups).tolist() == [0.0], "what is always read has no gate"


def test_group_agreement_by_hand():
    """Of two windows, balanced apart: in the second all tokens lean to group 0, and Sinkhorn sends half of them on."""
    router = FocusRouter(1, 2, groups=2, d_s=2, temperature=1.0, iterations=50)
    router.projection.data[0] = router.centroids.data[0] = torch.eye(2)
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [1.0, 0.0]])
    assert group_agreement(router, [hidden], 2) == [0.75]


def test_routers_that_nobody_trained_are_refused(ask):
    with pytest.raises(BadSetting, match="is not trained"):
        ask(router="k2-top1")


def test_the_price_of_a_step(home, tmp_path):
    result = asker(NAMED["step-cost"], home, output=str(tmp_path / "s.json"), length=32, repeats=2)()
    rows = result.numbers["rows"]
    assert [row["step"] for row in rows][0] == "dense" and len(rows) == 7 and rows[0]["times"] == 1.0
    assert all(row["low"] <= row["seconds"] <= row["high"] for row in rows) and set(result.numbers["met"]) == {
        "log",
        "literal",
        "memory",
    }
    assert json.loads((tmp_path / "s.json").read_text())["rows"] == rows
