"""What the studies of Focal Attention conclude from made-up losses: rows, verdicts, matched sizes."""

import json
import math

import pytest

from analysis.claims import Comparison
from lab.focal.arms import WIDTH, Arm
from lab.focal.limits import FocalLimits
from lab.focal.rows import AGAINST, against, of_arms, selected
from lab.focal.scaling import FocalScaling, reached
from lab.focal.temperatures import FocalTemperatures
from tests.made.focal import WINDOWS, concluded, pooled, several


def direction(row: dict) -> int:
    """-1 and 1 where a row is significantly below or above dense training."""
    return Comparison.of(row, AGAINST).direction


def drawable(summary: dict) -> dict:
    """The summary, once it is known to be what a page can draw and a file can hold."""
    assert {about["name"] for about in summary["columns"]} <= set(summary["rows"][0])
    for panel in summary["panels"]:
        assert all(len(line["y"]) == len(panel["x_values"]) for line in panel["series"]), panel["title"]
    return json.loads(json.dumps(summary, allow_nan=False))


@pytest.mark.parametrize(("sharp", "sign"), [(2.9, -1), (3.1, 1), (3.0, 0)])
def test_a_temperature_is_better_only_where_it_is_sure(sharp, sign):
    arms = FocalTemperatures().arms()
    losses = {arm: sharp if arm.name == "t 0.5" else 3.2 if arm.limits else 3.0 for arm in arms}
    summary = drawable(concluded(FocalTemperatures(), several(losses)))
    verdicts = {row["arm"]: direction(row) for row in summary["rows"] if against(row)}
    assert verdicts["t 0.5"] == sign and verdicts["learned"] == 1 and verdicts["t 0.4, adapted"] == 0
    assert [row["arm"] for row in summary["rows"]][:2] == ["dense", "t 0.3"] and len(summary["rows"]) == 14
    assert summary["panels"][0]["title"] == "By temperature (figure 8a)" and len(summary["panels"]) == 4


def test_arms_are_held_against_their_own_dense_one_and_seeds_that_disagree_decide_nothing():
    rows = of_arms(several({arm: 3.0 - 0.1 * arm.further for arm in FocalTemperatures(rows="adapted,plain").arms()}))
    by_name = {row["arm"]: row for row in rows}
    assert by_name["t 0.4, adapted"]["against_dense"] == pytest.approx(0) and by_name["dense, no norm"]["gains"] is None
    alone = of_arms(several({Arm("t 0.4", t=0.4): 3.0}))[0]
    assert alone["against_dense"] is None and not against(alone)
    dense, sharp = Arm("dense"), apart(pooled(Arm("t 0.4", t=0.4), 2.9), 0.0, 0.15, 0.0)
    row = of_arms({dense: pooled(dense, 3.0), sharp.arm: sharp})[1]
    assert row["against_dense_lowest"] < row["against_dense"] < 0 < row["against_dense_highest"] and direction(row) == 0
    assert row["against_dense_high"] > 0, "over texts alone it would be sure"


def apart(arm, *seeds: float):
    """The same arm, the losses of its trainings moved by so much."""
    for part, shift in zip(arm.parts, seeds, strict=True):
        part["checkpoints"][-1]["means"] = [loss + shift for loss in part["checkpoints"][-1]["means"]]
    return arm


def test_a_temperature_is_chosen_on_some_documents_and_reported_on_the_others():
    """Of 8 documents the first 3 choose t 0.3, which is best there, and on the last 5 it is 0.2 nats above dense."""
    arms = several({Arm("dense"): 3.0, Arm("t 0.3", t=0.3): 2.9, Arm("t 0.4", t=0.4): 3.1, Arm("t 0.5", t=0.5): 2.95})
    for name, shift in (("t 0.3", 0.3), ("t 0.4", -0.5)):
        for part in next(pooled_arm for pooled_arm in arms.values() if pooled_arm.arm.name == name).parts:
            means = part["checkpoints"][-1]["means"]
            part["checkpoints"][-1]["means"] = means[:6] + [loss + shift for loss in means[6:]]
    (row,) = selected(arms)
    assert row["arm"] == "t 0.3" and row["against_dense"] == pytest.approx(0.2) and direction(row) == 1
    assert "other documents choose t 0.3: higher" in drawable(concluded(FocalTemperatures(), arms))["sentence"]
    assert selected(several({Arm("t 0.4", t=0.4): 3.0})) == selected(several({Arm("dense"): 3.0})) == []


def test_literal_means_are_also_read_without_the_future():
    literal = FocalTemperatures(rows="literal").arms()[0]
    assert literal.mean == "literal" and literal.method(literal.recipe(8, 64, 32, 0), "cpu").mean == "literal"
    arms = {arm: pooled(arm, 3.0) for arm in FocalTemperatures(rows="dense").arms()} | {literal: pooled(literal, 2.5)}
    for part in arms[literal].parts:
        part["checkpoints"][-1]["prefix"] = [loss + 0.6 for loss in part["checkpoints"][-1]["means"]]
        part["checkpoints"] = part["checkpoints"][-1:]
    causal = arms[literal].causal()
    summary = concluded(FocalTemperatures(), arms | {causal.arm: causal})
    assert [round(row["against_dense"], 3) for row in summary["rows"]] == [0, -0.5, 0.1]
    assert [direction(row) for row in summary["rows"]] == [0, -1, 1]


def test_what_three_seeds_alone_may_make_by_hand():
    """Three differences with a standard deviation of 0.02, alike on every text: t(2) = 4.303 times 0.02 / sqrt(3)."""
    dense = pooled(Arm("dense"), 3.0)
    arms = {dense.arm: dense}
    for t, loss in ((0.3, 2.90), (0.4, 2.96)):
        arms[Arm(f"t {t:g}", t=t)] = apart(pooled(Arm(f"t {t:g}", t=t), loss), -0.02, 0.0, 0.02)
    table = of_arms(arms)
    widths = [row["against_dense_high"] - row["against_dense"] for row in table]
    assert widths == pytest.approx([0.0, *[4.3027 * 0.02 / 3**0.5] * 2], rel=1e-4)
    assert [direction(row) for row in table] == [0, -1, 0], "all seeds agree in both, but 0.04 may be the seeds"


def test_limits():
    arms = FocalLimits().arms()
    assert [arm.name for arm in arms] == ["dense", *(f"tau {low}-10" for low in range(1, 8)), "tau 5-11.31"]
    losses = {arm: 3.0 if arm.limits is None else 3.2 - 0.05 * arm.limits[0] for arm in arms}
    summary = drawable(concluded(FocalLimits(), several(losses)))
    rows = [row for row in summary["rows"] if row["tau_min"]]
    assert [direction(row) for row in rows] == [1, 1, 1, 0, -1, -1, -1, -1], "4 to 10 is dense training to the bit"


def test_matched_by_hand():
    # from 4 to 2 nats between 100 and 10,000 parameters: 3 nats lie at the middle of the logarithm, 1,000
    assert reached([100, 10_000], [4.0, 2.0], 3.0) == pytest.approx(1000)
    assert reached([100, 10_000], [4.0, 2.0], 1.0) is None
    assert reached([100, 10_000], [2.0, 4.0], 3.0) is None, "a curve that rises is reached nowhere"


def scaling(gain: float, rows: str | None = None) -> dict:
    """Numbers of a study in which t = 0.4 gains so many nats at every size."""
    arms = {}
    for arm in FocalScaling(rows=rows).arms():
        parameters = {96: 1000, WIDTH: 2000, 160: 4000}[arm.width]
        loss = 6 - math.log(parameters) / 4 - gain * (arm.name == "t 0.4")
        arms[arm] = pooled(arm, loss, WINDOWS * 512 // (arm.context or 512), parameters)
    return drawable(concluded(FocalScaling(rows=rows), arms))


def test_what_a_gain_saves_and_that_none_saves_nothing():
    summary = scaling(math.log(2) / 8)  # half of what twice the parameters bring
    small = summary["parameters"][0]
    assert (small["arm"], small["width"], small["verdict"]) == ("t 0.4", 96, "gain")
    assert small["matched"] == pytest.approx(1000 * 2**0.5) and small["saved"] == pytest.approx(1 - 2**-0.5)
    verdicts = {(row["arm"], row["width"]): row["verdict"] for row in summary["parameters"]}
    assert verdicts["learned", 96] == "no gain seen" and verdicts["t 0.4", 160] == "outside what was measured"
    by_tokens = next(row for row in summary["tokens"] if row["arm"] == "t 0.4")
    assert by_tokens["verdict"] == "gain" and 3000 < by_tokens["matched"] < 4000
    assert len(summary["rows"]) == 15 and len(summary["points"]) == 60 and len(summary["panels"]) == 4
    summary = scaling(0.0)
    assert {row["verdict"] for row in summary["parameters"] + summary["tokens"]} == {"no gain seen"}
    assert all(row["saved"] is None for row in summary["parameters"] + summary["tokens"])
    assert "By context" not in scaling(0.0, "size")["sentence"]
