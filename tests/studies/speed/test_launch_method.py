"""Timing a method by its own kernels: what has one, what has none, and the words about it."""

import pytest

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.studies.speed.method import PHASES, time_method
from tests.made.evaluating import TEXT, watched_context

KERNELS = {"focus": (True, True), "csa": (True, True), "quest": (False, True), "bucket_routing": (False, True)}
KERNELS |= {"focal": (True, True)}


@pytest.fixture(scope="module")
def ask(home):
    """`ask(name, **arguments)` -> Result."""
    context = watched_context(home)
    key = context.add_text("a text", TEXT)
    given = {"model": str(home / "tiny"), "text": key, "repeats": 1, "new_tokens": 3}
    return lambda name, **more: time_method(
        **given | more, method={"name": name} | SPECS.get(name, {}), context=context
    )


SPECS = {"quest": {"settings": {"dense_layers": 0, "page": 4}}, "focus": {"router": "k4-top1"}}


@pytest.mark.parametrize("name", ["focus", "csa", "quest", "bucket_routing", "focal", "streaming_llm", "magicpig"])
def test_only_a_kernel_is_timed(name, ask):
    numbers = ask(name).numbers
    expected = KERNELS.get(name, (False, False))
    assert tuple(numbers["kernels"][phase] is not None for phase in PHASES.values()) == expected
    assert METHODS[name].kernels == tuple(p for p, there in zip(PHASES.values(), expected, strict=True) if there)
    for (speedup, phase), there in zip(PHASES.items(), expected, strict=True):
        assert numbers["why"][phase] and (numbers["speedup"][speedup] is not None) == there
        assert [length for length, _ in numbers["longer"][speedup]] == ([15, 30, 61] if there else [])
        if there:
            found = numbers["speedup"][speedup]
            assert found["low"] <= found["median"] <= found["high"] and found["median"] > 0
    assert len(numbers["rows"]) == (3 if any(expected) else 0)
    assert ("no kernel here" in numbers["sentence"]) == (expected != (True, True))


def test_bad_sizes_are_refused(ask):
    for given in ({"length": 4}, {"length": 62}, {"repeats": 0}, {"new_tokens": 1}):
        with pytest.raises(BadSetting):
            ask("quest", **given)
