"""What follows a prompt once keys were evicted: every rule, by the share of the keys that it removes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.models import Model
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.stored.comparisons import difference, holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Setting, Study, Windows, option
from analysis.studies.text.held_out import check_range, chosen, ids_hash, sample_windows
from lab.harness.telling import concluded, lines_of

RATIOS = (0.25, 0.5, 0.75, 0.9)
HOLDS = 0.01  # by how much more of the cache a rule may hold than it was asked to
RULES = [name for name, made in METHODS.items() if made.saves == "memory"]


@dataclass(frozen=True)
class Sizes(Windows):
    """What the study can be asked for."""

    windows: int = option(48, "held-out windows of text")
    continuation: int = option(256, "tokens of a window that follow the prompt and are scored")
    rows: str | None = option(None, f"rules of {', '.join(RULES)}, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The length of the continuation", self.continuation, 2, self.length - 8)


def measure(run: Setting) -> dict:
    """The prompt of every held-out window is read densely, its KV cache compressed once, and what follows scored.

    `rows`: `method title ratio kept_keys kv_bytes kv_share perplexity against_dense` (nats per token, with `_low`,
    `_high` and `_p` over documents). Errors: BadSetting, BadText.
    """
    prefix = run.sizes.length - run.sizes.continuation
    rules = [rule for name in chosen(run.sizes.rows, RULES, "rule") for rule in _at_ratios(run, name)]
    dense = _part(run, candidates(run.context, run.lm, [{"name": "dense"}])[0], 0.0)
    rows = []
    for place, rule in enumerate(rules):
        after = _part(run, rule, (1 + place) / (1 + len(rules)))
        rows.append(_row(run, rule, after, dense))
    about = {"prefix": prefix, "continuation": run.sizes.continuation, "kernel": "compacted KV cache"}
    return {"rows": rows, "dense": float(np.exp(np.mean(dense["losses"]))), "protocol": run.about(run.windows, **about)}


def sample(run: Setting, numbers: dict) -> dict:
    """What follows half a window of the samples, with half of the keys, by SnapKV."""
    window = torch.as_tensor(sample_windows(run.lm, run.sizes.length)[0])
    method = METHODS["snapkv"](ratio=0.5, window=8)
    return {"snapkv": float(follow(run.lm, method, window, len(window) // 2, NOTHING).losses.mean())}


def part(run: Setting, numbers: dict) -> dict:
    """KeyDiff at half of the keys, beside dense attention, on all held-out windows."""
    rule = next(rule for rule in _at_ratios(run, "keydiff") if rule.settings["ratio"] == 0.5)
    dense = _part(run, candidates(run.context, run.lm, [{"name": "dense"}])[0], 0.0)
    row = _row(run, rule, _part(run, rule, 0.5), dense)
    values = {"rows": [row], "dense": float(np.exp(np.mean(dense["losses"])))}
    return values | {"protocol": {"text": ids_hash(run.windows)}}


def _row(run: Setting, rule: Candidate, after: dict, dense: dict) -> dict:
    """A rule at a ratio against dense attention."""
    losses, control = (np.array(side["losses"]) for side in (after, dense))
    row = {"method": rule.name, "title": rule.method.title, "ratio": rule.settings["ratio"]}
    row |= {"kept_keys": after["keys"], "kv_bytes": after["bytes"], "kv_share": after["bytes"] / dense["bytes"]}
    row |= {"perplexity": float(np.exp(losses.mean()))}
    return row | difference("against_dense", losses, control, run.documents)


def _at_ratios(run: Setting, name: str) -> list[Candidate]:
    """A rule at every ratio."""
    settings = [{"name": name, "settings": {"ratio": ratio}} for ratio in RATIOS]
    return candidates(run.context, run.lm, settings, ("memory",))


def _part(run: Setting, rule: Candidate, done: float) -> dict:
    """`losses` [n], the mean of each window in nats, with `keys` and `bytes` held when the prompt was read."""
    prefix = run.sizes.length - run.sizes.continuation

    def make(_: Path | None) -> dict:
        run.context.progress(done, rule.label)
        followed = [follow(run.lm, rule.method, torch.as_tensor(window), prefix, NOTHING) for window in run.windows]
        if any(part.masked for part in followed):
            raise BadSetting(f"{run.lm.name} runs {rule.label} masked, so no memory is saved: choose another model.")
        cache = {"keys": float(np.mean([part.keys for part in followed])), "bytes": followed[0].kv_bytes}
        return {"losses": [float(part.losses.mean()) for part in followed], **cache}

    decides = [run.lm.revision, str(run.lm.dtype), rule.label, prefix, run.windows.tolist()]
    return run.context.part(run.work, f"eviction-{rule.name}", decides, make)


def shown(numbers: dict) -> dict:
    """The rule with the lowest loss at each ratio, and that of those that hold no more than was asked for."""
    rows = holm_corrected(numbers["rows"], "against_dense")
    chosen = []
    for ratio in sorted({row["ratio"] for row in rows}):
        rules = sorted((row for row in rows if row["ratio"] == ratio), key=lambda row: row["against_dense"])
        fair = [row for row in rules if row["kv_share"] <= 1 - ratio + HOLDS]
        chosen += [rules[0], *(row for row in fair[:1] if row is not rules[0])]
    lead = "Asked to remove a share of the keys, the lowest of all rules and of those that hold no more than asked, on "
    lead += "the texts that choose them: "
    names = "{ratio:.0%}, {title}, which holds {kv_share:.0%} of the KV cache".format_map
    sentence = concluded(lead, chosen, {"against_dense": "dense attention"}, names, family=rows)
    sentence += (
        f" What lies between two rules is not judged. Dense attention has a perplexity of {numbers['dense']:.2f}"
    )
    title, x = "Loss above dense on what follows", ("ratio", "share of the keys removed", "nats per token")
    chart = lines_of(title, sorted(numbers["rows"], key=lambda row: row["ratio"]), "title", *x, "against_dense")
    sentence += f"{numbers['dense']:.2f} there."
    return presented("eviction", sentence, [chart], interval_caveat(numbers["protocol"]))


eviction = Study("eviction", __doc__, Sizes, measure, shown, sample, part=part)
