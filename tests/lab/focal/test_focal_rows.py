"""What the studies of Focal Attention say of made-up losses: tables, sentences, matched sizes, whichever way."""

import json
import math

import pytest

from analysis.errors import BadSetting
from lab.focal import limits, scaling as focal_scaling, trained
from lab.focal.arms import WIDTH, Arm
from lab.focal.rows import against, of_arms, small, sure
from tests.made.focal import WINDOWS, pooled, several, told


def whole(made: dict) -> dict:
    """The summary, once it is known to be what a page can draw and a file can hold."""
    assert {about["name"] for about in made["columns"]} <= set(made["rows"][0])
    for panel in made["panels"]:
        assert all(len(line["y"]) == len(panel["x_values"]) for line in panel["series"]), panel["title"]
    return json.loads(json.dumps(made, allow_nan=False))


def temperatures(sharp: float, learned: float = 3.0) -> dict:
    arms = trained.arms_of(None)
    losses = dict.fromkeys(arms, 3.0) | {arm: sharp for arm in arms if arm.name == "t 0.5"}
    losses |= {arm: learned for arm in arms if arm.limits}
    return whole(told(trained, several(losses), WINDOWS))


def test_the_best_temperature_is_named_only_where_it_is_sure():
    won = temperatures(2.9, learned=3.2)
    assert "constant temperatures is 0.5: lower (−0.1000 nats per token" in won["sentence"]
    assert "learned: higher (+0.2000" in won["sentence"]
    assert "t 0.4, adapted: the same as the same without a temperature (" in won["sentence"]
    assert [row["arm"] for row in won["rows"]][:2] == ["dense", "t 0.3"] and len(won["rows"]) == 11
    assert [panel["title"] for panel in won["panels"]][0] == "By temperature (figure 8a)" and len(won["panels"]) == 4
    lost = temperatures(3.1)
    assert "no constant temperature is shown to beat dense training" in lost["sentence"]


def test_each_arm_is_held_against_its_own_dense_one():
    found = several({arm: 3.0 - 0.1 * arm.further for arm in trained.arms_of("adapted,plain")})
    by_name = {row["arm"]: row for row in of_arms(found)}
    assert by_name["t 0.4, adapted"]["against_dense"] == pytest.approx(0) and by_name["dense, no norm"]["gains"] is None
    alone = of_arms(several({Arm("t 0.4", t=0.4): 3.0}))[0]
    assert alone["against_dense"] is None and not against(alone)
    assert "nothing to compare" in trained.sentence([alone], 3)


def apart(pooled, *seeds: float):
    """The same arm, the losses of its trainings moved by so much."""
    for part, more in zip(pooled.parts, seeds, strict=True):
        part["checkpoints"][-1]["means"] = [one + more for one in part["checkpoints"][-1]["means"]]
    return pooled


def test_seeds_that_disagree_decide_nothing():
    dense, sharp = Arm("dense"), apart(pooled(Arm("t 0.4", t=0.4), 2.9), 0.0, 0.15, 0.0)
    row = of_arms({dense: pooled(dense, 3.0), sharp.arm: sharp})[1]
    assert row["against_dense_lowest"] < row["against_dense"] < 0 < row["against_dense_highest"] and sure(row) == 0
    assert row["against_dense_high"] > 0, "over texts alone it would be sure"
    assert "no constant temperature is shown" in trained.sentence([row | {"arm": "dense", "t": 1}, row], 3)


def test_literal_means_are_also_read_without_the_future():
    literal = trained.arms_of("literal")[0]
    assert literal.mean == "literal" and literal.method(literal.recipe(8, 64, 32, 0), "cpu").mean == "literal"
    found = {arm: pooled(arm, 3.0) for arm in trained.arms_of("dense")} | {literal: pooled(literal, 2.5)}
    for part in found[literal].parts:
        part["checkpoints"][-1]["prefix"] = [one + 0.6 for one in part["checkpoints"][-1]["means"]]
        part["checkpoints"] = part["checkpoints"][-1:]
    causal = found[literal].causal()
    made = told(trained, found | {causal.arm: causal}, WINDOWS)
    assert [round(row["against_dense"], 3) for row in made["rows"]] == [0, -0.5, 0.1]
    assert "literal means (reads the future): lower" in made["sentence"]
    assert "(reads the future), read with prefix means: higher" in made["sentence"]
    assert any("its loss is no prediction" in note for note in made["notes"])


def test_what_three_seeds_alone_may_make_by_hand():
    """Three differences with a standard deviation of 0.02, alike on every text: t(2) = 4.303 times 0.02 / sqrt(3)."""
    dense = pooled(Arm("dense"), 3.0)
    found = {dense.arm: dense}
    for t, loss in ((0.3, 2.90), (0.4, 2.96)):
        found[Arm(f"t {t:g}", t=t)] = apart(pooled(Arm(f"t {t:g}", t=t), loss), -0.02, 0.0, 0.02)
    table = of_arms(found)
    widths = [row["against_dense_high"] - row["against_dense"] for row in table]
    assert widths == pytest.approx([0.0, *[4.3027 * 0.02 / 3**0.5] * 2], rel=1e-4)
    assert [sure(row) for row in table] == [0, -1, 0], "all seeds agree in both, but 0.04 may be the seeds"
    assert "constant temperatures is 0.3: lower" in trained.sentence(table, 3)
    lucky = [table[0], table[1], table[2] | {"loss": 1.0}]
    assert "constant temperatures is 0.3: lower" in trained.sentence(lucky, 3), "the lowest may be luck"


def test_rows_stored_with_two_seeds_keep_what_was_asked_of_them():
    """Their intervals are over texts alone: both seeds must agree, and differ by more than two seeds may make."""
    dense = pooled(Arm("dense"), 3.0, seeds=2)
    found = {dense.arm: dense}
    for t, loss, more in ((0.3, 2.90, 0.02), (0.4, 2.95, 0.04), (0.5, 2.90, 0.15)):
        found[Arm(f"t {t:g}", t=t)] = apart(pooled(Arm(f"t {t:g}", t=t), loss, seeds=2), 0.0, more)
    table = [row | {"by_seeds": 0.02} for row in of_arms(found)]
    assert [row["against_dense_high"] < 0 for row in table] == [False, True, True, True]
    assert [sure(row) for row in table] == [0, -1, -1, 0]
    assert [sure(row | {"by_seeds": 0.05}) for row in table] == [0, -1, 0, 0]


def test_sizes_that_read_alike_are_said_once():
    sizes = [{"parameters": count, "tokens": 1_024_000} for count in (1_377_664, 1_377_408, 902_000)]
    assert "These models have 1.4 million parameters and saw 1.0 million tokens" in small(sizes[:2])
    assert "These models have 0.9 to 1.4 million parameters" in small(sizes)
    longer = {"parameters": 1_377_664, "tokens": 1_150_976}
    assert "have 1.4 million parameters and saw 1.0 to 1.2 million tokens" in small([*sizes[:2], longer])


LOWEST = "The lowest of 8 limits, on the windows that choose it, is "


def test_limits_in_words():
    arms = limits.arms_of(None)
    assert [arm.name for arm in arms] == ["dense", *(f"tau {low}-10" for low in range(1, 8)), "tau 5-11.31"]
    losses = {arm: 3.0 if arm.limits is None else 3.2 - 0.05 * arm.limits[0] for arm in arms}
    made = whole(told(limits, several(losses), WINDOWS))
    assert made["sentence"].startswith(f"{LOWEST}tau_min 7 with tau_max 10: held-out loss lower")
    assert "Worse than dense training: 1 to 10, 2 to 10, 3 to 10." in made["sentence"]
    assert "3 to 10. Of 7 comparisons, each is" in made["sentence"], "4 to 10 is dense training to the bit"
    assert "inside its interval" not in made["sentence"]
    flat = told(limits, several({arm: 3.0 if arm.limits is None else 2.9 for arm in arms}), WINDOWS)
    assert "Lower too, and inside its interval: 2 to 10," in flat["sentence"]
    assert ", 7 to 10, 5 to 11.31. Of 8 comparisons" in flat["sentence"]
    two = told(limits, {arm: pooled(arm, 3.0, seeds=2) for arm in arms}, WINDOWS)
    assert two["sentence"].endswith("these models, 2 trainings of every arm, and not of the method.")
    even = told(limits, several(dict.fromkeys(arms, 3.0)), WINDOWS)
    assert even["sentence"].startswith("No limits are shown to beat dense training")


def test_matched_by_hand():
    # from 4 to 2 nats between 100 and 10,000 parameters: 3 nats lie at the middle of the logarithm, 1,000
    assert focal_scaling.reached([100, 10_000], [4.0, 2.0], 3.0) == pytest.approx(1000)
    assert focal_scaling.reached([100, 10_000], [4.0, 2.0], 1.0) is None
    assert focal_scaling.reached([100, 10_000], [2.0, 4.0], 3.0) is None, "a curve that rises is reached nowhere"


def scaling(gain: float) -> dict:
    found = {}
    for arm in focal_scaling.arms_of(None, 512):
        parameters = {96: 1000, WIDTH: 2000, 160: 4000}[arm.width]
        loss = 6 - math.log(parameters) / 4 - gain * (arm.name == "t 0.4")
        windows = WINDOWS * 512 // (arm.context or 512)
        found[arm] = pooled(arm, loss, windows, parameters)
    return whole(told(focal_scaling, found, 512, WINDOWS))


def test_what_a_gain_saves_in_parameters_and_tokens():
    made = scaling(math.log(2) / 8)  # half of what twice the parameters bring
    small = made["parameters"][0]
    assert (small["arm"], small["width"], small["verdict"]) == ("t 0.4", 96, "gain")
    assert small["matched"] == pytest.approx(1000 * 2**0.5) and small["saved"] == pytest.approx(1 - 2**-0.5)
    assert {row["verdict"] for row in made["parameters"] if row["arm"] == "learned"} == {"no gain seen"}
    assert "parameters: 29% fewer (t 0.4, width 96)" in made["sentence"] and "no gain seen in" in made["sentence"]
    assert "a gain outside what was measured (t 0.4, width 160)" in made["sentence"]
    by_tokens = next(row for row in made["tokens"] if row["arm"] == "t 0.4")
    assert by_tokens["verdict"] == "gain" and 3000 < by_tokens["matched"] < 4000
    assert len(made["rows"]) == 15 and len(made["points"]) == 60 and len(made["panels"]) == 4


def test_no_gain_is_said():
    made = scaling(0.0)
    assert "parameters: no gain seen. To the same loss as dense training, tokens: no gain seen." in made["sentence"]
    even = "0.0000 at 256 (the same), 0.0000 at 512 (the same), 0.0000 at 1,024 (not judged)"
    assert f"against dense: t 0.4 {even}; learned {even}. The" in made["sentence"], "at 1,024 there are too few windows"
    assert all(row["saved"] is None for row in made["parameters"] + made["tokens"])
    parts = told(focal_scaling, {arm: pooled(arm, 3.0) for arm in focal_scaling.arms_of("size", 512)}, 512, WINDOWS)
    assert "By context" not in parts["sentence"]


@pytest.mark.parametrize(
    ("study", "wanted", "said"),
    [
        (trained, "0", "must lie between"),
        (trained, "-0.4", "must lie between"),
        (trained, "nan", "must lie between"),
        (trained, "sharp", "There is no row 'sharp'"),
        (limits, "7-5", "tau_min is 7 and lies above tau_max, 5"),
        (limits, "5", "There is no row '5'"),
        (limits, "0-10", "must lie between"),
    ],
)
def test_temperatures_that_cannot_be_are_refused(study, wanted, said):
    with pytest.raises(BadSetting, match=said):
        study.arms_of(wanted)
