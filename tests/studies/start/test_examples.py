"""The stored examples and the bundled router: they answer the first page, and computed again they are the same."""

import numpy as np
import pytest

from analysis.corpus import sample_texts, text_hash
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.runs import RunStore
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.groups.routers import control_path
from analysis.studies.start.examples import ASKED, FOLDER, compared, followed, opened, requests, routed
from analysis.studies.worth.worth import worth
from app.selection.decide import CONTEXTS, KEEPS, SEQUENCES
from app.selection.sparsify import SOFTMAX
from app.tour.story import STORY

WORTH = ASKED["worth"]
ROUTER = FOLDER.parent / "focus" / "k8-top1.safetensors"


@pytest.fixture(scope="module")
def context() -> Context:
    context = Context(browser=False)
    for title, text in sample_texts().values():
        context.add_text(title, text)
    return context


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path, examples=FOLDER)
    yield store
    store.close()


def test_every_page_of_every_sample_has_its_example(store):
    for _, text in sample_texts().values():
        pages = requests(key := text_hash(text))
        tokens = store.find("inspect", pages["inspect"]).numbers["tokens"]
        asked = [*pages.items(), *(("evaluate", args) for args in compared(key, tokens)), *followed(key, tokens)]
        for verb, arguments in asked:
            run = store.find(verb, arguments)
            assert run is not None and run.example, f"{verb} is not stored: python -m analysis examples"
            assert run.protocol["command"] == "python -m analysis examples" and run.protocol["date"]
    assert store.find("model", {"model": "demo"}).numbers["parity"]["same"]


def test_the_pages_on_heads_and_temperature_open_with_an_example(store):
    runs = [store.find(verb, arguments) for verb, arguments in opened(text_hash(sample_texts()["story"][1]))]
    assert all(run is not None and run.example for run in runs), "not stored: python -m analysis examples"
    furthest = runs[0].table("heads").sort_values("far_peaks").iloc[-1]
    asked = [arguments for _, arguments in ASKED["opened"]]
    assert (asked[1]["layer"], asked[1]["head"]) == (furthest["layer"], furthest["head"])
    assert asked[2]["t"] == asked[3]["t"] == list(SOFTMAX)


def test_every_step_of_the_tour_opens_at_once(store):
    """Its requests are those that the examples are made of, and its two places are a pair of the finder."""
    texts = [text_hash(text) for _, text in sample_texts().values()]
    steps = STORY.requests(texts[STORY.sample])
    for step, (verb, arguments) in steps.items():
        run = store.find(verb, arguments)
        assert run is not None and run.example, f"{step} is not stored: python -m analysis examples"
    made = opened(texts[STORY.sample])
    assert steps["head"] in made and steps["sharpen"] in made
    row = store.find(*steps["head"]).array("row")
    assert row.argmax() == STORY.key


def test_the_page_on_routing_opens_with_an_example(store, context):
    """The stored curves answer it, and the token in the head where GWR linear finds most."""
    for verb, arguments in routed(context, text_hash(sample_texts()["story"][1])):
        run = store.find(verb, arguments)
        assert run is not None and run.example, f"{verb} is not stored: python -m analysis examples"


@pytest.mark.parametrize("shape", ASKED["shapes"])
def test_the_page_without_a_text_has_its_example_too(shape, store, context):
    stored = store.find("worth", {"model": shape, **WORTH})
    assert stored is not None and stored.example, "worth is not stored: python -m analysis examples"
    assert stored.numbers["rows"] == worth(shape, **WORTH, context=context).numbers["rows"]
    assert (WORTH["contexts"], WORTH["batches"]) == (list(CONTEXTS), list(SEQUENCES)) and WORTH["keep"] in KEEPS


@pytest.mark.parametrize("verb", ASKED["pages"])
def test_an_example_computed_again_is_the_same(verb, store, context):
    key = text_hash(sample_texts()["essay"][1])
    stored = store.find(verb, requests(key)[verb])
    again = STUDIES[verb](**requests(key)[verb], context=context)
    for name, frame in again.tables.items():
        kept = stored.table(name)
        assert list(kept.columns) == list(frame.columns)
        for column in frame:
            if frame[column].dtype.kind == "f":
                assert np.allclose(kept[column], frame[column], rtol=2e-3, atol=1e-4, equal_nan=True), (name, column)
            else:
                assert kept[column].tolist() == frame[column].tolist(), (name, column)
    for name, value in again.numbers.items():
        if isinstance(value, float):
            assert value == pytest.approx(stored.numbers[name], rel=1e-3)


def test_the_stored_card_offers_every_bundled_router(store):
    """Pages take their list of routers from the card: one that it does not name could not be chosen."""
    bundled = {path.stem for path in ROUTER.parent.glob("*.safetensors") if not path.stem.startswith("random-")}
    listed = store.find("model", {"model": "demo"}).numbers["routers"]
    assert {one["name"] for one in listed} == bundled and len(bundled) > 3


def test_the_bundled_router_belongs_to_the_bundled_model():
    model = load_model("demo")
    for path in (ROUTER, control_path(ROUTER)):
        router = FocusRouter.load(path, model.num_layers, model.width)
        assert router.about["revision"] == model.revision
    router = FocusRouter.load(ROUTER)
    assert router.trained and router.about["protocol"]["command"].startswith("python -m analysis train-router")
    assert max(router.about["dominance"]) <= 0.25
    assert router.about["gain_over_random"]["low"] > 0, "the log says that it beats random centroids"


@pytest.mark.slow
def test_the_numbers_of_fitting_without_training_come_again(tmp_path):
    result = STUDIES["fit-router"](measure=True, context=Context(state=tmp_path, browser=False)).numbers
    log = (FOLDER.parents[2] / "docs" / "log.md").read_text(encoding="utf-8")
    for arm in ("dense", "fitted", "random"):
        assert f"{result[f'perplexity_{arm}']:.2f}" in log, arm
