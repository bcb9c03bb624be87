"""Copies of a model that read on with and without recall documents."""

import pytest

from analysis.errors import BadSetting
from lab.tuning.recall_documents import KEY


def test_copies_read_on_and_differ_in_their_recall_documents_alone(stored):
    study = stored("recall-documents")
    untrained, none, half = study["texts"]
    assert [row["share"] for row in study["texts"]] == [None, 0, 0.5]
    assert [row["model"] for row in study["texts"]] == [
        *("as it is", "without recall documents", "with 50% recall documents"),
    ]
    assert none[KEY] == 0 != half[KEY] and none["perplexity"] != untrained["perplexity"]
    assert study["recipe"]["last_share"] == 0 and study["recipe"]["tokens"] == 32_768
    tasks = {row["task"] for row in study["rows"]}
    assert "Needle" in tasks and len(study["rows"]) == 3 * len(tasks)
    assert all(row["items"] == 2 and row["chance"] == 0.25 for row in study["rows"])
    assert study["panels"][0]["x_values"] == [0, 0.5]


def test_a_model_that_was_not_trained_here_is_refused(ask, home):
    with pytest.raises(BadSetting, match="was not trained by `lab.far.run`"):
        ask("recall-documents", model=str(home / "tiny"), length=32)
