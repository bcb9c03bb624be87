"""Do groups that were trained on short texts hold on long ones? Routers read at many lengths (Focus, section 3.5)."""

from dataclasses import dataclass, replace

import numpy as np

from analysis.claims import signed
from analysis.errors import BadSetting
from analysis.seam.layers import has_rotary
from analysis.studies.stored.comparisons import difference, interval_caveat, scope_of_claim
from analysis.studies.stored.measured import DENSE, DRAWS, KERNELS, Arm, dense_of, drawn_arms, window_arm
from analysis.studies.stored.panels import chart, panel, paper_lines, presented, printed
from analysis.studies.stored.runner import Setting, Study, option
from analysis.studies.stored.trained import PhaseTrainer, Read, Training, by_seed, plain, sample
from analysis.studies.text.held_out import held_out_windows, ids_hash
from lab.harness.pairs import equal_pairs_window, pairs_share
from lab.harness.telling import counted

TIMES = (1, 2, 4)  # lengths by default, times that of the training
KS = (1, 2)  # groups per token that are read
CONTROLS = {"dense": "dense attention", "random": "random tokens", "window": "a window of equal pairs"}
PAPER = (1024, 2048, 4096, 8192)


@dataclass(frozen=True)
class Sizes(Training):
    """One training length, and the lengths to read."""

    windows: int = option(64, "number of held-out windows at the training length; all lengths read the same tokens")
    groups: int = option(4, "number of groups K of the router")
    rows: str | None = option(
        None, "lengths to read, separated by commas (default: 1, 2 and 4 times the training length)"
    )

    @property
    def lengths(self) -> list[int]:
        """The lengths to read, growing. Errors: BadSetting."""
        try:
            sizes = sorted({int(word) for word in self.rows.split(",")}) if self.rows else []
        except ValueError:
            raise BadSetting(
                f"The rows of this study are lengths such as 512,1024,2048, not {self.rows[:40]!r}."
            ) from None
        sizes = sizes or [self.length * times for times in TIMES]
        if not all(16 <= size <= 1 << 17 for size in sizes):
            raise BadSetting(f"Windows of {sizes[0]:,} to {sizes[-1]:,} tokens: choose lengths from 16 to 131,072.")
        return sizes


def measure(run: Setting) -> dict:
    """A router trained on sequences of `length` tokens (phase 1) that reads longer held-out windows with k = 1 and 2,
    beside random tokens and a window of equal pairs. Lengths beyond the model's positions are extrapolated, and refused
    for models with learned positions. Errors: BadSetting, BadText."""
    lm, sizes, lengths = run.lm, run.sizes, run.sizes.lengths
    far = [size for size in lengths if size > lm.max_positions]
    if far and not has_rotary(lm.lm):
        raise BadSetting(
            f"{lm.name} has learned positions for {lm.max_positions:,} tokens, so nothing can be read at {far[0]:,}."
        )
    plan, longest = sizes.plan(), lengths[-1]
    train, held_out = run.texts
    windows, units = held_out_windows(lm, held_out, longest, -(-sizes.windows * sizes.length // longest))
    texts = {"documents": train, "windows": windows, "units": units}
    trainer = PhaseTrainer.of(run, n_sink=plan.n_sink, expected=sizes.seeds * (1 + 2 * len(lengths)), **texts)
    routers = []
    for seed in sizes.every_seed:
        one = replace(plan, seed=seed)
        routers.append(trainer.router(sizes.named(f"at {sizes.length:,} tokens", one), one))
    rows = []
    for length in lengths:
        ids = windows[:, : longest // length * length].reshape(-1, length)
        documents = np.repeat(units, longest // length)
        reads: dict[tuple, list] = {(name, k): [] for name in ("trained", "literal", "random", "window") for k in KS}
        dense, wide = [], {k: [] for k in KS}
        for seed, router in zip(sizes.every_seed, routers, strict=True):
            arms = [DENSE]
            random = {k: drawn_arms(router, plan.window, DRAWS * seed, k) for k in KS}
            for k in KS:
                settings = {"window": plan.window, "top": k}
                arms += [Arm(f"trained, top {k}", settings, router), *random[k]]
                arms += [Arm(f"trained, top {k}, literal", settings | {"membership": "literal"}, router)]
            read = trainer.measure(router, arms, ids)
            equal = {k: equal_pairs_window(read[f"trained, top {k}"].pairs, length, trainer.n_sink) for k in KS}
            alone = trainer.measure(router, [window_arm(one) for one in dict.fromkeys(equal.values())], ids)
            dense.append(read["dense"])
            for k in KS:
                wide[k].append(equal[k])
                reads["trained", k].append(read[f"trained, top {k}"])
                reads["literal", k].append(read[f"trained, top {k}, literal"])
                reads["random", k].append(Read.pool([read[arm.name] for arm in random[k]]))
                reads["window", k].append(alone[f"window {equal[k]}"])
        for k in KS:
            trained, random, window = (reads[name, k] for name in ("trained", "random", "window"))
            row = {
                "length": length,
                "k": k,
                "extrapolated": length > lm.max_positions,
                "windows": len(ids),
                "perplexity_dense": Read.pool(dense).perplexity,
                "perplexity": Read.pool(trained).perplexity,
                "perplexity_literal": Read.pool(reads["literal", k]).perplexity,
                "perplexity_random": Read.pool(random).perplexity,
                "perplexity_window": Read.pool(window).perplexity,
                "equal_window": round(np.mean(wide[k])),
                "largest_share": max(share for read in trained for share in read.shares),
                "pairs_share": pairs_share(Read.pool(trained).pairs, length),
            }
            for name, control in (("dense", dense), ("random", random), ("window", window)):
                row |= difference(f"against_{name}", by_seed(trained), by_seed(control), documents)
            for name, control in (("random", random), ("window", window)):
                row |= difference(f"{name}_against_dense", by_seed(control), by_seed(dense), documents)
            rows.append(row)
    about = {"window": sizes.length, "steps": sizes.steps, "training_text": trainer.texts, "seeds": sizes.seeds}
    return {
        "rows": rows,
        "trained_at": sizes.length,
        "window": plan.window,
        "n_sink": plan.n_sink,
        "windows": windows.size // sizes.length,
        "positions": lm.max_positions,
        "plans": plain({"router": plan}),
        "protocol": run.about(windows, units, kernel=KERNELS, **about),
    }


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention at every length, on all held-out windows."""
    lengths = sorted({row["length"] for row in numbers["rows"]})
    longest, rows = lengths[-1], []
    windows, _ = held_out_windows(run.lm, run.texts[1], longest, -(-run.sizes.windows * run.sizes.length // longest))
    for length in lengths:
        dense = dense_of(run.lm, windows[:, : longest // length * length].reshape(-1, length), run.context)
        rows.append({"length": length, "perplexity_dense": float(np.exp(dense.means.mean()))})
    return {"rows": rows, "protocol": {"text": ids_hash(windows)}}


def shown(numbers: dict) -> dict:
    """How the distance to dense goes on from the length of the training, and what differs from the controls."""
    rows, length, protocol = numbers["rows"], numbers["trained_at"], numbers["protocol"]
    parts = []
    for k in KS:
        above = [f"{signed(row['against_dense'])} at {row['length']:,}" for row in rows if row["k"] == k]
        parts.append(f"k = {k}: {', '.join(above)}")
    compared = counted(rows, "rows", {f"against_{key}": name for key, name in CONTROLS.items()})
    sentence = (
        f"Trained at {length:,} tokens, in nats per token above dense attention: {'; '.join(parts)}. {compared}"
        f"{scope_of_claim(protocol['seeds'])}"
    )
    notes = [interval_caveat(protocol)]
    if far := dict.fromkeys(f"{row['length']:,}" for row in rows if row["extrapolated"]):
        note = f"The model was trained on up to {numbers['positions']:,} positions"
        notes.append(f"{note}; {', '.join(far)} is extrapolated, dense as well.")
    charts, x = [], ("length", "length, tokens")
    read = {"dense": "perplexity_dense", "trained groups, hard": "perplexity", "random tokens": "perplexity_random"}
    read["window of equal pairs"] = "perplexity_window"
    above = {"trained groups": "against_dense", "random tokens": "random_against_dense"}
    above["window of equal pairs"] = "window_against_dense"
    for k in KS:
        points = [row for row in rows if row["k"] == k]
        charts.append(chart(f"Perplexity, k = {k}", points, *x, "perplexity", read))
        charts.append(chart(f"Loss above dense, k = {k}", points, *x, "nats per token", above))
    names = ("Full attn", "Focus top-k=2 (2x speedup)", "Focus top-k=3 (1.3x speedup)")
    lines = paper_lines({name: [printed("section 3.5", f"{n:,}", name) for n in PAPER] for name in names})
    charts.append(panel("Section 3.5: Mistral 7B", *x, list(PAPER), "perplexity", lines))
    return presented("lengths", sentence, charts, *notes)


lengths = Study("lengths", __doc__, Sizes, measure, shown, sample, part=part)
