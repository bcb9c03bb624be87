"""Lists of heads as DuoAttention and retrieval-head tools keep them: brought in for a model, and written out."""

import json
from pathlib import Path

import numpy as np
import torch

from ...answer import Answer, doc, record
from ...errors import BadSetting
from ...files import write_whole
from ...fitted import FOLDER, Fitted
from ...methods.duo_attention import heads_of_file
from ...models import Model
from ..context import Context, protocol
from ..text.held_out import storing
from .candidates import candidates

METHOD = "duo_attention"


@record
class ImportedHeads(Answer):
    """Scores of heads that were brought in."""

    path: str = doc("where they are stored")
    scores: list[list[float]] = doc("[layer][key-value head]: larger is a head that retrieves more")
    notes: list[str] = doc("stored runs that used earlier ones")


@record
class ExportedHeads(Answer):
    """Scores of heads that were written."""

    path: str = doc("the file")
    scores: list[list[float]] = doc("[layer][key-value head]: larger is a head that retrieves more")


def import_heads(table: str, model: str = "demo", *, context: Context) -> ImportedHeads:
    """Let DuoAttention use the scores of heads in a file: a `full_attention_heads.tsv`, a line of numbers for each
    layer, or a JSON object {"layer-head": [score, ...]}, whose means count. Larger: the head retrieves more.

    The heads are key-value heads; scores of query heads are averaged over those that share one. Errors: BadSetting for
    a file that holds none, or those of another shape of model.
    """
    _not_from_a_page(context)
    lm, path = context.model(model), Path(table)
    file_scores = _of_json(path, lm) if path.suffix == ".json" else heads_of_file(path)["far"].double().numpy()
    scores = _of_groups(file_scores, lm, path.name)
    recorded = protocol("import-heads", lm, kernel="none: scores from a file", file=path.name)
    about = {"model": lm.name, "revision": lm.revision, "protocol": recorded, "file": path.name}
    folder = context.state_dirs(lm)[0] / FOLDER
    with storing("numbers", folder):
        place = Fitted(METHOD, {"far": torch.from_numpy(scores).float()}, about).save(folder)
    notes = context.forget("method", METHOD, lm)
    return ImportedHeads(path=str(place), scores=scores.tolist(), notes=notes, protocol=recorded)


def export_heads(
    output: str, model: str = "demo", n_sink: int = 16, window: int = 64, *, context: Context
) -> ExportedHeads:
    """Write the scores that DuoAttention has for a model: FILE.tsv with the config.json of `sink_size` and
    `recent_size` beside it, as its code reads them, or FILE.json, {"layer-head": [score]}.

    They are measured on the bundled samples where nobody has calibrated or brought in others. Errors: BadSetting for
    another ending, or a file that is there already.
    """
    _not_from_a_page(context)
    path, lm = Path(output), context.model(model)
    if path.suffix not in (".tsv", ".json"):
        raise BadSetting(f"{path.name} ends in {path.suffix or 'nothing'}: a list of heads is FILE.tsv or FILE.json.")
    beside = [path.with_name("config.json")] if path.suffix == ".tsv" else []
    for target in (path, *beside):
        if target.exists():
            raise BadSetting(f"{target} is there already: give -o another name or folder.")
    spec = {"name": METHOD, "settings": {"n_sink": n_sink, "window": window}}
    method = candidates(context, lm, [spec], ("memory",))[0].method
    scores = method.fitted["far"].expand(-1, lm.num_kv_heads).double().numpy()
    if path.suffix == ".tsv":
        _write(path, "".join("\t".join(f"{score:.10g}" for score in row) + "\n" for row in scores))
        _write(beside[0], json.dumps({"sink_size": n_sink, "recent_size": window}) + "\n")
    else:
        _write(path, json.dumps({f"{cell[0]}-{cell[1]}": [score] for cell, score in np.ndenumerate(scores)}) + "\n")
    about = {"kernel": "none: stored scores", "from": method.fitted.about.get("protocol")}
    recorded = protocol("export-heads", lm, **about)
    return ExportedHeads(path=str(path), scores=scores.tolist(), protocol=recorded)


def _of_json(path: Path, lm: Model) -> np.ndarray:
    """Scores [L, H] of a JSON object whose names are "layer-head"; NaN where it names none. Errors: BadSetting."""
    try:
        content = json.loads(path.read_bytes())
        places = {tuple(map(int, name.split("-"))): float(np.mean(scores)) for name, scores in content.items()}
        shape = [max(numbers) + 1 for numbers in zip(*places, strict=True)]
        if shape[0] > lm.num_layers or shape[1] > lm.num_heads:
            raise BadSetting(
                f"{path.name} names head {shape[0] - 1}-{shape[1] - 1}, and {lm.name} has {lm.num_layers} layers of "
                f"{lm.num_heads} heads."
            )
        table = np.full(shape, np.nan)
        for (layer, head), score in places.items():
            table[layer, head] = score
    except (OSError, ValueError, TypeError, AttributeError, IndexError, RecursionError):
        raise BadSetting(f'{path.name} holds no scores of heads: give {{"layer-head": [score, ...]}}.') from None
    return table


def _of_groups(scores: np.ndarray, lm: Model, name: str) -> np.ndarray:
    """Scores [L, G] of scores of key-value heads or of query heads. Errors: BadSetting."""
    shapes = [(lm.num_layers, heads) for heads in (lm.num_kv_heads, lm.num_heads)]
    if scores.shape not in shapes:
        wanted = " or ".join(f"{layers} layers of {heads}" for layers, heads in dict.fromkeys(shapes))
        raise BadSetting(
            f"{name} has {scores.shape[0]} lines of {scores.shape[1]} numbers, and {lm.name} has {wanted} heads."
        )
    if not np.isfinite(scores).all():
        raise BadSetting(f"{name} leaves out {int(np.isnan(scores).sum())} heads, or holds what is no number.")
    return scores.reshape(lm.num_layers, lm.num_kv_heads, -1).mean(2)


def _write(path: Path, text: str) -> None:
    with write_whole(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _not_from_a_page(context: Context) -> None:
    if context.browser:
        raise BadSetting("Lists of heads are read and written on the command line only.")
