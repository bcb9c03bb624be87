"""Hostile input straight into everything that judges input: each answers, or refuses in a sentence."""

import contextlib
import random
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

from analysis.costs.config import read_config, read_shape
from analysis.errors import AnalysisError
from analysis.jobs.arguments import check_arguments
from analysis.jobs.wire import encode, messages
from analysis.places import HUB_ID, locate
from analysis.runs import Result, RunStore
from analysis.runs.bundle import write_bundle
from analysis.runs.corpora import corpus_folder
from analysis.runs.policies import policies
from analysis.runs.unbundle import read_bundle
from analysis.stress.hostile import PATHS, hostile_bytes, hostile_json, hostile_text, hostile_value
from analysis.stress.rows import Row
from analysis.stress.scene import Broken, hold, readable
from analysis.studies import STUDIES
from app import state
from app.budgets import edits
from app.quality import controls

SECRET = "the secret of this machine"
SLOW = 5.0  # seconds: an input that takes longer counts as one that broke something
VERBS = ("inspect", "groups", "pairs", "evaluate", "train-router", "budgets", "probe", "route")
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}
POLICY = {"layers": 2, "heads": 2, "policy": [4, 4, 4, 4, 64], "ranks": [[1, 1], [1, 1]]}


def tried(count: int, folder: Path, seed: int = 0) -> list[Row]:
    """`count` inputs, dealt to the judges in turn, with a store in `folder`; one row per judge, and one that says
    whether anything outside the store was touched or read."""
    outside = folder / "secret.txt"
    for name in ("models", "corpora"):
        (folder / name / "inside").mkdir(parents=True, exist_ok=True)
    outside.write_text(SECRET)
    store, dice = RunStore(folder / "state"), random.Random(seed)
    before, held, times, said = _outside(folder), Counter(), Counter(), {}
    for verb in VERBS:
        STUDIES[verb]  # imported here, so that no input is blamed for the seconds
    try:
        for number in range(count):
            name = list(JUDGES)[number % len(JUDGES)]
            times[name] += 1
            began = time.monotonic()
            try:
                found = JUDGES[name](dice, store)
                hold(SECRET not in str(found), "what stands outside was read")
            except AnalysisError as error:
                with contextlib.suppress(Broken):
                    readable(str(error))
                    held[name] += time.monotonic() - began < SLOW
                    continue
                said.setdefault(name, f"no sentence: {error}"[:120])
                continue
            except Exception as error:
                said.setdefault(name, f"{type(error).__name__}: {error}"[:120])
                continue
            held[name] += time.monotonic() - began < SLOW
    finally:
        store.close()
    rows = [Row(f"validator: {name}", times[name], held[name], said.get(name, "")) for name in times]
    touched = sorted(_outside(folder) ^ before)
    where = f"touched: {touched[0][0]}"[:80] if touched else ""
    return [*rows, Row("files outside the root after the validators", count, 0 if touched else count, where)]


def _outside(folder: Path) -> set[tuple[str, int]]:
    """Every file below `folder` but outside the store, with its size."""
    found = (path for path in folder.rglob("*") if (folder / "state") not in (path, *path.parents))
    return {(str(path.relative_to(folder)), path.stat().st_size) for path in found}


def _url(dice: random.Random, store: RunStore) -> object:
    session, names = {}, dice.sample(sorted(state.CONTROLS), 4)
    params = {name: hostile_text(dice) for name in [*names, *([hostile_text(dice)] if dice.random() < 0.2 else [])]}
    for sentence in state.read(session, params):
        hold(len(sentence) < 400, "the sentence repeats what was sent")
    back = state.read({}, state.address(session))
    hold(not back, f"what was taken is not taken again: {back}")
    return state.write(session, params)


def _upload(dice: random.Random, store: RunStore) -> object:
    key = store.put_bytes(hostile_bytes(dice), hostile_text(dice))
    return store.text(key)[1][:100]


def _ids(dice: random.Random, store: RunStore) -> object:
    word = hostile_text(dice)
    act = dice.choice((store.open, store.text, store.delete, store.pin, lambda w: store.find(w, {}), store.list))
    return act(word)


def _arguments(dice: random.Random, store: RunStore) -> object:
    verb = dice.choice(VERBS)
    args = {"model": "demo", "text": "0" * 12}
    args |= {dice.choice(("model", "text", "steps", "window", "methods", "policy", hostile_text(dice)[:20])): value
             for value in [hostile_value(dice) for _ in range(2)]}  # fmt: skip
    return check_arguments(verb, STUDIES[verb], args)


def _request(dice: random.Random, store: RunStore) -> object:
    return store.key(dice.choice(("groups", hostile_text(dice))), hostile_value(dice))


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
    found = corpus_folder(store, hostile_text(dice), root)
    hold({root.resolve(), store.root} & set(found.resolve().parents), f"{found} lies outside the root")
    return found


def _policy(dice: random.Random, store: RunStore) -> object:
    from analysis.methods import METHODS

    text, folder = hostile_json(dice, POLICY), store.root / "fitted" / "csa"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "forged.json").write_text(text, encoding="utf-8", errors="replace")
    policies([folder.parent])
    return METHODS["csa"].from_policy(text).to_policy()


def _config(dice: random.Random, store: RunStore) -> object:
    return read_shape(read_config(hostile_json(dice, CONFIG)))


def _words(dice: random.Random, store: RunStore) -> object:
    with contextlib.suppress(ValueError):  # what the page drops, with a sentence
        edits.parse(hostile_text(dice))
    return controls.parse(hostile_text(dice), ["focus", "csa"])


def _wire(dice: random.Random, store: RunStore) -> object:
    line = hostile_bytes(dice) if dice.random() < 0.5 else encode({"do": hostile_value(dice)})
    heard = list(messages(BytesIO(line + b"\n")))
    hold(all(isinstance(message, dict) for message in heard), "a line that is no object was heard")
    return heard


def _bundle(dice: random.Random, store: RunStore) -> object:
    """A real bundle with a byte changed or cut off, one with a file too many, or a file that is none."""
    if (run := store.find("groups", {"model": "demo"})) is None:
        run = store.put("groups", {"model": "demo"}, Result({"value": 1}), {}, 1.0)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "bundle.zip")
        if dice.random() < 0.3:
            path.write_bytes(hostile_bytes(dice))
        else:
            write_bundle(store, [run.id], path)
            if dice.random() < 0.5:
                with zipfile.ZipFile(path, "a") as file, warnings.catch_warnings(action="ignore"):
                    name = dice.choice((dice.choice(PATHS), f"runs/{run.id}/../../x", "runs/x/manifest.json"))
                    file.writestr(name.replace("\0", "") or "x", hostile_bytes(dice))
            else:
                data = bytearray(path.read_bytes())
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
                path.write_bytes(data[: dice.choice((len(data), dice.randrange(len(data))))])
        return read_bundle(store, path)


JUDGES: dict[str, Callable[[random.Random, RunStore], object]] = {
    "URL parameters": _url,
    "uploaded texts": _upload,
    "ids and verbs": _ids,
    "arguments of a study": _arguments,
    "requests": _request,
    "model names": _model,
    "corpus names": _corpus,
    "policies": _policy,
    "config.json": _config,
    "methods and edits in a link": _words,
    "lines to the worker": _wire,
    "run bundles": _bundle,
}
