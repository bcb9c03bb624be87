"""The study "Do the groups do anything?" on a tiny random model: its arms, stopping and resuming, what is stored."""

import json

import numpy as np
import pytest
import torch

from analysis.__main__ import main
from analysis.attention import apply
from analysis.errors import BadSetting, BadText, Cancelled
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.models import load_model
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arms, trained_arm, window_arm
from lab.focus.arms import panels
from lab.harness.recovery import window_pairs
from tests.made.studied import asker, part_again, studied_home
from tests.made.tiny import LAYERS, VOCABULARY, WIDTH, tiny, token_ids

arms = NAMED["groups"]
SIZES = {"router": "k4-top1", "length": 32, "windows": 9}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny model, a corpus and, in `state`, a router that counts as trained."""
    return studied_home(tmp_path_factory.mktemp("arms"))


@pytest.fixture
def ask(home, tmp_path):
    """`ask(progress, **arguments)` -> Result of the study on the tiny model; its work lies in `tmp_path`."""
    return asker(arms, home, corpus=str(home / "corpus"), output=str(tmp_path / "g.json"), **SIZES)


# --- the arms -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bench():
    """Three windows of 24 tokens on a tiny random model, a router of four groups; nothing is kept."""
    model = load_model(tiny("llama"))
    router = FocusRouter(LAYERS, WIDTH, groups=4, window=3, n_sink=1, seed=1)
    return Bench(model, router, token_ids(3, 24).numpy(), 1, None, Context())


def test_arms_equal_the_plain_methods(bench):
    router, ids = bench.stand_in, bench.ids
    for name, settings in READINGS.items():
        with apply(bench.model, METHODS["focus"].build(router, window=5, **settings), kernels=True):
            plain = perplexity(bench.model, ids.reshape(-1), 24).losses
        got = bench.measure(trained_arm(name, router, 5))
        assert np.array_equal(got.losses, plain) and got.counts.shape == (3, LAYERS, 4)
        assert (got.counts.sum(2) == 24).all() and ((got.pairs == 300) == ("soft" in name)).all()
    dense = bench.measure(DENSE)
    assert (dense.pairs == 300).all() and dense.row("dense")["largest_share"] is None
    for everything in (window_arm(24), Arm("one group", {"window": 1}, drawn=(1, 1, 0))):
        got = bench.measure(everything)
        assert np.allclose(got.losses, dense.losses, atol=1e-5) and (got.pairs == 300).all()
    alone = bench.measure(window_arm(5))
    assert (alone.pairs == window_pairs(5, 24, 1)).all() and not np.allclose(alone.losses, dense.losses, atol=1e-3)


def test_random_tokens_depend_on_seed_layer_window_and_place_alone(bench):
    router = FocusRouter(LAYERS, WIDTH, groups=4, top=2)
    arm = drawn_arms(router, 5, 7)[0]
    first = arm.given(0, 24, LAYERS)
    assert all(torch.equal(a, b) for a, b in zip(first, arm.given(0, 24, LAYERS), strict=True))
    assert all(layer.shape == (24, 4) and (layer.sum(1) == 2).all() for layer in first)
    others = [first[1], arm.given(1, 24, LAYERS)[0], drawn_arms(router, 5, 8)[0].given(0, 24, LAYERS)[0]]
    assert not any(torch.equal(first[0], other) for other in others)
    shares = torch.cat(arm.given(0, 4000, LAYERS)).float().mean(0)
    assert ((shares - 0.5).abs() < 0.03).all()


@pytest.mark.parametrize("name", ["window", "drawn", *READINGS])
def test_only_literal_arms_read_the_future(name, bench):
    """Other tokens after the 12th: what is lost before it stays, unless groups are balanced over the whole text."""
    router = bench.stand_in
    arm = {"window": window_arm(5), "drawn": drawn_arms(router, 5, 0)[0]}.get(name) or trained_arm(name, router, 5)
    changed = bench.ids.copy()
    changed[:, 12:] = 3 + (changed[:, 12:] + 40) % (VOCABULARY - 3)
    other = Bench(bench.model, router, changed, 1, None, Context())
    moved = np.abs(bench.measure(arm).losses - other.measure(arm).losses)[:, :11].max()
    assert (moved > 1e-4) == ("literal" in name)


# --- the study ------------------------------------------------------------------------------------------------------


def test_the_study_stores_what_it_returns_and_a_part_comes_again(ask, home, tmp_path):
    result = ask()
    numbers, stored = result.numbers, json.loads((tmp_path / "g.json").read_text(), parse_constant=pytest.fail)
    names = [row["arm"] for row in numbers["rows"]]
    assert {"dense", "window 8", "window 128", "random tokens", "random centroids", "k-means", *READINGS} <= set(names)
    assert numbers["equal_pairs"]["arm"] in names and numbers["windows"] == 9 and numbers["n_sink"] == 1
    assert {row["arm"]: len(row["seed_losses"] or ()) for row in numbers["rows"]}["random centroids"] == 3
    assert all(row["units"] == 6 and row["low"] is not None for row in numbers["comparisons"])
    assert all(len(losses) == 9 for losses in stored["losses"].values()) and len(stored["losses"]) >= 18
    assert result.tables["rows"]["arm"].tolist() == names and numbers["sentence"].startswith(
        "The groups of this router "
    )
    assert str(tmp_path) not in (tmp_path / "g.json").read_text()
    assert len(numbers["warnings"]) == 2, "its router was trained elsewhere, with another window"
    context = Context(state=home / "state", browser=False)
    assert part_again(arms, stored, home)
    again = arms.recheck(stored, context=context)
    assert set(again) == {"dense", f"window {numbers['window']}", "trained", "random tokens 0"}
    assert all(len(kept) == 2 and now == pytest.approx(kept, abs=1e-5) for kept, now in again.values())


def test_the_chart_is_of_the_pairs_that_are_read():
    """Windows by what they read, with all pairs at their end, are a line; groups stand at what they read."""
    read = {"dense": 1.0, "window 64": 0.128, "window 8": 0.023, "trained": 0.261, "trained, soft": 1.0, "k-means": 0.3}
    rows = [{"arm": arm, "pairs_share": share, "perplexity": 100 * share} for arm, share in read.items()]
    (chart,) = panels(rows)
    assert chart["x_values"] == [2.3, 12.8, 100.0, 26.1, 30.0]
    drawn = {one["name"]: one["y"] for one in chart["series"]}
    assert drawn.pop("a window alone, up to all pairs") == pytest.approx([2.3, 12.8, 100, None, None])
    assert drawn == {"trained": [None, None, None, 26.1, None], "k-means": [None] * 4 + [30.0]}


@pytest.mark.slow
def test_a_stopped_study_continues_and_ends_as_an_unbroken_one(ask, tmp_path):
    whole = ask(work=str(tmp_path / "a")).numbers
    stages = []

    def stop(fraction, stage):
        stages.append(stage)
        if stage == "random tokens 0, window 9 of 9":
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        ask(stop, work=str(tmp_path / "b"))
    again = []
    resumed = ask(lambda fraction, stage: again.append(stage), work=str(tmp_path / "b")).numbers
    first, *_ = (stage for stage in again if " of 9" in stage)
    assert first == stages[-1], "eight windows were kept"
    assert {**resumed, "protocol": 0, "path": 0} == {**whole, "protocol": 0, "path": 0}
    kept = next((tmp_path / "b").glob("dense-*.safetensors"))
    kept.write_bytes(kept.read_bytes()[:50])
    again.clear()
    assert ask(lambda fraction, stage: again.append(stage), work=str(tmp_path / "b")).numbers["rows"] == whole["rows"]
    measured = [stage for stage in again if " of 9" in stage]
    assert measured == [f"dense, window {at} of 9" for at in range(1, 10)], "what is damaged is measured anew"
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.slow
def test_other_settings_do_not_find_these_numbers_and_shared_arms_are_found(ask, tmp_path):
    work = str(tmp_path / "w")
    ask(work=work)
    stages = []
    ask(lambda fraction, stage: stages.append(stage), work=work, window=9)
    assert {stage.split(", window ")[0] for stage in stages if " of 9" in stage} >= {"window 9", *READINGS}
    assert not any(stage.startswith(("dense", "window 8,")) for stage in stages if " of 9" in stage)
    stages.clear()
    ask(lambda fraction, stage: stages.append(stage), work=work, n_sink=0)
    assert sum(stage.startswith("dense") and " of 9" in stage for stage in stages) == 9, "other sinks, other arms"


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"router": "k2-top1"}, BadSetting, "'k2-top1' .* is not trained .* name one of k4-top1"),
        ({"router": "k9-top1"}, BadSetting, "'k9-top1' .* is not there"),
        ({"window": 32}, BadSetting, "always read is 32 and must lie between 1 and 31"),
        ({"n_sink": 65}, BadSetting, "number of sinks is 65"),
        ({"corpus": "absent"}, BadText, "absent is no folder"),
    ],
)
def test_what_cannot_be_studied_is_refused(given, error, said, ask):
    with pytest.raises(error, match=said):
        ask(**given)


def test_from_the_command_line(home, tmp_path, capsys):
    place = ["--model", home / "tiny", "--state", home / "state", "--corpus", home / "corpus", "-o", tmp_path / "g"]
    sizes = ["--router", "k4-top1", "--length", 16, "--windows-count", 2, "--sinks", 0, "--json"]
    assert main([*map(str, ["study", "groups", *place, *sizes])]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"rows", "claims", "sentence", "protocol"} <= set(told) and told["length"] == 16 and told["n_sink"] == 0
    with pytest.raises(SystemExit) as stop:
        main(["study", "weather", "--corpus", "."])
    assert stop.value.code == 2 and "invalid choice: 'weather'" in capsys.readouterr().err
