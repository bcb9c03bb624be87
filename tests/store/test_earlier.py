"""What version 0.1 left behind opens with the same numbers: addresses, a run store, a bundle, a zip that was taken
along, fitted state and a user's own methods. It lies in tests/earlier as that version wrote it, and is not made again.
"""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import analysis
import focuscope
from analysis.declaration.undeclared import Undeclared
from analysis.runs import RunStore
from analysis.runs.keys import asked_now
from app.selection.menu import PAGES, page_at
from tests.earlier.own_methods import EverySecond, Longest
from tests.made import results
from tests.made.in_process import at_address
from tests.take import outside

EARLIER = Path(__file__).resolve().parents[1] / "earlier"
DEMO = Path(analysis.__file__).resolve().parents[1] / "models_cache" / "demo"
THEN = json.loads((EARLIER / "numbers.json").read_text(encoding="utf-8"))
TEXT = EARLIER / "lighthouse.txt"


@pytest.fixture
def store(tmp_path):
    """The run store of that version, copied."""
    shutil.copytree(EARLIER / "state", tmp_path / "state")
    store = RunStore(tmp_path / "state")
    yield store


@pytest.fixture(scope="module")
def demo():
    return analysis.load_model("demo")


def numbers_of_runs(store: RunStore) -> dict[str, dict]:
    """id -> verb, request and numbers of every run that is no bundled example, and its tables by column."""
    runs = [store.open(row.id) for row in store.search(examples=False)]
    return {
        run.id: {
            "verb": run.verb,
            "request": run.request,
            "numbers": run.numbers,
            "tables": {name: {key: len(values) for key, values in run.columns(name).items()} for name in run.tables},
        }
        for run in runs
    }


def test_the_run_store_opens_with_its_numbers(store):
    assert numbers_of_runs(store) == THEN["runs"]
    for run_id, run in THEN["runs"].items():
        answer = store.find(Undeclared(run["verb"], run["request"]))
        assert answer is not None and answer.id == run_id, "the same question still has this answer"


def test_the_bundle_opens_with_its_numbers(tmp_path):
    store = RunStore(tmp_path / "empty")
    store.unbundle(EARLIER / "runs.focuscope")
    assert numbers_of_runs(store) == THEN["runs"]


# Commands that a page asks otherwise since: `start` (3) lists more links, `worth` (2) needs a GPU, budgets are moved by
# a slider, methods stand at shares of their reads, and the comparison at full length is folded away.
RENEWED = {"start", "pairs", "worth", "budgets", "take"}
RENEWED_ON = {"text": {"model"}, "methods": {"evaluate", "continuation"}}


@pytest.mark.parametrize("address", THEN["addresses"])
def test_an_address_keeps_its_controls_and_asks_for_the_same_runs(client, monkeypatch, address):
    # As far as pages were answered when the addresses were written down: what they draw from more answers settles more
    # controls.
    monkeypatch.setattr(results, "answers", lambda: results.STUDIES)
    now, then = opened(address, client.store, monkeypatch), THEN["addresses"][address]
    page, _, query = address.partition("?")
    named_controls = {word.partition("=")[0] for word in query.split("&") if word}
    named = {name for control in named_controls for name in (("layer", "head") if control == "head" else (control,))}
    assert {name: now["link"].get(name) for name in named} == {name: then["link"].get(name) for name in named}
    # The tab of its door; the first one of a door is open without a word.
    name = page_at(page).name
    assert now["link"].get("at", PAGES[name].door.pages[0].name) == name
    # A page may ask for other things than it did: what it asks of a command is the run that it was.
    verbs = {verb for verb, _ in now["requests"]}
    unchanged = {(verb, key) for verb, key in then["requests"] if verb in verbs - RENEWED - RENEWED_ON.get(name, set())}
    assert unchanged <= set(map(tuple, now["requests"]))


def opened(address: str, store: RunStore, monkeypatch) -> dict:
    """The address that the page gives itself, and the run of each request that it makes, by verb and id."""
    requests, find = set(), store.find

    def watched(request):
        request_now = asked_now(request)
        requests.update([(request_now.verb, request_now.keys[-1])] if request_now.verb != "take" else [])
        return find(request)

    monkeypatch.setattr(store, "find", watched)
    page, _, query = address.partition("?")
    controls = dict(word.split("=", 1) for word in query.split("&") if word)
    app = at_address(page, **controls).run()
    assert not app.exception, app.exception[0].message
    link = {name: values[0] if isinstance(values, list) else values for name, values in app.query_params.items()}
    return {"link": link, "requests": sorted(map(list, requests))}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_own_methods_compute_the_same(demo):
    now, then = own_methods(demo), THEN["own_methods"]
    # The last of four printed digits differs between processors.
    assert now["tokens"] == then["tokens"] and now["perplexity"] == pytest.approx(then["perplexity"], abs=2e-4)


def own_methods(model) -> dict:
    """Perplexity with a method that reads through `keep`; tokens with one that shrinks the cache by `worth`."""
    ids = torch.tensor(model.tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"])
    with analysis.apply(model, EverySecond(near=6)):
        perplexity = analysis.perplexity(model, ids, 128).perplexity
    with analysis.apply(model, Longest(ratio=0.75)), torch.no_grad():
        tokens = model.lm.generate(ids[None, :160], max_new_tokens=12, do_sample=False)
    return {"perplexity": round(float(perplexity), 4), "tokens": tokens[0, 160:].tolist()}


@pytest.mark.parametrize("method", ["magicpig", "routing_transformer", "csa"])
def test_fitted_state_is_read(method, state):
    assert fitted(method) == pytest.approx(THEN["fitted"][method], rel=1e-4)


def fitted(method: str) -> float:
    """Perplexity with the state that this version fitted."""
    policy = " --policy earlier" if method == "csa" else ""
    words = f"evaluate {TEXT} --methods {method} --window 128 --state {EARLIER / 'fitted'}{policy}"
    return float(focuscope.run(words).tables["rows"]["perplexity"].iloc[-1])


@pytest.mark.slow  # a process of its own, as those of tests/take
def test_the_zip_runs_without_the_program(tmp_path):
    assert taken(tmp_path) == THEN["taken"]


def taken(folder: Path) -> dict:
    """Greedy tokens, and the keys that each layer holds, of the file that was taken along, in a process of its own."""
    with zipfile.ZipFile(EARLIER / "taken.zip") as archive:
        archive.extractall(folder / "taken")
    ids = analysis.load_model("demo").tokenizer(TEXT.read_text(encoding="utf-8"))["input_ids"][:160]
    job = {"model": str(DEMO), "folder": str(folder / "taken"), "ids": [ids], "mask": [[1] * len(ids)], "cut": 128}
    (folder / "jobs.json").write_text(json.dumps([job | {"new": 8, "out": str(folder / "out.safetensors")}]))
    subprocess.run([sys.executable, "-I", outside.__file__, str(folder / "jobs.json")], check=True)
    answer = load_file(folder / "out.safetensors")
    return {"tokens": answer["written"][0, 128:].tolist(), "keys": answer["held"].tolist()}
