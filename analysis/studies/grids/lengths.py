"""Do groups that were trained on short texts hold on long ones? One router, several lengths (Focus, section 3.5)."""

from pathlib import Path

import pandas as pd

from analysis.errors import BadSetting
from analysis.metrics.intervals import UNIT
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.stored import trained
from analysis.studies.stored.measured import DENSE, KERNELS, Arm, window_arm
from analysis.studies.stored.panels import column, difference, how_sure, nats, of_rows, panel, printed, series
from analysis.studies.stored.recovery import equal_pairs_window
from analysis.studies.stored.trained import Read, Trainer, checked
from analysis.studies.text.held_out import check_range, held_out_windows, ids_hash, places, texts_of, write
from analysis.studies.text.sizes import command
from analysis.training.settings import RouterTraining

TIMES = (1, 2, 4)  # lengths by default, times that of the training
SEEDS = 3  # of random tokens
PAPER = (1024, 2048, 4096, 8192)
READ_AS = (
    "Every length reads the same held-out tokens, cut into windows of it: longer ones cut fewer texts, so dense "
    "attention gets better as well, and differences are of one length. With K = 4 any two tokens share a group from "
    "k = 3 on: the paper's row of top-k = 3 is dense attention, so k = 1 and 2 are read here."
)


def lengths(
    corpus: str = "",
    model: str = "demo",
    length: int = 512,
    windows: int = 64,
    window: int | None = None,
    n_sink: int | None = None,
    steps: int = 600,
    tokens_per_step: int = 1024,
    groups: int = 4,
    rate: float = 1e-3,
    rows: str | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Train a router on sequences of `length` tokens (phase 1) and read longer held-out windows with it, k = 1 and 2.

    `rows`: the lengths to read, joined by commas (default: once, twice and four times the training's); those beyond the
    model's positions are extrapolated, and refused for models with learned positions. `windows` is their number at the
    training's length; all lengths read the same tokens. Controls: random tokens (3 seeds), a window of equal pairs.
    numbers: `rows` (`length k extrapolated perplexity_dense perplexity perplexity_literal perplexity_random
    perplexity_window equal_window pairs_share largest_share`, and in nats with `_low` and `_high` `against_dense
    against_random against_window`), `columns`, `panels`, `sentence`, `notes`, `plans`, `path`. table: `rows`.
    Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("A window of text", length, 16, lm.max_positions)
    check_range("The number of windows of text", windows, 2, 4096)
    sizes = _lengths(rows, length)
    far = [size for size in sizes if size > lm.max_positions]
    if far and not _rotary(lm):
        raise BadSetting(
            f"{lm.name} has learned positions for {lm.max_positions:,} tokens, so nothing can be read at {far[0]:,}."
        )
    plan = RouterTraining(
        groups=groups, window=16 if window is None else window, n_sink=4 if n_sink is None else n_sink, steps=steps,
        tokens_per_step=tokens_per_step, length=length, rate=rate, seed=seed, check_windows=0,
    )  # fmt: skip
    check_range("The window that is always read", plan.window, 1, length - 1)
    train, held_out = texts_of(corpus, context)
    path, folder = places(context, lm, "lengths", output, work)
    longest = max(sizes)
    long = held_out_windows(lm, held_out, longest, -(-windows * length // longest))
    trainer = Trainer(lm, train, long, plan.n_sink, folder, context, expected=1 + 2 * len(sizes))
    router = trainer.router(f"at {length:,} tokens", plan)
    found = []
    for size in sizes:
        ids = long[:, : longest // size * size].reshape(-1, size)
        found += _rows(trainer, router, plan, ids, max(1, UNIT * length // size))
    numbers = {
        "sentence": sentence(found, length),
        "rows": found,
        "columns": columns(),
        "panels": panels(found),
        "trained_at": length,
        "window": plan.window,
        "n_sink": plan.n_sink,
        "notes": [READ_AS, how_sure(long.size // length, f"windows of {length:,} tokens"), *_beyond(lm, far)],
        "protocol": protocol(
            "study lengths", lm, ids_hash(long), long.size, window=length, seed=seed, kernel=KERNELS, steps=steps,
            training_text=trainer.texts,
            corpus=f"{Path(corpus).name}, {len(train)} training and {len(held_out)} held-out documents",
            command=command(
                "lengths", lm, length=length, windows_count=windows, window=plan.window, sinks=plan.n_sink,
                steps=steps, tokens_per_step=tokens_per_step, rows=rows, seed=seed,
            ),
        ),
    }  # fmt: skip
    write(path, numbers | checked(lm, {"router": plan}))
    return Result(numbers | {"path": str(path)}, {"rows": pd.DataFrame(found)})


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, plan -> (what is stored, what comes out now)."""
    return trained.recheck(stored, context=context)


def _lengths(rows: str | None, length: int) -> list[int]:
    try:
        sizes = sorted({int(word) for word in rows.split(",")}) if rows else [length * times for times in TIMES]
    except ValueError:
        raise BadSetting(f"The rows of this study are lengths such as 512,1024,2048, not {rows[:40]!r}.") from None
    if not all(16 <= size <= 1 << 17 for size in sizes):
        raise BadSetting(f"Windows of {sizes[0]:,} to {sizes[-1]:,} tokens: choose lengths from 16 to 131,072.")
    return sizes


def _rotary(lm) -> bool:
    """Whether positions are computed, and not looked up in a learned table."""
    return any("rotary" in name for name, _ in lm.lm.named_modules())


def _beyond(lm, far: list[int]) -> list[str]:
    if not far:
        return []
    named = ", ".join(f"{size:,}" for size in far)
    return [f"The model was trained on up to {lm.max_positions:,} positions; {named} is extrapolated, dense as well."]


def _rows(trainer: Trainer, router, plan: RouterTraining, ids, unit: int) -> list[dict]:
    """Two rows of a length, k = 1 and 2; intervals draw units of so many windows."""
    size, ks, window, seed = ids.shape[1], (1, 2), plan.window, plan.seed
    arms = [DENSE]
    for k in ks:
        settings = {"window": window, "top": k}
        arms += [Arm(f"trained, top {k}", settings, router)]
        arms += [Arm(f"trained, top {k}, literal", settings | {"membership": "literal"}, router)]
        arms += [_random(router, k, window, seed + more) for more in range(SEEDS)]
    found = trainer.measure(router, arms, ids)
    wide = {k: equal_pairs_window(found[f"trained, top {k}"].pairs, size, trainer.n_sink) for k in ks}
    found |= trainer.measure(router, [window_arm(one) for one in dict.fromkeys(wide.values())], ids)
    rows = []
    for k in ks:
        mine, dense = found[f"trained, top {k}"], found["dense"]
        random = Read.pool([found[_random(router, k, window, seed + more).name] for more in range(SEEDS)])
        alone = found[f"window {wide[k]}"]
        row = {"length": size, "k": k, "extrapolated": size > trainer.lm.max_positions, "windows": len(ids)}
        row |= {"perplexity_dense": dense.perplexity, "perplexity": mine.perplexity}
        row |= {"perplexity_literal": found[f"trained, top {k}, literal"].perplexity}
        row |= {"perplexity_random": random.perplexity, "perplexity_window": alone.perplexity}
        row |= {"equal_window": wide[k], "largest_share": max(mine.shares)}
        row |= {"pairs_share": mine.pairs / (size * (size + 1) // 2)}
        for key, ours, other in (
            *(("against_dense", mine, dense), ("against_random", mine, random), ("against_window", mine, alone)),
            *(("random_against_dense", random, dense), ("window_against_dense", alone, dense)),
        ):
            row |= difference(key, ours.means, other.means, unit)
        rows.append(row)
    return rows


def _random(router, k: int, window: int, seed: int) -> Arm:
    return Arm(f"random tokens {seed}, top {k}", {"window": window}, drawn=(router.K, k, seed))


def columns() -> list[dict]:
    """The columns of the rows, for a page."""
    return [
        *(
            column("length", "length", "tokens"),
            column("k", "groups per token"),
            column("extrapolated", "extrapolated"),
        ),
        *(column("perplexity_dense", "perplexity, dense"), column("perplexity", "trained groups, hard")),
        *(column("perplexity_literal", "trained groups, literal"), column("perplexity_random", "random tokens")),
        *(column("perplexity_window", "window of equal pairs"), column("equal_window", "that window", "tokens")),
        *(column("pairs_share", "pairs read"), column("largest_share", "largest group's share, worst layer")),
        *(column(f"against_{name}", f"above {name}", "nats per token") for name in ("dense", "random", "window")),
    ]


def panels(rows: list[dict]) -> list[dict]:
    """Small multiples over the lengths, one pair for each k, and the paper's table beside."""
    made = []
    for k in (1, 2):
        mine = [row for row in rows if row["k"] == k]
        sizes = [row["length"] for row in mine]
        labels = {"perplexity_dense": "dense", "perplexity": "trained groups, hard"}
        labels |= {"perplexity_random": "random tokens", "perplexity_window": "window of equal pairs"}
        lines = [of_rows(label, mine, key) for key, label in labels.items()]
        made.append(panel(f"Perplexity, k = {k}", "length", "length, tokens", sizes, "perplexity", lines))
        labels = {"against_dense": "trained groups", "random_against_dense": "random tokens"}
        labels |= {"window_against_dense": "window of equal pairs"}
        lines = [of_rows(label, mine, key) for key, label in labels.items()]
        made.append(panel(f"Loss above dense, k = {k}", "length", "length, tokens", sizes, "nats per token", lines))
    names = ("Full attn", "Focus top-k=2 (2x speedup)", "Focus top-k=3 (1.3x speedup)")
    lines = [series(name, [printed("section 3.5", f"{n:,}", name) for n in PAPER], paper=True) for name in names]
    return [*made, panel("Section 3.5: Mistral 7B", "length", "length, tokens", list(PAPER), "perplexity", lines)]


def sentence(rows: list[dict], length: int) -> str:
    """How the distance to dense goes on from the length of the training."""
    said = []
    for k in (1, 2):
        told = [
            f"{row['length']:,}{' (extrapolated)' if row['extrapolated'] else ''} {nats(row, 'against_dense')}"
            for row in rows
            if row["k"] == k
        ]
        said.append(f"k = {k}: {'; '.join(told)}")
    return f"A router trained at {length:,} tokens lies above dense attention by: {'. '.join(said)}."
