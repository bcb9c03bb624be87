"""The verbs about stored runs: `runs`, `bundle-out`, `bundle-in`. No model, no torch.

In all of them `runs` is the folder of the app's state (None: the usual one).
"""

import contextlib
import secrets
from pathlib import Path

from analysis.errors import BadSetting
from analysis.runs.run import Result
from analysis.runs.store import RunStore

LISTED = ("id", "verb", "model", "text", "created", "seconds", "bytes", "pinned", "imported", "example", "about")


def runs(words: list[str] | None = None, examples: bool = False, runs: str | None = None) -> Result:
    """The stored runs in which all words stand: `rows` of LISTED."""
    import pandas

    with contextlib.closing(RunStore(runs)) as store:
        found = store.search(" ".join(words or []), examples=examples)
    rows = [{name: getattr(row, name) for name in LISTED} for row in found]
    return _result("runs", {"rows": rows}, {"rows": pandas.DataFrame(rows, columns=list(LISTED))})


def bundle_out(ids: list[str], output: str, runs: str | None = None) -> Result:
    """Write runs into one file: `path`, `runs`, `texts`, `bytes`."""
    path = Path(output)
    if path.exists():
        raise BadSetting(f"{path} is there already: give -o another name.")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with contextlib.closing(RunStore(runs)) as store:
            about = store.bundle(ids, draft)
        draft.rename(path)
    finally:
        draft.unlink(missing_ok=True)
    numbers = {"path": str(path), "runs": about["runs"], "texts": about["texts"], "bytes": path.stat().st_size}
    return _result("bundle-out", numbers)


def bundle_in(bundle: str, runs: str | None = None) -> Result:
    """Bring in a bundle: `new` runs, `known` ones that were here already, `texts`."""
    with contextlib.closing(RunStore(runs)) as store:
        arrived = store.unbundle(bundle)
    return _result("bundle-in", {"new": arrived.new, "known": arrived.known, "texts": arrived.texts})


def _result(verb: str, numbers: dict, tables: dict | None = None) -> Result:
    protocol = dict.fromkeys(("model", "revision", "text", "window", "seed", "dtype", "device", "kernel"))
    return Result(numbers | {"protocol": protocol | {"verb": verb, "versions": {}}}, tables or {})
