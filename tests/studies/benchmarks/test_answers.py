"""Answers of benchmark questions as tokens."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from analysis.errors import BadText
from analysis.studies.benchmarks.scores import code
from analysis.studies.benchmarks.tasks import Item


def test_an_answer_without_tokens_is_refused_in_a_sentence():
    """A tokenizer may merge an answer into the prompt's last token: nothing is left whose probability could be read."""

    def merging(text, verbose=False):
        return SimpleNamespace(input_ids=list(range(len(text.split()))))

    item = Item({}, ("What is it? A",), 0, ("n", " dog"), 0)
    with pytest.raises(BadText, match="The answer 'n' adds no token to its prompt"):
        code(merging, item)
    assert code(merging, replace(item, answers=(" dog", " big cat"))).answers == (1, 2)
