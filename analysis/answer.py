"""What a command returns: a record with one documented field a line.

    @record
    class Balanced(Answer):
        K: int = doc("groups of the router")
        mean: float = doc("largest group's share of the tokens, mean over layers")
        layers: DataFrame = doc("one row per layer", row=LayerBalance)
        scores: np.ndarray = doc("float32 [L, T, K]")

The type of a field decides where a stored run keeps it: a DataFrame is a table, an ndarray an array, and everything
else a number, rows of records among them. The JSON Schema of what `--json` prints follows from the same types, and so
does the record that is read back from a stored run.
"""

import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from pandas import DataFrame

Kind = TypeVar("Kind", bound=type)
TABLE, ARRAY, NUMBER = "tables", "arrays", "numbers"
JSON_TYPES = {str: "string", bool: "boolean", int: "number", float: "number"}
UNIONS = (types.UnionType, typing.Union)


def doc(text: str, *, row: type | None = None, name: str = "", default: Any = MISSING) -> Any:
    """A field of a record: what it holds and its unit.

    `row`: the record that documents the columns of a table; a list of such rows is stored as a number and as a table
    of one name. `name`: what a table is stored as where a number has its name. `default` None: the field is left out
    of what is stored where it is None; such fields stand last.
    """
    return field(default=default, metadata={"description": text, "row": row, "name": name})


@dataclass_transform(frozen_default=True, field_specifiers=(doc,))
def record(kind: Kind) -> Kind:
    """A frozen dataclass, told to type checkers as one whose fields are made by `doc`."""
    made: Any = dataclass(frozen=True)(kind)
    return made


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A command's result. `numbers`, `tables` and `arrays` are what is stored of it."""

    protocol: dict[str, Any] = doc("what the numbers depend on: command, model, revision, text, seed, versions")

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """JSON values by name, rows as dicts."""
        return {name: plain(value) for name, value in self._stored(NUMBER)}

    @cached_property
    def tables(self) -> dict[str, "DataFrame"]:
        """pandas.DataFrame by name."""
        frames, stored = {}, dict(self._stored(TABLE))
        for entry in fields(self):
            if entry.name in stored:
                frames[entry.metadata.get("name") or entry.name] = stored[entry.name]
            elif entry.metadata.get("row"):
                frames[entry.name] = frame(entry.metadata["row"], getattr(self, entry.name))
        return frames

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """numpy.ndarray by name."""
        return dict(self._stored(ARRAY))

    def _stored(self, part: str) -> Iterable[tuple[str, Any]]:
        hints = _hints(type(self))
        for entry in fields(self):
            value = getattr(self, entry.name)
            if _part(hints[entry.name]) == part and not (value is None and entry.default is None):
                yield entry.name, value


@record
class Worded(Answer):
    """An answer that says its result in words, too."""

    sentence: str = doc("the result in words")
    notes: list[str] = doc("what to bear in mind")


def plain(value: Any) -> Any:
    """A value with every record in it as a dict of its fields."""
    if is_dataclass(value):
        named = ((entry, getattr(value, entry.name)) for entry in fields(value))
        return {entry.name: plain(v) for entry, v in named if not (v is None and entry.default is None)}
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    # A NamedTuple or range becomes a list in JSON anyway.
    return [plain(inner) for inner in value] if isinstance(value, list | tuple | range) else value


def restored(
    kind: type[Answer], numbers: Mapping[str, Any], table: Callable[[str], Any], array: Callable[[str], Any]
) -> Answer:
    """The record that was stored; `table` and `array` give one by its name. What an earlier program did not store is
    None, and what it stored besides is left out."""
    hints, values = _hints(kind), {}
    for entry in fields(kind):
        part = _part(hints[entry.name])
        if part == NUMBER:
            values[entry.name] = _restored(hints[entry.name], numbers.get(entry.name))
        else:
            values[entry.name] = (table if part == TABLE else array)(entry.metadata.get("name") or entry.name)
    return kind(**values)


def _restored(hint: Any, value: Any) -> Any:
    """What `plain` made of a value of this type, as it was; a union is read as the first kind in it."""
    if get_origin(hint) in UNIONS:
        hint = next(kind for kind in get_args(hint) if kind is not types.NoneType)
    inner = get_args(hint)
    if isinstance(value, dict):
        if is_dataclass(hint):
            hints = _hints(typing.cast(type, hint))
            return hint(**{entry.name: _restored(hints[entry.name], value.get(entry.name)) for entry in fields(hint)})  # type: ignore[operator]
        return {name: _restored(inner[1], item) for name, item in value.items()} if len(inner) == 2 else value
    if isinstance(value, list) and get_origin(hint) is list:
        return [_restored(inner[0], item) for item in value]
    return value


def frame(row: type, rows: Iterable[Any]) -> "DataFrame":
    """Rows of one record as a table with its fields as columns, also where there is no row; lists are left out."""
    import pandas

    hints = _hints(row)
    nested = {
        entry.name
        for entry in fields(row)
        if any(get_origin(kind) in (list, dict) for kind in (hints[entry.name], *get_args(hints[entry.name])))
    }
    columns = [entry.name for entry in fields(row) if entry.name not in nested]
    return pandas.DataFrame([plain(entry) for entry in rows], columns=columns)


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of the numbers of a record; the protocol of an answer is described by whoever prints it."""
    hints, properties, required = _hints(kind), {}, []
    for entry in fields(kind):
        if _part(hints[entry.name]) == NUMBER and not (entry.name == "protocol" and issubclass(kind, Answer)):
            about = {"description": entry.metadata["description"]} if "description" in entry.metadata else {}
            properties[entry.name] = _of(hints[entry.name]) | about
            required += [] if entry.default is None else [entry.name]
    return {"type": "object", "properties": properties, "required": sorted(required)}


def returned(function: Any) -> type[Answer] | None:
    """The class of answers that a command's function is annotated to return, or None where it returns a Result."""
    hint = function.__annotations__.get("return")
    hint = function.__globals__.get(hint) if isinstance(hint, str) else hint
    return hint if isinstance(hint, type) and issubclass(hint, Answer) else None


def _hints(kind: type) -> dict[str, Any]:
    try:
        return get_type_hints(kind)
    except NameError:
        # It has a table, and its module imports pandas for type checking only.
        from pandas import DataFrame

        return get_type_hints(kind, localns={"DataFrame": DataFrame})


def _part(hint: Any) -> str:
    kinds = {kind.__name__ for kind in get_args(hint) or (hint,) if isinstance(kind, type)}
    return TABLE if "DataFrame" in kinds else ARRAY if "ndarray" in kinds else NUMBER


def _of(hint: Any) -> dict[str, Any]:
    """The schema of a type. A float may be null: JSON has no NaN."""
    inner = get_args(hint)
    if get_origin(hint) in UNIONS:
        schemas = [{"type": "null"} if schema is types.NoneType else _of(schema) for schema in inner]
        # A union with anything is anything; two kinds of objects are not told apart.
        if not all("type" in schema for schema in schemas):
            return {}
        kinds = [[schema["type"]] if isinstance(schema["type"], str) else schema["type"] for schema in schemas]
        merged = {name: value for schema in schemas for name, value in schema.items()}
        return merged | {"type": list(dict.fromkeys(sum(kinds, [])))}
    if isinstance(hint, type) and is_dataclass(hint):
        return json_schema(hint)
    if get_origin(hint) in (list, tuple):
        return {"type": "array"} | ({"items": _of(inner[0])} if inner and inner[0] is not Any else {})
    if get_origin(hint) is dict:
        return {"type": "object"} | ({} if inner[1] is Any else {"additionalProperties": _of(inner[1])})
    if hint in JSON_TYPES:
        return {"type": [JSON_TYPES[hint], "null"] if hint is float else JSON_TYPES[hint]}
    return {"type": "object"} if hint is dict else {"type": "array"} if hint is list else {}
