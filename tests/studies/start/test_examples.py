"""The stored examples and the bundled router: they answer the first page, and computed again they are the same. A text
read with ever fewer keys, against other ways to compute it. What a reader's first text waits for once the worker is
warm."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from analysis.commands import request
from analysis.corpus import sample_texts, text_hash
from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.methods.oracle import OracleTopK
from analysis.metrics.quality import token_losses
from analysis.models import load_model
from analysis.runs import RunStore
from analysis.seam.attention import Block, apply
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.groups.routers import control_path
from analysis.studies.start.examples import ASKED, FOLDER, opened, requests, wanted
from analysis.studies.start.keep import EVERY, KeptFar
from app.selection.decide import CONTEXTS, KEEPS, SEQUENCES
from app.selection.look import TOUR_STEPS
from app.selection.sparsify import SOFTMAX
from app.tour.steps import STORY
from tests.made.asking import SHORT

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


def test_every_page_opens_with_an_example_and_may_choose_every_bundled_router(store, context):
    for verb, arguments in wanted(context):
        run = store.find(Undeclared(verb, arguments))
        assert run is not None and run.example, f"{verb} is not stored: python -m analysis examples"
        assert run.protocol["command"] == "python -m analysis examples" and run.protocol["date"]
    assert store.find(Undeclared("model", {"model": "demo"})).numbers["parity"]["same"]
    # Pages take their list of routers from the card: one that it does not name could not be chosen.
    bundled = {path.stem for path in ROUTER.parent.glob("*.safetensors") if not path.stem.startswith("random-")}
    listed = store.find(Undeclared("model", {"model": "demo"})).numbers["routers"]
    assert {router["name"] for router in listed} == bundled and len(bundled) > 3


def test_the_tour_and_the_pages_of_heads_open_with_what_they_name(store):
    """Its requests are those that the examples are made of, and its two places are a pair of the finder."""
    text = text_hash(list(sample_texts().values())[STORY.sample][1])
    steps = {step: STORY.request(step, text) for step in TOUR_STEPS}
    for step, request_wanted in steps.items():
        run = store.find(request_wanted)
        assert run is not None and run.example, f"{step} is not stored: python -m analysis examples"
    requests_opened = [request(verb, arguments) for verb, arguments in opened(text)]
    assert steps["head"] in requests_opened and steps["sharpen"] in requests_opened
    assert store.find(steps["head"]).array("row").argmax() == STORY.key
    statistics, *_ = opened(text_hash(sample_texts()["story"][1]))
    furthest = store.find(Undeclared(*statistics)).table("heads").sort_values("far_peaks").iloc[-1]
    _, head, *temperatures = [arguments for _, arguments in ASKED["opened"]]
    assert (head["layer"], head["head"]) == (furthest["layer"], furthest["head"])
    assert all(arguments["t"] == list(SOFTMAX) for arguments in temperatures)


@pytest.mark.parametrize("shape", ASKED["shapes"])
def test_the_page_without_a_text_has_the_numbers_of_today(shape, store, context):
    stored = store.find(Undeclared("worth", {"model": shape, **WORTH}))
    assert stored.numbers["rows"] == STUDIES["worth"](model=shape, **WORTH, context=context).numbers["rows"]
    assert (WORTH["contexts"], WORTH["batches"]) == (list(CONTEXTS), list(SEQUENCES)) and WORTH["keep"] in KEEPS


LONG = "keep"  # reads the whole text ten times; its numbers are held against other ways below


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


SHARES = [1.0, 0.3, 0.05]


def test_the_loss_is_that_of_the_best_keys_of_every_query(run, bundled):
    rows = run("keep", SHORT, shares=SHARES, min_distance=20).numbers["rows"]
    lm = bundled.model()
    assert [row["share"] for row in rows] == SHARES and rows[0]["change"] == 0
    ids = torch.as_tensor(lm.tokenizer(SHORT)["input_ids"])[None]
    for row in rows[1:]:
        with torch.no_grad(), apply(lm, OracleTopK(k=row["keys"])):
            loss = float(token_losses(lm, ids).mean())
        assert row["loss"] == pytest.approx(loss, abs=1e-4)
        assert row["change"] == pytest.approx(math.expm1(row["loss"] - rows[0]["loss"]), abs=1e-5)
    assert rows[2]["keys"] < rows[1]["keys"] < ids.shape[1] and rows[2]["loss"] > rows[0]["loss"]


def test_what_is_kept_falls_with_the_share_and_starts_whole(run):
    shares = run("keep", SHORT, shares=SHARES, min_distance=20).arrays["kept"]
    readable = ~np.isnan(shares[0])
    assert readable.sum() > 20 and (shares[0, readable] == 1).all()
    assert (np.diff(shares[:, readable], axis=0) <= 1e-6).all()
    assert not readable[0] and not readable[-20:].any(), "the first token is no key, and nothing is far from the last"


def test_kept_far_attention_is_the_mass_among_the_best_keys():
    draw, size, keys, far = torch.Generator().manual_seed(0), 37, [9, 2], 6
    scores = torch.randn(3, size, size, generator=draw) * 2
    table = torch.softmax(scores.masked_fill(torch.ones(size, size, dtype=torch.bool).triu(1), -torch.inf), -1)
    rows, columns = torch.arange(size), torch.arange(size)
    visible = (columns <= rows[:, None])[None, None]
    far_kept = KeptFar(size, keys, far)
    far_kept.window(0)(Block(0, table[None], visible, rows, columns, torch.zeros(1, dtype=torch.long)), table[None])
    shares = far_kept.shares()
    for key in range(1, size):
        readers = range(-(-(key + far) // EVERY) * EVERY, size, EVERY)
        mass = sum(float(table[:, query, key].sum()) for query in readers)
        for place, count in enumerate(keys, 1):
            best = [(head, query) for head in range(3) for query in readers]
            best = [reader for reader in best if table[reader].topk(count).values[-1] <= table[reader][key]]
            among = sum(float(table[reader][key]) for reader in best)
            assert shares[place, key] == pytest.approx(among / mass if mass else math.nan, nan_ok=True)


@pytest.mark.parametrize("shares", [[], [0.0], [1.5], [0.5] * 33])
def test_bad_shares_are_refused(shares, run):
    with pytest.raises(BadSetting, match="must be 1 to 32 numbers"):
        run("keep", SHORT, shares=shares)


FIRST = """
import json, sys
from analysis.commands.text import Inspect, Start
from analysis.corpus import sample_texts
from analysis.runs import RunStore
from analysis.studies import STUDIES, warm
from analysis.studies.context import Context
from analysis.kernels import far, rows
from analysis.kernels.jit import Compiled

store = RunStore(sys.argv[1])
context = Context(store=store)
warm(context, "demo")
kept = [dict(context.kept), context.model("demo") is context.model("demo"), (store.root / "readings").exists()]
dispatchers = [f.dispatcher for m in (far, rows) for f in list(vars(m).values()) if isinstance(f, Compiled)]
compiled = lambda: {f.py_func.__name__: len(f.signatures) for f in dispatchers}
modules, kernels = set(sys.modules), compiled()
text = store.put_bytes(" ".join(text for _, text in sample_texts().values()).encode(), "mine.txt")
inspected = Inspect(text=text).compute(STUDIES["inspect"], context=context)
look = Start(text=text, long_text="first").compute(STUDIES["start"], context=context)
print(json.dumps({
    "kept": kept,
    "imported": sorted(name for name in set(sys.modules) - modules if name.startswith(("analysis", "numba", "torch"))),
    "compiled": [name for name, count in compiled().items() if count != kernels[name]],
    "statistics": "scipy.stats" in sys.modules,
    "windows": [inspected.windows, int(look.tokens["window"].max()) + 1],
}))
"""


@pytest.mark.slow
def test_the_first_text_of_a_warm_worker_imports_and_compiles_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", FIRST, str(tmp_path)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kept"] == [{}, True, False], "what warms a worker is not kept"
    assert report["windows"][0] > 1 and report["windows"][1] == 1
    assert report["imported"] == [] and report["compiled"] == []
    assert not report["statistics"], "half a second of every start"
