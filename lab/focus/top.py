"""How many groups should a token be in? One trained router read with every k (Focus, table 7), beside its controls."""

from typing import Any

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.groups.routers import stored_routers, trained_router
from analysis.studies.stored.comparisons import Row, difference, interval_caveat
from analysis.studies.stored.measured import DENSE, DRAWS, Arm, Measured, drawn_arms, router_hash, window_arm
from analysis.studies.stored.panels import Line, chart, of_rows, panel, paper_lines, presented, printed, series
from analysis.studies.stored.runner import Setting, option
from lab.harness.routed import Routed, causal_pairs, equal_pairs_window, pairs_share, window_pairs
from lab.harness.telling import concluded

# Nats of a token by which two ways to compute one loss may differ.
SAME = 1e-3
# Model -> perplexity before Focus, as the caption of table 7 says.
PAPER = {"GPT-2 124M": 42.8, "Mistral 7B": 10.8}
CONTROLS = {"against_dense": "dense", "against_random": "random tokens", "against_window": "a window of equal pairs"}
NAMED_AS = {1: "top-k=1 (argmax)", 2: "top-k=2", 3: "top-k=3", 4: "top-k=4 (full)"}
SUBJECT = "k = {k}, {router} reads {pairs_share:.0%} of the pairs (random tokens {random_pairs_share:.0%})"


def _arm(name: str, router: FocusRouter, k: int, window: int, **more: Any) -> Arm:
    suffix = "".join(f", {value}" for value in more.values())
    return Arm(f"{name} with top {k}{suffix}", {"window": window, "top": k, **more}, router)


class Top(Routed):
    """A trained router of K groups read with k = 1 to K groups per token, beside random tokens in as many groups and a
    window of equal pairs where 2 k <= K; routers trained for a k of their own are read at theirs."""

    file = "top-{router}"

    router: str = option("k4-top1", "router of Focus, named by its groups and memberships, such as k8-top1")

    def measure(self, run: Setting) -> dict:
        units, length = run.documents, self.length
        router, window, bench = self.bench(run, 0)
        groups, n_sink = router.K, bench.n_sink
        readings = {(self.router, k): router for k in range(1, groups + 1)}
        for facts in sorted(stored_routers(run.context, run.lm), key=lambda facts: facts["top"]):
            name = f"k{groups}-top{facts['top']}"
            same_model = facts["kind"] == "trained" and facts.get("revision") == run.lm.revision
            if same_model and facts["name"] == name != self.router:
                readings[name, facts["top"]] = trained_router(run.context, run.lm, name)
        bench.expected = 1 + 2 * len(readings) + groups // 2 * (DRAWS + 1)
        dense, random = bench.measure(DENSE), {}
        for k in range(1, groups // 2 + 1):
            random[k] = Measured.pool([bench.measure(arm) for arm in drawn_arms(router, window, self.seed, k)])
        near, rows = window_pairs(window, length, n_sink), []
        for (name, k), reader in readings.items():
            trained = bench.measure(_arm(name, reader, k, window))
            literal = bench.measure(_arm(name, reader, k, window, membership="literal"))
            row: Row = {"k": k, "router": name, "pairs_share": pairs_share(trained.mean_pairs, length)} | trained.level
            row |= {"distant_share": (trained.mean_pairs - near) / (causal_pairs(length) - near)}
            row |= difference("against_dense", trained.means, dense.means, units)
            row |= difference("literal_minus_causal", literal.means, trained.means, units)
            equal = equal_pairs_window(trained.mean_pairs, length, n_sink)
            row |= {"perplexity_random": None, "perplexity_window": None, "equal_window": equal}
            if k in random:
                for key, control in {"random": random[k], "window": bench.measure(window_arm(equal))}.items():
                    row |= difference(f"against_{key}", trained.means, control.means, units)
                    row[f"{key}_pairs_share"] = pairs_share(control.mean_pairs, length)
                    row[f"perplexity_{key}"] = control.level["perplexity"]
                    row |= difference(f"{key}_against_dense", control.means, dense.means, units)
            furthest = float(np.abs(trained.losses - dense.losses).max())
            row |= {"formula": groups / k, "ideal": 1 / row["pairs_share"]}
            rows.append(row | {"furthest": furthest, "equals_dense": furthest < SAME})
        hashes = {name: router_hash(reader) for (name, _), reader in readings.items()}
        about = self.facts(run, router, window, n_sink, router_hash=hashes)
        return {"rows": rows, "dense": dense.level, "groups": groups} | about

    def sample(self, run: Setting, numbers: dict) -> dict:
        def arms(router: FocusRouter, window: int) -> list[Arm]:
            return [DENSE, *(_arm(self.router, router, k, window) for k in range(1, router.K + 1))]

        return self.sample_losses(run, arms)

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        all_pairs = [row for row in rows if row["router"] == numbers["router"] and 2 * row["k"] > numbers["groups"]]
        equal = all(row["equals_dense"] for row in all_pairs)
        verdict = "equal it" if equal else "differ from dense attention, which indicates a bug"
        sentence = concluded("", [row for row in rows if "against_random" in row], CONTROLS, SUBJECT)
        sentence += (
            f" From k = {all_pairs[0]['k']} on all pairs are read: these rows are dense attention and {verdict}."
        )
        return presented("top", sentence, _panels(numbers), interval_caveat(numbers["protocol"]))


def _panels(numbers: dict) -> list[dict]:
    """Small multiples over k; with four groups the paper's numbers stand beside."""
    ks, dense = list(range(1, numbers["groups"] + 1)), numbers["dense"]["perplexity"]
    own_rows = [row for row in numbers["rows"] if row["router"] == numbers["router"]]
    by_k = {row["k"]: row for row in numbers["rows"] if row["router"] != numbers["router"]}
    lines = [("one router, read with k", own_rows, "perplexity", "against_dense")]
    if by_k:
        lines.append(("routers trained for k", [by_k.get(k, {}) for k in ks], "perplexity", "against_dense"))
    for name, key in {"random tokens": "random", "window of equal pairs": "window"}.items():
        lines.append((name, own_rows, f"perplexity_{key}", f"{key}_against_dense"))
    ratios, above = [], []
    for name, rows, level, key in lines:
        ratios.append(series(name, [row[level] / dense if row.get(level) else None for row in rows]))
        above.append(of_rows(name, rows, key))
    paper: dict[str, list[Line]] = {"PPL": [], "Pairs retained": []}
    if numbers["groups"] == len(NAMED_AS):
        for column, by in {"PPL": PAPER, "Pairs retained": dict.fromkeys(PAPER, 100.0)}.items():
            for model, rows_of in by.items():
                cells = [printed("table 7", f"{model}, {name}", column) for name in NAMED_AS.values()]
                paper[column] += paper_lines({f"{model}, paper": [cell and cell / rows_of for cell in cells]})
    shares = {"of all causal pairs": "pairs_share", "of the far pairs": "distant_share"}
    shares["random tokens, of all"] = "random_pairs_share"
    speed, x = {"1 / pairs read": "ideal", "K/k, as the paper says": "formula"}, ("k", "groups per token, k")
    return [
        panel("Perplexity by that of dense attention", *x, ks, "times", [*ratios, *paper["PPL"]]),
        panel("Loss above dense attention", *x, ks, "nats per token", above),
        chart("Pairs read", own_rows, *x, "share of the pairs", shares, paper["Pairs retained"]),
        chart("Speed-up that the pairs would allow", own_rows, *x, "times", speed),
    ]
