"""What the pages cost on a model: each page's verb once, in the order of the pages, beside a plain forward pass."""

import copy
import tempfile
from pathlib import Path

import pandas as pd

from ...answer import Answer, doc, record
from ...commands import request as requested
from ...corpus import sample_texts
from ...declaration.command import Command
from ...errors import AnalysisError, BadSetting
from ...kernels.parts import now
from ...models import Model
from ...runs import Result, Run, RunStore
from ...runs.price import predicted, spell, spell_bytes
from ...statistics import forward
from ...timing import clock, processor
from ...timing.memory import peak_bytes
from ..context import Context, protocol, read
from .benched import Benchmark

# Plain passes that are timed, after one that warms up.
PLAIN = 2
ROUTER = "k8-top1"
# Fewest that a bucket router is fitted and tested on.
DOCUMENTS = 6
COLUMNS = "page verb tokens seconds times target met peak_bytes predicted_seconds predicted_bytes memory_ratio".split()
# Page, verb, its arguments, at most so many times a plain pass.
PageRequest = tuple[str, str, dict, float | None]


def pages(key: str, documents: list[str], tokens: int, most: int) -> list[PageRequest]:
    """The verbs of the pages for a text of `tokens` tokens, in an order in which each finds what it needs: the first
    fits the router. `documents`: as many other texts; `most` tokens are read at once. No target: none was set."""
    text, some = {"text": key}, min(tokens, most)
    few = [{"name": "streaming_llm"}, {"name": "focus", "router": ROUTER}]
    probed = {"probes": ["uuid_needle"], "lengths": [some // 2], "depths": [0.5], "items": 2}
    routed = {"texts": documents, "prompts": DOCUMENTS // 2, "mlp": False, "store": True, "min_distance": some // 16}
    prompt = {"texts": [key], "methods": [{"name": "snapkv"}], "cuts": 1}
    prompt |= {"prefix": some - some // 8, "continuation": some // 8}
    return [
        ("Token groups, fitting", "fit-router", {}, 8.0),
        ("Start", "start", {**text, "router": ROUTER}, 3.0),
        ("Attention heads", "statistics", text, 1.8),
        ("Attention heads, one of them", "head", {**text, "layer": 0, "head": 0}, 0.3),
        ("Token groups", "groups", {**text, "router": ROUTER, "shuffled": False}, 0.3),
        ("Long-range pairs", "pairs", {**text, "router": ROUTER, "shuffled": False}, 0.3),
        ("Long-range pairs, with the shuffled text", "pairs", {**text, "router": ROUTER}, None),
        ("Softmax temperature", "temperature", {**text, "t": [0.5, 1.0]}, 0.3),
        ("KV budgets, calibrating", "calibrate", {"texts": [key], "caps": []}, None),
        ("KV budgets", "budgets", {}, 0.3),
        ("KV budgets, where it breaks", "reads-text", {"text": documents[0], "shares": [0.5, 0.1]}, None),
        ("Routing, fitting", "route", routed, None),
        ("Routing, one query", "route-visit", {**text, "layer": 0, "head": 0, "min_distance": some // 16}, None),
        ("Quality vs speed", "evaluate", {**text, "methods": few}, None),
        ("Generate, a compressed prompt", "continuation", prompt, None),
        ("Speed", "launch", {**text, "router": ROUTER, "new_tokens": 8, "repeats": 2}, None),
        ("Long-context tests", "probe", {**text, **probed}, None),
    ]


@record
class PageCosts(Benchmark):
    """What each page's verb took, by a plain pass of the same text, and what had been predicted."""

    plain: list[dict] = doc("tokens and seconds of the plain passes, without the vocabulary's logits")
    parameters: int = doc("weights of the model")
    notes: list[str] = doc("what to bear in mind")
    pages: pd.DataFrame = doc("the rows; a page whose verb did not run says why in `refused` and has no numbers")


def bench_model(model: str, text: str, lengths: list[int] | None, context: Context) -> PageCosts:
    """Run the verb of each page once on a text, as after the first visit of the page before it, in a state of its own.

    `lengths`: the text repeated and cut to so many tokens (default: the text as it is). Peaks of memory are beside the
    weights, null where the system does not say. Errors: BadSetting for a length below 8 tokens.
    """
    lm = context.model(model)
    name, story = context.text(text) if text else sample_texts()["story"]
    if lengths and min(lengths) < 8:
        raise BadSetting(f"The shortest length is {min(lengths)} tokens and must be 8 or more.")
    rows, plain = [], []
    for length in sorted(set(lengths)) if lengths else [None]:
        with tempfile.TemporaryDirectory() as folder:
            own_context = copy.copy(context)
            own_context.store, own_context.state, own_context.kept = RunStore(Path(folder)), None, {}
            key = own_context.add_text(name, story if length is None else _cut(lm, story, length))
            tokens, seconds = _plain(own_context, lm, key)
            plain.append({"tokens": tokens, "seconds": seconds})
            rows += _rows(own_context, lm, model, key, tokens, seconds)
    about = protocol("bench", lm, text or None, what="model", processor=processor(str(lm.device)))
    return PageCosts(
        rows=rows,
        plain=plain,
        parameters=lm.parameters,
        sentence=costs(rows, plain),
        notes=[lm.caution] if lm.caution else [],
        pages=pd.DataFrame(rows),
        protocol=about,
    )


def _cut(lm: Model, story: str, length: int) -> str:
    """The story, repeated, as a text of `length` tokens."""
    once = lm.tokenizer(story, add_special_tokens=False)["input_ids"]
    repeated = story * -(-length // len(once))
    offsets = lm.tokenizer(repeated, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return repeated[: offsets[min(length, len(offsets)) - 1][1]]


def _plain(context: Context, lm: Model, key: str) -> tuple[int, float]:
    """(tokens, seconds) of a plain pass over a text."""
    windows = read(context, lm, key).windows

    def passed() -> None:
        for ids in windows:
            forward(lm, ids)

    taken = clock({"a plain pass": passed}, PLAIN, lambda done, stage: context.progress(0.0, stage))
    return sum(map(len, windows)), taken["a plain pass"].median


def _rows(context: Context, lm: Model, model: str, key: str, tokens: int, plain: float) -> list[dict]:
    """One row a page: what it took, and what was predicted from the pages before."""
    # what every page asks for, to say a price
    card = _timed(context, lm, requested("model", {"model": model}))[0]
    name, text = context.text(key)
    turns = [len(text) * turn // (DOCUMENTS + 1) for turn in range(1, DOCUMENTS + 1)]
    documents = [context.add_text(f"{name}, turned", text[turn:] + text[:turn]) for turn in turns]
    rows, page_requests = [], pages(key, documents, tokens, lm.max_positions)
    for place, (page, verb, own_arguments, target) in enumerate(page_requests):
        context.progress(place / len(page_requests), f"{page}, {tokens:,} tokens")
        inner = copy.copy(context)
        inner.progress = lambda done, stage: None
        request = requested(verb, {"model": model} | own_arguments)
        price = predicted(context.store, request, tokens, card)
        row = dict.fromkeys(COLUMNS) | {"page": page, "verb": verb, "tokens": tokens, "target": target, "refused": ""}
        row |= {"predicted_seconds": price.seconds, "predicted_bytes": price.bytes}
        rows.append(row)
        try:
            run, peak = _timed(inner, lm, request)
        except AnalysisError as error:
            row["refused"] = str(error)
            continue
        times = run.seconds / plain
        row |= {"seconds": run.seconds, "times": times, "met": None if target is None else times <= target}
        row |= {"peak_bytes": peak, "memory_ratio": price.bytes / peak if price.bytes and peak else None}
    return rows


def _timed(context: Context, lm: Model, request: Command) -> tuple[Run, int | None]:
    """(its stored run, which says the seconds, and its peak in bytes) of a request, run as a page would."""
    results: list[tuple[Result | Answer, float]] = []

    def run() -> None:
        began = now()
        result = request.compute(context=context)
        results.append((result, now() - began))

    peak = peak_bytes(run, lm.device)
    # the system does not say how much memory a call takes
    if not results:
        run()
    result, seconds = results[0]
    assert context.store is not None
    return context.store.put(request, result, result.numbers["protocol"], seconds), peak


def costs(rows: list[dict], plain: list[dict]) -> str:
    """What the pages took beside their targets, and their memory beside what was predicted."""
    aimed = [row for row in rows if row["met"] is not None]
    worst = max(aimed, key=lambda row: row["times"] / row["target"])
    peak = max((row["peak_bytes"] or 0 for row in rows), default=0)
    sentence = (
        f"{sum(row['met'] for row in aimed)} of {len(aimed)} within their target; the farthest from it is "
        f"{worst['page']} with {worst['times']:.2f} times a plain pass of {worst['tokens']:,} tokens (target "
        f"{worst['target']:g}). A plain pass takes {spell(plain[-1]['seconds'])} for {plain[-1]['tokens']:,} tokens; "
        f"the largest peak is {spell_bytes(peak)} beside the weights."
    )
    predicted = [row for row in rows if row["memory_ratio"]]
    over = [row for row in predicted if row["memory_ratio"] < 1]
    if over:
        most = min(over, key=lambda row: row["memory_ratio"])
        sentence += f" {len(over)} of {len(predicted)} took more memory than predicted, at most "
        sentence += f"{1 / most['memory_ratio']:.1f} times as much ({most['page']})."
    elif predicted:
        sentence += f" None of {len(predicted)} took more memory than predicted."
    return sentence
