"""Table 9's grid on a tiny model: cells, shared default and controls, stopping in the middle, what is refused."""

import json

import pytest

from analysis.errors import BadSetting, Cancelled
from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.training import run
from analysis.training.settings import RouterTraining
from lab.focus.ablations import FACTORS, cells, paper_numbers
from lab.harness.recovery import window_pairs
from tests.made.studied import asker, part_again, studied_home

SIZES = {
    "length": 32,
    "windows": 9,
    "window": 4,
    "n_sink": 1,
    "steps": 2,
    "tokens_per_step": 32,
    "base_rate": 1e-3,
    "seeds": 1,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return studied_home(tmp_path_factory.mktemp("ablations"))


@pytest.fixture
def ask(home, tmp_path):
    given = {"corpus": str(home / "corpus"), "output": str(tmp_path / "a.json")}
    return asker(NAMED["ablations"], home, **given, **SIZES)


def test_the_grid_varies_one_factor_at_a_time(home):
    plan, lm = RouterTraining(), load_model(str(home / "tiny"))
    grid = cells(None, plan, lm)
    assert len(grid) == sum(map(len, FACTORS.values())) == 24 and len(set(grid.values())) == 18, "full is 32 here"
    assert [key for key, one in grid.items() if one == plan] == [
        *(
            ("groups", 8),
            ("window", 16),
            ("temperature", 0.1),
            ("iterations", 10),
            ("dimensions", 16),
            ("similarity", "dot"),
        ),
    ]
    names = ("groups", "window", "temperature", "iterations", "d_s", "similarity")
    for (factor, value), one in grid.items():
        changed = [name for name in names if getattr(one, name) != getattr(plan, name)]
        assert changed in ([], [{"dimensions": "d_s"}.get(factor, factor)])
        assert value in (getattr(one, {"dimensions": "d_s"}.get(factor, factor)), "full")
    assert grid["dimensions", "full"].d_s == lm.width
    assert cells("groups=2", RouterTraining(window=128), lm)["groups", 2].window == 16
    assert list(cells("temperature, groups=4", plan, lm)) == [
        ("groups", 4),
        *(("temperature", t) for t in (0.05, 0.1, 0.2, 0.5)),
    ]
    wide = cells("window", plan, lm, [512, 128, 256])
    assert [one.window for one in wide.values()] == [128, 256, 512] and ("window", 16) not in wide
    with pytest.raises(
        BadSetting, match="no row 'groups=5': the rows are groups, window, .* such as groups=4, groups=8"
    ):
        cells("groups=5", plan, lm)


def test_the_windows_of_the_paper_leave_something_to_the_groups():
    """In windows of 1,024 tokens, as table 9 has them: the widest reads three quarters of the pairs."""
    length = NAMED["ablations"].defaults["length"]
    shares = [window_pairs(window, length) / (length * (length + 1) // 2) for window in FACTORS["window"]]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(0.75, abs=0.001)


def test_what_the_paper_prints_stands_beside():
    assert paper_numbers("iterations", 3) == {
        "paper_centroid": 35.8,
        "paper_tuned": 29.9,
        "paper_share_centroid": 0.95,
        "paper_share_tuned": 0.97,
    }
    assert (
        paper_numbers("window", 16)["paper_centroid"] is None and paper_numbers("groups", 2)["paper_centroid"] == 33.8
    )
    assert paper_numbers("dimensions", "full")["paper_centroid"] == 34.8
    assert set(paper_numbers("similarity", "cosine").values()) == {None}


@pytest.mark.slow
def test_cells_are_trained_once_stored_and_come_again(ask, home, tmp_path):
    stages = []
    result = ask(
        lambda fraction, stage: stages.append(stage), rows="groups=4,groups=8,iterations=3,iterations=10,window=64"
    )
    numbers, stored = result.numbers, json.loads((tmp_path / "a.json").read_text(), parse_constant=pytest.fail)
    assert {c["name"] for c in numbers["columns"]} <= set().union(*numbers["rows"])
    rows = {(row["factor"], row["value"]): row for row in numbers["rows"]}
    assert [row["default"] for row in rows.values()] == [False, True, False, False, True]
    default = rows["groups", 8]
    same = {key for key in default if not key.startswith("paper")} - {"factor", "value"}
    assert all(default[key] == rows["iterations", 10][key] for key in same)
    assert rows["iterations", 3]["random_tuned"] == default["random_tuned"] != rows["groups", 4]["random_tuned"]
    for row in rows.values():
        for phase in ("centroid", "tuned"):
            assert 1 / row["groups"] <= row[f"share_{phase}"] <= row[f"worst_{phase}"] <= 1
            assert row[f"{phase}_against_random_low"] <= row[f"{phase}_against_random_high"]
        assert row["perplexity_tuned"] != row["perplexity_centroid"]
    whole = rows["window", 64]
    assert whole["pairs_share"] == 1 and whole["perplexity_centroid"] == pytest.approx(numbers["dense"]["perplexity"])
    assert any("holds all 32 tokens" in note for note in numbers["notes"])
    trained = {stage.split(", ")[0] for stage in stages if "router, step" in stage}
    assert trained == {"default", "groups=4", "iterations=3", "window=64"}
    drawn = {stage.split(", model")[0] for stage in stages if "random groups" in stage and "step" in stage}
    assert drawn == {"8 random groups, window 4", "4 random groups, window 4", "8 random groups, window 64"}
    assert len(numbers["panels"]) == 9 and numbers["sentence"].startswith("Perplexity over 4 cells: ")
    assert part_again(NAMED["ablations"], stored, home)
    again = NAMED["ablations"].recheck(stored, context=Context(state=home / "state", browser=False))
    assert list(again) == ["centroids", "fine-tuned", "random groups"] and all(a == b for a, b in again.values())


@pytest.mark.slow
def test_three_trainings_of_a_cell_are_told_together(ask):
    stages = []
    numbers = ask(lambda fraction, stage: stages.append(stage), rows="temperature=0.5", seeds=3).numbers
    (row,) = numbers["rows"]
    for key in ("centroid_against_random", "centroid_against_same", "tuned_against_random"):
        assert row[f"{key}_lowest"] < row[key] < row[f"{key}_highest"] and row[f"{key}_low"] < row[f"{key}_high"]
    assert numbers["protocol"]["seeds"] == 3 and "not of the method" not in numbers["sentence"]
    assert {f"temperature=0.5, phase 1, seed {seed}" for seed in range(3)} <= {
        stage.split(", router")[0] for stage in stages
    }


@pytest.mark.slow
def test_a_stopped_study_goes_on_inside_its_cell_and_ends_the_same(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 1)
    whole = ask(rows="temperature=0.5", work=str(tmp_path / "a")).numbers

    def stop(fraction, stage):
        if stage.startswith("temperature=0.5, phase 2, model, step 2"):
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(stop, rows="temperature=0.5", work=str(tmp_path / "b"))
    stages = []
    again = ask(lambda fraction, stage: stages.append(stage), rows="temperature=0.5", work=str(tmp_path / "b")).numbers
    assert again["rows"] == whole["rows"] and not any("phase 1" in stage for stage in stages)
    assert next(stage for stage in stages if ", step " in stage).startswith(
        "temperature=0.5, phase 2, model, step 2 of 2"
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rows": "depth"}, "no row 'depth'"),
        ({"steps": 0}, "got 0 steps"),
        ({"windows": 1}, "number of windows of text is 1"),
        ({"widths": [33]}, "A window of the grid is 33 and must lie between 1 and 32"),
        ({"length": 16}, "32 groups are balanced over the tokens of a step, and it has 16"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, said, ask):
    with pytest.raises(BadSetting, match=said):
        ask(**given)
