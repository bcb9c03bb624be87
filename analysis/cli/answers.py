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
    known = STORED[name] if name else COMMANDS[verb]
    function = NAMED[name] if name else known.function()
    typed = returned(function)
    if typed and verb not in SHAPES:
        made = schema_of_class(typed)
        made["properties"] = {key: value for key, value in made["properties"].items() if key not in NOT_PRINTED}
        made["required"] = [key for key in made["required"] if key not in NOT_PRINTED]
    elif seen := answers().get(f"study {name}" if name else verb):
        made = read_off(seen)
    else:
        made = (read_json(KEPT) or {}).get(verb, {"type": "object", "$comment": UNKNOWN})
    made = made | {"properties": made.get("properties", {}) | {"protocol": _of_protocols()}}
    head = {"$schema": FORMAT, "title": known.title, "description": getdoc(function) or ""}
    return head | made | {"required": sorted({*made.get("required", []), "protocol"})}


def _of_protocols() -> dict:
    """What every verb writes into its protocol; what else stands there is its own. `run`: the id of the stored run, on
    the command line."""
    run = {"run": {"type": ["string", "null"]}}
    return {"type": "object", "properties": run, "required": ["verb", "versions"]}


@cache
def answers() -> dict[str, list[dict]]:
    """Verb, or `study NAME` -> the answers kept with the bundled model, as `--json` prints them."""
    found: dict[str, list[dict]] = {}
    for verb, one in _kept():
        found.setdefault(verb, []).append(one)
    return found


def _kept() -> Iterator[tuple[str, dict]]:
    for manifest in sorted((CACHE / "demo" / "examples").glob("*/manifest.json")):
        run = read_run(manifest.parent, example=True)
        yield run.verb, answer(run.verb, Result(run.numbers, {name: run.table(name) for name in run.tables}))
    for path in sorted((CACHE / "demo" / "studies").glob("*.json")):
        stored = read_json(path) or {}
        if (name := of_file(path.stem)[0]) in STORED and "protocol" in stored:
            yield f"study {name}", {key: value for key, value in stored.items() if key != "check"}


def read_off(seen: list[dict]) -> dict:
    """A schema that all these answers of a verb keep. What a nested record needs is said only where there are several:
    one answer does not tell what another one leaves out."""
    return _of_dicts(seen, top=True, needed=len(seen) > 1)


def _of(seen: list, needed: bool) -> dict:
    """A schema of all values in `seen`."""
    there = [one for one in seen if one is not None]
    kinds = {type(one) for one in there}
    if kinds == {dict}:
        made = _of_dicts(there, top=False, needed=needed)
    elif kinds == {list}:
        inner = [item for one in there for item in one]
        made = {"type": "array"} | ({"items": _of(inner, needed)} if inner else {})
    elif kinds and kinds <= set(NAMES):
        return {"type": [*sorted({NAMES[kind] for kind in kinds}), "null"]}
    else:
        return {}
    return made if len(there) == len(seen) else made | {"type": [made["type"], "null"]}


def _of_dicts(seen: list[dict], top: bool, needed: bool) -> dict:
    """Of a record its names, needed where all have them; of a map, whose names are data, its values."""
    names = {name for one in seen for name in one}
    shared = [name for name in names if all(name in one for one in seen)]
    if not top and (not all(map(WORD.fullmatch, names)) or 2 * len(shared) < len(names)):
        values = [value for one in seen for value in one.values()]
        return {"type": "object", "additionalProperties": _of(values, needed)}
    made = {name: _of([one[name] for one in seen if name in one], needed) for name in sorted(names)}
    return {"type": "object", "properties": made} | ({"required": sorted(shared)} if top or needed else {})
