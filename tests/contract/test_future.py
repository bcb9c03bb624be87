"""Which settings let the future in: what a method says of itself is what a changed later token shows."""

from dataclasses import fields, replace

import pytest

from analysis.errors import NotFitted
from analysis.methods import METHODS, describe
from analysis.seam.attention import apply
from tests.contract.test_contract import CASES, logits
from tests.made.tiny import tiny, token_ids


def variants(name: str):
    """(words, method) for every option of every setting of a method."""
    for item in fields(METHODS[name]):
        for option in item.metadata.get("options") or ():
            yield f"{name}, {item.name} {option}", replace(CASES[name](), **{item.name: option})


def leaks(lm, method) -> bool:
    """Whether a token reads what comes after it."""
    ids = token_ids()
    changed = ids.clone()
    changed[:, 30:] = token_ids(seed=9)[:, 30:]
    with apply(lm, method):
        a, b = logits(lm, input_ids=ids), logits(lm, input_ids=changed)
    return bool((a - b)[:, :30].abs().max() > 1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_what_reads_the_future_says_so_and_nothing_else_does(name):
    lm = tiny("llama")
    for words, method in [(name, CASES[name]()), *variants(name)]:
        try:
            method.check(lm)
        except NotFitted:
            continue  # a bucket router that these buckets were not fitted with
        assert leaks(lm, method) == method.reads_future, words


def test_the_catalogue_names_the_options_that_do():
    options = {
        (name, field["name"], option)
        for name, about in describe().items()
        for field in about["fields"]
        for option in field["future"]
    }
    literal = {("focus", "membership", "literal"), ("routing_transformer", "membership", "literal")}
    assert options == literal | {("focal_learned", "mean", "literal")}
