"""The three paths by which groups escape balance, by hand."""

import math

import pytest
import torch

from analysis.groups.router import FocusRouter
from lab.focus.dominance import centroid_cosine, effective_rank, escape_paths, hidden_drift


def test_the_paths_by_hand():
    assert centroid_cosine(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])) == pytest.approx(1 / 3)
    assert centroid_cosine(torch.tensor([[1.0, 1.0], [2.0, 2.0]])) == pytest.approx(1.0)
    assert math.isnan(centroid_cosine(torch.ones(1, 2)))
    assert hidden_drift(torch.eye(2), torch.tensor([[1.0, 0.0], [1.0, 0.0]])) == pytest.approx(0.5)
    assert effective_rank(torch.eye(4)) == pytest.approx(4.0) and effective_rank(torch.ones(9, 4)) == pytest.approx(1.0)
    assert effective_rank(torch.diag(torch.tensor([3.0, 1.0]))) == pytest.approx(4 / 27**0.25), "shares 3/4 and 1/4"


def test_the_paths_of_a_router():
    start = FocusRouter(1, 2, groups=2, d_s=2)
    start.projection.data[0] = start.centroids.data[0] = torch.eye(2)
    first, now = torch.eye(2), torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    paths = escape_paths(start.variant(), [now], start, [first])
    assert paths["centroid_cosine"] == [0.0] and paths["start_share"] == [1.0]
    assert paths["drift"] == [pytest.approx(0.2)]
    assert paths["rank"] == [pytest.approx(effective_rank(now))]
    assert escape_paths(start, [first], start, [first])["start_share"] == [0.5]
