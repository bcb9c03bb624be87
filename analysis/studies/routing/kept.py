"""Routing curves on disk: what a slider reads, so that no budget needs a pass."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from analysis.errors import BadSetting, NotFitted
from analysis.files import write_whole
from analysis.models import Model
from analysis.routers import ROUTERS
from analysis.routers.state import FOLDER
from analysis.studies.context import Context
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.score import Curves

NAME = "curves.safetensors"


@dataclass(frozen=True)
class Kept:
    """Curves, the protocol that they were measured with, and `more` that was found beside them: `timings`, `balance`,
    `notes`."""

    curves: Curves
    about: dict
    more: dict = field(default_factory=dict)

    @property
    def key(self) -> tuple:
        """What they belong to: the weights and the texts."""
        return self.about["revision"], self.about["text"]


def keep(folder: Path, kept: Kept) -> None:
    """Write the curves into a folder, in 16 bits, each file put in place whole."""
    curves = kept.curves
    cells = list(curves.recall)
    tensors = {}
    for at, cell in enumerate(cells):
        tensors[f"{at}.queries"] = curves.queries[cell].astype(np.int64)
        for name in ("recall", "selectivity"):
            for kind, values in getattr(curves, name)[cell].items():
                tensors[f"{at}.{name}.{kind}"] = values.astype(np.float16)
    note = {"heads": curves.heads, "points": curves.points, "buckets": curves.buckets, "about": kept.about}
    note["more"] = kept.more
    note["cells"] = [asdict(cell) for cell in cells]
    for name, content in ((NAME, save(tensors)), ("curves.json", (json.dumps(note, indent=1) + "\n").encode())):
        with write_whole(folder / name) as place:
            place.write_bytes(content)


def stored_curves(context: Context, lm: Model) -> Kept:
    """The curves in the fitted state of a model; the last ones read stay in memory. Errors: NotFitted, BadSetting."""
    for path in context.stored(lm, f"{FOLDER}/{NAME}"):
        stamp = (str(path), path.stat().st_mtime_ns)
        if context.kept.get("routing curves", ((),))[0] != stamp:
            context.kept["routing curves"] = (stamp, _read(path))
        kept = context.kept["routing curves"][1]
        if kept.about["revision"] == lm.revision:
            return kept
    raise NotFitted(f"{lm.name} has no stored routing curves: run `route --store` on some texts first.")


def _read(path: Path) -> Kept:
    try:
        note = json.loads((path.parent / "curves.json").read_text(encoding="utf-8"))
        tensors = load(path.read_bytes())
        cells = [Cell(**cell) for cell in note["cells"]]
        heads = [tuple(head) for head in note["heads"]]
        found = {"recall": {}, "selectivity": {}}
        for at, cell in enumerate(cells):
            for name, kinds in found.items():
                stored = {kind: tensors.get(f"{at}.{name}.{kind}") for kind in ROUTERS}
                kinds[cell] = {kind: x.astype(np.float32) for kind, x in stored.items() if x is not None}
        queries = {cell: tensors[f"{at}.queries"].astype(float) for at, cell in enumerate(cells)}
        curves = Curves(heads, note["points"], note["buckets"], found["recall"], found["selectivity"], queries)
        return Kept(curves, dict(note["about"]), dict(note["more"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise BadSetting(f"The routing curves in {path.parent.name} are damaged: store them again.") from error
