"""The stored examples: what every page shows before the model has loaded, computed from the bundled samples."""

import shutil
import tempfile
import time
from collections.abc import Callable

from analysis.corpus import sample_texts
from analysis.methods import METHODS
from analysis.models import CACHE
from analysis.runs import Result, RunStore
from analysis.studies.card import model_card
from analysis.studies.context import Context, protocol
from analysis.studies.evaluate import evaluate
from analysis.studies.groups import groups
from analysis.studies.pairs import pairs
from analysis.studies.start import start
from analysis.studies.text import inspect
from analysis.studies.worth import worth

FOLDER = CACHE / "demo" / "examples"
ROUTER = "k8-top1"
FILTERS = {"min_distance": 128, "top": 100, "layer": None, "group": None, "head": None, "content": True}
PAGES = {  # what a page asks for when nothing was chosen yet, beside model, text and long_text
    "inspect": (inspect, {}),
    "start": (start, {"router": ROUTER}),
    "groups": (groups, {"router": ROUTER}),
    "pairs": (pairs, {"router": ROUTER, **FILTERS}),
}
READING = {"window": 1024, "long_text": "first", "seed": 0}  # of the page that compares methods
WORTH = {  # the same of a page that reads no text, for each model that it shows first
    "config": None,
    "contexts": [1 << power for power in range(8, 21)],
    "batches": [1 << power for power in range(9)],
    "keep": 0.1,
    "projections": True,
}
AT_FIRST = 4  # methods on that page when nothing was chosen, dense among them
SHAPES = ("demo", "EleutherAI/pythia-410m")


def requests(text: str) -> dict[str, dict]:
    """verb -> arguments of the pages' first requests for a text hash."""
    common = {"model": "demo", "text": text, "long_text": "windows"}
    return {verb: common | more for verb, (_, more) in PAGES.items()}


def compared(text: str) -> list[dict]:
    """Arguments of the first requests of the page that compares methods: the first four, one by one."""
    routed = {name: {"router": ROUTER} if hasattr(made, "of") else {} for name, made in METHODS.items()}
    asked = [{"name": name, "settings": {}, **more} for name, more in list(routed.items())[:AT_FIRST]]
    return [{"model": "demo", "text": text, "methods": [one], **READING} for one in asked]


def examples(*, context: Context) -> Result:
    """Compute the examples anew and put them in the place of the old ones. numbers: `path`, `runs`, `bytes`."""
    lm = context.model("demo")
    with tempfile.TemporaryDirectory() as scratch:
        store = RunStore(scratch)
        runs = [_run(store, "model", {"model": "demo"}, model_card, context)]
        runs += [_run(store, "worth", {"model": shape, **WORTH}, worth, context) for shape in SHAPES]
        wanted = []
        for title, text in sample_texts().values():
            key = context.add_text(title, text)
            wanted += [(verb, PAGES[verb][0], arguments) for verb, arguments in requests(key).items()]
            wanted += [("evaluate", evaluate, arguments) for arguments in compared(key)]
        for at, (verb, study, arguments) in enumerate(wanted):
            context.progress(at / len(wanted), f"{verb} of {context.text(arguments['text'])[0]}")
            runs.append(_run(store, verb, arguments, study, context))
        shutil.rmtree(FOLDER, ignore_errors=True)
        for run in runs:
            store.export_example(run.id, FOLDER)
        store.close()
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    return Result({"path": str(FOLDER), "runs": len(runs), "bytes": size, "protocol": protocol("examples", lm)})


def _run(store: RunStore, verb: str, arguments: dict, study: Callable, context: Context):
    began = time.monotonic()
    result = study(**arguments, context=context)
    result.numbers["protocol"]["command"] = "python -m analysis examples"
    return store.put(verb, arguments, result, result.numbers["protocol"], time.monotonic() - began)
