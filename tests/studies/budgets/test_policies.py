"""Policies of CSA as a page edits them: recipes, uploads, the live budget map, two calibrations."""

import json

import numpy as np
import pytest

from analysis.commands.budgets import Budgets, Calibrate, Calibrations, ImportPolicy
from analysis.commands.quality import Evaluate
from analysis.errors import BadSetting
from analysis.metrics.budgets import allocate_budget, keys_left, reads
from analysis.runs.stored import policies
from analysis.studies.budgets.policies import stored_policies
from analysis.studies.budgets.recipes import policy_for, resolve
from tests.made.calibrated import text


@pytest.fixture(scope="module")
def tiny(ask, context, home):
    """The model, with the policies `policy` and `other` of two texts."""
    for seed, name in ((1, "policy"), (2, "other")):
        ask(Calibrate, text(seed), name=name, window=32, tokens=320, beta=2.0, caps=[])
    return context.model(str(home / "tiny"))


@pytest.fixture
def imported(ask, context, tiny, tmp_path, monkeypatch):
    """`imported(policy, name)` -> the answer about an uploaded policy, in a state folder of its own."""
    monkeypatch.setattr(context, "state", tmp_path)
    return lambda policy, name="mine": ask(ImportPolicy, policy=policy, name=name)


@pytest.mark.parametrize("way, value", [("total", 99), ("beta", 3), ("keys_per_head", 9.5)])
def test_a_recipe_says_how_many_keys_there_are(context, tiny, way, value):
    stored = policy_for(context, tiny)
    total = round(value * {"total": 1, "beta": stored.ranks.sum(), "keys_per_head": stored.budgets.size}[way])
    recipe = resolve(context, tiny, {way: value})
    assert recipe.budgets.tolist() == allocate_budget(stored.ranks, total).tolist() and recipe.by_hand


def test_recipes_with_names_floors_reads_and_edits(context, tiny):
    stored = policy_for(context, tiny)
    default = resolve(context, tiny, None)
    assert default.budgets.tolist() == stored.budgets.tolist() and not default.by_hand
    assert resolve(context, tiny, "other").name == "other" and resolve(context, tiny, {"cap": 7}).cap == 7
    assert set(resolve(context, tiny, {"beta": 0.001}).budgets.ravel()) == {2}, "the floor"
    assert 0.5 <= reads(resolve(context, tiny, {"reads": 0.5}, 32).budgets, None, 32)["reads_causal"] < 0.52
    assert resolve(context, tiny, {"total": 30, "floor": 1}).budgets.min() >= 1
    edits = [{"layer": 1, "scale": 0.5}]
    edited = resolve(context, tiny, {"edits": edits})
    assert edited.budgets.sum() == stored.budgets.sum() and edited.fixed[1].all() and not edited.fixed[0].any()
    free = resolve(context, tiny, {"edits": edits, "keep_total": False})
    assert free.budgets.sum() < stored.budgets.sum() and free.budgets[0].tolist() == stored.budgets[0].tolist()


@pytest.mark.parametrize(
    "recipe",
    [{"cap": 0}, {"cap": 2.5}, {"beta": -1}, {"beta": "x"}, {"reads": 2}, {"name": "no/path"}, [1], {"edits": "all"}]
    + [{"edits": [{"layer": 9, "set": 3}]}],
    ids=str,
)
def test_what_makes_no_policy_is_refused(context, tiny, recipe):
    with pytest.raises(BadSetting):
        resolve(context, tiny, recipe)


def test_a_policy_of_other_weights_is_refused(home, context, tiny, tmp_path, monkeypatch):
    stored = json.loads((home / "state" / "csa" / "policy.json").read_text())
    monkeypatch.setattr(context, "state", tmp_path)
    (tmp_path / "csa").mkdir()
    for name, change, message in (
        ("policy", {"revision": "0" * 12}, "other weights"),
        ("shape", {"heads": 5}, "has 13 numbers, and 3 layers of 5 heads"),
        ("ranks", {"ranks": [[1]]}, "ranks of the policy ranks"),
    ):
        (tmp_path / "csa" / f"{name}.json").write_text(json.dumps(stored | change))
        with pytest.raises(BadSetting, match=message):
            policy_for(context, tiny, name)
    (tmp_path / "csa" / "torn.json").write_text("{")
    usable = {listed["name"] for listed in stored_policies(context, tiny) if "error" not in listed}
    assert usable == {"policy"} and len(stored_policies(context, tiny)) == 4


def test_an_uploaded_policy_is_checked_and_stored(imported, ask, context, tiny, tmp_path):
    result = ask(ImportPolicy, json.dumps([*range(1, 13), 8]), name="file")
    assert result.numbers["budgets"] == np.arange(1, 13).reshape(3, 4).tolist() and result.numbers["cap"] == 8
    assert policy_for(context, tiny, "file").ranks.tolist() == np.arange(1.0, 13).reshape(3, 4).tolist()
    policy = {"layers": 3, "heads": 4, "policy": [*range(1, 13), 8], "ranks": [[1.5] * 4] * 3, "mass": 0.8}
    assert imported(policy).numbers["policy"]["mass"] == 0.8
    assert policies([tmp_path])["mine"]["policy"] == policy["policy"], "the app finds it without torch"
    assert policies([tmp_path / "none"]) == {} and set(policies([tmp_path])) == {"file", "mine"}


@pytest.mark.parametrize(
    "policy, message",
    [
        ([1, 2], "made for 1 heads and this model has 3 layers of 4 heads"),
        ({}, "for how many layers"),
        ([1] * 13, "holds 12 keys, below the floor: 12 heads need at least 2 each, 24 in all"),
        ([3] * 12 + [0], "holds whole numbers from 1, and 0 is none"),
        ([3] * 12 + [[1]], "holds whole numbers from 1"),
        ({"policy": [3] * 13, "layers": 10**400, "heads": 4}, "layers of 4 heads"),
        ({"policy": [3] * 13, "layers": 3, "heads": 4, "ranks": "x"}, "ranks of the policy"),
        ({"policy": {"a": 1}, "layers": 3, "heads": 4}, "holds no list"),
    ],
    ids=["shape", "empty", "floor", "zero", "nested", "huge", "ranks", "no list"],
)
def test_an_upload_that_is_no_policy_of_this_model_is_refused(imported, policy, message, tmp_path):
    with pytest.raises(BadSetting, match=message):
        imported(policy)
    assert policies([tmp_path]) == {}


def test_the_budget_map_what_it_reads_and_the_cache_that_eviction_leaves(ask, tiny):
    recipe = {"total": 200, "edits": [{"cells": [5], "pin": True}, {"head": 0, "set": 3}]}
    result = ask(Budgets, policy=recipe, window=48)
    numbers, cells = json.loads(json.dumps(result.numbers, allow_nan=False)), result.tables["cells"]
    budgets = np.array(numbers["budgets"])
    assert budgets.sum() == numbers["total"] == 200 and budgets[:, 0].tolist() == [3, 3, 3]
    assert cells["fixed"].sum() == 4 and numbers["stored_total"] == cells["stored"].sum() and len(cells) == 12
    assert numbers["integers"]["policy"] == [*budgets.ravel().tolist(), numbers["cap"]]
    for name, value in reads(budgets, numbers["cap"], 48, tiny.num_kv_heads).items():
        assert numbers[name] == pytest.approx(value)
    left = keys_left(budgets, numbers["cap"], 48, tiny.num_kv_heads).sum()
    assert numbers["kv_bytes"] == 3 * 2 * 48 * 2 * tiny.head_dim * 4 and numbers["kv_notes"] == []
    assert numbers["kv_bytes_evicted"] == left * 2 * tiny.head_dim * 4 < numbers["kv_bytes"]
    assert [policy["name"] for policy in numbers["policies"]] == ["other", "policy"]
    # Two layers of four heads on two key heads, 10 tokens: 3 + 5, 2 + 2; 10 + 1 (no more than there are), 4 + 4.
    budgets = [[3, 5, 2, 2], [30, 1, 4, 4]]
    assert keys_left(budgets, None, 10, 2).tolist() == [[8, 4], [10, 8]]
    assert keys_left(budgets, 3, 10, 2).tolist() == [[6, 4], [4, 6]]


def test_two_calibrations_are_compared(ask, context, tiny):
    first, two = (policy_for(context, tiny, name).ranks.ravel() for name in ("policy", "other"))
    result = ask(Calibrations, policy="policy", other="other")
    numbers, cells = result.numbers, result.tables["cells"]
    assert numbers["pearson_log"] == pytest.approx(np.corrcoef(np.log(first), np.log(two))[0, 1])
    assert cells["change"].tolist() == pytest.approx((two / first - 1).tolist())
    assert cells["budget"].sum() == cells["other_budget"].sum() == numbers["total"]
    moved = np.abs(cells["budget"] - cells["other_budget"]).sum() / 2
    assert numbers["moved"] == pytest.approx(moved / numbers["total"])
    with pytest.raises(BadSetting, match="named twice"):
        ask(Calibrations, policy="policy", other="policy")


@pytest.mark.slow
def test_evaluate_takes_policies(ask, context, tiny):
    methods = [
        {"name": "csa"},
        {"name": "csa", "settings": {"cap": 3}},
        {"name": "csa", "policy": "other"},
        {"name": "csa", "policy": {"total": 40, "edits": [{"cells": [0], "set": 9}]}},
        {"name": "csa", "settings": {"eviction": "at the budget", "cap": 5}},
    ]
    rows = ask(Evaluate, text(3), methods=methods, window=32).numbers["rows"]
    title = "Calibrated Sparse Attention"
    assert [row["label"] for row in rows[:3]] == [title, f"{title}, cap 3", f"{title} other"]
    assert rows[3]["label"].startswith(f"{title} with 40 keys (") and rows[4]["label"].endswith("at the budget")
    assert [row["policy"]["name"] for row in rows] == ["policy", "policy", "other", "policy", "policy"]
    policy = policy_for(context, tiny)
    assert rows[0]["defaults"]["cap"] == policy.cap and rows[0]["ceiling"] and not rows[4]["ceiling"]
    assert rows[1]["reads_causal"] < rows[0]["reads_causal"] and rows[4]["kv_read"] == rows[4]["reads_kv"]
    assert rows[1]["reads_causal"] == pytest.approx(reads(policy.budgets, 3, 32)["reads_causal"], rel=1e-3)
    flattered = ask(Evaluate, text(1), methods=[{"name": "csa"}], window=32)
    assert any("calibrated on this text" in note for note in flattered.numbers["notes"])
    with pytest.raises(BadSetting, match="dense reads with no policy"):
        ask(Evaluate, text(3), methods=[{"name": "dense", "policy": "other"}])
