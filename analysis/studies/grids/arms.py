"""Do the groups do anything? Trained groups beside windows, random groups and k-means on the same held-out windows."""

from pathlib import Path

import pandas as pd

from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.measured import (
    DENSE,
    KERNELS,
    READINGS,
    Arm,
    Bench,
    drawn_arm,
    router_hash,
    trained_arm,
    window_arm,
)
from analysis.studies.stored.recovery import CHOICES, WINDOWS, choose_window, equal_pairs_window, summary
from analysis.studies.stored.untrained import untrained_routers
from analysis.studies.text.held_out import corpus_hash, held_out_windows, places, sample_windows, texts_of, write
from analysis.studies.text.sizes import check_sizes

SEEDS = 3  # of random tokens and of random centroids


def arms(
    corpus: str = "",
    router: str = "k8-top1",
    model: str = "demo",
    length: int = 1024,
    windows: int = 64,
    window: int | None = None,
    n_sink: int | None = None,
    seed: int = 0,
    output: str | None = None,
    work: str | None = None,
    *,
    context: Context,
) -> Result:
    """Hold a trained router's groups against dense, windows, random tokens, random centroids and k-means.

    All arms read the same held-out `windows` of `length` tokens of `corpus` with the same window and sinks. `window`:
    by default the largest of 8, 16, 32, 64 whose perplexity alone is 3 % above dense; `n_sink`: by default the
    router's. What is measured is kept in `work`, and the study continues from there. The result goes to `output`
    (default `<state>/studies/groups-<router>.json`), with each window's loss in each arm.
    numbers: `sentence`, `claims`, `window`, `equal_pairs`, `rows` (one per arm: `loss perplexity recovery low high
    pairs pairs_share largest_share seed_losses`), `comparisons` (trained minus a control), `soft_minus_hard` and
    `literal_minus_causal` in nats, `notes`, `path`; tables: `arms`, `comparisons`. Errors: BadSetting, BadText.
    """
    check_seed(seed)
    lm = context.model(model)
    check_sizes(lm, length, windows, window, n_sink)
    made = trained_router(context, lm, router)
    n_sink = made.n_sink if n_sink is None else n_sink
    train, held_out = texts_of(corpus, context)
    path, folder = places(context, lm, f"groups-{router}", output, work)
    ids = held_out_windows(lm, held_out, length, windows)
    bench = Bench(lm, made, ids, n_sink, folder, context)
    found = {arm.name: bench.measure(arm) for arm in (DENSE, *map(window_arm, WINDOWS))}
    alone = {one: found[f"window {one}"].means for one in CHOICES}
    chosen = window or choose_window(alone, found["dense"].means) or min(CHOICES)
    found |= {name: bench.measure(trained_arm(name, made, chosen)) for name in READINGS}
    equal = equal_pairs_window(found["trained"].mean_pairs, length, n_sink)
    seeds = [seed + more for more in range(SEEDS)]
    untrained = untrained_routers(context, lm, made, train, length, seeds, folder)
    controls = [window_arm(chosen), window_arm(equal), *(drawn_arm(made, chosen, one) for one in seeds)]
    controls += [Arm(name, {"window": chosen}, fitted) for name, fitted in untrained.items()]
    found |= {arm.name: bench.measure(arm) for arm in controls if arm.name not in found}
    command = (
        f"python -m analysis study groups --corpus DIR --model {lm.name} --router {router} --windows-count {windows} "
        f"--length {length} --sinks {n_sink} --seed {seed}{f' --window {window}' if window else ''}"
    )
    about = protocol(
        "study groups", lm, bench.text, ids.size, window=length, seed=seed, kernel=KERNELS, router=router,
        router_hash=router_hash(made), corpus=f"{Path(corpus).name}, {len(held_out)} held-out documents",
        command=command,
    )  # fmt: skip
    numbers = {
        **summary(found, chosen, equal, made.K),
        "router": router,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "notes": _notes(made, train, len(ids), windows, chosen),
        "protocol": about,
    }
    losses = {name: [round(loss, 6) for loss in arm.means.tolist()] for name, arm in found.items()}
    write(path, numbers | {"losses": losses, "check": sample_losses(lm, made, numbers, context)})
    tables = {name: _table(numbers[key]) for name, key in {"arms": "rows", "comparisons": "comparisons"}.items()}
    return Result(numbers | {"path": str(path)}, tables)


def sample_losses(lm: Model, made: FocusRouter, numbers: dict, context: Context) -> dict[str, list[float]]:
    """Mean loss of two windows of the bundled samples in some arms: what can be computed without the corpus."""
    chosen, seed = numbers["window"], numbers["protocol"]["seed"]
    bench = Bench(lm, made, sample_windows(lm, numbers["length"]), numbers["n_sink"], None, context, expected=4)
    arms = (DENSE, window_arm(chosen), trained_arm("trained", made, chosen), drawn_arm(made, chosen, seed))
    return {arm.name: bench.measure(arm).means.tolist() for arm in arms}


def recheck(stored: dict, *, context: Context) -> dict[str, tuple]:
    """The `check` of a stored study, arm -> (what is stored, what comes out now)."""
    lm = context.model(stored["protocol"]["model"])
    again = sample_losses(lm, trained_router(context, lm, stored["router"]), stored, context)
    return {name: (losses, again[name]) for name, losses in stored["check"].items()}


def _notes(router: FocusRouter, train: list[str], count: int, wanted: int, chosen: int) -> list[str]:
    said = []
    if router.about.get("corpus_hash") != corpus_hash(train):
        said.append("The router was trained on other texts than this folder's: whether it saw these is not known.")
    if count < wanted:
        said.append(f"The held-out texts give {count} windows, and {wanted} were asked for.")
    if router.window != chosen:
        said.append(f"The router was trained with a window of {router.window}, and every arm reads one of {chosen}.")
    return said


def _table(rows: list[dict]) -> pd.DataFrame:
    """The rows without their lists."""
    return pd.DataFrame(rows).drop(columns=["largest_share", "seed_losses"], errors="ignore")
