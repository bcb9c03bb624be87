"""Prompts read by blocks: time against dense, the share of blocks that is skipped, and the loss, by length; and the
scale at which skip softmax skips what is asked for."""

from contextlib import AbstractContextManager

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.kernels.blocks import BLOCK
from analysis.methods import METHODS
from analysis.methods.base import Method
from analysis.methods.block_sparse import XAttention
from analysis.models import Model
from analysis.probes.rotary import base_for, rotary_base
from analysis.statistics.skipped import fit_scale, rises_of, skipped
from analysis.studies.quality.following import NOTHING, Followed, follow
from analysis.studies.ready.candidates import candidates
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Texts, option
from analysis.studies.text.held_out import check_range, chosen, held_out_windows, ids_hash, sample_windows
from lab.harness.telling import concluded, lines_of

RULES = [name for name, method in METHODS.items() if method.saves == "prefill"]
# At which skip softmax is calibrated.
SCALES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)
# Skipped shares between which the law is fitted: beyond them it saturates.
FEW, MANY = 0.02, 0.98
# Times by which a law may be off that is still called one.
FAR_OFF = 2.0
TIMED = ("dense_ms", "prompt_ms", "speedup", "speedup_low", "speedup_high")
PANELS = {
    "speedup": ("Speed of the prompt", "times dense"),
    "skipped": ("Blocks skipped", "share of the causal blocks"),
    "against_dense": ("Loss above dense on what follows", "nats per token"),
}
SUBJECT = (
    "{title} at {length:,} tokens, {speedup:.2f} times dense speed ({speedup_low:.2f} to {speedup_high:.2f}), "
    "{skipped:.0%} of the blocks skipped"
)


class Prefill(Texts):
    """Every held-out window is read with dense attention and by every rule in turn, so that each is a round; beyond the
    model's context its positions are stretched (dynamic NTK), for all alike.

    Speed-ups are the median and range of the rounds' ratios, the estimate of the blocks inside the clock; the law is
    scale = a exp(b skipped) of skip softmax.
    """

    tables = ("rows", "calibration")

    lengths: str = option("4096,8192,16384,32768", "lengths of the prompt in tokens, separated by commas")
    windows: int = option(6, "held-out windows of text; each is one round of all rules in turn", low=2, high=4096)
    continuation: int = option(128, "tokens after the prompt that are scored", low=2, high=4096)
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
        for length in self.prompts:
            check_range("The length of a prompt", length, 32, 1 << 17)

    def held(self, run: Setting) -> tuple[np.ndarray, np.ndarray]:
        """Held-out windows of the longest prompt and what follows [n, T], and their documents [n]."""
        return held_out_windows(run.lm, run.texts[1], self.prompts[-1] + self.continuation, self.windows)

    def measure(self, run: Setting) -> dict:
        names, rows = chosen(self.rows, RULES, "rule"), []
        windows, documents = self.held(run)
        for place, length in enumerate(self.prompts):
            reads = self.rounds(run, names, windows, length, place / len(self.prompts))
            rows += [_row(name, length, reads[name], reads["dense"], documents) for name in names]
        points = self.calibration(run, windows[0]) if "skip_softmax" in names else []
        about = {"continuation": self.continuation, "kernel": "kept blocks", "dense_kernel": "torch dense"}
        numbers = {"rows": rows, "calibration": points, "law": law_of(points)}
        return numbers | {"protocol": run.about(windows, documents, **about)}

    def rounds(self, run: Setting, names: list[str], windows: np.ndarray, length: int, done: float) -> dict:
        """`losses`, `seconds` and `read` of each window, by rule and for dense attention."""

        def make() -> dict:
            rules = candidates(run.context, run.lm, [{"name": name} for name in names], ("prefill",))
            methods = {"dense": METHODS["dense"](), **{rule.name: rule.method for rule in rules}}
            reads: dict[str, dict[str, list]] = {name: {"losses": [], "seconds": [], "read": []} for name in methods}
            # The first pass of a process is slower.
            self.follow(run, methods["dense"], windows[0], min(length, 256))
            for number, window in enumerate(windows):
                for name, method in methods.items():
                    run.context.progress(done, f"{length:,} tokens, {name}, {number + 1} of {len(windows)}")
                    followed = self.follow(run, method, window, length)
                    reads[name]["losses"].append(float(followed.losses.mean()))
                    reads[name]["seconds"].append(followed.seconds)
                    reads[name]["read"].append(followed.blocks)
            return reads

        return run.part(f"prefill-{length}", [names, length, self.continuation, ids_hash(windows)], make)

    def follow(self, run: Setting, method: Method, window: np.ndarray, length: int) -> Followed:
        """What follows a prompt of so many tokens."""
        total = length + self.continuation
        with _stretched(run, total):
            return follow(run.lm, method, torch.as_tensor(window[:total]), length, NOTHING)

    def calibration(self, run: Setting, window: np.ndarray) -> list[dict]:
        """What skip softmax leaves out of one window at each length and scale, every layer reading what dense ones
        made."""

        def make() -> dict:
            points, layers = [], list(range(run.lm.num_layers))
            for length in self.prompts:
                run.context.progress(0.95, f"skip softmax, every scale at {length:,} tokens")
                with _stretched(run, length):
                    rises = rises_of(run.lm, window[:length], layers, BLOCK)["prefill"]
                for scale, share in zip(SCALES, skipped(rises, np.array(SCALES) / length).tolist(), strict=True):
                    points.append({"length": length, "scale": scale, "skipped": share})
            return {"points": points}

        return run.part("prefill-scales", [self.prompts, SCALES, ids_hash(window[None])], make)["points"]

    def sample(self, run: Setting, numbers: dict) -> dict:
        window = torch.as_tensor(sample_windows(run.lm, min(256, run.lm.max_positions))[0])
        method = XAttention(block=8, stride=4, threshold=0.3)
        followed = follow(run.lm, method, window, len(window) // 2, NOTHING)
        return {"xattention": float(followed.losses.mean()), "read": followed.blocks}

    def part(self, run: Setting, numbers: dict) -> dict:
        name, shortest = numbers["rows"][0]["method"], self.prompts[0]
        windows, documents = self.held(run)
        reads = self.rounds(run, [name], windows, shortest, 0.0)
        row = _row(name, shortest, reads[name], reads["dense"], documents)
        untimed = {key: value for key, value in row.items() if key not in TIMED}
        return {"rows": [untimed], "protocol": {"text": ids_hash(windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, law, protocol = numbers["rows"], numbers["law"], numbers["protocol"]
        faster = [row for row in rows if row["speedup_low"] > 1]
        sentence = "No rule reads a prompt faster than dense attention in every round here."
        if faster:
            rounds = protocol["tokens"] // protocol["window"]
            lead = f"Faster than dense attention in each of {rounds} rounds; the loss of what follows, "
            sentence = concluded(lead, faster, {"against_dense": ""}, SUBJECT)
        if law:
            verdict = "" if law["error"] < FAR_OFF else ": no law, the scale must be measured for each length"
            sentence += " On the one text it was fitted to, the scale of skip softmax for a share s of the blocks, "
            sentence += (
                f"{law['a']:.3g} exp({law['b']:.3g} s), is off by up to a factor of {law['error']:.2f}{verdict}."
            )
        charts = []
        for key, (title, label) in PANELS.items():
            charts.append(lines_of(title, rows, "title", "length", "tokens of the prompt", label, key))
        return presented("prefill", sentence, charts, interval_caveat(protocol))


def law_of(points: list[dict]) -> dict | None:
    """`a b error` of scale = a exp(b skipped) over points `scale skipped` that do not saturate; `error`: the largest
    factor by which one of them is off. None with fewer than two different points."""
    inside = [point for point in points if FEW <= point["skipped"] <= MANY]
    scales, shares = (np.array([point[key] for point in inside]) for key in ("scale", "skipped"))
    fitted = fit_scale(scales, shares, (FEW, MANY), 2)
    if fitted is None:
        return None
    a, b = fitted
    return {"a": a, "b": b, "error": float(np.exp(np.abs(np.log(a) + b * shares - np.log(scales)).max()))}


def _row(name: str, length: int, rule: dict, dense: dict, documents: np.ndarray) -> Row:
    seconds, control = (np.array(side["seconds"]) for side in (rule, dense))
    losses, baseline = (np.array(side["losses"]) for side in (rule, dense))
    ratio, read = control / seconds, float(np.mean(rule["read"]))
    row = {"method": name, "title": METHODS[name].title, "length": length, "read": read, "skipped": 1 - read}
    row |= {"dense_ms": float(np.median(control)) * 1e3, "prompt_ms": float(np.median(seconds)) * 1e3}
    row |= {"speedup": float(np.median(ratio)), "speedup_low": float(ratio.min()), "speedup_high": float(ratio.max())}
    row |= {"perplexity": float(np.exp(losses.mean())), "dense_perplexity": float(np.exp(baseline.mean()))}
    return row | difference("against_dense", losses, baseline, documents)


def _stretched(run: Setting, length: int) -> AbstractContextManager[None]:
    """The model's positions for that many tokens: stretched beyond its context."""
    return rotary_base(run.lm, base_for(run.lm, "dynamic_ntk", 1.0, 0.0, length))
