"""Prompts read by blocks: time against dense, the share of blocks that is skipped, and the loss, by length; and the
scale at which skip softmax skips what is asked for."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.kernels.blocks import BLOCK
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.models import Model
from analysis.probes.rotary import base_for, rotary_base
from analysis.statistics.skipped import fit_scale, rises_of, skipped
from analysis.studies.quality.following import NOTHING, Followed, follow
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, Texts, option
from analysis.studies.text.held_out import check_range, chosen, held_out_windows, ids_hash, sample_windows
from lab.harness.telling import concluded, lines_of

RULES = [name for name, made in METHODS.items() if made.saves == "prefill"]
SCALES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)  # at which skip softmax is calibrated
FEW, MANY = 0.02, 0.98  # skipped shares between which the law is fitted: beyond them it saturates
FAR_OFF = 2.0  # times by which a law may be off that is still called one
LONGEST = 1 << 17


@dataclass(frozen=True)
class Sizes(Texts):
    """What the study can be asked for."""

    lengths: str = option("4096,8192,16384,32768", "lengths of the prompt in tokens, separated by commas")
    windows: int = option(6, "held-out windows of text; each is one round of all rules in turn")
    continuation: int = option(128, "tokens after the prompt that are scored")
    rows: str | None = option(None, f"rules of {', '.join(RULES)}, separated by commas (default: all)")

    @property
    def prompts(self) -> list[int]:
        """The lengths, growing. Errors: BadSetting."""
        try:
            return sorted({int(word) for word in self.lengths.split(",")})
        except ValueError:
            raise BadSetting(f"{self.lengths[:40]!r} is no list of lengths: write 4096,8192.") from None

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The shortest prompt", self.prompts[0], 32, LONGEST)
        check_range("The longest prompt", self.prompts[-1], 32, LONGEST)
        check_range("The number of windows of text", self.windows, 2, 4096)
        check_range("The length of the continuation", self.continuation, 2, 4096)


def measure(run: Setting) -> dict:
    """Every held-out window is read with dense attention and by every rule in turn, so that each is a round; beyond the
    model's context its positions are stretched (dynamic NTK), for all alike.

    Speed-ups are the median and range of the rounds' ratios, the estimate of the blocks inside the clock; the law is
    scale = a exp(b skipped) of skip softmax. Errors: BadSetting, BadText.
    """
    names, longest = chosen(run.sizes.rows, RULES, "rule"), run.sizes.prompts[-1] + run.sizes.continuation
    windows, documents = held_out_windows(run.lm, run.texts[1], longest, run.sizes.windows)
    rows = []
    for place, length in enumerate(run.sizes.prompts):
        reads = _round(run, names, windows, length, place / len(run.sizes.prompts))
        rows += [_row(name, length, reads[name], reads["dense"], documents) for name in names]
    points = _calibration(run, windows[0]) if "skip_softmax" in names else []
    about = {"continuation": run.sizes.continuation, "kernel": "kept blocks", "dense_kernel": "torch dense"}
    numbers = {"rows": rows, "calibration": points, "law": law_of(points)}
    return numbers | {"protocol": run.about(windows, documents, **about)}


def law_of(points: list[dict]) -> dict | None:
    """`a b error` of scale = a exp(b skipped) over points `scale skipped` that do not saturate; `error`: the largest
    factor by which one of them is off. None with fewer than two different points."""
    inside = [point for point in points if FEW <= point["skipped"] <= MANY]
    scales, skipped = (np.array([point[key] for point in inside]) for key in ("scale", "skipped"))
    fitted = fit_scale(scales, skipped, (FEW, MANY), 2)
    if fitted is None:
        return None
    a, b = fitted
    return {"a": a, "b": b, "error": float(np.exp(np.abs(np.log(a) + b * skipped - np.log(scales)).max()))}


def sample(run: Setting, numbers: dict) -> dict:
    """What follows half a window of the samples whose blocks XAttention chose, and the share of them that it read."""
    window = torch.as_tensor(sample_windows(run.lm, min(256, run.lm.max_positions))[0])
    followed = follow(
        run.lm, METHODS["xattention"](block=8, stride=4, threshold=0.3), window, len(window) // 2, NOTHING
    )
    return {"xattention": float(followed.losses.mean()), "read": followed.blocks}


def part(run: Setting, numbers: dict) -> dict:
    """The first rule of the table at the shortest prompts, without the times."""
    name = numbers["rows"][0]["method"]
    shortest, longest = run.sizes.prompts[0], run.sizes.prompts[-1] + run.sizes.continuation
    windows, documents = held_out_windows(run.lm, run.texts[1], longest, run.sizes.windows)
    reads = _round(run, [name], windows, shortest, 0.0)
    row = _row(name, shortest, reads[name], reads["dense"], documents)
    timed = ("dense_ms", "prompt_ms", "speedup", "speedup_low", "speedup_high")
    untimed = {key: value for key, value in row.items() if key not in timed}
    return {"rows": [untimed], "protocol": {"text": ids_hash(windows)}}


def _row(name: str, length: int, rule: dict, dense: dict, documents: np.ndarray) -> dict:
    seconds, control = (np.array(side["seconds"]) for side in (rule, dense))
    losses, baseline = (np.array(side["losses"]) for side in (rule, dense))
    ratio, read = control / seconds, float(np.mean(rule["read"]))
    row = {"method": name, "title": METHODS[name].title, "length": length, "read": read, "skipped": 1 - read}
    row |= {"dense_ms": float(np.median(control)) * 1e3, "prompt_ms": float(np.median(seconds)) * 1e3}
    row |= {"speedup": float(np.median(ratio)), "speedup_low": float(ratio.min()), "speedup_high": float(ratio.max())}
    row |= {"perplexity": float(np.exp(losses.mean())), "dense_perplexity": float(np.exp(baseline.mean()))}
    return row | difference("against_dense", losses, baseline, documents)


def _round(run: Setting, names: list[str], windows: np.ndarray, length: int, done: float) -> dict:
    """`losses`, `seconds` and `read` of each window, by rule and for dense attention."""

    def make(_: Path | None) -> dict:
        methods = {"dense": METHODS["dense"](), **{name: _plain(run, name).method for name in names}}
        reads = {name: {"losses": [], "seconds": [], "read": []} for name in methods}
        _follow(run, methods["dense"], windows[0], min(length, 256))  # the first pass of a process is slower
        for number, window in enumerate(windows):
            for name, method in methods.items():
                run.context.progress(done, f"{length:,} tokens, {name}, {number + 1} of {len(windows)}")
                followed = _follow(run, method, window, length)
                values = {"losses": float(followed.losses.mean()), "seconds": followed.seconds, "read": followed.blocks}
                for key, value in values.items():
                    reads[name][key].append(value)
        return reads

    decides = [run.lm.revision, str(run.lm.dtype), names, length, run.sizes.continuation, ids_hash(windows)]
    return run.context.part(run.work, f"prefill-{length}", decides, make)


def _calibration(run: Setting, window: np.ndarray) -> list[dict]:
    """What skip softmax leaves out of one window at each length and scale, every layer reading what dense ones made."""

    def make(_: Path | None) -> dict:
        points, layers = [], list(range(run.lm.num_layers))
        for length in run.sizes.prompts:
            run.context.progress(0.95, f"skip softmax, every scale at {length:,} tokens")
            with _stretched(run, length):
                rises = rises_of(run.lm, window[:length], layers, BLOCK)["prefill"]
            shares = skipped(rises, np.array(SCALES) / length).tolist()
            points += [
                {"length": length, "scale": scale, "skipped": share}
                for scale, share in zip(SCALES, shares, strict=True)
            ]
        return {"points": points}

    decides = [run.lm.revision, str(run.lm.dtype), run.sizes.prompts, SCALES, ids_hash(window[None])]
    return run.context.part(run.work, "prefill-scales", decides, make)["points"]


def _plain(run: Setting, name: str) -> Candidate:
    return candidates(run.context, run.lm, [{"name": name}], ("prefill",))[0]


def _follow(run: Setting, method: Method, window: np.ndarray, length: int) -> Followed:
    total = length + run.sizes.continuation
    with _stretched(run, total):
        return follow(run.lm, method, torch.as_tensor(window[:total]), length, NOTHING)


def _stretched(run: Setting, length: int) -> AbstractContextManager:
    """The model's positions for that many tokens: stretched beyond its context."""
    return rotary_base(run.lm, base_for(run.lm, "dynamic_ntk", 1.0, 0.0, length))


def shown(numbers: dict) -> dict:
    """Where a rule reads a prompt faster than dense in every round, what that costs, and how well the law holds."""
    rows, law, protocol = numbers["rows"], numbers["law"], numbers["protocol"]
    faster = [row for row in rows if row["speedup_low"] > 1]
    best = max(rows, key=lambda row: row["speedup"])
    sentence = (
        f"No rule reads a prompt faster than dense attention in every round here; the nearest, {best['title']}, has "
        f"{best['speedup']:.2f} times dense speed at {best['length']:,} tokens."
    )
    if faster:
        lead = f"Faster than dense attention in each of {protocol['tokens'] // protocol['window']} rounds, with the "
        lead += "loss of what follows beside: "
        name = (
            "{title} at {length:,} tokens, {speedup:.2f} times dense speed ({speedup_low:.2f} to {speedup_high:.2f}),"
        )
        name += " {skipped:.0%} of the blocks skipped"
        sentence = concluded(lead, faster, {"against_dense": ""}, name.format_map)
    if law:
        inside = [point["skipped"] for point in numbers["calibration"] if FEW <= point["skipped"] <= MANY]
        verdict = "" if law["error"] < FAR_OFF else ": no law, the scale must be measured for each length"
        sentence += (
            f" On the one text it was fitted to, at {min(inside):.0%} to {max(inside):.0%} of the blocks skipped, the "
            f"scale of skip softmax for a share s, {law['a']:.3g} exp({law['b']:.3g} s), is off by up to a factor of "
            f"{law['error']:.2f}{verdict}."
        )
    charts = []
    for title, key, label in (
        ("Speed of the prompt", "speedup", "times dense"),
        ("Blocks skipped", "skipped", "share of the causal blocks"),
        ("Loss above dense on what follows", "against_dense", "nats per token"),
    ):
        charts.append(lines_of(title, rows, "title", "length", "tokens of the prompt", label, key))
    return presented("prefill", sentence, charts, interval_caveat(protocol))


prefill = Study("prefill", __doc__, Sizes, measure, shown, sample, tables=("rows", "calibration"), part=part)
