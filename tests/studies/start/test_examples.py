"""The stored examples and the bundled router: they answer the first page, and computed again they are the same."""

import numpy as np
import pytest

from analysis.commands import request
from analysis.corpus import sample_texts, text_hash
from analysis.declaration.undeclared import Undeclared
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.runs import RunStore
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.groups.routers import control_path
from analysis.studies.start.examples import ASKED, FOLDER, opened, requests, wanted
from app.selection.decide import CONTEXTS, KEEPS, SEQUENCES
from app.selection.look import TOUR_STEPS
from app.selection.sparsify import SOFTMAX
from app.tour.steps import STORY

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


def test_every_page_opens_with_an_example(store, context):
    for verb, arguments in wanted(context):
        run = store.find(Undeclared(verb, arguments))
        assert run is not None and run.example, f"{verb} is not stored: python -m analysis examples"
        assert run.protocol["command"] == "python -m analysis examples" and run.protocol["date"]
    assert store.find(Undeclared("model", {"model": "demo"})).numbers["parity"]["same"]


def test_heads_and_temperature_open_with_the_head_that_reads_farthest(store):
    statistics, *_ = opened(text_hash(sample_texts()["story"][1]))
    furthest = store.find(Undeclared(*statistics)).table("heads").sort_values("far_peaks").iloc[-1]
    _, head, *temperatures = [arguments for _, arguments in ASKED["opened"]]
    assert (head["layer"], head["head"]) == (furthest["layer"], furthest["head"])
    assert all(arguments["t"] == list(SOFTMAX) for arguments in temperatures)


def test_every_step_of_the_tour_opens_at_once(store):
    """Its requests are those that the examples are made of, and its two places are a pair of the finder."""
    text = text_hash(list(sample_texts().values())[STORY.sample][1])
    steps = {step: STORY.request(step, text) for step in TOUR_STEPS}
    for step, request_wanted in steps.items():
        run = store.find(request_wanted)
        assert run is not None and run.example, f"{step} is not stored: python -m analysis examples"
    requests_opened = [request(verb, arguments) for verb, arguments in opened(text)]
    assert steps["head"] in requests_opened and steps["sharpen"] in requests_opened
    assert store.find(steps["head"]).array("row").argmax() == STORY.key


@pytest.mark.parametrize("shape", ASKED["shapes"])
def test_the_page_without_a_text_has_the_numbers_of_today(shape, store, context):
    stored = store.find(Undeclared("worth", {"model": shape, **WORTH}))
    assert stored.numbers["rows"] == STUDIES["worth"](model=shape, **WORTH, context=context).numbers["rows"]
    assert (WORTH["contexts"], WORTH["batches"]) == (list(CONTEXTS), list(SEQUENCES)) and WORTH["keep"] in KEEPS


LONG = "keep"  # reads the whole text ten times; its numbers are held against other ways in test_keep.py


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [pytest.param(page_verb, marks=[pytest.mark.slow] * (page_verb == LONG)) for page_verb in ASKED["pages"]]
)
def test_an_example_computed_again_is_the_same(verb, store, context):
    key = text_hash(sample_texts()["essay"][1])
    stored = store.find(Undeclared(verb, requests(key)[verb]))
    again = STUDIES[verb](**requests(key)[verb], context=context)
    for name, frame in again.tables.items():
        table = stored.table(name)
        assert list(table.columns) == list(frame.columns)
        for column in frame:
            if frame[column].dtype.kind == "f":
                assert np.allclose(table[column], frame[column], rtol=2e-3, atol=1e-4, equal_nan=True), (name, column)
            else:
                assert table[column].tolist() == frame[column].tolist(), (name, column)
    for name, value in again.numbers.items():
        if isinstance(value, float):
            assert value == pytest.approx(stored.numbers[name], rel=1e-3)


def test_the_stored_card_offers_every_bundled_router(store):
    """Pages take their list of routers from the card: one that it does not name could not be chosen."""
    bundled = {path.stem for path in ROUTER.parent.glob("*.safetensors") if not path.stem.startswith("random-")}
    listed = store.find(Undeclared("model", {"model": "demo"})).numbers["routers"]
    assert {router["name"] for router in listed} == bundled and len(bundled) > 3


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
