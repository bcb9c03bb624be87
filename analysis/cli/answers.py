"""JSON Schemas of what verbs answer with `--json`: from the type of the answer, or read off answers that are kept.

These are kept in three places: the examples and the stored studies of the bundled model, and for the verbs that have
neither `answers.json`, schemas of answers about a tiny model, which `python -m tests.made.answers` makes.
"""

import re
from collections.abc import Iterator
from functools import cache
from inspect import getdoc
from pathlib import Path

from ..answer import returned, schema as schema_of_class
from ..commands import COMMANDS
from ..errors import BadSetting
from ..files import read_json
from ..places import CACHE
from ..runs import Result
from ..runs.folder import read_run
from ..runs.run import without_model
from ..studies import NAMED
from ..studies.registry import STORED, of_file
from .shown import NOT_PRINTED, SHAPES, answer

FORMAT = "https://json-schema.org/draft/2020-12/schema"
KEPT = Path(__file__).with_suffix(".json")
WORD = re.compile(r"[A-Za-z_]\w*")
NAMES = {str: "string", bool: "boolean", int: "number", float: "number"}
UNKNOWN = "Not known: no answer of this kind is kept."


def schema(of: str, name: str = "") -> Result:
    """The JSON Schema of the answer of verb `of`, of the study `name` where it is `study`. numbers: `schema`.
    Errors: BadSetting for a word that is no verb."""
    if of not in COMMANDS:
        raise BadSetting(f"{of[:40]!r} is no verb; there are: {', '.join(COMMANDS)}.")
    if name and (of != "study" or name not in STORED):
        raise BadSetting(f"{name[:40]!r} is no study; `study` knows: {', '.join(STORED)}.")
    return without_model("schema", {"schema": schema_of(of, name)})


def schema_of(verb: str, name: str = "") -> dict:
    """The schema, draft 2020-12. More names may stand beside those it knows; a number, a word or a yes or no may be
    null where there is none."""
    declared = STORED[name] if name else COMMANDS[verb]
    function = NAMED[name] if name else declared.function()
    typed = returned(function)
    if typed and verb not in SHAPES:
        document = schema_of_class(typed)
        document["properties"] = {key: value for key, value in document["properties"].items() if key not in NOT_PRINTED}
        document["required"] = [key for key in document["required"] if key not in NOT_PRINTED]
    elif examples := answers().get(f"study {name}" if name else verb):
        document = read_off(examples)
    else:
        document = (read_json(KEPT) or {}).get(verb, {"type": "object", "$comment": UNKNOWN})
    document = document | {"properties": document.get("properties", {}) | {"protocol": _of_protocols()}}
    head = {"$schema": FORMAT, "title": declared.title, "description": getdoc(function) or ""}
    return head | document | {"required": sorted({*document.get("required", []), "protocol"})}


def _of_protocols() -> dict:
    """What every verb writes into its protocol; what else stands there is its own. `run`: the id of the stored run, on
    the command line."""
    run = {"run": {"type": ["string", "null"]}}
    return {"type": "object", "properties": run, "required": ["verb", "versions"]}


@cache
def answers() -> dict[str, list[dict]]:
    """Verb, or `study NAME` -> the answers kept with the bundled model, as `--json` prints them."""
    by_verb: dict[str, list[dict]] = {}
    for verb, reply in _kept():
        by_verb.setdefault(verb, []).append(reply)
    return by_verb


def _kept() -> Iterator[tuple[str, dict]]:
    for manifest in sorted((CACHE / "demo" / "examples").glob("*/manifest.json")):
        run = read_run(manifest.parent, example=True)
        yield run.verb, answer(run.verb, Result(run.numbers, {name: run.table(name) for name in run.tables}))
    for path in sorted((CACHE / "demo" / "studies").glob("*.json")):
        stored = read_json(path) or {}
        if (name := of_file(path.stem)[0]) in STORED and "protocol" in stored:
            yield f"study {name}", {key: value for key, value in stored.items() if key != "check"}


def read_off(examples: list[dict]) -> dict:
    """A schema that all these answers of a verb keep. What a nested record needs is said only where there are several:
    one answer does not tell what another one leaves out."""
    return _of_dicts(examples, top=True, needed=len(examples) > 1)


def _of(examples: list, needed: bool) -> dict:
    """A schema of all values in `examples`."""
    present = [example for example in examples if example is not None]
    kinds = {type(example) for example in present}
    if kinds == {dict}:
        document = _of_dicts(present, top=False, needed=needed)
    elif kinds == {list}:
        inner = [item for example in present for item in example]
        document = {"type": "array"} | ({"items": _of(inner, needed)} if inner else {})
    elif kinds and kinds <= set(NAMES):
        return {"type": [*sorted({NAMES[kind] for kind in kinds}), "null"]}
    else:
        return {}
    return document if len(present) == len(examples) else document | {"type": [document["type"], "null"]}


def _of_dicts(examples: list[dict], top: bool, needed: bool) -> dict:
    """Of a record its names, needed where all have them; of a map, whose names are data, its values."""
    names = {name for example in examples for name in example}
    shared = [name for name in names if all(name in example for example in examples)]
    if not top and (not all(map(WORD.fullmatch, names)) or 2 * len(shared) < len(names)):
        values = [value for example in examples for value in example.values()]
        return {"type": "object", "additionalProperties": _of(values, needed)}
    properties = {
        name: _of([example[name] for example in examples if name in example], needed) for name in sorted(names)
    }
    return {"type": "object", "properties": properties} | ({"required": sorted(shared)} if top or needed else {})
