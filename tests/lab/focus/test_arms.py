"""The arms of the studies of Focus: they equal the plain methods, and only literal ones read the future."""

import json

import numpy as np
import pytest
import torch

from analysis.__main__ import main
from analysis.groups.router import FocusRouter
from analysis.methods import METHODS
from analysis.metrics.quality import perplexity
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies.context import Context
from analysis.studies.stored.measured import DENSE, READINGS, Arm, Bench, drawn_arms, trained_arm, window_arm
from lab.harness.routed import window_pairs
from tests.made.tiny import LAYERS, VOCABULARY, WIDTH, tiny, token_ids


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


def test_random_tokens_depend_on_seed_layer_window_and_place_alone():
    router = FocusRouter(LAYERS, WIDTH, groups=4, top=2)
    arm = drawn_arms(router, 5, 7)[0]
    first = arm.memberships(0, 24, LAYERS)
    assert all(torch.equal(a, b) for a, b in zip(first, arm.memberships(0, 24, LAYERS), strict=True))
    assert all(layer.shape == (24, 4) and (layer.sum(1) == 2).all() for layer in first)
    draws = [first[1], arm.memberships(1, 24, LAYERS)[0], drawn_arms(router, 5, 8)[0].memberships(0, 24, LAYERS)[0]]
    assert not any(torch.equal(first[0], draw) for draw in draws)
    shares = torch.cat(arm.memberships(0, 4000, LAYERS)).float().mean(0)
    assert ((shares - 0.5).abs() < 0.03).all()


@pytest.mark.parametrize("name", ["window", "drawn", *READINGS])
def test_only_literal_arms_read_the_future(name, bench):
    """Other tokens after the 12th: what is lost before it stays, unless groups are balanced over the whole text."""
    router = bench.stand_in
    arm = {"window": window_arm(5), "drawn": drawn_arms(router, 5, 0)[0]}.get(name) or trained_arm(name, router, 5)
    changed = bench.ids.copy()
    changed[:, 12:] = 3 + (changed[:, 12:] + 40) % (VOCABULARY - 3)
    bench_changed = Bench(bench.model, router, changed, 1, None, Context())
    moved = np.abs(bench.measure(arm).losses - bench_changed.measure(arm).losses)[:, :11].max()
    assert (moved > 1e-4) == ("literal" in name)


def test_from_the_command_line(home, tmp_path, capsys):
    place = ["--model", home / "tiny", "--state", home / "state", "--corpus", home / "corpus", "-o", tmp_path / "g"]
    sizes = ["--router", "k4-top1", "--length", 16, "--windows-count", 2, "--sinks", 0, "--json"]
    assert main([*map(str, ["study", "groups", *place, *sizes])]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"rows", "claims", "sentence", "protocol"} <= set(printed) and printed["length"] == 16
    assert printed["n_sink"] == 0
    with pytest.raises(SystemExit) as stop:
        main(["study", "weather", "--corpus", "."])
    assert stop.value.code == 2 and "invalid choice: 'weather'" in capsys.readouterr().err
