"""The heads of DuoAttention: lists of scores in and out as other tools keep them, and its split beside an ablation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...answer import Answer, Worded, doc, record
from ...commands.quality import ExportHeads, HeadSplit, ImportHeads
from ...errors import BadSetting
from ...files import write_text
from ...fitted import FOLDER, Fitted
from ...methods.duo_attention import DuoAttention, heads_of_file
from ...models import Model
from ...probes.ablation import check_way, estimated
from ..context import Context, protocol, read
from ..text.held_out import storing
from ..text.states import window_of
from ..text.text import cells_table
from .candidates import candidates

METHOD = "duo_attention"


@record
class HeadScores(Answer):
    """Scores of key-value heads that were brought in or written."""

    path: str = doc("the file")
    scores: list[list[float]] = doc("[layer][key-value head]: larger is a head that retrieves more")
    notes: list[str] | None = doc("stored runs that used earlier ones", default=None)


@record
class SplitOfHeads(Worded):
    """DuoAttention's split of the heads beside what a text is estimated to lose without each."""

    rows: list[dict] = doc("per key-value head, most missed first: far rise whole missed, as the table has them")
    kept: int = doc("heads that keep every key")
    both: int = doc("those of them that would if as many were chosen by their rise")
    chance: float = doc("as many by chance")
    agreement: float | None = doc("rank correlation of both scores")
    heads: pd.DataFrame = doc(
        "layer head, far (the score that DuoAttention goes by), rise (first-order estimate of the rise of the loss, "
        "nats per token, sum over the query heads that share its keys), whole (it keeps every key), missed (it would, "
        "chosen by its rise)"
    )


def import_heads(request: ImportHeads, *, context: Context) -> HeadScores:
    """Let DuoAttention use the scores of heads in a file: a `full_attention_heads.tsv`, a line of numbers for each
    layer, or a JSON object {"layer-head": [score, ...]}, whose means count. Scores of query heads are averaged over
    those that share keys. Errors: BadSetting for a file that holds none, or those of another shape of model.
    """
    _not_from_a_page(context)
    lm, path = context.model(request.model), Path(request.table)
    if path.suffix != ".json":
        scores = heads_of_file(path)["far"].double().numpy()
    else:
        try:
            content = json.loads(path.read_bytes())
            places = {tuple(map(int, name.split("-"))): float(np.mean(values)) for name, values in content.items()}
            last_layer, last_head = (max(numbers) for numbers in zip(*places, strict=True))
            place_of = {number: place for place, number in enumerate(lm.layer_numbers)}
            # checked before a table is made: a file may name head 99999999
            if last_layer > lm.layer_numbers[-1] or last_head >= lm.num_heads:
                size = f"{lm.num_layers} layers of {lm.num_heads} heads"
                raise BadSetting(f"{path.name} names head {last_layer}-{last_head}, and {lm.name} has {size}.")
            if others := {layer for layer, _ in places} & set(lm.other_layers):
                kind = lm.other_layers[min(others)]
                raise BadSetting(f"{path.name} names heads of layer {min(others)}, and that is {kind} in {lm.name}.")
            # NaN where it names none
            scores = np.full((1 + place_of[last_layer], 1 + last_head), np.nan)
            for (layer, head), score in places.items():
                scores[place_of[layer], head] = score
        except (OSError, ValueError, TypeError, AttributeError, IndexError, RecursionError):
            raise BadSetting(f'{path.name} holds no scores of heads: give {{"layer-head": [score, ...]}}.') from None
    shapes = [(lm.num_layers, heads) for heads in dict.fromkeys((lm.num_kv_heads, lm.num_heads))]
    if scores.shape not in shapes:
        wanted = " or ".join(f"{layers} layers of {heads}" for layers, heads in shapes)
        size = f"{scores.shape[0]} lines of {scores.shape[1]} numbers"
        raise BadSetting(f"{path.name} has {size}, and {lm.name} has {wanted} heads.")
    if not np.isfinite(scores).all():
        raise BadSetting(f"{path.name} leaves out {int(np.isnan(scores).sum())} heads, or holds what is no number.")
    scores = scores.reshape(lm.num_layers, lm.num_kv_heads, -1).mean(2)
    recorded = protocol("import-heads", lm, kernel="none: scores from a file", file=path.name)
    about = {"model": lm.name, "revision": lm.revision, "protocol": recorded, "file": path.name}
    folder = context.state_dirs(lm)[0] / FOLDER
    with storing("numbers", folder):
        place = Fitted(METHOD, {"far": torch.from_numpy(scores).float()}, about).save(folder)
    notes = context.forget("method", METHOD, lm)
    return HeadScores(path=str(place), scores=scores.tolist(), notes=notes, protocol=recorded)


def export_heads(request: ExportHeads, *, context: Context) -> HeadScores:
    """Write the scores that DuoAttention has for a model: FILE.tsv with the config.json of `sink_size` and
    `recent_size` beside it, as its code reads them, or FILE.json, {"layer-head": [score]}; measured on the bundled
    samples where nobody has calibrated or brought in others. Errors: BadSetting."""
    _not_from_a_page(context)
    path, lm = Path(request.output), context.model(request.model)
    if path.suffix not in (".tsv", ".json"):
        raise BadSetting(f"{path.name} ends in {path.suffix or 'nothing'}: a list of heads is FILE.tsv or FILE.json.")
    sizes = path.with_name("config.json")
    for target in (path, sizes) if path.suffix == ".tsv" else (path,):
        if target.exists():
            raise BadSetting(f"{target} is there already: give -o another name or folder.")
    method = _duo(context, lm, n_sink=request.n_sink, window=request.window)
    far = _scores(method)
    scores = far["far"].expand(-1, lm.num_kv_heads).double().numpy()
    if path.suffix == ".tsv":
        write_text(path, "".join("\t".join(f"{score:.10g}" for score in row) + "\n" for row in scores))
        write_text(sizes, json.dumps({"sink_size": request.n_sink, "recent_size": request.window}) + "\n")
    else:
        numbers = lm.layer_numbers
        cells = {f"{numbers[layer]}-{head}": [score] for (layer, head), score in np.ndenumerate(scores)}
        write_text(path, json.dumps(cells) + "\n")
    about: dict[str, Any] = {"kernel": "none: stored scores", "from": far.about.get("protocol")}
    return HeadScores(path=str(path), scores=scores.tolist(), protocol=protocol("export-heads", lm, **about))


def head_split(request: HeadSplit, *, context: Context) -> SplitOfHeads:
    """Which key-value heads DuoAttention lets keep every key, where the share `ratio` of them keeps sinks and a window
    only, and what a window of a text is estimated to lose without each. Errors: BadSetting, NotFitted."""
    lm = context.model(request.model)
    check_way(request.by)
    method = _duo(context, lm, ratio=request.ratio)
    reading = read(context, lm, request.text, request.long_text)
    ids = torch.from_numpy(np.asarray(window_of(reading, request.part)[1])).long()[None]
    if ids.shape[1] < 2:
        raise BadSetting("A text of one token predicts nothing: give a longer one.")
    context.progress(0.2, "estimate for all heads")
    rise = estimated(lm, ids, request.by).reshape(lm.num_layers, lm.num_kv_heads, -1).sum(2)
    far = _scores(method)["far"].expand(-1, lm.num_kv_heads)
    whole, missed = (~method.streaming(torch.as_tensor(scores)).numpy() for scores in (far, rise))
    table = cells_table(lm, far=far.double().numpy(), rise=rise.astype(float), whole=whole, missed=missed)
    agreement = table[["far", "rise"]].rank().corr().iloc[0, 1]
    table = table.sort_values("rise", ascending=False, kind="stable", ignore_index=True)
    kept, both = int(whole.sum()), int((whole & missed).sum())
    chance = kept * kept / whole.size
    note = "The estimate is of first order and of this text; DuoAttention's score is of its calibration texts."
    return SplitOfHeads(
        rows=table.to_dict("records"),
        kept=kept,
        both=both,
        chance=chance,
        agreement=None if np.isnan(agreement) else float(agreement),
        sentence=f"DuoAttention lets {kept} of {whole.size} key-value heads keep every key. {both} of them are among "
        f"the {kept} that this text would miss most; chance would give {chance:.1f}.",
        notes=[*reading.notes, note],
        heads=table,
        protocol=protocol(
            *("head-split", lm, request.text, ids.shape[1]), ratio=request.ratio, by=request.by, part=request.part
        ),
    )


def _duo(context: Context, lm: Model, **settings: float) -> DuoAttention:
    method = candidates(context, lm, [{"name": METHOD, "settings": settings}], ("memory",))[0].method
    assert isinstance(method, DuoAttention)
    return method


def _scores(method: DuoAttention) -> Fitted:
    assert method.fitted is not None, "a candidate has what it needs"
    return method.fitted


def _not_from_a_page(context: Context) -> None:
    if context.browser:
        raise BadSetting("Lists of heads are read and written on the command line only.")
