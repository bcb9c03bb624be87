"""Pieces of the studies of Focus, by hand: cells of table 9, gates of far pairs, curves, and when one is flat; the
three paths by which groups escape balance; a base trained under random groups or a window alone, its router left as it
was."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods.focus import Focus
from analysis.models import load_model
from analysis.seam.attention import apply
from analysis.studies import NAMED
from analysis.studies.stored.comparisons import difference
from analysis.studies.stored.trained import loss_curve
from analysis.training.mitigations import Control, method_of
from analysis.training.settings import RouterTraining
from lab.focus.ablations import VARIED
from lab.focus.causality import far_gates, group_agreement
from lab.focus.dominance import (
    PATHS,
    centroid_cosine,
    curve,
    dead_groups,
    effective_rank,
    escape_paths,
    hidden_drift,
    together,
)
from lab.focus.groups import pairs_panel
from lab.focus.printed import FocusPrinted, flat
from lab.focus.table9 import FACTORS, cells, paper_numbers
from lab.harness.routed import window_pairs
from tests.made.tiny import LAYERS, tiny, token_ids
from tests.made.tuning import SECOND, start


def test_the_grid_varies_one_factor_at_a_time(home):
    plan, lm = RouterTraining(), load_model(str(home / "tiny"))
    grid = cells(None, plan, lm)
    assert len(grid) == sum(map(len, FACTORS.values())) == 27 and len(set(grid.values())) == 20, "full is 32 here"
    default = {key for key, cell in grid.items() if cell == plan}
    assert default == {
        *(("groups", 8), ("window", 16), ("temperature", 0.1), ("iterations", 10), ("dimensions", 16)),
        ("similarity", "dot"),
    }
    for (factor, value), cell_plan in grid.items():
        field = {"dimensions": "d_s", "window_of_two": "window"}.get(factor, factor)
        changed = {name for name in VARIED if getattr(cell_plan, name) != getattr(plan, name)} - {field}
        assert changed == ({"groups"} if factor == "window_of_two" else set())
        assert value in (getattr(cell_plan, field), "full")
    assert grid["window_of_two", 16] == grid["groups", 2]
    assert grid["dimensions", "full"].d_s == lm.width
    assert cells("groups=2", RouterTraining(window=128), lm)["groups", 2].window == 16
    assert list(cells("temperature, groups=4", plan, lm)) == [
        ("groups", 4),
        *(("temperature", t) for t in (0.05, 0.1, 0.2, 0.5)),
    ]
    with pytest.raises(BadSetting, match="no row 'groups=5': the rows are groups, .* such as groups=4, groups=8"):
        cells("groups=5", plan, lm)


def test_what_the_paper_prints_stands_beside_and_its_windows_leave_something_to_the_groups():
    printed = {"centroid": 35.8, "tuned": 29.9, "share_centroid": 0.95, "share_tuned": 0.97}
    assert paper_numbers("iterations", 3) == {f"paper_{key}": value for key, value in printed.items()}
    cell = {("window", 16): None, ("groups", 2): 33.8, ("dimensions", "full"): 34.8}
    assert {key: paper_numbers(*key)["paper_centroid"] for key in cell} == cell
    assert set(paper_numbers("similarity", "cosine").values()) == {None}
    # In windows of 1,024 tokens, as table 9 has them: the widest reads three quarters of the pairs.
    length = NAMED["ablations"].defaults["length"]
    shares = [window_pairs(window, length) / (length * (length + 1) // 2) for window in FACTORS["window"]]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(0.75, abs=0.001)


def test_the_chart_is_of_the_pairs_that_are_read():
    """Windows by what they read, with all pairs at their end, are a line; groups stand at what they read."""
    read = {"dense": 1.0, "window 64": 0.128, "window 8": 0.023, "trained": 0.261, "trained, soft": 1.0, "k-means": 0.3}
    chart = pairs_panel([{"arm": arm, "pairs_share": share, "perplexity": 100 * share} for arm, share in read.items()])
    assert chart["x_values"] == [2.3, 12.8, 100.0, 26.1, 30.0]
    lines = {line["name"]: line["y"] for line in chart["series"]}
    assert lines.pop("a window alone, up to all pairs") == pytest.approx([2.3, 12.8, 100, None, None])
    assert lines == {"trained": [None, None, None, 26.1, None], "k-means": [None] * 4 + [30.0]}


def test_gates_of_far_pairs():
    router = FocusRouter(1, 4, groups=2, window=2, gate_sharpness=4.0, gate_offset=0.5)
    groups = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    affinities = [0.0, 1.0, 0.0]  # of (2, 0), (3, 0), (3, 1), the window being 2
    for gate, offset in {"literal": 0.0, "centred": 0.5, "log": 0.5}.items():
        method = Focus.build(router.variant(gate=gate), reading="soft")
        wanted = [1 / (1 + np.exp(-4 * (affinity - offset))) for affinity in affinities]
        assert far_gates(method, groups).tolist() == pytest.approx(wanted)
    assert far_gates(Focus.build(router), groups).tolist() == affinities
    assert far_gates(Focus.build(router, n_sink=1), groups).tolist() == [0.0], "what is always read has no gate"


def test_groups_that_agree_and_that_are_dead():
    """Of two windows, balanced apart: in the second all tokens lean to group 0, and Sinkhorn sends half of them on."""
    router = FocusRouter(1, 2, groups=2, d_s=2, temperature=1.0, iterations=50)
    router.projection.data[0] = router.centroids.data[0] = torch.eye(2)
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [1.0, 0.0]])
    assert group_agreement(router, [hidden], 2) == [0.75]
    # Even shares are 25 of 100 tokens: 2 are too few, 3 are not.
    assert dead_groups(np.repeat([0, 1, 2], [95, 3, 2]).reshape(4, 25), 4) == 2


def test_the_trainings_of_a_row_are_put_together():
    point = {"phase": 1, "step": 0, "layer": -1} | dict.fromkeys(PATHS, 0.5)
    names = ("share_1", "worst_1", "share_2", "worst_2")
    parts = [
        {"ends": dict.fromkeys(names, worst) | {"collapsed_at": step}, "curve": [point | {"share": worst}]}
        for worst, step in ((0.2, None), (0.95, 700), (0.95, 300))
    ]
    row = together(parts)
    of_seeds = {f"{name}_of_seeds": [0.2, 0.95, 0.95] for name in names}
    together_ends = dict.fromkeys(names, pytest.approx(0.7)) | {"collapsed_at": 300, "collapsed": 2}
    assert row["ends"] == together_ends | of_seeds
    assert row["curve"] == [point | {"share": 0.7, "shares": [0.2, 0.95, 0.95]}]


def test_points_of_curves_and_where_one_is_flat():
    look = {"shares": [0.2, 0.4], "centroid_cosine": [0.0, 1.0], "drift": [0.0, 0.0], "start_share": [0.2, 0.2]}
    points = curve([{"step": 0, "start": look | {"rank": [4.0, 2.0]}}, {"step": 1}], 2)
    assert [(p["step"], p["layer"], p["share"], p["rank"]) for p in points] == [
        *((0, -1, pytest.approx(0.3), 3.0), (0, 0, 0.2, 4.0), (0, 1, 0.4, 2.0)),
    ]
    assert loss_curve([3.0, 2.0], seed=0)[1] == {"seed": 0, "step": 2, "loss": 2.0}
    long = loss_curve(np.arange(400.0).tolist(), 40, steps=400)
    assert len(long) == 40 and long[0] == {"steps": 400, "step": 10, "loss": 4.5}
    wobble = 1e-4 * np.random.default_rng(0).normal(size=16)

    def gained(losses: np.ndarray) -> bool | None:
        return flat(difference("soft_gained", losses, np.zeros(len(losses)), np.arange(len(losses))))

    assert gained(wobble) is True
    assert gained(wobble - 0.05) is False and gained(400 * wobble) is False and gained(wobble[:3]) is None


def test_the_printed_training():
    plan = FocusPrinted().plan(4000, 1e-3, 0)
    router = plan.router_settings()
    assert (router.groups, router.top, router.window, router.n_sink, router.gate) == (4, 2, 128, 0, "literal")
    assert (router.temperature, router.iterations, router.d_s, plan.length) == (0.1, 10, 16, 1024)
    assert plan.sharpening(3999) == 1, "the printed gate has one lambda"


def test_what_the_controls_read_and_in_which_phase():
    """A window as long as the text is full attention, with its gradient; groups are drawn anew for every turn."""
    model, router, ids = load_model(tiny("llama")), start(), token_ids(1, 24)

    def read(method):
        with apply(model, method, kernels=True):
            return model.lm(ids, use_cache=False).logits

    model.lm.requires_grad_(True)
    try:
        full = method_of(replace(SECOND, reading="alone"), router.variant(window=24))
        assert torch.allclose(read(full), model.lm(ids, use_cache=False).logits, atol=1e-4)
    finally:
        model.lm.requires_grad_(False)
    drawn = method_of(replace(SECOND, reading="drawn"), router)
    assert isinstance(drawn, Control) and drawn.plan.groups == 4
    hidden, groups = torch.zeros(2, 400, 32), {}
    for turn in ((), (1, 0), (1, 1), (2, 0)):
        drawn.begin(*turn)
        groups[turn] = [drawn.token_features(layer, hidden, None) for layer in range(LAYERS)]
        assert all((g.sum(-1) == 1).all() and g.shape == (2, 400, 4) for g in groups[turn])
        assert all(torch.equal(a, drawn.token_features(i, hidden, None)) for i, a in enumerate(groups[turn]))
    firsts = [layers[0] for layers in groups.values()] + [groups[1, 0][1]]
    assert not any(torch.equal(a, b) for i, a in enumerate(firsts) for b in firsts[:i])
    for reading in ("drawn", "alone"):
        with pytest.raises(BadSetting, match="gives the router no gradient"):
            replace(SECOND, reading=reading, phase=1)


def test_the_paths_of_escape():
    assert centroid_cosine(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])) == pytest.approx(1 / 3)
    assert centroid_cosine(torch.tensor([[1.0, 1.0], [2.0, 2.0]])) == pytest.approx(1.0)
    assert math.isnan(centroid_cosine(torch.ones(1, 2)))
    assert hidden_drift(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])) == pytest.approx(0.5)
    assert effective_rank(torch.eye(4)) == pytest.approx(4.0) and effective_rank(torch.ones(9, 4)) == pytest.approx(1.0)
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(4 / 27**0.25), "shares 3/4 and 1/4"
    start = FocusRouter(1, 2, groups=2, d_s=2)
    start.projection.data[0] = start.centroids.data[0] = torch.eye(2)
    first, now = torch.eye(2), torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    paths = escape_paths(start.variant(), [now], start, [first])
    assert paths["centroid_cosine"] == [0.0] and paths["start_share"] == [1.0]
    assert paths["drift"] == [pytest.approx(0.2)]
    assert paths["rank"] == [pytest.approx(effective_rank(now))]
    assert escape_paths(start, [first], start, [first])["start_share"] == [0.5]
