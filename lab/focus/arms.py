"""Do the groups do anything? Trained groups beside windows, random groups and k-means on the same held-out windows."""

from dataclasses import asdict, dataclass
from pathlib import Path

from analysis.corpus import text_hash, token_stream
from analysis.groups.controls import random_centroids
from analysis.groups.fit import fit_without_training
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.statistics import attention_inputs
from analysis.studies.context import Context
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.comparisons import interval_caveat
from analysis.studies.stored.measured import (
    DENSE,
    DRAWS,
    KERNELS,
    READINGS,
    Arm,
    Bench,
    always,
    drawn_arms,
    router_hash,
    trained_arm,
    window_arm,
)
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import Routed, Setting, Study, option
from analysis.studies.text.held_out import corpus_hash, sample_windows, spread_windows
from analysis.training.settings import RouterTraining
from lab.focus.recovery import CHOICES, WINDOWS, choose_window, sentence, summary
from lab.harness.pairs import equal_pairs_window

DOCUMENTS = 16  # training documents, evenly chosen, that are tokenised for it
CALIBRATION = RouterTraining.calibration_windows  # from them: as many as a trained router's balance is frozen on
GROUPED = ("trained", "random tokens", "random centroids", "k-means")  # arms that are a mark of the chart


@dataclass(frozen=True)
class Sizes(Routed):
    """What the study can be asked for."""

    window: int | None = option(
        None, "tokens that are always read (default: the largest of 8, 16, 32, 64 that alone is 3% above dense)"
    )


def measure(run: Setting) -> dict:
    """A trained router's groups held against dense, windows, random tokens, random centroids and k-means.

    All arms read the same held-out windows with the same window and sinks. Errors: BadSetting, BadText.
    """
    lm, sizes, ids = run.lm, run.sizes, run.windows
    router = trained_router(run.context, lm, sizes.router)
    n_sink, length = always(sizes, router)[1], ids.shape[1]
    bench = Bench(lm, router, ids, n_sink, run.work, run.context)
    measured = {arm.name: bench.measure(arm) for arm in (DENSE, *map(window_arm, WINDOWS))}
    alone = {one: measured[f"window {one}"].means for one in CHOICES}
    chosen = sizes.window or choose_window(alone, measured["dense"].means) or min(CHOICES)
    measured |= {name: bench.measure(trained_arm(name, router, chosen)) for name in READINGS}
    equal = equal_pairs_window(measured["trained"].mean_pairs, length, n_sink)
    seeds = [sizes.seed + offset for offset in range(DRAWS)]
    untrained = untrained_routers(run.context, lm, router, run.texts[0], length, seeds, run.work)
    controls = [window_arm(chosen), window_arm(equal), *drawn_arms(router, chosen, sizes.seed)]
    controls += [Arm(name, {"window": chosen}, fitted) for name, fitted in untrained.items()]
    measured |= {arm.name: bench.measure(arm) for arm in controls if arm.name not in measured}
    warnings = []
    if router.about.get("corpus_hash") != corpus_hash(run.texts[0]):
        warnings.append("The router was trained on other texts than this folder's: whether it saw these is not known.")
    if len(ids) < sizes.windows:
        warnings.append(f"The held-out texts give {len(ids)} windows, and {sizes.windows} were asked for.")
    if router.window != chosen:
        warnings.append(
            f"The router was trained with a window of {router.window}, and every arm reads one of {chosen}."
        )
    return summary(measured, chosen, equal, router.K, run.documents) | {
        "router": sizes.router,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "warnings": warnings,
        "losses": {name: [round(loss, 6) for loss in arm.means.tolist()] for name, arm in measured.items()},
        "protocol": run.about(ids, kernel=KERNELS, router=sizes.router, router_hash=router_hash(router)),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    notes = [*numbers["warnings"], interval_caveat(numbers["protocol"])]
    return presented("groups", sentence(numbers), panels(numbers["rows"]), *notes)


def panels(rows: list[dict]) -> list[dict]:
    """Perplexity by the pairs that are read: windows alone up to all pairs as a line, every kind of groups a mark."""
    window = [row["arm"] for row in rows if row["arm"].startswith("window ")]
    alone = sorted((row for row in rows if row["arm"] in ("dense", *window)), key=lambda row: row["pairs_share"])
    groups = [row for row in rows if row["arm"] in GROUPED]
    drawn = [*alone, *groups]
    lines = [series("a window alone, up to all pairs", [row["perplexity"] for row in alone] + [None] * len(groups))]
    for one in groups:
        lines.append(series(one["arm"], [row["perplexity"] if row is one else None for row in drawn]))
    read, said = [round(100 * row["pairs_share"], 1) for row in drawn], "pairs read, % of the causal ones"
    return [panel("Perplexity by pairs read", "pairs_share", said, read, "perplexity", lines)]


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean loss of two windows of the bundled samples in some arms."""
    router, chosen = trained_router(run.context, run.lm, numbers["router"]), numbers["window"]
    ids = sample_windows(run.lm, numbers["length"])
    bench = Bench(run.lm, router, ids, numbers["n_sink"], None, run.context, expected=4)
    arms = (
        DENSE,
        window_arm(chosen),
        trained_arm("trained", router, chosen),
        drawn_arms(router, chosen, run.sizes.seed)[0],
    )
    return {arm.name: bench.measure(arm).means.tolist() for arm in arms}


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and the trained groups, hard, on all held-out windows."""
    router = trained_router(run.context, run.lm, numbers["router"])
    bench = Bench(run.lm, router, run.windows, numbers["n_sink"], None, run.context, expected=2)
    measured = {arm.name: bench.measure(arm) for arm in (DENSE, trained_arm("trained", router, numbers["window"]))}
    losses = {name: [round(loss, 6) for loss in arm.means.tolist()] for name, arm in measured.items()}
    rows = [arm.row(name) for name, arm in measured.items()]
    return {"rows": rows, "losses": losses, "protocol": {"text": bench.text}}


def untrained_routers(
    context: Context, lm: Model, router: FocusRouter, train: list[str], length: int, seeds: list[int], work: Path
) -> dict[str, FocusRouter]:
    """`random centroids SEED` for every seed, and `k-means` with the first, of the sizes, gate and window of `router`.

    Fitted and balanced on windows of `length` tokens of the training texts; kept in `work` and read from there.
    """
    documents = train[:: -(-len(train) // DOCUMENTS)]
    decides = f"{router_hash(router)} {lm.revision} {length} {CALIBRATION} {list(map(text_hash, documents))}"
    named = {f"random centroids {seed}": seed for seed in seeds} | {"k-means": seeds[0]}
    places = {
        name: work / f"{name.replace(' ', '-')}-{text_hash(f'{decides} {name} {seed}')}.safetensors"
        for name, seed in named.items()
    }
    if not all(path.is_file() and path.with_suffix(".json").is_file() for path in places.values()):
        context.progress(0.5, "reading the calibration texts")
        ids = token_stream(lm.tokenizer, documents)
        windows = spread_windows(ids, min(length, len(ids)), CALIBRATION).reshape(-1, min(length, len(ids)))
        report = lambda done: context.progress(0.5, f"calibration texts, {done:.0%}")  # noqa: E731
        inputs = attention_inputs(lm, list(windows), report)
        for name, seed in named.items():
            context.progress(0.5, f"fitting {name}")
            if name == "k-means":
                fitted = fit_without_training(inputs, seed=seed, **asdict(router.settings))
            else:
                fitted = random_centroids(router, inputs, seed)
            fitted.save(places[name])
    return {name: FocusRouter.load(path, lm.num_layers, lm.width) for name, path in places.items()}


arms = Study("groups", __doc__, Sizes, measure, shown, sample, "groups-{router}", ("rows", "comparisons"), part=part)
