"""The stored examples: what every page shows before the model has loaded, computed from the bundled samples."""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from ...answer import Answer, doc, record
from ...commands import COMMANDS
from ...commands.routing import RouteAt
from ...corpus import sample_texts
from ...files import remove
from ...models import CACHE
from ...probes.tasks import TASKS
from ...runs import RunStore
from ..budgets.cap_rows import CAPS, TOKENS, TOLERANCE, TOLERANCE_BIN
from ..budgets.policies import DEFAULT
from ..budgets.reads_text import SHARES
from ..context import Context, protocol
from ..routing.live import route_at
from ..routing.states import stored_curves

# Those that every store is given.
FOLDER = CACHE / "demo" / "examples"
RUNS = "[0-9a-f]" * 12
ROUTER = "k8-top1"
# What pages ask for when nothing was chosen yet: `pages` beside model, text and long_text; where methods are compared,
# those of `cut` by what they save, at `shares`, with `reading`, or of methods that save memory or prefill `followed`
# beside them; `worth` of a page that reads no text, for each
# of `shapes`; `opened` on heads, with the one of the most far reading in the story, and on the softmax temperature;
# `tour` of the tour through the story; `needle` and `every` task of the long-context tests; `generate`, an answer, and
# a `film` of one.
ASKED = json.loads(Path(__file__).with_name("requests.json").read_text(encoding="utf-8"))
# Verb and arguments.
Request = tuple[str, dict]


def requests(text: str) -> dict[str, dict]:
    """verb -> arguments of the pages' first requests for a text hash."""
    common = {"model": "demo", "text": text, "long_text": "windows"}
    return {verb: common | extra for verb, extra in ASKED["pages"].items()}


def cut(text: str) -> list[Request]:
    """The first requests of the page that compares methods, about the text that it opens with: the methods of each kind
    with which it opens, one by one at every share."""
    listed: list[Request] = []
    for saves, names in ASKED["cut"].items():
        verb, about = ("evaluate", {"text": text}) if saves == "reads" else ("continuation", {"texts": [text]})
        about |= {"model": "demo"} | ASKED["reading" if saves == "reads" else "followed"]
        specs = [[{"name": name, "settings": {}}] for name in names]
        listed += [(verb, about | {"methods": spec, "share": share}) for spec in specs for share in ASKED["shares"]]
    return listed


def opened(text: str) -> list[Request]:
    """The first requests of the pages on heads and on the softmax temperature, which open on the first sample, and of
    the tour through it."""
    common = {"model": "demo", "text": text, "long_text": "windows"}
    return [(verb, common | extra) for verb, extra in ASKED["opened"] + ASKED["tour"]]


def budgeted(text: str) -> list[Request]:
    """The first requests of the page on key budgets; its policy must not have seen the text."""
    common, policy = {"model": "demo", "window": None}, {"policy": {"name": DEFAULT}}
    swept = {"tolerance": TOLERANCE, "tolerance_bin": TOLERANCE_BIN, "caps": list(CAPS), "tokens": TOKENS, "seed": 0}
    read = {"policy": DEFAULT, "shares": list(SHARES), "seed": 0, "long_text": "windows", "text": text}
    return [
        ("budgets", common | policy),
        ("reads-text", common | read),
        ("cap-sweep", common | swept | policy | {"texts": [text]}),
    ]


def routed(context: Context, text: str) -> list[Request]:
    """The first requests of the page on routing: the stored curves, and the last token of the text's first window in
    the head where GWR linear finds most."""
    calibrated = stored_curves(context, context.model("demo")).about["date"]
    curves: dict[str, Any] = {"model": "demo", "visited": None, "min_distance": None, "sinks": None}
    curves |= {"partition": "raw keys", "text": "", "made": calibrated}
    numbers = route_at(RouteAt(**curves), context=context).numbers
    best = max(numbers["heads"], key=lambda row: row["gwr_linear"])
    visit = {"layer": best["layer"], "head": best["head"]}
    visit |= {"min_distance": numbers["min_distance"], "sinks": numbers["sinks"]}
    visit |= {"model": "demo", "text": text, "router": "gwr_linear", "position": None, "made": calibrated}
    return [("route-at", curves), ("route-visit", visit)]


def probed(text: str) -> list[Request]:
    """The first requests of the page on long-context tests: one map, and every task."""
    common = {"model": "demo", "text": text}
    return [("probe", common | ASKED["needle"]), ("probe", common | ASKED["every"] | {"probes": list(TASKS)})]


def generated(text: str) -> list[Request]:
    """The first request of the page Generate, and that of a film in which one key decides."""
    return [("generate", {"model": "demo", "text": text} | ASKED[name]) for name in ("generate", "film")]


def wanted(context: Context) -> list[Request]:
    """All requests whose answers are stored; the samples are kept in the context."""
    # Hashes of the samples.
    keys: dict[str, str] = {}
    listed: list[Request] = [("model", {"model": "demo"}), ("names", {"model": "demo"})]
    listed += [("worth", {"model": shape, **ASKED["worth"]}) for shape in ASKED["shapes"]]
    for name, (title, text) in sample_texts().items():
        key = keys[name] = context.add_text(title, text)
        listed += requests(key).items()
    first, register = next(iter(keys.values())), keys["register"]
    listed += [*budgeted(first), *opened(first), *cut(register), *probed(register), *generated(register)]
    return listed + routed(context, first)


@record
class Examples(Answer):
    """Stored examples that were computed."""

    path: str = doc("their folder")
    runs: int = doc("how many there are")
    bytes: int = doc("their size")


def examples(*, context: Context) -> Examples:
    """Compute the examples anew and put them in the place of the old ones, in `examples` of the fitted state: those
    that come with the program are made with `--state models_cache/demo`."""
    lm, listed = context.model("demo"), wanted(context)
    folder = context.state_dirs(lm)[0] / FOLDER.name
    with tempfile.TemporaryDirectory() as scratch:
        store, runs = RunStore(scratch), []
        for index, (verb, arguments) in enumerate(listed):
            context.progress(index / len(listed), f"{verb}, {index + 1} of {len(listed)}")
            began = time.monotonic()
            request = COMMANDS[verb](**arguments)
            result = request.compute(context=context)
            result.numbers["protocol"]["command"] = "python -m analysis examples"
            runs.append(store.put(request, result, result.numbers["protocol"], time.monotonic() - began))
        for old in folder.glob(RUNS):
            remove(old)
        for run in runs:
            store.export_example(run.id, folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Examples(path=str(folder), runs=len(runs), bytes=size, protocol=protocol("examples", lm))
