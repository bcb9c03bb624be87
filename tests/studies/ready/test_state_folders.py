"""Where fitted state goes: into the own folder, never into what came with a model unless somebody names it."""

import hashlib
import json
from pathlib import Path

import pytest

from analysis import places
from analysis.__main__ import main
from analysis.corpus import sample_texts
from analysis.declaration.undeclared import Undeclared
from analysis.models import load_model, loading
from analysis.runs import Result, RunStore
from analysis.studies.budgets.recipes import policy_for
from analysis.studies.context import Context
from tests.made.tiny_tokenizer import save_model

CALIBRATE = ["calibrate", "story", "essay", "--window", "48", "--tokens", "96", "--caps", "8"]
FITS = {  # what stores fitted state, in small -> what it leaves in the own folder
    "a policy": (CALIBRATE, "csa/policy.json"),
    "a policy of a folder": (["calibrate", "--corpus", "CORPUS", *CALIBRATE[3:]], "csa/policy.json"),
    "a router": (["fit-router", "--groups", "2"], "focus/k2-top1.safetensors"),
    "a trained router": (
        ["train-router", "--corpus", "CORPUS", "--steps", "2", "--tokens-per-step", "128", "--window", "8"],
        "focus/k8-top1.safetensors",
    ),
    "means": (["fit-method", "magicpig"], "methods/magicpig.safetensors"),
    "clusters": (["fit-method", "routing_transformer", "--clusters", "4"], "methods/routing_transformer.safetensors"),
    "temperatures": (["fit-method", "focal_learned", "--steps", "2"], "focal/learned.safetensors"),
    "buckets": (
        "route --corpus CORPUS --length 48 --prompts 3 --min-distance 4 --no-mlp --store".split(),
        "routing/curves.safetensors",
    ),
    "what an evaluation is the first to need": (
        ["evaluate", "story", "--methods", "focus,csa,magicpig,bucket_routing", "--window", "48"],
        "focus/k8-top1.safetensors",
    ),
    "a study": (
        "study step-cost --length 32 --repeats 1".split(),
        "studies/step-cost.json",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A models_cache with a tiny model in the place of the bundled one, its policy beside it, and a corpus."""
    folder = tmp_path_factory.mktemp("cache")
    save_model(folder / "demo")
    (folder / "corpus").mkdir()
    for turn in range(8):
        for name, (_, text) in sample_texts().items():
            (folder / "corpus" / f"{name}{turn}.txt").write_text(text[turn * 400 : turn * 400 + 900])
    return folder


@pytest.fixture(autouse=True)
def bundled(cache, monkeypatch):
    monkeypatch.setattr(places, "CACHE", cache)
    monkeypatch.setattr(loading, "CACHE", cache)


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with the hash of its content."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


LONG = "what an evaluation is the first to need"  # fits four methods


@pytest.mark.slow
@pytest.mark.parametrize("fit", [pytest.param(fit, marks=[pytest.mark.slow] * (fit == LONG)) for fit in FITS])
def test_what_is_fitted_goes_into_the_own_folder_and_the_bundled_one_stays_as_it_came(fit, cache, state, capsys):
    words, left = FITS[fit]
    before = tree(cache)
    assert main([str(cache / "corpus") if word == "CORPUS" else word for word in words]) == 0, capsys.readouterr().err
    assert tree(cache) == before
    assert (state / "fitted" / "demo" / load_model("demo").revision / left).is_file()


def test_a_policy_of_the_command_line_outdates_what_pages_computed_with_the_earlier_one(cache, state):
    store = RunStore(state)
    request_fields = {"model": "demo", "text": "0123456789ab"}
    with_it, without = (request_fields | {"methods": [{"name": name, "settings": {}}]} for name in ("csa", "quest"))
    for request in (with_it, without):
        store.put(Undeclared("evaluate", request), Result({"rows": []}), {"tokens": 9}, 1.0)
    assert main(CALIBRATE) == 0
    assert store.find(Undeclared("evaluate", with_it)) is None
    assert store.find(Undeclared("evaluate", without)) is not None


def test_the_own_state_is_read_first_and_the_bundled_one_where_there_is_none(cache, state, tmp_path, capsys):
    assert main([*CALIBRATE, "--state", str(cache / "demo")]) == 0, "it is written to when it is named"
    try:
        bundled = json.loads((cache / "demo" / "csa" / "policy.json").read_text())
        context = Context(browser=False)
        model = context.model("demo")
        assert policy_for(context, model).integers["policy"] == bundled["policy"]
        assert not list(state.rglob("policy.json")), "the run is stored, and what was fitted lies in the named folder"
        assert main([*CALIBRATE, "--total", "60"]) == 0
        assert policy_for(Context(browser=False), model).budgets.sum() == 60 != sum(bundled["policy"][:-1])
        assert policy_for(Context(state=cache / "demo", browser=False), model).integers["policy"] == bundled["policy"]
        assert json.loads((cache / "demo" / "csa" / "policy.json").read_text()) == bundled
    finally:
        (cache / "demo" / "csa" / "policy.json").unlink()
