"""Timing a method by its own kernels: what has one, what has none, and the words about it."""

import pytest

from analysis.commands.speed import TimeMethod
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.studies.speed.method import PHASES, time_method
from tests.made.evaluating import TEXT, watched_context

KERNELS = {"focus": (True, True), "csa": (True, True), "quest": (False, True), "bucket_routing": (False, True)}
KERNELS |= {"focal": (True, True)}
SPECS = {"quest": {"settings": {"dense_layers": 0, "page": 4}}, "focus": {"router": "k4-top1"}}


@pytest.fixture(scope="module")
def ask(home):
    """`ask(name, **arguments)` -> MethodTimes."""
    context = watched_context(home)
    usual = {"model": str(home / "tiny"), "text": context.add_text("a text", TEXT), "repeats": 1, "new_tokens": 3}

    def asked(name, **options):
        request = TimeMethod(**usual | options, method={"name": name} | SPECS.get(name, {}))
        return time_method(request, context=context)

    return asked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["focus", "csa", "quest", "bucket_routing", "focal", "streaming_llm", "magicpig"])
def test_only_a_kernel_is_timed(name, ask):
    numbers = ask(name).numbers
    expected = KERNELS.get(name, (False, False))
    assert METHODS[name].kernels == tuple(p for p, expects in zip(PHASES.values(), expected, strict=True) if expects)
    for (speedup, phase), expects in zip(PHASES.items(), expected, strict=True):
        ratio = numbers["speedup"][speedup]
        assert numbers["why"][phase] and (ratio is not None) == (numbers["kernels"][phase] is not None) == expects
        assert [length for length, _ in numbers["longer"][speedup]] == ([15, 30, 61] if expects else [])
        assert ratio is None or 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert len(numbers["rows"]) == (3 if any(expected) else 0)
    assert ("no kernel here" in numbers["sentence"]) == (expected != (True, True))


@pytest.mark.parametrize("arguments", [{"length": 4}, {"length": 62}, {"repeats": 0}, {"new_tokens": 1}], ids=str)
def test_bad_sizes_are_refused(ask, arguments):
    with pytest.raises(BadSetting):
        ask("quest", **arguments)
