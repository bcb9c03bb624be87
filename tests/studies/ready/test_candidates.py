"""From names and settings, or words of the command line, to methods that are ready to run; and what is refused."""

import pytest

from analysis.errors import AnalysisError, BadSetting
from analysis.methods import METHODS
from analysis.studies.context import Context
from analysis.studies.ready.candidates import candidates, specs
from tests.made.tiny_tokenizer import save_model

READY = [  # focal_learned and indexer need trained weights, others a prompt and what follows it
    name for name, method in METHODS.items() if method.saves == "reads" and name not in ("focal_learned", "indexer")
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """`built(methods)` -> candidates for a tiny model."""
    home = tmp_path_factory.mktemp("home")
    context = Context(state=home / "state", browser=False)
    model = context.model(str(save_model(home / "tiny")))
    return lambda methods: candidates(context, model, methods)


@pytest.mark.slow
def test_all_there_are_with_their_defaults(built):
    everything = built(None)
    assert [candidate.name for candidate in everything] == READY
    assert [candidate.label for candidate in everything] == [METHODS[name].title for name in READY]
    assert all(candidate.settings == candidate.defaults for candidate in everything)
    assert {
        candidate.name: candidate.facts["router"]["name"] for candidate in everything if candidate.facts["router"]
    } == {"focus": "k8-top1"}


def test_names_say_what_differs_from_the_defaults(built):
    focus = built([{"name": "focus"}])[0]
    settings = {"top": 2, "window": focus.defaults["window"]}
    three = [
        {"name": "focus", "settings": settings},
        {"name": "focus", "router": "k4-top1"},
        {"name": "oracle_topk"},
    ]
    assert [candidate.label for candidate in built(three)] == ["Focus, top 2", "Focus k4-top1", "Oracle top-k"]
    assert built(three)[0].settings == {**focus.defaults, "top": 2} and built(three)[0].method.top == 2
    assert built(three)[1].facts["router"]["groups"] == 4
    assert focus.defaults["window"] == focus.facts["router"]["window"], "the router's, not the class's"


REFUSED = {
    "no method": ([], "0 methods were asked for: choose between 1 and 16"),
    "too many": ([{"name": "dense"}] * 17, "17 methods were asked for"),
    "an unknown one": ([{"name": "divine"}], "There is no method 'divine'; there are: dense, focus"),
    "no name": ([{}], "There is no method 'None'"),
    "a name that is none": ([{"name": ["dense"]}], "There is no method"),
    "a word": (["dense"], "'dense' names no method: give name, settings, router"),
    "an unknown part": ([{"name": "dense", "window": 3}], "names no method"),
    "an unknown setting": ([{"name": "focus", "settings": {"gate": 1}}], "focus has no setting 'gate'; it has: top"),
    "a setting of dense": ([{"name": "dense", "settings": {"k": 1}}], "dense has no setting 'k'; it has: none"),
    "settings as a list": ([{"name": "focus", "settings": [1]}], "takes its settings as names with values"),
    "a router as a number": ([{"name": "focus", "router": 8}], "its router as a name such as k8-top1"),
    "a router for what needs none": ([{"name": "quest", "router": "k8-top1"}], "quest reads with no router"),
    "a policy for what needs none": ([{"name": "focus", "policy": "mine"}], "focus reads with no policy"),
    "a value out of range": (
        [{"name": "oracle_topk", "settings": {"k": 0}}],
        "k of Oracle top-k is 0",
    ),
    "a value of another kind": (
        [{"name": "oracle_topk", "settings": {"k": "3"}}],
        "top-k must be a whole number",
    ),
    "more groups than there are": ([{"name": "focus", "settings": {"top": 9}}], "the router has 8 groups"),
    "a router that is none": ([{"name": "focus", "router": "best"}], "'best' names no router"),
    "twice": ([{"name": "dense"}, {"name": "dense", "settings": {}}], "Dense was asked for twice"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused_in_one_sentence(case, built):
    methods, message = REFUSED[case]
    with pytest.raises(AnalysisError, match=message) as error:
        built(methods)
    assert str(error.value).endswith(".") and "\n" not in str(error.value)


def test_methods_from_words():
    names = [spec["name"] for spec in specs(None, [])]
    assert names == [name for name, method in METHODS.items() if method.saves == "reads"]
    dense, focus = specs("dense, focus", ["focus.window=64", "focus.reading=soft"], "k4-top1")
    assert dense == {"name": "dense", "settings": {}}
    assert focus == {"name": "focus", "settings": {"window": 64, "reading": "soft"}, "router": "k4-top1"}
    assert specs("oracle_topk", ["oracle_topk.fraction=0.25"])[0]["settings"] == {"fraction": 0.25}


@pytest.mark.parametrize(
    "words, message",
    [
        ("focus.window", "'focus.window' sets nothing: write it like focus.window=64"),
        ("window=64", "'window=64' sets nothing"),
        ("oracle_topk.k=3", "a method that is not evaluated: add oracle_topk to --methods"),
    ],
)
def test_words_that_set_nothing_are_refused(words, message):
    with pytest.raises(BadSetting, match=message):
        specs("focus", [words])
