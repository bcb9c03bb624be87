"""Skip softmax for a serving stack: its scale calibrated on texts, in the words of config.json and of TensorRT-LLM."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...answer import Worded, doc, record
from ...commands.quality import SparseConfig
from ...errors import BadSetting
from ...files import write_text
from ...models import Model
from ...package import version
from ...seam.cache_checks import sees_all
from ...seam.layers import attention_modules
from ...statistics.skipped import LOW, PHASES, fit_scale, rises_of, skipped
from ..context import Context, protocol
from ..text.calibration import document_windows, longest_window, split_texts, text_keys
from ..text.held_out import check_range

FORMULA = "a * exp(b * target_sparsity)"
THRESHOLDS = np.append(np.logspace(-6, 0, 60, endpoint=False), (0.85, 0.9, 0.95, 0.99))  # lambda
# Tokens of the longest window unless lengths are given; windows of each length.
LONGEST, WINDOWS = 4096, 4
# A window has as many at least: of fewer, too many are never left out.
BLOCKS = 4
READS = {"prefill": "a prompt", "decode": "a token after the prompt"}
# Tokens of a window, and phase -> the rises of its blocks.
Windows = list[tuple[int, dict[str, np.ndarray]]]


@record
class SkippedRow:
    """What a scale really leaves out of texts that were not calibrated on."""

    phase: str = doc("prefill or decode")
    length: int = doc("tokens of a window")
    windows: int
    target: float = doc("share of the blocks that was to be left out")
    scale: float = doc("by the length: the weight below which a block is left out")
    skipped: float = doc("share that was left out")


@record
class ServingConfig(Worded):
    """Skip softmax as serving stacks are told it."""

    config: dict = doc("a sparse_attention_config for config.json, as ModelOpt writes it")
    yaml: str = doc("options of TensorRT-LLM")
    rows: list[SkippedRow]
    path: str | None = doc("the file that was written")


def sparse_config(request: SparseConfig, *, context: Context) -> ServingConfig:
    """Calibrate skip softmax on texts for serving stacks: the constants of scale = a exp(b target), where a block is
    left out below a weight of scale / length, for a prompt and for the tokens after it. Less is left out than asked
    where a kernel would skip everything at the shortest length, and a phase in which next to nothing can be left out is
    not written. Layers with a sliding window stay dense. Errors: BadSetting, BadText."""
    output = request.output
    if output and context.browser:
        raise BadSetting("A page keeps the file with the run.")
    if output and Path(output).suffix not in (".json", ".yaml"):
        raise BadSetting(f"{output} ends in neither .json (for config.json) nor .yaml (for TensorRT-LLM).")
    if output and Path(output).exists():
        raise BadSetting(f"{output} is there already: give -o another name.")
    lm = context.model(request.model)
    split = split_texts(context, request.texts or [], None)
    sizes = _sizes(lm, request, (split.calibrate, split.measure))
    layers, ignored = _layers(lm, request.dense or [])
    calibrate, measure = (
        list(_windows(lm, named, sizes, layers, request.block, context, begun))
        for named, begun in ((split.calibrate, 0.0), (split.measure, 0.5))
    )
    tried = np.concatenate([THRESHOLDS * size for size, _ in calibrate])
    fitted: dict[str, tuple[float, float]] = {}
    for phase in PHASES:
        shares = np.concatenate([skipped(rises[phase], THRESHOLDS) for _, rises in calibrate])
        # Thresholds may leave out too little to be fitted.
        if fit := fit_scale(tried, shares):
            fitted[phase] = fit
    targets, notes = _targets(fitted, {"prefill": request.prefill, "decode": request.decode}, sizes[0])
    scales = {phase: a * math.exp(b * targets[phase]) for phase, (a, b) in fitted.items() if phase in targets}
    rows = [_row(measure, phase, size, targets[phase], scales[phase]) for phase in targets for size in sizes]
    config = _config(lm, {phase: fitted[phase] for phase in targets}, targets, ignored)
    yaml = "sparse_attention_config:\n  algorithm: skip_softmax\n  threshold_scale_factor:\n"
    # the scales themselves, so that config.json may stay as it is
    yaml += "".join(f"    {phase}: {scale:.6g}\n" for phase, scale in scales.items())
    if output:
        write_text(Path(output), json.dumps(config, indent=2) + "\n" if output.endswith(".json") else yaml)
    exact = "These are shares of blocks, counted from exact scores. What they save in time, the serving kernel decides."
    stay = [f"{len(ignored)} of {lm.num_layers} layers stay dense."] * bool(ignored)
    details: dict[str, Any] = {
        "texts": text_keys(split.calibrate),
        "measured_on": text_keys(split.measure),
        "lengths": sizes,
    }
    details |= {"split": split.words, "block": request.block, "window": sizes[-1]}
    details |= {"kernel": "exact scores; nothing is skipped"}
    return ServingConfig(
        config=config,
        yaml=yaml,
        rows=rows,
        path=output or None,
        sentence=_sentence(rows),
        notes=[exact, *stay, *notes],
        protocol=protocol("sparse-config", lm, next(iter(request.texts or []), None), **details),
    )


def _sizes(lm: Model, request: SparseConfig, sides: tuple[list, list]) -> list[int]:
    """The lengths of the windows, those that both sides have. Errors: BadSetting."""
    shortest, context = BLOCKS * request.block, min(lm.max_positions, LONGEST)
    for value in request.lengths or ():
        check_range("A length", value, shortest, lm.max_positions)
    longest = min(longest_window(lm, side) for side in sides)
    wanted = sorted(set(request.lengths or (max(shortest, context // part) for part in (4, 2, 1))))
    fits = [value for value in wanted if value <= longest]
    if not fits:
        raise BadSetting(
            f"Half of these texts makes a window of {longest:,} tokens, and {wanted[0]:,} are needed: give longer "
            "texts."
        )
    return fits


def _layers(lm: Model, dense: list[int]) -> tuple[list[int], list[str]]:
    """The layers that may skip, and the names of the modules that stay dense. Errors: BadSetting."""
    for value in dense:
        check_range("A dense layer", value, 0, lm.num_layers - 1)
    whole = sees_all(lm.lm)
    skip = [layer for layer in range(lm.num_layers) if whole[layer] and layer not in dense]
    if not skip:
        raise BadSetting("Every layer stays dense: nothing is left to calibrate.")
    names = {id(module): name for name, module in lm.lm.named_modules()}
    return skip, [names[id(module)] for module in attention_modules(lm.lm) if module.layer_idx not in skip]


def _windows(
    lm: Model,
    named: list[tuple[str, str]],
    sizes: list[int],
    layers: list[int],
    block: int,
    context: Context,
    begun: float,
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Some windows of each length."""
    for step, size in enumerate(sizes):
        windows = document_windows(lm, named, size, WINDOWS * size, "text")[0]
        for place, ids in enumerate(windows):
            context.progress(begun + (step + place / len(windows)) / len(sizes) / 2, f"windows of {size:,} tokens")
            yield size, rises_of(lm, ids, layers, block)


def _targets(
    fitted: dict[str, tuple[float, float]], wanted: dict[str, float], shortest: int
) -> tuple[dict[str, float], list[str]]:
    """The share to leave out in each phase, and sentences where it is not the one that was asked for. A kernel skips
    everything once the scale reaches the length, so the scale stays below the shortest. Errors: BadSetting for none."""
    targets, notes = {}, []
    for phase, target in wanted.items():
        a, b = fitted.get(phase, (math.inf, 1.0))
        most = math.floor(100 * math.log(shortest / a) / b - 1e-9) / 100 if phase in fitted else 0.0
        if most < LOW:
            notes.append(
                f"No threshold leaves out {LOW:.0%} of the blocks of {READS[phase]}: the file says nothing of {phase}."
            )
            continue
        targets[phase] = min(target, most)
        if most < target:
            notes.append(
                f"{phase.capitalize()} leaves out {most:.0%} instead of {target:.0%}: a larger scale would skip every "
                f"block at {shortest:,} tokens. Longer lengths allow more."
            )
    if not targets:
        raise BadSetting(
            f"No threshold leaves out {LOW:.0%} of the blocks of this model on these texts: skip softmax would gain "
            "nothing. Longer texts have more to leave out."
        )
    return targets, notes


def _row(windows: Windows, phase: str, size: int, target: float, scale: float) -> SkippedRow:
    of_size = [rises[phase] for length, rises in windows if length == size]
    left_out = float(np.mean([skipped(rises, np.array([scale / size])) for rises in of_size]))
    return SkippedRow(phase, size, len(of_size), target, scale, left_out)


def _config(lm: Model, fitted: dict, targets: dict[str, float], ignored: list[str]) -> dict:
    """As ModelOpt's export writes it, and vLLM, SGLang and TensorRT-LLM read it."""
    constants = {phase: {"a": a, "b": b} for phase, (a, b) in fitted.items()}
    group: dict[str, Any] = {"algorithm": "skip_softmax", "targets": [type(attention_modules(lm.lm)[0]).__name__]}
    group |= {"ignore": ignored} if ignored else {}
    group |= {"threshold_scale_factor": {"formula": FORMULA} | constants, "target_sparsity": targets}
    producer = {"name": "focuscope", "version": version()}
    return {"sparse_attention_config": {"config_groups": {"group_0": group}, "producer": producer}}


def _sentence(rows: list[SkippedRow]) -> str:
    """How near the targets are met on other text."""
    clauses = []
    for phase in dict.fromkeys(row.phase for row in rows):
        of_phase = [row for row in rows if row.phase == phase]
        low, high = (f"{pick(row.skipped for row in of_phase):.0%}" for pick in (min, max))
        span = low if low == high else f"{low} to {high}"
        clauses.append(f"{READS[phase]} skips {span} of its blocks where {of_phase[0].target:.0%} was asked for")
    return f"On text that was not calibrated on, {', and '.join(clauses)}."
