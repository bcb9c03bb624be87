"""Use it in: what a method is called in a serving stack, with lines to copy, or why that stack cannot run it."""

import json
import platform
from pathlib import Path
from string import Template
from typing import Any

from ... import take
from ...answer import Worded, doc, record
from ...commands.quality import UseIn
from ...costs import named_gpu, read_config, read_shape
from ...errors import AnalysisError, BadSetting
from ...package import PROGRAM
from ..worth.worth import config_text
from .leaving import stays

# Stack -> what its documentation says: `can` run (method -> lines, and the GPUs they need), `cannot` (by what a method
# saves) and `without` what is fitted to a model. Names of values in `lines` begin with a dollar sign.
STACKS: dict[str, dict] = json.loads(Path(take.__file__).with_name("stacks.json").read_text(encoding="utf-8"))
# Tokens: stacks keep keys in whole blocks of so many, and need one at the beginning, one at the end and one between.
BLOCK = 32
LEAST = 3 * BLOCK
# The most recent tokens that eviction leaves alone.
RECENT = 128
# Shares of blocks that `sparse-config` calibrates.
SHARES = 0.1, 0.9


@record
class Stack:
    """A method in a serving stack."""

    stack: str
    title: str
    says: str = doc("what it does there, or why it cannot")
    lines: str = doc("to copy; empty where it cannot")
    language: str = doc("of the lines")
    settings: dict | None = doc("of the method, where its code leaves as a zip beside the lines")
    documented: str = doc("what the documentation says of sparse attention")
    of: str = doc("version of the documentation")
    read: str = doc("month in which it was read")
    source: str = doc("its address")


@record
class UsedIn(Worded):
    """A method in every serving stack."""

    method: str
    kept: int = doc("keys that are read or held, of each sequence")
    rows: list[Stack]


def use_in(request: UseIn, *, context: Any = None) -> UsedIn:
    """The lines that each serving stack is told for a method that reads or holds a share of a context's keys. Nothing
    of the model is loaded but its config.json, which says where our own code cannot run the method; without one a note
    says that this is not known. Errors: BadSetting for an unknown method or GPU."""
    methods = _described()
    if request.method not in methods:
        raise BadSetting(f"There is no method {request.method[:40]!r}; there are: {', '.join(methods)}.")
    if request.gpu:
        named_gpu(request.gpu)
    saves, notes = methods[request.method]["saves"], []
    kept = max(LEAST, BLOCK * round(request.length * request.keep / BLOCK))
    low, high = SHARES
    values = {
        "program": PROGRAM,
        "model": request.model,
        "kept": kept,
        "recent": min(RECENT, kept - 2 * BLOCK),
        "ratio": round(1 - request.keep, 2),
        "share": f"{min(max(1 - request.keep, low), high):.2g}",
    }
    why = None
    try:
        name, text = config_text(request.model, request.config, context)
        why = stays(methods[request.method]["title"], saves, name, read_shape(read_config(text, name)))
    except AnalysisError as error:
        notes = [f"Whether the code that leaves runs in this model is not known, for its config.json: {error}"]
    rows = [_row(name, stack, request, saves, values, why) for name, stack in STACKS.items()]
    able = ", ".join(row.title for row in rows if row.lines)
    title = methods[request.method]["title"]
    return UsedIn(
        method=request.method,
        kept=kept,
        rows=rows,
        sentence=f"{title} runs in {able}." if able else f"{title} runs in none of {len(rows)} stacks.",
        notes=notes,
        protocol={"verb": "use-in", "model": request.model, "text": None, "tokens": None, "revision": None}
        | {"kernel": "none: nothing is computed", "versions": {"python": platform.python_version()}},
    )


def _row(name: str, stack: dict, request: UseIn, saves: str, values: dict[str, Any], why: str | None) -> Stack:
    """`why`: a method does not leave as code for this model."""
    entry = stack["can"].get(request.method)
    reason = stack["without"].get(request.method, stack["cannot"][saves])
    if why and entry and "settings" in entry:
        reason, entry = why, None
    if entry and request.gpu and request.gpu not in entry.get("gpus", [request.gpu]):
        reason, entry = entry["lacks"], None
    settings = (entry or {}).get("settings")
    return Stack(
        stack=name,
        title=stack["title"],
        says=entry["says"] if entry else reason,
        lines=Template(entry["lines"]).substitute(values) if entry else "",
        language=entry["language"] if entry else "",
        settings=None if settings is None else {field: values[value] for field, value in settings.items()},
        **{part: stack[part] for part in ("documented", "of", "read", "source")},
    )


def _described() -> dict[str, dict]:
    """The methods as they are written down for pages: they themselves load torch."""
    path = Path(take.__file__).parents[1] / "methods" / "described.json"
    methods: dict[str, dict] = json.loads(path.read_text(encoding="utf-8"))["methods"]
    return methods
