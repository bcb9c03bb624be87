"""Do groups that were trained on short texts hold on long ones? Routers read at many lengths (Focus, section 3.5)."""

from dataclasses import replace

import numpy as np

from analysis.claims import signed
from analysis.errors import BadSetting
from analysis.models import Model
from analysis.seam.layers import has_rotary
from analysis.studies.stored.comparisons import interval_caveat, scope_of_claim
from analysis.studies.stored.measured import DENSE, DRAWS, KERNELS, Arm, dense_of, drawn_arms, window_arm
from analysis.studies.stored.panels import chart, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, option
from analysis.studies.stored.trained import PhaseTrainer, Training, plain
from analysis.studies.text.held_out import check_range, held_out_windows, ids_hash
from lab.harness.routed import Reads, equal_pairs_window, pairs_share, pooled_reads
from lab.harness.telling import counted

# Lengths by default, times that of the training.
TIMES = (1, 2, 4)
# Groups per token that are read.
KS = (1, 2)
CONTROLS = {"dense": "dense attention", "random": "random tokens", "window": "a window of equal pairs"}
PAPER = (1024, 2048, 4096, 8192)
PAPER_LINES = ("Full attn", "Focus top-k=2 (2x speedup)", "Focus top-k=3 (1.3x speedup)")
PERPLEXITIES = {
    "dense": "perplexity_dense",
    "trained groups, hard": "perplexity",
    "random tokens": "perplexity_random",
    "window of equal pairs": "perplexity_window",
}
ABOVE = {
    "trained groups": "against_dense",
    "random tokens": "random_against_dense",
    "window of equal pairs": "window_against_dense",
}


class Lengths(Training):
    """A router trained on sequences of `length` tokens (phase 1) that reads longer held-out windows with k = 1 and 2,
    beside random tokens and a window of equal pairs. Lengths beyond the model's positions are extrapolated."""

    windows: int = option(64, "number of held-out windows at the training length; all lengths read the same tokens")
    groups: int = option(4, "number of groups K of the router")
    rows: str | None = option(
        None, "lengths to read, separated by commas (default: 1, 2 and 4 times the training length)"
    )

    @property
    def lengths(self) -> list[int]:
        """The lengths to read, growing. Errors: BadSetting."""
        try:
            wanted = [int(word) for word in self.rows.split(",")] if self.rows else []
        except ValueError:
            raise BadSetting(f"The rows of this study are lengths such as 512,1024,2048, not {self.rows}.") from None
        return sorted(set(wanted or [self.length * times for times in TIMES]))

    def check(self, lm: Model) -> None:
        super().check(lm)
        for length in self.lengths:
            check_range("A length to read", length, 16, 1 << 17)
        if self.lengths[-1] > lm.max_positions and not has_rotary(lm.lm):
            raise BadSetting(
                f"{lm.name} has learned positions for {lm.max_positions:,} tokens and reads no longer text."
            )

    def cut(self, run: Setting, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Held-out windows of a length [n, T] and their documents [n]: all lengths read the same tokens."""
        longest = self.lengths[-1]
        count, pieces = -(-self.windows * self.length // longest), longest // length
        windows, documents = held_out_windows(run.lm, run.texts[1], longest, count)
        return windows[:, : pieces * length].reshape(-1, length), np.repeat(documents, pieces)

    def measure(self, run: Setting) -> dict:
        plan, lengths, rows = self.plan(), self.lengths, []
        windows, units = self.cut(run, lengths[-1])
        texts = {"documents": run.texts[0], "windows": windows, "units": units}
        expected = self.seeds * (1 + 2 * len(lengths))
        trainer = PhaseTrainer.of(run, n_sink=plan.n_sink, expected=expected, **texts)
        routers = {}
        for seed in self.every_seed:
            plan_of_seed = replace(plan, seed=seed)
            routers[seed] = trainer.router(f"at {self.length:,} tokens", plan_of_seed)
        for length in lengths:
            ids, documents = self.cut(run, length)
            reads = Reads(documents)
            wide: dict[int, list[int]] = {k: [] for k in KS}
            for seed, router in routers.items():
                arms: dict = {"dense": [DENSE]}
                for k in KS:
                    settings = {"window": plan.window, "top": k}
                    literal = settings | {"membership": "literal"}
                    arms["trained", k] = [Arm(f"trained, top {k}", settings, router)]
                    arms["literal", k] = [Arm(f"trained, top {k}, literal", literal, router)]
                    arms["random", k] = drawn_arms(router, plan.window, DRAWS * seed, k)
                read = pooled_reads(trainer, router, arms, ids)
                for k in KS:
                    wide[k].append(equal_pairs_window(read["trained", k].pairs, length, trainer.n_sink))
                alone = {("window", k): [window_arm(wide[k][-1])] for k in KS}
                reads.add(read | pooled_reads(trainer, router, alone, ids))
            for k in KS:
                trained, dense, random, window = ("trained", k), "dense", ("random", k), ("window", k)
                row = {"length": length, "k": k, "extrapolated": length > run.lm.max_positions, "windows": len(ids)}
                levels = {"perplexity": trained, "perplexity_dense": dense, "perplexity_literal": ("literal", k)}
                row |= reads.levels(levels | {"perplexity_random": random, "perplexity_window": window})
                row |= {"equal_window": round(np.mean(wide[k])), "largest_share": reads.worst(trained)}
                row["pairs_share"] = pairs_share(reads[trained].pairs, length)
                against = {"against_dense": (trained, dense), "against_random": (trained, random)}
                against |= {"against_window": (trained, window), "random_against_dense": (random, dense)}
                rows.append(row | reads.differences(against | {"window_against_dense": (window, dense)}))
        return {
            "rows": rows,
            "trained_at": self.length,
            "window": plan.window,
            "n_sink": plan.n_sink,
            "windows": windows.size // self.length,
            "positions": run.lm.max_positions,
            "plans": plain({"router": plan}),
            "protocol": run.about(windows, units, kernel=KERNELS, window=self.length),
        }

    def part(self, run: Setting, numbers: dict) -> dict:
        rows = []
        for length in self.lengths:
            dense = dense_of(run.lm, self.cut(run, length)[0], run.context)
            rows.append({"length": length, "perplexity_dense": dense.level["perplexity"]})
        return {"rows": rows, "protocol": {"text": ids_hash(self.cut(run, self.lengths[-1])[0])}}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, protocol, parts = numbers["rows"], numbers["protocol"], []
        charts, x = [], ("length", "length, tokens")
        for k in KS:
            points = [row for row in rows if row["k"] == k]
            above = [f"{signed(row['against_dense'])} at {row['length']:,}" for row in points]
            parts.append(f"k = {k}: {', '.join(above)}")
            charts.append(chart(f"Perplexity, k = {k}", points, *x, "perplexity", PERPLEXITIES))
            charts.append(chart(f"Loss above dense, k = {k}", points, *x, "nats per token", ABOVE))
        lines = paper_lines({name: [printed("section 3.5", f"{n:,}", name) for n in PAPER] for name in PAPER_LINES})
        charts.append(panel("Section 3.5: Mistral 7B", *x, list(PAPER), "perplexity", lines))
        sentence = f"Trained at {numbers['trained_at']:,} tokens, in nats per token above dense attention: "
        sentence += f"{'; '.join(parts)}. "
        sentence += counted(rows, "rows", {f"against_{key}": name for key, name in CONTROLS.items()})
        far = dict.fromkeys(f"{row['length']:,}" for row in rows if row["extrapolated"])
        note = f"The model was trained on up to {numbers['positions']:,} positions; {', '.join(far)} is extrapolated, "
        notes = [interval_caveat(protocol), *([f"{note}dense as well."] if far else [])]
        return presented("lengths", f"{sentence}{scope_of_claim(protocol['seeds'])}", charts, *notes)
