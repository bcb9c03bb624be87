"""What follows a prompt once keys were evicted: every rule, by the share of the keys that it removes."""

from dataclasses import dataclass

import numpy as np
import torch

from analysis.errors import BadSetting
from analysis.methods import METHODS
from analysis.methods.eviction import SnapKV
from analysis.models import Model
from analysis.studies.quality.following import NOTHING, follow
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.stored.comparisons import Row, difference, holm_corrected, interval_caveat
from analysis.studies.stored.panels import presented
from analysis.studies.stored.runner import Runnable, Setting, Windows, option
from analysis.studies.text.held_out import check_range, chosen, ids_hash, sample_windows
from lab.harness.telling import concluded, distinct, lines_of

RATIOS = (0.25, 0.5, 0.75, 0.9)
# By how much more of the cache a rule may hold than it was asked to.
HOLDS = 0.01
RULES = [name for name, method in METHODS.items() if method.saves == "memory" and "ratio" in method.budget_steps]


@dataclass(frozen=True)
class Eviction(Windows):
    """The prompt of every held-out window is read densely, its KV cache compressed once, and what follows scored."""

    name = "eviction"

    windows: int = option(48, "held-out windows of text", low=2, high=4096)
    continuation: int = option(256, "tokens of a window that follow the prompt and are scored")
    rows: str | None = option(None, f"rules of {', '.join(RULES)}, separated by commas (default: all)")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The length of the continuation", self.continuation, 2, self.length - 8)

    def measure(self, run: Setting) -> dict:
        rules = [rule for name in chosen(self.rows, RULES, "rule") for rule in _at_ratios(run, name)]
        dense, rows = self.read(run, candidates(run.context, run.lm, [{"name": "dense"}])[0], 0.0), []
        for place, rule in enumerate(rules):
            after = self.read(run, rule, (1 + place) / (1 + len(rules)))
            rows.append(_row(run, rule, after, dense))
        prefix = self.length - self.continuation
        about = {"prefix": prefix, "continuation": self.continuation, "kernel": "compacted KV cache"}
        perplexity = float(np.exp(np.mean(dense["losses"])))
        return {"rows": rows, "dense": perplexity, "protocol": run.about(run.windows, **about)}

    def read(self, run: Setting, rule: Candidate, done: float) -> dict:
        """`losses` [n], the mean of each window in nats, with `keys` and `bytes` held when the prompt was read."""
        prefix = self.length - self.continuation

        def make() -> dict:
            run.context.progress(done, rule.label)
            followed = [follow(run.lm, rule.method, torch.as_tensor(window), prefix, NOTHING) for window in run.windows]
            if any(part.masked for part in followed):
                raise BadSetting(
                    f"{run.lm.name} runs {rule.label} masked, so no memory is saved: choose another model."
                )
            cache = {"keys": float(np.mean([part.keys for part in followed])), "bytes": followed[0].kv_bytes}
            return {"losses": [float(part.losses.mean()) for part in followed]} | cache

        return run.part(f"eviction-{rule.name}", [rule.label, prefix, run.windows.tolist()], make)

    def sample(self, run: Setting, numbers: dict) -> dict:
        window = torch.as_tensor(sample_windows(run.lm, self.length)[0])
        method = SnapKV(ratio=0.5, window=8)
        return {"snapkv": float(follow(run.lm, method, window, len(window) // 2, NOTHING).losses.mean())}

    def part(self, run: Setting, numbers: dict) -> dict:
        rule = next(rule for rule in _at_ratios(run, "keydiff") if rule.settings["ratio"] == 0.5)
        dense = self.read(run, candidates(run.context, run.lm, [{"name": "dense"}])[0], 0.0)
        row, level = _row(run, rule, self.read(run, rule, 0.5), dense), float(np.exp(np.mean(dense["losses"])))
        return {"rows": [row], "dense": level, "protocol": {"text": ids_hash(run.windows)}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, lowest = holm_corrected(numbers["rows"], "against_dense"), []
        for ratio in sorted(distinct(rows, "ratio")):
            rules = sorted((row for row in rows if row["ratio"] == ratio), key=lambda row: row["against_dense"])
            fair = [row for row in rules if row["kv_share"] <= 1 - ratio + HOLDS]
            lowest += [rules[0], *(row for row in fair[:1] if row is not rules[0])]
        lead = f"Dense attention has a perplexity of {numbers['dense']:.2f}. Asked to remove a share of the keys, the "
        lead += "lowest loss of all rules and of those that hold no more than asked, on the texts that choose them: "
        subject = "{ratio:.0%}, {title}, which holds {kv_share:.0%} of the KV cache"
        sentence = concluded(lead, lowest, {"against_dense": "dense attention"}, subject, family=rows)
        title, x = "Loss above dense on what follows", ("ratio", "share of the keys removed", "nats per token")
        drawn = sorted(numbers["rows"], key=lambda row: row["ratio"])
        chart = lines_of(title, drawn, "title", *x, "against_dense")
        caveat = interval_caveat(numbers["protocol"])
        return presented("eviction", f"{sentence} What lies between two rules is not judged.", [chart], caveat)


def _row(run: Setting, rule: Candidate, after: dict, dense: dict) -> Row:
    """A rule at a ratio against dense attention."""
    losses, control = (np.array(side["losses"]) for side in (after, dense))
    row = {"method": rule.name, "title": rule.method.title, "ratio": rule.settings["ratio"]}
    row |= {"kept_keys": after["keys"], "kv_bytes": after["bytes"], "kv_share": after["bytes"] / dense["bytes"]}
    row |= {"perplexity": float(np.exp(losses.mean()))}
    return row | difference("against_dense", losses, control, run.documents)


def _at_ratios(run: Setting, name: str) -> list[Candidate]:
    settings = [{"name": name, "settings": {"ratio": ratio}} for ratio in RATIOS]
    return candidates(run.context, run.lm, settings, ("memory",))


eviction = Runnable(Eviction)
