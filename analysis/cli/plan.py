"""What a command would run, what that costs and what of it is stored. Runs nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import places
from ..costs.config import read_config, read_shape
from ..errors import BadSetting
from ..files import read_json
from ..runs import Price, RunStore
from ..runs.price import counted, predict, predicted
from ..runs.stored import study_files, study_folders
from ..studies import NAMED
from .asked import Asked

# Seconds that a quick check of a stored study takes at most, on a quiet machine.
QUICK = 120.0
# Forward passes that one step of training is worth.
PASSES = 3


def plan(asked: Asked) -> dict[str, Any]:
    """`verb`, `arguments` (all of them, a text by its hash), `price` (`seconds low high bytes n said`), and `stored`:
    the id of the run or the file of the study that answers already, or None. Errors: BadSetting for a chosen length
    that a model on this machine does not read, BadModel."""
    request, arguments, store = asked.request, asked.resolved, RunStore()
    if asked.study is None:
        length, model = request.changed.get("length"), request.arguments.get("model")
        if length is not None and model is not None and places.revision(model) is not None:
            config = read_config(places.config_file(model).read_text(encoding="utf-8"), model)
            positions = read_shape(config).max_positions
            if positions and length > positions:
                raise BadSetting(
                    f"{length:,} tokens at once are more than the {positions:,} that {model} reads: choose at most so "
                    "many."
                )
        answer = store.find(asked.stored_under)
        stored = answer.id if answer is not None else None
        price = predicted(store, request, counted(store, arguments)[0])
    else:
        path = _file(store, asked, asked.study)
        protocol = (read_json(path) or {}).get("protocol", {}) if path else {}
        is_same = arguments.get("quick") or protocol.get("sizes", {}).items() <= arguments.items()
        stored = str(path) if path and is_same else None
        tokens, usual = _tokens(arguments), _tokens(asked.usual | protocol.get("sizes", {}))
        if arguments.get("quick"):
            price = Price(QUICK, 0.0, QUICK, None, 0)
        elif protocol.get("seconds") and _accelerated(protocol["device"]) == _accelerated(asked.device):
            # From what the stored one took, wherever that was, and the tokens that both read; else by the model's size.
            a_token = protocol["seconds"] / max(usual, 1)
            price = predict([], max(tokens, 1), guess=lambda work: a_token * work)
        else:
            at_once = max(arguments.get(name) or 1 for name in ("length", "tokens_per_step"))
            price = replace(predicted(store, request, tokens), bytes=predicted(store, request, at_once).bytes)
    estimate = {name: getattr(price, name) for name in ("seconds", "low", "high", "bytes", "n")}
    return {
        "verb": request.verb,
        "arguments": arguments,
        "price": estimate | {"said": price.sentence},
        "stored": stored,
    }


def lines(planned: dict[str, Any]) -> str:
    """A plan for a reader."""
    arguments = [f"{name}: {value}" for name, value in planned["arguments"].items()]
    stored = f"Stored already: {planned['stored']}." if planned["stored"] else "Nothing of it is stored."
    return "\n".join([*arguments, f"{planned['price']['said']}.", stored])


def _file(store: RunStore, asked: Asked, study: str) -> Path | None:
    """The file of a stored study of this name, in the named state or else where pages look."""
    measured, arguments = NAMED[study], asked.resolved
    name = (getattr(measured, "file", "") or study).format(**arguments)
    folders = [asked.state / "studies"] if asked.state else []
    if not folders and (revision := places.revision(arguments["model"], places.CACHE)):
        folders = study_folders(store, arguments["model"], revision)
    return next((path for path in study_files(folders) if path.stem == name), None)


def _tokens(sizes: dict[str, Any]) -> int:
    """Tokens that a study reads and trains on, roughly."""
    read = sizes.get("length", 1024) * sizes.get("windows", 1)
    trained = (sizes.get("steps") or 0) * (sizes.get("tokens_per_step") or 0)
    seeds = sizes.get("seeds") or 1
    # About one of four arms is trained from every seed, the others less often: of four rates one is chosen.
    trainings = (seeds + 3 * min(sizes.get("others", seeds), seeds)) / 4
    return read + round(PASSES * trained * trainings)


def _accelerated(device: str) -> bool:
    """Whether a device is an accelerator; one that is chosen by itself counts as the processor."""
    return device.startswith("cuda")
