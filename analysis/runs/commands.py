"""The verbs about stored runs: `runs`, `bundle-out`, `bundle-in`. No model, no torch."""

import secrets
from pathlib import Path

from analysis.errors import BadSetting
from analysis.runs.run import Result
from analysis.runs.store import RunStore

VERBS = ("runs", "bundle-out", "bundle-in")
LISTED = ("id", "verb", "model", "text", "created", "seconds", "bytes", "pinned", "imported", "example", "about")


def command(verb: str, arguments: dict) -> Result:
    """Run one of VERBS on the store of `arguments["runs"]`, the folder of the app's state (None: the usual one)."""
    store = RunStore(arguments["runs"])
    try:
        numbers = {"runs": runs, "bundle-out": bundle_out, "bundle-in": bundle_in}[verb](store, arguments)
    finally:
        store.close()
    protocol = dict.fromkeys(("model", "revision", "text", "window", "seed", "dtype", "device", "kernel"))
    tables = {}
    if "rows" in numbers:
        import pandas

        tables["rows"] = pandas.DataFrame(numbers["rows"], columns=list(LISTED))
    return Result(numbers | {"protocol": protocol | {"verb": verb, "versions": {}}}, tables)


def runs(store: RunStore, arguments: dict) -> dict:
    """The stored runs in which all words stand: `rows` of LISTED."""
    found = store.search(" ".join(arguments["words"]), examples=arguments["examples"])
    return {"rows": [{name: getattr(row, name) for name in LISTED} for row in found]}


def bundle_out(store: RunStore, arguments: dict) -> dict:
    """Write runs into one file: `path`, `runs`, `texts`, `bytes`."""
    path = Path(arguments["output"])
    if path.exists():
        raise BadSetting(f"{path} is there already: give -o another name.")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        about = store.bundle(arguments["ids"], draft)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    return {"path": str(path), "runs": about["runs"], "texts": about["texts"], "bytes": path.stat().st_size}


def bundle_in(store: RunStore, arguments: dict) -> dict:
    """Bring in a bundle: `new` runs, `known` ones that were here already, `texts`."""
    arrived = store.unbundle(arguments["bundle"])
    return {"new": arrived.new, "known": arrived.known, "texts": arrived.texts}
