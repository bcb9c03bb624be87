"""The verbs about stored runs: `runs`, `bundle-out`, `bundle-in`. No model, no torch.

In all of them `runs` is the folder of the app's state (None: the usual one).
"""

import contextlib
from pathlib import Path

from ..errors import BadSetting
from ..files import write_whole
from .run import Result, without_model
from .store import RunStore

LISTED = ("id", "verb", "model", "text", "created", "seconds", "bytes", "pinned", "imported", "example", "about")


def runs(words: list[str] | None = None, examples: bool = False, runs: str | None = None) -> Result:
    """The stored runs in which all words stand: `rows` of LISTED."""
    import pandas

    with contextlib.closing(RunStore(runs)) as store:
        rows_found = store.search(" ".join(words or []), examples=examples)
    rows = [{name: getattr(row, name) for name in LISTED} for row in rows_found]
    return without_model("runs", {"rows": rows}, {"rows": pandas.DataFrame(rows, columns=list(LISTED))})


def bundle_out(ids: list[str], output: str, runs: str | None = None) -> Result:
    """Write runs into one file: `path`, `runs`, `texts`, `bytes`."""
    path = Path(output)
    if path.exists():
        raise BadSetting(f"{path} is there already: give -o another name.")
    with write_whole(path) as draft, contextlib.closing(RunStore(runs)) as store:
        about = store.bundle(ids, draft)
    numbers = {"path": str(path), "runs": about["runs"], "texts": about["texts"], "bytes": path.stat().st_size}
    return without_model("bundle-out", numbers)


def bundle_in(bundle: str, runs: str | None = None) -> Result:
    """Bring in a bundle: `new` runs, `known` ones that were here already, `texts`."""
    with contextlib.closing(RunStore(runs)) as store:
        arrived = store.unbundle(bundle)
    return without_model("bundle-in", {"new": arrived.new, "known": arrived.known, "texts": arrived.texts})
