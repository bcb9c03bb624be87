"""Do the groups do anything? Trained groups beside windows, random groups and k-means on the same held-out windows."""

from dataclasses import asdict

from analysis.corpus import token_stream
from analysis.groups.controls import random_centroids
from analysis.groups.fit import fit_without_training
from analysis.groups.router import FocusRouter
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import interval_caveat
from analysis.studies.stored.measured import DENSE, DRAWS, READINGS, Arm, drawn_arms, trained_arm, window_arm
from analysis.studies.stored.panels import panel, presented, series
from analysis.studies.stored.runner import Setting, option
from analysis.studies.text.held_out import corpus_hash, spread_windows
from analysis.training.settings import RouterTraining
from lab.focus.recovery import CHOICES, CONTROLS, POINTS, WINDOWS, choose_window, judged, summary
from lab.harness.routed import Routed, equal_pairs_window
from lab.harness.telling import concluded

# Training documents, evenly chosen, that are tokenised for it.
DOCUMENTS = 16
# From them: as many as a trained router's balance is frozen on.
CALIBRATION = RouterTraining.calibration_windows
USUAL = "tokens that are always read (default: the largest of 8, 16, 32, 64 that alone is 3% above dense)"


class Groups(Routed):
    """A trained router's groups held against dense, windows, random tokens, random centroids and k-means; all arms read
    with the same window and sinks."""

    file = "groups-{router}"
    tables = ("rows", "comparisons")

    window: int | None = option(None, USUAL)

    def measure(self, run: Setting) -> dict:
        ids = run.windows
        router, _, bench = self.bench(run, 19)
        measured = {arm.name: bench.measure(arm) for arm in (DENSE, *map(window_arm, WINDOWS))}
        alone = {window: measured[f"window {window}"].means for window in CHOICES}
        chosen = self.window or choose_window(alone, measured["dense"].means) or min(CHOICES)
        measured |= {name: bench.measure(trained_arm(name, router, chosen)) for name in READINGS}
        equal = equal_pairs_window(measured["trained"].mean_pairs, ids.shape[1], bench.n_sink)
        controls = [window_arm(chosen), window_arm(equal), *drawn_arms(router, chosen, self.seed)]
        controls += [Arm(name, {"window": chosen}, fitted) for name, fitted in self.untrained(run, router).items()]
        measured |= {arm.name: bench.measure(arm) for arm in controls if arm.name not in measured}
        warnings = []
        if router.about.get("corpus_hash") != corpus_hash(run.texts[0]):
            warnings.append("The router was trained on other texts than these: whether it saw these is not known.")
        if len(ids) < self.windows:
            warnings.append(f"The held-out texts give {len(ids)} windows, and {self.windows} were asked for.")
        if router.window != chosen:
            warnings.append(f"The router was trained with a window of {router.window}; every arm reads {chosen}.")
        losses = {name: [round(loss, 6) for loss in arm.means.tolist()] for name, arm in measured.items()}
        compared = summary(measured, chosen, equal, router.K, run.documents)
        return compared | self.facts(run, router, chosen, bench.n_sink) | {"warnings": warnings, "losses": losses}

    def untrained(self, run: Setting, router: FocusRouter) -> dict[str, FocusRouter]:
        """`random centroids SEED` for `DRAWS` seeds, and `k-means` with the first, of the sizes, gate and window of
        `router`: fitted and balanced on training texts."""
        train = run.texts[0]
        run.context.progress(0.5, "reading the calibration texts")
        ids = token_stream(run.lm.tokenizer, train[:: -(-len(train) // DOCUMENTS)])
        length = min(self.length, len(ids))
        inputs = attention_inputs(run.lm, list(spread_windows(ids, length, CALIBRATION).reshape(-1, length)))
        run.context.progress(0.5, "fitting groups without training")
        seeds = range(self.seed, self.seed + DRAWS)
        fitted = {f"random centroids {seed}": random_centroids(router, inputs, seed) for seed in seeds}
        return fitted | {"k-means": fit_without_training(inputs, seed=self.seed, **asdict(router.settings))}

    def sample(self, run: Setting, numbers: dict) -> dict:
        chosen = numbers["window"]

        def arms(router: FocusRouter, window: int) -> list[Arm]:
            drawn = drawn_arms(router, chosen, self.seed)[0]
            return [DENSE, window_arm(chosen), trained_arm("trained", router, chosen), drawn]

        return self.sample_losses(run, arms)

    @staticmethod
    def shown(numbers: dict) -> dict:
        verdict, rows = numbers["claims"], {row["arm"]: row for row in numbers["rows"]}
        words = {True: "do more than random ones here", False: "do not do all here that the claim asks for"}
        trained, compared = rows["trained"], []
        for row in judged(numbers["comparisons"]):
            reads = rows[row["control"]]["pairs_share"]
            fewer = ", which reads fewer" if round(reads, 3) < round(trained["pairs_share"], 3) else ""
            compared.append(row | {"reads": f"against {row['control']}{fewer} ({reads:.1%} of the pairs)"})
        lead = f"The groups of this router {words[verdict['holds']]}. With a window of {numbers['window']} they read "
        lead += f"{trained['pairs_share']:.1%} of the pairs; "
        sentence = concluded(lead, compared, {"difference": ""}, "{reads}")
        if verdict["points"] is not None:
            sentence += f" Against random tokens they recover {verdict['points']:+.1f} points of what the window loses;"
            sentence += f" the claim asks for {POINTS}."
        sentence += f" The largest group holds {verdict['largest_share']:.1%} of a layer's tokens (the limit is "
        sentence += f"{verdict['share_limit']:.0%})."
        notes = [*numbers["warnings"], interval_caveat(numbers["protocol"])]
        return presented("groups", sentence, [pairs_panel(numbers["rows"])], *notes)


def pairs_panel(rows: list[dict]) -> dict:
    """Perplexity by the pairs that are read: windows alone up to all pairs as a line, every kind of groups a mark."""
    alone = [row for row in rows if row["arm"] == "dense" or row["arm"].startswith("window ")]
    alone.sort(key=lambda row: row["pairs_share"])
    groups = [row for row in rows if row["arm"] in ("trained", *CONTROLS)]
    drawn = [*alone, *groups]
    lines = [series("a window alone, up to all pairs", [row["perplexity"] for row in alone] + [None] * len(groups))]
    for group in groups:
        lines.append(series(group["arm"], [row["perplexity"] if row is group else None for row in drawn]))
    pairs, label = [round(100 * row["pairs_share"], 1) for row in drawn], "pairs read, % of the causal ones"
    return panel("Perplexity by pairs read", "pairs_share", label, pairs, "perplexity", lines)
