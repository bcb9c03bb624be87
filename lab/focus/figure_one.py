"""Quality against time at the longest text the model reads, of every method with a kernel (Focus, figure 1)."""

from functools import partial
from typing import Any

import numpy as np
import torch

from analysis.claims import signed
from analysis.errors import BadSetting
from analysis.metrics.quality import token_losses
from analysis.models import Model
from analysis.seam.attention import apply
from analysis.studies.ready.candidates import Candidate, candidates
from analysis.studies.speed.method import kernels_of
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.measured import KERNELS, dense_of
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import Setting, Windows, option
from analysis.studies.text.held_out import check_range, sample_windows
from analysis.timing import processor
from analysis.timing.inference import time_inference

# Which of the method's passes is timed -> what it is called, and where its speed-up stands.
PHASES = {"prompt": ("Prompt", "prefill"), "token": ("A token after it", "per_token")}
DENSE = "torch dense"
TRIED = 64  # tokens of the prompt that shows which kernels there are
SAMPLE = 128
CAUTION = "A method stands where its own settings and its fitted state put it; other budgets move it along both axes."


class FigureOne(Windows):
    """Every method's speed-up (dense by sparse, median and range of the rounds) and its loss on held-out windows, each
    as long as the prompt and what follows it; `without` lists the methods that have no kernel here. Quality is of
    the masked pass, which reads the same pairs."""

    length: int = option(2048, "tokens of a window of text, and of a prompt with what follows it", low=16)
    windows: int = option(16, "held-out windows of text", low=2, high=4096)
    repeats: int = option(5, "number of rounds, with dense and sparse in alternation", low=1, high=100)
    new_tokens: int = option(16, "tokens that are written after the prompt", low=2, high=1024)

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("What is written", self.new_tokens, 2, self.length // 2)

    def measure(self, run: Setting) -> dict:
        lm, ready = run.lm, candidates(run.context, run.lm, None)
        kernels = {candidate.name: self._kernels(run, candidate) for candidate in ready if candidate.name != "dense"}
        able = [candidate for candidate in ready if kernels.get(candidate.name)]
        if not able:
            raise BadSetting("No method has a kernel here, so nothing can be timed: a C++ compiler would give some.")
        dense, rows = dense_of(lm, run.windows, run.context).means, []
        for place, candidate in enumerate(able):
            run.context.progress(place / len(able), candidate.label)
            decides = [candidate.name, candidate.settings, run.windows.tolist()]
            timed = run.part(
                "figure-one", [*decides, self.new_tokens, self.repeats], partial(self._timed, run, candidate)
            )
            losses = run.part("figure-one-loss", decides, partial(self._losses, run, candidate))["means"]
            row = {"method": candidate.name, "label": candidate.label}
            row |= difference("against_dense", np.array(losses), dense, run.documents)
            for phase, kernel in kernels[candidate.name].items():
                rows.append(row | {"phase": phase, "kernel": kernel} | timed[phase])
        about = {"kernel": KERNELS, "processor": processor(str(lm.device)), "repeats": self.repeats}
        without = [
            candidate.label for candidate in ready if candidate not in able and kernels.get(candidate.name) is not None
        ]
        return {"rows": rows, "without": without, "protocol": run.about(run.windows, **about)}

    def _kernels(self, run: Setting, one: Candidate) -> dict[str, str]:
        """Phase -> the kernel of a method there; phases of a masked pass, and those in which every key is read and no
        time can be gained, are left out."""
        kernels = kernels_of(run.lm, one.method, run.windows[0][: min(TRIED, self.length // 2)])[0]
        return {phase: kernel for phase, kernel in kernels.items() if kernel not in (None, DENSE)}

    def _timed(self, run: Setting, one: Candidate) -> dict[str, Row]:
        """Phase -> speed-up of a method there."""
        ids = run.windows[0][: self.length - self.new_tokens]
        timed = time_inference(run.lm, one.method, ids, self.new_tokens, self.repeats)
        ratios = {phase: getattr(timed, name) for phase, (_, name) in PHASES.items()}
        return {
            phase: {"speedup": ratio.median, "speedup_low": ratio.low, "speedup_high": ratio.high}
            for phase, ratio in ratios.items()
        }

    @torch.no_grad()
    def _losses(self, run: Setting, one: Candidate) -> dict[str, list[float]]:
        """Nats per token of each window, by the masked pass."""
        means = []
        with apply(run.lm, one.method):
            for window in run.windows:
                means.append(float(token_losses(run.lm, torch.as_tensor(window)[None]).mean()))
        return {"means": means}

    def sample(self, run: Setting, numbers: dict) -> dict:
        ids = sample_windows(run.lm, min(SAMPLE, run.lm.max_positions), 1)
        return {"dense": dense_of(run.lm, ids, run.context).means.tolist()}

    def part(self, run: Setting, numbers: dict) -> dict:
        """The loss of the first row, computed again; times are other ones in every hour."""
        first = numbers["rows"][0]
        candidate = candidates(run.context, run.lm, [{"name": first["method"]}])[0]
        losses = np.array(self._losses(run, candidate)["means"])
        dense = dense_of(run.lm, run.windows, run.context).means
        return {"rows": [{"method": first["method"], **difference("against_dense", losses, dense, run.documents)}]}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, panels, parts = numbers["rows"], [], []
        for phase, (title, _) in PHASES.items():
            of_phase = sorted((row for row in rows if row["phase"] == phase), key=lambda row: row["speedup"])
            if not of_phase:
                continue
            lines = []
            for place, row in enumerate(of_phase):
                alone: list[Any] = [None] * len(of_phase)
                low, high, middle = ([*alone] for _ in range(3))
                middle[place], low[place], high[place] = (row[f"against_dense{end}"] for end in ("", "_low", "_high"))
                lines.append(series(row["label"], middle, low, high))
            speeds = {
                name: [round(row[name], 2) for row in of_phase] for name in ("speedup", "speedup_low", "speedup_high")
            }
            drawn = panel(title, "speedup", "times as fast as dense", speeds["speedup"], "nats above dense", lines)
            panels.append(drawn | {"x_low": speeds["speedup_low"], "x_high": speeds["speedup_high"]})
            faster = [row for row in of_phase if row["speedup_low"] > 1]
            best = min(faster, key=lambda row: row["against_dense"], default=None)
            if best is None:
                parts.append(f"{title}: none is faster than dense in every round")
            else:
                lowest = f"{best['label']}, {best['speedup']:.2f} times as fast, {signed(best['against_dense'])} nats"
                parts.append(
                    f"{title}: {len(faster)} of {len(of_phase)} are faster than dense in every round; least is lost by "
                    f"{lowest}"
                )
        notes = [CAUTION, interval_caveat(numbers["protocol"])]
        if numbers["without"]:
            notes.append(f"Without a kernel here, so with no time: {'; '.join(numbers['without'])}.")
        return presented("figure-one", f"{'. '.join(parts)}.", panels, *notes)
