"""Policies of CSA as a page edits them: recipes, uploads, the live budget map, two calibrations, and lost keys."""

import json

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.metrics.budgets import allocate_budget, cache_keys, reads
from analysis.runs.stored import policies
from analysis.seam.attention import apply
from analysis.studies.budgets.calibrate import calibrate
from analysis.studies.budgets.edited import budgets, calibrations
from analysis.studies.budgets.policies import import_policy, stored_policies
from analysis.studies.budgets.recipes import policy_for, resolve
from analysis.studies.quality.evaluate import evaluate
from tests.made.calibrated import csa_context, csa_home, keys, text


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the tiny models and, in `state`, the policies `policy` and `other` of two texts."""
    home = csa_home(tmp_path_factory.mktemp("policies"))
    context = csa_context(home)
    given = {"window": 32, "tokens": 320, "beta": 2.0, "caps": []}
    for seed, name in ((1, "policy"), (2, "other")):
        calibrate(str(home / "tiny"), keys(context, seed), name=name, **given, context=context)
    return home


@pytest.fixture
def context(home):
    """A context that finds these policies."""
    return csa_context(home)


@pytest.fixture
def tiny(home, context):
    """The model."""
    return context.model(str(home / "tiny"))


# --- recipes ----------------------------------------------------------------------------------------------------------


def test_a_recipe_says_how_many_keys_there_are_in_four_ways(context, tiny):
    stored = policy_for(context, tiny)
    assert resolve(context, tiny, None).budgets.tolist() == stored.budgets.tolist()
    assert resolve(context, tiny, "other").name == "other"
    assert not resolve(context, tiny, None).by_hand and resolve(context, tiny, {"beta": 3}).by_hand
    cells = stored.budgets.size
    totals = {"total": (99, 99), "beta": (3, round(3 * stored.ranks.sum())), "keys_per_head": (9.5, round(9.5 * cells))}
    for way, (value, total) in totals.items():
        made = resolve(context, tiny, {way: value})
        assert made.budgets.tolist() == allocate_budget(stored.ranks, total).tolist()
    assert (
        resolve(context, tiny, {"beta": 0.001}).budgets.min()
        == 2
        == resolve(context, tiny, {"beta": 0.001}).budgets.max()
    )
    half = resolve(context, tiny, {"reads": 0.5}, 32)
    assert 0.5 <= reads(half.budgets, None, 32)["reads_causal"] < 0.52
    assert (
        resolve(context, tiny, {"cap": 7}).cap == 7
        and resolve(context, tiny, {"total": 30, "floor": 1}).budgets.min() >= 1
    )


def test_edits_keep_the_total_or_change_it(context, tiny):
    stored = policy_for(context, tiny)
    made = resolve(context, tiny, {"edits": [{"layer": 1, "scale": 0.5}]})
    assert made.budgets.sum() == stored.budgets.sum() and made.fixed[1].all() and not made.fixed[0].any()
    free = resolve(context, tiny, {"edits": [{"layer": 1, "scale": 0.5}], "keep_total": False})
    assert free.budgets.sum() < stored.budgets.sum() and free.budgets[0].tolist() == stored.budgets[0].tolist()
    for edits in ("all", [{"layer": 9, "set": 3}]):
        with pytest.raises(BadSetting):
            resolve(context, tiny, {"edits": edits})


@pytest.mark.parametrize(
    "recipe", [{"cap": 0}, {"cap": 2.5}, {"beta": -1}, {"beta": "x"}, {"reads": 2}, {"name": "no/path"}, [1]]
)
def test_what_makes_no_policy_is_refused(context, tiny, recipe):
    with pytest.raises(BadSetting):
        resolve(context, tiny, recipe)


def test_a_policy_of_other_weights_is_refused(home, context, tiny, tmp_path):
    context.state = tmp_path
    stored = json.loads((home / "state" / "csa" / "policy.json").read_text())
    (tmp_path / "csa").mkdir()
    for name, change, said in (
        ("policy", {"revision": "0" * 12}, "other weights"),
        ("shape", {"heads": 5}, "has 13 numbers, and 3 layers of 5 heads"),
        ("ranks", {"ranks": [[1]]}, "ranks of the policy ranks"),
    ):
        (tmp_path / "csa" / f"{name}.json").write_text(json.dumps(stored | change))
        with pytest.raises(BadSetting, match=said):
            policy_for(context, tiny, name)
    (tmp_path / "csa" / "torn.json").write_text("{")
    assert {one["name"]: "error" in one for one in stored_policies(context, tiny)} == {
        "policy": False,
        "shape": True,
        "ranks": True,
        "torn": True,
    }


def test_an_uploaded_policy_is_checked_and_stored(home, context, tiny, tmp_path):
    context.state = tmp_path
    good = context.add_text("p.json", json.dumps([*range(1, 13), 8]))
    result = import_policy(str(home / "tiny"), good, "mine", context=context)
    assert result.numbers["budgets"] == np.arange(1, 13).reshape(3, 4).tolist() and result.numbers["cap"] == 8
    assert policy_for(context, tiny, "mine").ranks.tolist() == np.arange(1.0, 13).reshape(3, 4).tolist()
    for wrong, said in (
        ("[1, 2]", "made for 1 heads and this model has 3 layers of 4 heads"),
        ("{}", "for how many layers"),
        ("no", "no JSON"),
    ):
        with pytest.raises(BadSetting, match=said):
            import_policy(str(home / "tiny"), context.add_text("bad", wrong), "bad", context=context)
    assert [one["name"] for one in stored_policies(context, tiny)] == ["mine"]


def test_a_policy_that_was_read_from_a_file_is_checked_too(home, context, tiny, tmp_path):
    context.state, place = tmp_path, str(home / "tiny")
    given = {"layers": 3, "heads": 4, "policy": [*range(1, 13), 8], "ranks": [[1.5] * 4] * 3, "mass": 0.8}
    assert import_policy(place, name="mine", policy=given, context=context).numbers["policy"]["mass"] == 0.8
    assert policies([tmp_path])["mine"]["policy"] == given["policy"], "the app finds it without torch"
    assert policies([tmp_path / "none"]) == {}
    for wrong, said in (
        ([1] * 13, "holds 12 keys, below the floor: 12 heads need at least 2 each, 24 in all"),
        ([3] * 12 + [0], "holds whole numbers from 1, and 0 is none"),
        ([3] * 12 + [[1]], "holds whole numbers from 1"),
        (given | {"layers": 10**400}, "layers of 4 heads"),
        (given | {"ranks": "x"}, "ranks of the policy"),
        ({"policy": {"a": 1}, "layers": 3, "heads": 4}, "holds no list"),
    ):
        with pytest.raises(BadSetting, match=said):
            import_policy(place, name="bad", policy=wrong, context=context)
    assert list(policies([tmp_path])) == ["mine"]


# --- live verbs -------------------------------------------------------------------------------------------------------


def test_the_budget_map_and_what_it_reads(home, context, tiny):
    recipe = {"total": 200, "edits": [{"cells": [5], "pin": True}, {"head": 0, "set": 3}]}
    result = budgets(str(home / "tiny"), recipe, 48, context=context)
    numbers = json.loads(json.dumps(result.numbers, allow_nan=False))
    made = np.array(numbers["budgets"])
    assert made.sum() == numbers["total"] == 200 and made[:, 0].tolist() == [3, 3, 3]
    assert np.array(numbers["fixed"]).sum() == 4 and numbers["stored_total"] == np.sum(numbers["stored"])
    assert numbers["integers"]["policy"] == [*made.ravel().tolist(), numbers["cap"]]
    for name, value in reads(made, numbers["cap"], 48, tiny.num_kv_heads).items():
        assert numbers[name] == pytest.approx(value)
    dense, evicted = cache_keys(made, numbers["cap"], 48, tiny.num_kv_heads)
    assert dense == 3 * 2 * 48 and numbers["kv_bytes"] == dense * 2 * tiny.head_dim * 4
    assert numbers["kv_bytes_evicted"] == evicted * 2 * tiny.head_dim * 4 < numbers["kv_bytes"]
    assert [one["name"] for one in numbers["policies"]] == ["other", "policy"] and len(result.tables["cells"]) == 12
    shares = [one["total"] for one in numbers["shares"]]
    assert shares == sorted(shares, reverse=True) and shares[-1] >= 24 and numbers["notes"]


def test_the_cache_that_eviction_leaves_by_hand():
    """Two layers of four heads on two key heads, 10 tokens: 3 + 5, 2 + 2; 10 + 1 (no more than there are), 4 + 4."""
    made = [[3, 5, 2, 2], [30, 1, 4, 4]]
    assert cache_keys(made, None, 10, 2) == (40, 8 + 4 + 10 + 8) and cache_keys(made, 3, 10, 2) == (40, 6 + 4 + 4 + 6)


def test_two_calibrations_are_compared(home, context, tiny):
    one, two = (policy_for(context, tiny, name) for name in ("policy", "other"))
    result = calibrations(str(home / "tiny"), "policy", "other", context=context)
    numbers, cells = result.numbers, result.tables["cells"]
    logs = np.corrcoef(np.log(one.ranks.ravel()), np.log(two.ranks.ravel()))[0, 1]
    assert numbers["pearson_log"] == pytest.approx(logs) and -1 <= numbers["spearman"] <= 1
    assert numbers["pearson"] == pytest.approx(np.corrcoef(one.ranks.ravel(), two.ranks.ravel())[0, 1])
    assert cells["change"].tolist() == pytest.approx((two.ranks / one.ranks - 1).ravel().tolist())
    assert cells["budget"].sum() == cells["other_budget"].sum() == numbers["total"]
    assert numbers["moved"] == pytest.approx(
        np.abs(cells["budget"] - cells["other_budget"]).sum() / 2 / numbers["total"]
    )
    with pytest.raises(BadSetting, match="named twice"):
        calibrations(str(home / "tiny"), "policy", "policy", context=context)


# --- in `evaluate` ----------------------------------------------------------------------------------------------------


def test_evaluate_takes_policies(home, context, tiny):
    key = context.add_text("text 3", text(3))
    methods = [
        {"name": "csa"},
        {"name": "csa", "settings": {"cap": 3}},
        {"name": "csa", "policy": "other"},
        {"name": "csa", "policy": {"total": 40, "edits": [{"cells": [0], "set": 9}]}},
        {"name": "csa", "settings": {"eviction": "at the budget", "cap": 5}},
    ]
    rows = evaluate(str(home / "tiny"), key, methods, window=32, context=context).numbers["rows"]
    title = "Calibrated Sparse Attention"
    assert [row["label"] for row in rows[:3]] == [title, f"{title}, cap 3", f"{title} other"]
    assert rows[3]["label"].startswith(f"{title} with 40 keys (") and rows[4]["label"].endswith("at the budget")
    assert [row["policy"]["name"] for row in rows] == ["policy", "policy", "other", "policy", "policy"]
    assert rows[0]["defaults"]["cap"] == policy_for(context, tiny).cap and rows[0]["ceiling"] and not rows[4]["ceiling"]
    assert rows[1]["reads_causal"] < rows[0]["reads_causal"] and rows[4]["kv_read"] == rows[4]["reads_kv"]
    budget = policy_for(context, tiny).budgets
    assert rows[1]["reads_causal"] == pytest.approx(reads(budget, 3, 32)["reads_causal"], rel=1e-3)
    with apply(tiny, METHODS["csa"].build(policy_for(context, tiny, "other").integers)):
        pass
    with pytest.raises(BadSetting, match="dense reads with no policy"):
        evaluate(str(home / "tiny"), key, [{"name": "dense", "policy": "other"}], context=context)


def test_a_text_that_calibrated_is_told(home, context):
    (key,) = keys(context, 1)
    said = evaluate(str(home / "tiny"), key, [{"name": "csa"}], window=32, context=context).numbers["notes"]
    assert any("calibrated on this text" in note for note in said)
