"""What a command would run, what that costs and what of it is stored. Runs nothing."""

import contextlib
from dataclasses import replace
from pathlib import Path

from .. import places
from ..files import read_json
from ..runs import Price, RunStore
from ..runs.price import counted, predict, predicted
from ..runs.stored import study_files, study_folders
from ..studies import NAMED
from .asked import Asked
from .stored import request_of

QUICK = 120.0  # seconds that a quick check of a stored study takes at most, on a quiet machine
PASSES = 3  # forward passes that one step of training is worth


def plan(asked: Asked) -> dict:
    """`verb`, `arguments` (all of them, a text by its hash), `price` (`seconds low high bytes n said`), and `stored`:
    the id of the run or the file of the study that answers already, or None."""
    arguments = asked.resolved
    with contextlib.closing(RunStore()) as store:
        if asked.study is None:
            answer = store.find(asked.verb, request_of(asked))
            stored = answer.id if answer is not None else None
            price = predicted(store, asked.verb, arguments, counted(store, arguments)[0])
        else:
            path = _file(store, asked)
            protocol = (read_json(path) or {}).get("protocol", {}) if path else {}
            is_same = arguments.get("quick") or protocol.get("sizes", {}).items() <= arguments.items()
            stored = str(path) if path and is_same else None
            price = _of_study(store, asked, protocol)
            arguments = {"name": asked.study} | arguments
    estimate = {name: getattr(price, name) for name in ("seconds", "low", "high", "bytes", "n")}
    return {"verb": asked.verb, "arguments": arguments, "price": estimate | {"said": price.sentence}, "stored": stored}


def lines(planned: dict) -> str:
    """A plan for a reader."""
    lines_of_arguments = [f"{name}: {value}" for name, value in planned["arguments"].items()]
    stored = f"Stored already: {planned['stored']}." if planned["stored"] else "Nothing of it is stored."
    return "\n".join([*lines_of_arguments, f"{planned['price']['said']}.", stored])


def _file(store: RunStore, asked: Asked) -> Path | None:
    """The file of a stored study of this name, in the named state or else where pages look."""
    study, arguments = NAMED[asked.study], asked.resolved
    name = (study.file or study.name).format(**arguments)
    folders = [asked.state / "studies"] if asked.state else []
    if not folders and (revision := places.revision(arguments["model"], places.CACHE)):
        folders = study_folders(store, arguments["model"], revision)
    return next((path for path in study_files(folders) if path.stem == name), None)


def _of_study(store: RunStore, asked: Asked, protocol: dict) -> Price:
    """From what the stored one took, by its protocol, and the tokens that both read; else by the model's size."""
    if asked.resolved.get("quick"):
        return Price(QUICK, 0.0, QUICK, None, 0)
    tokens = _tokens(asked.resolved)
    if protocol.get("seconds"):
        return predict([(protocol["seconds"], _tokens(asked.usual | protocol.get("sizes", {})))], tokens)
    at_once = max(asked.resolved.get(name) or 1 for name in ("length", "tokens_per_step"))
    memory = predicted(store, "study", asked.resolved, at_once).bytes
    return replace(predicted(store, "study", asked.resolved, tokens), bytes=memory)


def _tokens(sizes: dict) -> int:
    """Tokens that a study reads and trains on, roughly."""
    read = sizes.get("length", 1024) * sizes.get("windows", 1)
    return read + PASSES * (sizes.get("steps") or 0) * (sizes.get("tokens_per_step") or 0)
