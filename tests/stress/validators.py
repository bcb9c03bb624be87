"""Hostile input straight into everything that judges input, in the analysis and in the app: each answers, or refuses in
a sentence."""

import contextlib
import random
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from analysis.commands import request
from analysis.costs.config import read_config, read_shape
from analysis.declaration.undeclared import Undeclared
from analysis.jobs.wire import encode, messages
from analysis.places import HUB_ID, locate
from analysis.runs import RunStore
from analysis.runs.brought import corpus_folder
from analysis.runs.bundle import read_bundle
from analysis.runs.keys import asked_now
from analysis.runs.stored import policies
from analysis.studies import STUDIES
from app.budgets import edits
from app.quality import asked
from app.selection import state
from tests.stress.hostile import (
    CONFIG,
    POLICY,
    hostile_bundle,
    hostile_bytes,
    hostile_json,
    hostile_text,
    hostile_value,
)
from tests.stress.rows import Row, judged
from tests.stress.scene import hold

VERBS = ("inspect", "groups", "pairs", "evaluate", "train-router", "budgets", "probe", "route")


def tried(count: int, folder: Path, seed: int = 0) -> list[Row]:
    """`count` inputs, dealt to the judges in turn, with the store `folder/state`; one row per judge."""
    for verb in VERBS:
        # Imported here, so that no input is blamed for the seconds.
        STUDIES[verb]
    return judged(JUDGES, count, seed, RunStore(folder / "state"))


def _upload(dice: random.Random, store: RunStore) -> object:
    key = store.put_bytes(hostile_bytes(dice), hostile_text(dice))
    return store.text(key)[1][:100]


def _ids(dice: random.Random, store: RunStore) -> object:
    word = hostile_text(dice)
    act = dice.choice(
        (store.open, store.text, store.delete, store.pin, lambda w: store.find(Undeclared(w)), store.list)
    )
    return act(word)


def _arguments(dice: random.Random, store: RunStore) -> object:
    verb = dice.choice(VERBS)
    args = {"model": "demo", "text": "0" * 12}
    args |= {
        dice.choice(("model", "text", "steps", "window", "methods", "policy", hostile_text(dice)[:20])): value
        for value in [hostile_value(dice) for _ in range(2)]
    }
    return request(verb, args)


def _request(dice: random.Random, store: RunStore) -> object:
    return asked_now(Undeclared(dice.choice(("groups", hostile_text(dice))), hostile_value(dice))).key


def _model(dice: random.Random, store: RunStore) -> object:
    root, name = store.root.parent / "models", hostile_text(dice)
    place = locate(name, root)
    if isinstance(place, Path):
        hold(name == "demo" or root.resolve() in place.resolve().parents, f"{place} lies outside the root")
    else:
        hold(HUB_ID.fullmatch(place) and ".." not in place, f"{place!r} is no Hub id")
    return place


def _corpus(dice: random.Random, store: RunStore) -> object:
    root = store.root.parent / "corpora"
    folder = corpus_folder(store, hostile_text(dice), root)
    hold({root.resolve(), store.root} & set(folder.resolve().parents), f"{folder} lies outside the root")
    return folder


def _policy(dice: random.Random, store: RunStore) -> object:
    from analysis.methods import METHODS

    text, folder = hostile_json(dice, POLICY), store.root / "fitted" / "csa"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "forged.json").write_text(text, encoding="utf-8", errors="replace")
    policies([folder.parent])
    return METHODS["csa"].build(text).to_policy()


def _config(dice: random.Random, store: RunStore) -> object:
    return read_shape(read_config(hostile_json(dice, CONFIG)))


def _wire(dice: random.Random, store: RunStore) -> object:
    line = hostile_bytes(dice) if dice.random() < 0.5 else encode({"do": hostile_value(dice)})
    heard = list(messages(BytesIO(line + b"\n")))
    hold(all(isinstance(message, dict) for message in heard), "a line that is no object was heard")
    return heard


def _bundle(dice: random.Random, store: RunStore) -> object:
    return read_bundle(store, BytesIO(hostile_bundle(dice)))


def _url(dice: random.Random, store: RunStore) -> object:
    session, names = {}, dice.sample(sorted(state.CONTROLS), 4)
    params = {name: hostile_text(dice) for name in [*names, *([hostile_text(dice)] if dice.random() < 0.2 else [])]}
    for sentence in state.read(session, params):
        hold(len(sentence) < 400, "the sentence repeats what was sent")
    back = state.read({}, state.address(session))
    hold(not back, f"what was taken is not taken again: {back}")
    return state.write(session, params)


def _words(dice: random.Random, store: RunStore) -> object:
    # What the page drops, with a sentence.
    with contextlib.suppress(ValueError):
        edits.parse(hostile_text(dice))
    return asked.parse(hostile_text(dice), ["focus", "csa"])


JUDGES: dict[str, Callable[[random.Random, RunStore], object]] = {
    "uploaded texts": _upload,
    "ids and verbs": _ids,
    "arguments of a study": _arguments,
    "requests": _request,
    "model names": _model,
    "corpus names": _corpus,
    "policies": _policy,
    "config.json": _config,
    "lines to the worker": _wire,
    "run bundles": _bundle,
    "URL parameters": _url,
    "methods and edits in a link": _words,
}
