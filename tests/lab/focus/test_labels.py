"""Whether groups keep their category: worked by hand, and on a model."""

import numpy as np
import pytest

from analysis.groups.router import FocusRouter
from analysis.groups.words import categories
from analysis.models import load_model
from lab.focus.labels import LabelledWindows, labels_after

# Three groups of 4 + 4 + 4 tokens, of two categories: 6 tokens each.
BEFORE = np.array([[[4, 0], [1, 3], [1, 3]]])


def test_groups_that_stay_and_groups_that_change():
    same = labels_after(BEFORE, BEFORE)
    assert same["labels_kept"] == 1 and same["purity_before"] == same["purity_after"] == pytest.approx(10 / 12)
    # Labels 0 1 1: by chance the first is met in 1 of 3 groups, the others in 2 of 3.
    assert same["labels_chance"] == pytest.approx((1 / 3 + 2 / 3 + 2 / 3) / 3)
    turned = labels_after(BEFORE, BEFORE[:, [1, 0, 2]])
    assert turned["labels_kept"] == pytest.approx(1 / 3) and turned["labels_chance"] == same["labels_chance"]


def test_an_emptied_group_keeps_nothing_and_one_that_was_empty_does_not_count():
    emptied = labels_after(BEFORE, np.array([[[5, 0], [1, 6], [0, 0]]]))
    assert emptied["labels_kept"] == pytest.approx(2 / 3) and emptied["purity_after"] == pytest.approx(11 / 12)
    filled = labels_after(np.array([[[5, 0], [1, 6], [0, 0]]]), BEFORE)
    assert filled["labels_kept"] == 1


def test_every_token_of_a_window_is_counted_once_in_every_layer(home):
    lm = load_model(str(home / "tiny"))
    text = "The cat sat on the mat, and the dog ran to the door. " * 12
    windows = np.array(lm.tokenizer(text)["input_ids"][: 2 * 64]).reshape(2, 64)
    labelled = LabelledWindows.of(lm, windows)
    router = FocusRouter(lm.num_layers, lm.width, seed=3)
    counts = labelled.counts(lm, router)
    assert counts.shape == (lm.num_layers, router.K, labelled.kinds)
    assert (counts.sum((1, 2)) == len(labelled.category)).all() and (labels_after(counts, counts)["labels_kept"] == 1)
    of_text = lm.tokenizer.decode(windows[0])
    coded = lm.tokenizer(of_text, return_offsets_mapping=True, add_special_tokens=False)
    names = categories(of_text, *zip(*coded["offset_mapping"], strict=True))[0]
    first = labelled.category[: len(labelled.ids[0])]
    assert len(set(zip(names, first.tolist(), strict=True))) == len(set(names)), "one number for each category"


def test_a_router_is_held_against_the_labels_that_another_had(home):
    """Watched against itself every group keeps its label; against its centroids in another order fewer do."""
    lm = load_model(str(home / "tiny"))
    windows = np.array(lm.tokenizer("The cat sat on the mat, and the dog ran. " * 20)["input_ids"][:128]).reshape(2, 64)
    router, turned = (FocusRouter(lm.num_layers, lm.width, seed=3) for _ in range(2))
    look = LabelledWindows.of(lm, windows).watch(lm, router)
    assert look(lm, router)["labels_kept"] == 1
    turned.centroids.data = turned.centroids.data.roll(1, dims=1)
    assert look(lm, turned)["labels_kept"] < 1
