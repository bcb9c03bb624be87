"""What was calibrated, as other programs read it: TriAttention's statistics, KVzap's lines, an indexer's weights,
heads' shares, a pattern.

Each file has a certificate: how far it holds between halves, from other domains, and on text not calibrated on.
"""

import hashlib
import io
import json
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...answer import Worded, doc, record
from ...claims import Comparison
from ...commands.quality import ExportEviction
from ...corpus import sample_texts
from ...errors import BadSetting
from ...files import write_bytes, write_text
from ...methods import METHODS
from ..context import Context, protocol
from ..stored.comparisons import difference
from ..text.calibration import document_windows, split_texts, text_keys
from ..text.held_out import make_folder
from .indexed import Indexed
from .pattern import Pattern
from .trial import KINDS, Trial, agreement, calibration_windows

# TensorRT-LLM's period of eviction.
BETA = 128


@record
class Transferred:
    """What a calibration on another domain gives on the same held-out text."""

    domain: str = doc("the bundled sample that was calibrated on")
    tokens: int = doc("tokens of it")
    agreement: float = doc("share of the kept keys that both calibrations keep")
    change: float = doc("nats per token above the file's own loss")


@record
class ExportedEviction(Worded):
    """A file for a serving stack, and what it is worth."""

    path: str | None = doc("the file; null on a page, which reads the array `zip`")
    certificate: dict = doc("what is written beside it, as JSON")
    yaml: str | None = doc("TensorRT-LLM's options, of TriAttention's statistics; written beside the file too")
    rows: list[Transferred] = doc("transfer from other domains")
    zip: np.ndarray | None = doc("file, config.json and certificate, uint8, where there is no path", default=None)


def export_eviction(request: ExportEviction, *, context: Context) -> ExportedEviction:
    """Calibrate on texts (hashes) and write what a serving stack reads of it, with a certificate beside it.

    The first half of the documents calibrates, the others measure. The certificate says how many tokens were used, how
    far two halves of them keep the same keys, what calibrations on the bundled samples would keep and lose, the loss on
    held-out text with its interval, and that of the null: the first four keys and the newest at equal bytes, of a
    pattern even distances, and random ones. A page names no file and keeps what is written of an indexer with the run.
    Errors: BadSetting, BadText, BadModel.
    """
    if not context.browser:
        return _written(request, context)
    if request.output or request.method != "indexer":
        raise BadSetting(
            "A page exports the weights of an indexer, into no file of its own: export others on the command line."
        )
    with tempfile.TemporaryDirectory() as folder:
        made = _written(request.but(output=str(Path(folder) / f"{request.kind}.safetensors")), context)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).iterdir()):
                archive.write(path, path.name)
    return replace(made, path=None, zip=np.frombuffer(packed.getvalue(), np.uint8))


def _written(request: ExportEviction, context: Context) -> ExportedEviction:
    """The files of `export_eviction`, written."""
    path, keys = Path(request.output), max(1, round((1 - request.ratio) * request.prefix))
    others = {"layer_reuse": Pattern(request.anchors, keys), "indexer": Indexed(request.kind, keys)}
    kind: Any = KINDS.get(request.method) or others[request.method]
    suffix = kind.suffix
    if not request.output:
        raise BadSetting(f"Say where the file goes: -o FILE{suffix}.")
    if path.suffix != suffix:
        raise BadSetting(f"{path.name} ends in {path.suffix or 'nothing'}: {request.method} leaves as FILE{suffix}.")
    beside = [path, path.with_suffix(".json")]
    beside += [path.with_suffix(".yaml")] if suffix == ".pt" else []
    beside += [path.with_name("config.json")] if suffix == ".safetensors" else []
    for target in beside:
        if target.exists():
            raise BadSetting(f"{target} is there already: give -o another name or folder.")
    make_folder(path.parent)
    lm = context.model(request.model)
    split = split_texts(context, request.texts or [], None)
    windows = calibration_windows(lm, split.calibrate)
    size = request.prefix + request.continuation
    stretches, documents = document_windows(lm, split.measure, size, request.cuts * size, "held-out text")
    trial = Trial(lm, kind, request.ratio, request.share, stretches, request.prefix)
    context.progress(0.1, "calibrating")
    fitted = kind.fit(lm, windows, request.ratio)
    context.progress(0.3, "loss on held-out text")
    losses, kept = trial.losses(trial.method(fitted)), trial.kept(fitted)
    dense = trial.losses(METHODS["dense"]())
    nulls = {name: trial.losses(*methods) for name, methods in kind.nulls(lm, request.ratio).items()}
    context.progress(0.6, "halves")
    halves = [trial.kept(kind.fit(lm, windows[half::2], request.ratio)) for half in (0, 1)]
    rows = []
    for domain, (_, text) in sample_texts().items():
        context.progress(0.8, f"transfer from {domain}")
        sample = calibration_windows(lm, [(domain, text)])
        other = kind.fit(lm, sample, request.ratio)
        change = float((trial.losses(trial.method(other)) - losses).mean())
        rows.append(Transferred(domain, sample.numel(), agreement(kept, trial.kept(other)), change))
    data = kind.write(path, lm, fitted)
    write_bytes(path, data)
    told = difference("change", losses, dense, documents)
    for name, of_null in nulls.items():
        told |= difference(name, of_null, dense, documents)
        told |= difference(f"against_{name}", losses, of_null, documents)
    certificate: dict[str, Any] = {
        "file": path.name,
        "sha256": hashlib.sha256(data).hexdigest(),
        "method": request.method,
        "share": request.share if request.method == "triattention" else None,
        "kind": request.kind if request.method == "indexer" else None,
        "ratio": request.ratio,
        "calibration_tokens": windows.numel(),
        "calibration_texts": text_keys(split.calibrate),
        "agreement_between_halves": agreement(*halves),
        "agreement_by_chance": kind.chance(lm, fitted, request.ratio),
        "transfer": [vars(row) for row in rows],
        "held_out": told | {"texts": text_keys(split.measure), "windows": len(stretches), "unit": "nats per token"},
        "null": kind.null,
    }
    about: dict[str, Any] = {
        "texts": text_keys(split.calibrate),
        "measured_on": text_keys(split.measure),
        "split": split.words,
    }
    about |= {"window": size, "prefix": request.prefix, "continuation": request.continuation, "seed": request.seed}
    evicts = request.method in KINDS
    about |= {"kernel": "compacted KV cache" if evicts else "masked blocks"}
    recorded = protocol("export-eviction", lm, next(iter(request.texts or []), None), **about)
    write_text(path.with_suffix(".json"), json.dumps(certificate | {"protocol": recorded}, indent=1) + "\n")
    yaml = None
    if suffix == ".pt":
        yaml = options(path, request.budget, request.share)
        write_text(path.with_suffix(".yaml"), yaml)
    units = len(np.unique(documents))
    loss, null = (Comparison.of(told, key, units=units) for key in ("change", "null"))
    dropped = "Keys are dropped once, after the prompt; a stack that drops them while it writes may lose otherwise."
    return ExportedEviction(
        path=str(path),
        certificate=certificate,
        yaml=yaml,
        rows=rows,
        sentence=f"{kind.told(fitted, request.ratio)}, held-out text loses {loss.size} ({loss.interval}); "
        f"the null loses {null.size} ({null.interval}): {kind.null}.",
        notes=[dropped] if evicts else [],
        protocol=recorded,
    )


def options(path: Path, budget: int, share: str) -> str:
    """TensorRT-LLM's options for a file of TriAttention's statistics."""
    lines = ["algorithm: triattention", f"eviction_mode: {share}", f"budget: {budget}", f"beta: {BETA}"]
    lines.append(f"calibration_path: {json.dumps(str(path.resolve()))}")
    return "".join(["kv_cache_compression_config:\n", *(f"  {line}\n" for line in lines)])
