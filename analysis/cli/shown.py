"""A result on the command line: as one strict JSON object, or as tables and lines."""

import json
import math
import sys

from ..runs import Result

NOT_PRINTED = ("protocol", "methods")  # the first stands before the numbers, the second is only of use to pages
SHOWN = "heads groups words pairs controls arms comparisons curve rows rounds keys cells".split()  # in this order


def show(verb: str, result: Result, as_json: bool) -> None:
    """Print a result."""
    if verb == "mcp":
        return  # standard output was the protocol's
    if as_json:
        print(dumped(answer(verb, result)))
        return
    if verb == "schema":  # the document itself, to write into a file
        print(json.dumps(result.numbers["schema"], indent=1))
        return
    shaped = SHAPES.get(verb, _numbers)(result)
    print(file=sys.stderr)
    for name in SHOWN:
        if name in result.tables:
            print(f"\n{name}\n{result.tables[name].to_string(index=False, float_format='{:.3f}'.format)}")
    for key, value in _numbers(result).items():
        if not isinstance(value, (dict, list)) or key == "notes":
            print(f"{key}: {value}")
    if not result.tables:
        print(json.dumps({k: v for k, v in _plain(shaped).items() if isinstance(v, (dict, list))}, indent=1))


def answer(verb: str, result: Result) -> dict:
    """What `--json` prints of a result: its protocol and its numbers, of some verbs tables too."""
    return {"protocol": result.numbers["protocol"], **SHAPES.get(verb, _numbers)(result)}


def dumped(value: dict) -> str:
    """One line of JSON that every parser takes: what is no number (NaN, infinity) is null."""
    return json.dumps(_plain(value), allow_nan=False)


def _groups(result: Result) -> dict:
    groups, words = result.tables["groups"], result.tables["words"]
    layers = result.tables["layers"].to_dict("records")
    for row in layers:
        members = groups[groups["layer"] == row["layer"]].drop(columns="layer").to_dict("records")
        for group in members:
            of_group = words[(words["layer"] == row["layer"]) & (words["group"] == group["group"])]
            group["top_tokens"] = of_group["word"].tolist()
        row["groups"] = members
    return {"layers": layers}


def _pairs(result: Result) -> dict:
    return {name: result.tables[name].to_dict("records") for name in ("pairs", "controls")}


def _numbers(result: Result) -> dict:
    return {key: value for key, value in result.numbers.items() if key not in NOT_PRINTED}


SHAPES = {"groups": _groups, "pairs": _pairs}


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
