"""Skip softmax for a serving stack: its scale calibrated on texts, in the words of config.json and of TensorRT-LLM."""

import importlib.metadata
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...errors import BadSetting
from ...files import write_whole
from ...models import Model
from ...runs import Result
from ...seam.cache import sees_all
from ...seam.layers import attention_modules
from ...statistics.skipped import HIGH, LOW, PHASES, fit_scale, rises_of, skipped
from ..context import Context, protocol
from ..text.calibration import document_windows, longest_window, split_texts, text_keys
from ..text.held_out import check_range

FORMULA = "a * exp(b * target_sparsity)"
THRESHOLDS = np.append(np.logspace(-6, 0, 60, endpoint=False), (0.85, 0.9, 0.95, 0.99))  # lambda
LONGEST, WINDOWS = 4096, 4  # tokens of the longest window unless lengths are given; windows of each length
BLOCKS = 4  # a window has as many at least: of fewer, too many are never left out
ENDINGS = (".json", ".yaml")
READS = {"prefill": "a prompt", "decode": "a token after the prompt"}


def sparse_config(
    texts: list[str] | None = None,
    output: str = "",
    model: str = "demo",
    prefill: float = 0.5,
    decode: float = 0.5,
    lengths: list[int] | None = None,
    dense: list[int] | None = None,
    block: int = 128,
    *,
    context: Context,
) -> Result:
    """Calibrate skip softmax on texts (hashes) for serving stacks: the constants of scale = a exp(b target), where a
    block is left out below a weight of scale / length, for a prompt and for the tokens after it.

    `prefill` and `decode`: shares of the blocks to leave out; less where a kernel would skip everything at the
    shortest length, and a phase in which next to nothing can be left out is not written. `lengths`: of the windows, in
    tokens; a quarter, a half and the whole of the model's context, or of 4,096, unless given. `dense`: layers that stay
    dense, beside those with a sliding window. `block`: queries and keys of a block of the serving kernel. `output`:
    FILE.json, a "sparse_attention_config" to add to a checkpoint's config.json, or FILE.yaml, options of TensorRT-LLM.

    numbers: `config` and `yaml`, what such a file holds; `rows` (`phase length windows target scale skipped`: the share
    really left out of texts that were not calibrated on); `sentence`, `notes`, `path`. Errors: BadSetting, BadText.
    """
    _check(output, context, prefill, decode, block)
    lm = context.model(model)
    split = split_texts(context, texts or [], None)
    sizes = _sizes(lm, lengths, block, (split.calibrate, split.measure))
    layers, ignored = _layers(lm, dense or [])
    shares = {
        side: list(_shares(lm, named, sizes, layers, block, context, half / 2))
        for half, (side, named) in enumerate((("calibrate", split.calibrate), ("measure", split.measure)))
    }
    fitted = _fit(shares["calibrate"])
    targets, notes = _targets(fitted, {"prefill": prefill, "decode": decode}, sizes[0])
    scales = {phase: a * math.exp(b * targets[phase]) for phase, (a, b) in fitted.items() if phase in targets}
    rows = [_row(shares["measure"], phase, size, targets[phase], scales[phase]) for phase in targets for size in sizes]
    config = _config(lm, {phase: fitted[phase] for phase in targets}, targets, ignored)
    numbers = {"config": config, "yaml": _yaml(scales), "rows": rows, "sentence": _sentence(rows), "path": None}
    numbers["notes"] = _notes(lm, ignored) + notes
    details = {"texts": text_keys(split.calibrate), "measured_on": text_keys(split.measure), "lengths": sizes}
    details |= {"split": split.words, "block": block, "window": sizes[-1], "kernel": "exact scores; nothing is skipped"}
    if output:
        text = json.dumps(config, indent=2) + "\n" if output.endswith(".json") else numbers["yaml"]
        with write_whole(Path(output)) as draft:
            draft.write_text(text, encoding="utf-8")
        numbers["path"] = output
    return Result(numbers | {"protocol": protocol("sparse-config", lm, (texts or [None])[0], **details)})


def _check(output: str, context: Context, prefill: float, decode: float, block: int) -> None:
    """What can be refused before the model is loaded. Errors: BadSetting."""
    if output and context.browser:
        raise BadSetting("A page keeps the file with the run.")
    if output and Path(output).suffix not in ENDINGS:
        raise BadSetting(f"{output} ends in neither .json (for config.json) nor .yaml (for TensorRT-LLM).")
    if output and Path(output).exists():
        raise BadSetting(f"{output} is there already: give -o another name.")
    for phase, target in (("prefill", prefill), ("decode", decode)):
        if not LOW <= target <= HIGH:
            raise BadSetting(f"{phase} is {target} and must lie between {LOW} and {HIGH}: the share to leave out.")
    check_range("A block", block, 8, 512)


def _sizes(lm: Model, lengths: list[int] | None, block: int, sides: tuple[list, list]) -> list[int]:
    """The lengths of the windows, those that both sides have. Errors: BadSetting."""
    least, most = BLOCKS * block, min(lm.max_positions, LONGEST)
    for value in lengths or ():
        check_range("A length", value, least, lm.max_positions)
    longest = min(longest_window(lm, side) for side in sides)
    wanted = sorted(set(lengths or (max(least, most // part) for part in (4, 2, 1))))
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
    whole = sees_all(lm.lm.config, lm.num_layers)
    skip = [layer for layer in range(lm.num_layers) if whole[layer] and layer not in dense]
    if not skip:
        raise BadSetting("Every layer stays dense: nothing is left to calibrate.")
    names = {id(module): name for name, module in lm.lm.named_modules()}
    return skip, [names[id(value)] for value in attention_modules(lm.lm) if value.layer_idx not in skip]


def _shares(
    lm: Model,
    named: list[tuple[str, str]],
    sizes: list[int],
    layers: list[int],
    block: int,
    context: Context,
    begun: float,
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """Of some windows of each length: the length, and phase -> the rises of its blocks."""
    for at, size in enumerate(sizes):
        windows = document_windows(lm, named, size, WINDOWS * size, "text")[0]
        for place, ids in enumerate(windows):
            done = begun + (at + place / len(windows)) / len(sizes) / 2
            context.progress(done, f"windows of {size:,} tokens")
            yield size, rises_of(lm, ids, layers, block)


def _fit(windows: list[tuple[int, dict]]) -> dict[str, tuple[float, float]]:
    """phase -> (a, b), of those phases in which thresholds leave out enough to be fitted."""
    scales, fits = np.concatenate([THRESHOLDS * size for size, _ in windows]), {}
    for phase in PHASES:
        fit = fit_scale(scales, np.concatenate([skipped(value[phase], THRESHOLDS) for _, value in windows]))
        fits |= {phase: fit} if fit else {}
    return fits


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


def _row(windows: list[tuple[int, dict]], phase: str, size: int, target: float, scale: float) -> dict:
    selected = [value[phase] for length, value in windows if length == size]
    left_out = float(np.mean([skipped(value, np.array([scale / size])) for value in selected]))
    row = {"phase": phase, "length": size, "windows": len(selected), "target": target, "scale": scale}
    return row | {"skipped": left_out}


def _config(lm: Model, fitted: dict, targets: dict[str, float], ignored: list[str]) -> dict:
    """As ModelOpt's export writes it, and vLLM, SGLang and TensorRT-LLM read it."""
    constants = {phase: {"a": a, "b": b} for phase, (a, b) in fitted.items()}
    group = {"algorithm": "skip_softmax", "targets": [type(attention_modules(lm.lm)[0]).__name__]}
    group |= {"ignore": ignored} if ignored else {}
    group |= {"threshold_scale_factor": {"formula": FORMULA} | constants, "target_sparsity": targets}
    return {"sparse_attention_config": {"config_groups": {"group_0": group}, "producer": _producer()}}


def _producer() -> dict:
    try:
        return {"name": "focuscope", "version": importlib.metadata.version("focuscope")}
    except importlib.metadata.PackageNotFoundError:  # the checkout runs without being installed
        return {"name": "focuscope", "version": "0"}


def _yaml(scales: dict[str, float]) -> str:
    """Options for `trtllm-serve --config`: the scales themselves, so that config.json may stay as it is."""
    lines = ["sparse_attention_config:", "  algorithm: skip_softmax", "  threshold_scale_factor:"]
    return "\n".join([*lines, *(f"    {phase}: {scale:.6g}" for phase, scale in scales.items())]) + "\n"


def _sentence(rows: list[dict]) -> str:
    """How near the targets are met on other text."""
    clauses = []
    for phase in dict.fromkeys(row["phase"] for row in rows):
        selected = [row for row in rows if row["phase"] == phase]
        least, most = (pick(row["skipped"] for row in selected) for pick in (min, max))
        span = f"{least:.0%}" if f"{least:.0%}" == f"{most:.0%}" else f"{least:.0%} to {most:.0%}"
        clauses.append(f"{READS[phase]} skips {span} of its blocks where {selected[0]['target']:.0%} was asked for")
    return f"On text that was not calibrated on, {', and '.join(clauses)}."


def _notes(lm: Model, ignored: list[str]) -> list[str]:
    notes = [
        "These are shares of blocks, counted from exact scores. What they save in time, the serving kernel decides."
    ]
    return notes + [f"{len(ignored)} of {lm.num_layers} layers stay dense."] * bool(ignored)
