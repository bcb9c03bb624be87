"""Indexers inside the model: how alike two texts are, which rows are judged, and what two models agree on."""

import numpy as np
import pytest
import torch

from analysis.groups.router import FocusRouter
from lab.harness.inside import lower, panels_inside, rows_inside
from lab.harness.needles import NEEDLES, alike, keeping
from lab.harness.taught import of_groups, titled
from lab.indexers import agreed, answers

TASKS = list(NEEDLES)


def part(loss, right, written, **extra):
    """A way on eight texts, all needles of both kinds answered alike."""
    losses = (loss + 0.01 * np.arange(8)).tolist()
    return {"losses": losses, "reads": 0.25, "written": [written] * 8} | {
        "needles": {task: [right] * 16 for task in TASKS},
        **extra,
    }


def test_texts_are_alike_up_to_the_first_other_token():
    assert alike([[1, 2, 3, 4], [1, 2, 9, 4], [1, 2], []], [[1, 2, 3, 4]] * 4) == [1.0, 0.5, 0.5, 0.0]
    method = keeping(lambda ratio: ratio, 25, 100)
    assert method == 0.75 and keeping(lambda ratio: ratio, 200, 100) == 0.0


def test_ways_stand_by_their_loss_and_needles_beside_dense():
    dense = part(2.0, 1.0, [1, 2, 3, 4])
    parts = {"dense": dense, "dsa": part(2.5, 0.0, [1, 9, 3, 4]), "qsa": part(2.1, 1.0, [1, 2, 3, 4])}
    parts["snapkv"] = part(0.0, 1.0, [1, 2, 3, 9]) | {"losses": [[2.0] * 8, [1.5] * 8]}
    rows = rows_inside(parts)
    assert [row["way"] for row in rows] == ["dense", "qsa", "dsa", "snapkv"], "SnapKV's loss is of other tokens"
    by_way = {row["way"]: row for row in rows}
    assert by_way["dsa"]["loss"] == pytest.approx(0.5) and by_way["snapkv"]["loss"] == pytest.approx(-0.5)
    assert by_way["dsa"]["written"] == 0.25 and by_way["qsa"]["written"] == 1.0
    assert [lower(by_way[way], f"{TASKS[0]}_more") for way in ("dense", "dsa", "qsa")] == [False, True, False]
    needles, loss, written = panels_inside(rows)
    assert needles["x_values"] == ["dense", "QSA", "DSA", "SnapKV"] and loss["x_values"] == ["QSA", "DSA"]
    assert written["series"][0]["y"] == [1.0, 0.25, 0.75]


def test_groups_score_a_key_by_what_a_query_shares_with_it():
    router = FocusRouter(1, 6, groups=3, top=1, window=2)
    hidden, rows = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 4])
    shares = torch.softmax(router.scores(0, hidden).detach() / router.temperature, -1)
    wanted = [[float((shares[row] * shares[key]).sum()) for key in range(5)] for row in (1, 4)]
    assert torch.allclose(of_groups(router, 0, hidden, rows)[0].detach(), torch.tensor(wanted), atol=1e-6)


def study(best, p, **extra):
    """What the study has of each question: one indexer ahead of the others with this p-value."""
    row = {"recall": 0.2, "over_next": 0.1, "over_next_low": 0.05, "over_next_high": 0.15, "over_next_holm": p}
    over = {f"{key}{end}": 0.1 for key in ("over_closed", "over_prior") for end in ("", "_low", "_high")}
    rows = [{"way": "oracle_layer", "recall": 0.5, "below_heads": 0.3, "below_heads_low": 0.2, "below_heads_high": 0.4}]
    kinds = [best, *(kind for kind in ("dsa", "qsa", "m3", "seer") if kind != best)]
    rows += [{"way": kind} | over | (row if kind == best else {}) for kind in kinds]
    return {"rows": rows} | extra


def test_two_models_agree_where_their_verdicts_do():
    ours, theirs = study("dsa", 0.01), study("qsa", 0.01)
    assert answers(ours)["which finds most"] == titled("dsa") == "DSA"
    assert answers(study("dsa", 0.2))["which finds most"] == answers(study("qsa", 0.2))["which finds most"]
    sentence = agreed(ours | {"companion": {"model": "other", "answers": answers(theirs)}})
    assert sentence.count("(QSA)") == 1 and "which finds most" in sentence.partition("otherwise")[2]
    assert "otherwise" not in agreed(ours | {"companion": {"model": "other", "answers": answers(ours)}})
