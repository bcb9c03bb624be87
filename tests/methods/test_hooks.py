"""The hooks of a method: how many there are, and that a class with their former names still works."""

import importlib
import math
import re
import sys
import warnings
from dataclasses import dataclass

import pytest
import torch

from analysis.declaration import fields_of
from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.evicting import Evicting
from tests.made.passes import logits
from tests.made.tiny import tiny, token_ids

MOST_HOOKS = 12


def test_methods_override_few_functions():
    former = {name for cls in METHODS.values() for name in cls.renamed}
    overridden = {
        name
        for cls in METHODS.values()
        for base in cls.__mro__
        if base not in Method.__mro__
        for name, value in vars(base).items()
        if hasattr(Method, name) and not name.startswith("__") and name not in former
        if callable(value) or isinstance(value, classmethod)
        if not isinstance(value, type)
    }
    assert overridden <= {
        *("build", "fit", "check", "prefill", "token_features", "encode_tokens"),
        *("scale_queries", "attend", "scores", "mask", "reweight", "rounded"),
    }
    assert len(overridden) <= MOST_HOOKS


@pytest.mark.parametrize("name", METHODS)
def test_a_setting_outside_its_range_is_refused_by_its_name(name):
    for field in fields_of(METHODS[name]):
        wrong = [None, "none of the options", True]
        if field.declared.low is not None:
            wrong += [field.declared.low - 1, field.declared.high + 1, math.nan, math.inf]
        if field.kind is int:
            wrong.append(float(field.default))
        for value in wrong:
            with pytest.raises(BadSetting, match=f"^{field.name} of {re.escape(METHODS[name].title)} "):
                METHODS[name](**{field.name: value})


def of_llama(method) -> torch.Tensor:
    return logits(tiny("llama"), token_ids(), method)


def test_a_method_with_former_names_computes_what_it_did():
    @dataclass
    class Now(Method):
        def mask(self, block):
            return block.near(5, 1)

        def scale_queries(self, layer, query, of_tokens):
            return query / 2

    with pytest.warns(DeprecationWarning) as warned:

        @dataclass
        class Former(Method):
            def keep(self, block):
                return block.near(5, 1)

            def sharpen(self, layer, query, of_tokens):
                return query / 2

        class Inheriting(Former):
            def keep(self, block):
                return super().keep(block)

    assert sorted(str(warning.message).split()[0] for warning in warned) == [
        "Former.keep",
        "Former.sharpen",
        "Inheriting.keep",
    ]
    assert warned[0].filename == __file__
    assert torch.equal(of_llama(Former()), of_llama(Now())) and torch.equal(of_llama(Inheriting()), of_llama(Now()))
    assert not torch.equal(of_llama(Now()), of_llama(Method()))


def test_an_evicting_method_with_former_names_keeps_the_same_keys():
    with pytest.warns(DeprecationWarning, match="worth is called key_scores now"):

        @dataclass
        class Newest(Evicting):
            def worth(self, prompt):
                return torch.arange(prompt.key.shape[2]).float().expand(prompt.key.shape[:3])

            def stay(self, layer, worth):
                return super().stay(layer, worth)

    method = Newest(ratio=0.75)
    of_llama(method)
    stays = method.kept_[0][0, 0]
    assert stays.sum() == len(stays) // 4 and bool(stays[-(len(stays) // 4) :].all())


def test_a_module_is_found_under_its_former_name_with_a_warning():
    for name in ("analysis.attention", "analysis.calls", "analysis.inference", "analysis.tokenizer"):
        sys.modules.pop(name, None)
        with pytest.warns(DeprecationWarning, match=f"{name} is analysis"):
            former = importlib.import_module(name)
        now = former.__spec__.name
        assert former is sys.modules[now] and now != name
    with pytest.raises(ModuleNotFoundError), warnings.catch_warnings():
        importlib.import_module("analysis.never_there")
