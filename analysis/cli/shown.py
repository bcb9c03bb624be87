"""A result on the command line: as one strict JSON object, or as tables and lines; and the JSON Schema of that object,
read off the record that a verb returns."""

import json
import math
import sys
from inspect import getdoc
from typing import Any

from ..answer import Answer, doc, json_schema, record, returned
from ..commands import COMMANDS
from ..commands.runs import Schema
from ..errors import BadSetting
from ..runs import Result
from ..runs.run import no_model
from ..studies import NAMED
from ..studies.registry import STORED

FORMAT = "https://json-schema.org/draft/2020-12/schema"
# The first stands before the numbers, the second is only of use to pages.
NOT_PRINTED = ("protocol", "methods")
SHOWN = "heads groups words pairs controls arms comparisons curve rows rounds keys cells".split()  # in this order


@record
class VerbSchema(Answer):
    """What a verb answers."""

    schema: dict = doc("JSON Schema, draft 2020-12")


def show(verb: str, result: Result | Answer, as_json: bool) -> None:
    """Print a result."""
    if verb == "mcp":
        # Standard output was the protocol's.
        return
    if as_json:
        print(dumped(answer(verb, result)))
        return
    if verb == "schema":
        # The document itself, to write into a file.
        print(json.dumps(result.numbers["schema"], indent=1))
        return
    print(file=sys.stderr)
    for name in SHOWN:
        if name in result.tables:
            print(f"\n{name}\n{result.tables[name].to_string(index=False, float_format='{:.3f}'.format)}")
    numbers = _numbers(result)
    for key, value in numbers.items():
        if not isinstance(value, (dict, list)) or key == "notes":
            print(f"{key}: {value}")
    if not result.tables:
        print(json.dumps({k: v for k, v in _plain(numbers).items() if isinstance(v, (dict, list))}, indent=1))


def answer(verb: str, result: Result | Answer) -> dict[str, Any]:
    """What `--json` prints of a result: its protocol and its numbers, of some verbs tables too."""
    return {"protocol": result.numbers["protocol"], **SHAPES.get(verb, _numbers)(result)}


def dumped(value: dict[str, Any]) -> str:
    """One line of JSON that every parser takes: what is no number (NaN, infinity) is null."""
    return json.dumps(_plain(value), allow_nan=False)


def schema(request: Schema) -> VerbSchema:
    """The JSON Schema of the answer of verb `of`, of the study `name` where it is `study`. Errors: BadSetting."""
    if request.of not in COMMANDS:
        raise BadSetting(f"{request.of[:40]!r} is no verb; there are: {', '.join(COMMANDS)}.")
    if request.name and (request.of != "study" or request.name not in STORED):
        raise BadSetting(f"{request.name[:40]!r} is no study; `study` knows: {', '.join(STORED)}.")
    return VerbSchema(schema=schema_of(request.of, request.name), protocol=no_model("schema"))


def schema_of(verb: str, name: str = "") -> dict[str, Any]:
    """The schema. More names may stand beside those it knows; a number, a word or a yes or no may be null where there
    is none."""
    declared = STORED[name] if name else COMMANDS[verb]
    function = NAMED[name] if name else COMMANDS[verb].function()
    typed, shaped = returned(function), SHAPED.get(verb)
    document = json_schema(typed) if typed and not shaped else {"properties": {}, "required": []}
    properties = {key: value for key, value in document["properties"].items() if key not in NOT_PRINTED}
    needed = [key for key in document["required"] if key not in NOT_PRINTED] + list(shaped or ())
    properties |= {key: {"type": "array", "items": {"type": "object"}} for key in shaped or ()}
    # What every verb writes into its protocol; `run`: the id of the stored run, on the command line.
    run = {"run": {"type": ["string", "null"]}}
    properties["protocol"] = {"type": "object", "properties": run, "required": ["verb", "versions"]}
    head = {"$schema": FORMAT, "title": declared.title, "description": getdoc(function) or ""}
    return head | {"type": "object", "properties": properties, "required": sorted([*needed, "protocol"])}


def _groups(result: Result | Answer) -> dict[str, Any]:
    groups, words = result.tables["groups"], result.tables["words"]
    layers = result.tables["layers"].to_dict("records")
    for row in layers:
        members = groups[groups["layer"] == row["layer"]].drop(columns="layer").to_dict("records")
        for group in members:
            of_group = words[(words["layer"] == row["layer"]) & (words["group"] == group["group"])]
            group["top_tokens"] = of_group["word"].tolist()
        row["groups"] = members
    return {"layers": layers}


def _pairs(result: Result | Answer) -> dict[str, Any]:
    return {name: result.tables[name].to_dict("records") for name in ("pairs", "controls")}


def _numbers(result: Result | Answer) -> dict[str, Any]:
    return {key: value for key, value in result.numbers.items() if key not in NOT_PRINTED}


SHAPES = {"groups": _groups, "pairs": _pairs}
# The lists of rows that they print.
SHAPED = {"groups": ("layers",), "pairs": ("pairs", "controls")}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
