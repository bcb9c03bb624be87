"""How many groups should a token be in? One trained router read with every k (Focus, table 7), beside its controls."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.groups.routers import stored_routers, trained_router
from analysis.studies.stored.comparisons import difference, interval_caveat
from analysis.studies.stored.measured import (
    DENSE,
    DRAWS,
    KERNELS,
    Arm,
    Bench,
    Measured,
    always,
    drawn_arms,
    router_hash,
    window_arm,
)
from analysis.studies.stored.panels import chart, of_rows, panel, paper_lines, presented, printed, series
from analysis.studies.stored.runner import Routed, Setting, Study, option
from analysis.studies.text.held_out import sample_windows
from lab.harness.pairs import equal_pairs_window, pairs_share, window_pairs
from lab.harness.telling import concluded

SAME = 1e-3  # nats of a token by which two ways to compute one loss may differ
PAPER = {"GPT-2 124M": 42.8, "Mistral 7B": 10.8}  # model -> perplexity before Focus, as the caption of table 7 says
CONTROLS = {"against_dense": "dense", "against_random": "random tokens", "against_window": "a window of equal pairs"}
NAMED_AS = {1: "top-k=1 (argmax)", 4: "top-k=4 (full)"}


@dataclass(frozen=True)
class Sizes(Routed):
    """A router of few groups, so that every k can be read."""

    router: str = option("k4-top1", "router of Focus, named by its groups and memberships, such as k8-top1")


def measure(run: Setting) -> dict:
    """A trained router of K groups read with k = 1 to K groups per token, beside random tokens in as many groups and a
    window of equal pairs where 2 k <= K; routers trained for a k of their own are read at theirs. Errors: BadSetting,
    BadText."""
    sizes, ids, units = run.sizes, run.windows, run.documents
    router = trained_router(run.context, run.lm, sizes.router)
    window, n_sink = always(sizes, router)
    length, groups = ids.shape[1], router.K
    readings = {(sizes.router, k): router for k in range(1, groups + 1)}
    for facts in sorted(stored_routers(run.context, run.lm), key=lambda facts: facts["top"]):
        name = f"k{groups}-top{facts['top']}"
        same_model = facts["kind"] == "trained" and facts.get("revision") == run.lm.revision
        if same_model and facts["name"] == name != sizes.router:
            readings[name, facts["top"]] = trained_router(run.context, run.lm, name)
    expected = 1 + 2 * len(readings) + groups // 2 * (DRAWS + 1)
    bench = Bench(run.lm, router, ids, n_sink, run.work, run.context, expected, units=units)
    dense, random = bench.measure(DENSE), {}
    for k in range(1, groups // 2 + 1):
        random[k] = Measured.pool([bench.measure(arm) for arm in drawn_arms(router, window, sizes.seed, k)])
    near = window_pairs(window, length, n_sink)
    rows = []
    for (name, k), reader in readings.items():
        trained = bench.measure(_arm(name, reader, k, window))
        literal = bench.measure(_arm(name, reader, k, window, membership="literal"))
        read = trained.row("")
        row = {"k": k, "router": name} | {key: read[key] for key in ("loss", "perplexity", "pairs_share")}
        row["distant_share"] = (trained.mean_pairs - near) / (length * (length + 1) // 2 - near)
        row |= difference("against_dense", trained.means, dense.means, units)
        row |= difference("literal_minus_causal", literal.means, trained.means, units)
        equal = equal_pairs_window(trained.mean_pairs, length, n_sink)
        row |= {"perplexity_random": None, "perplexity_window": None, "equal_window": equal}
        if k in random:
            for key, control in {"random": random[k], "window": bench.measure(window_arm(equal))}.items():
                row |= difference(f"against_{key}", trained.means, control.means, units)
                row[f"{key}_pairs_share"] = pairs_share(control.mean_pairs, length)
                row[f"perplexity_{key}"] = control.row("")["perplexity"]
                row |= difference(f"{key}_against_dense", control.means, dense.means, units)
        furthest = float(np.abs(trained.losses - dense.losses).max())
        row |= {"formula": groups / k, "ideal": 1 / row["pairs_share"]}
        rows.append(row | {"furthest": furthest, "equals_dense": furthest < SAME})
    hashes = {name: router_hash(reader) for (name, _), reader in readings.items()}
    return {
        "rows": rows,
        "dense": {name: dense.row("")[name] for name in ("loss", "perplexity")},
        "router": sizes.router,
        "groups": groups,
        "window": window,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "protocol": run.about(ids, kernel=KERNELS, router=sizes.router, router_hash=hashes),
    }


def _arm(name: str, router: FocusRouter, k: int, window: int, **more: Any) -> Arm:
    suffix = "".join(f", {value}" for value in more.values())
    return Arm(f"{name} with top {k}{suffix}", {"window": window, "top": k, **more}, router)


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean loss of two windows of the bundled samples, dense and with every k."""
    router = trained_router(run.context, run.lm, numbers["router"])
    ids = sample_windows(run.lm, numbers["length"])
    bench = Bench(run.lm, router, ids, numbers["n_sink"], None, run.context, expected=router.K + 1)
    arms = [_arm(numbers["router"], router, k, numbers["window"]) for k in range(1, router.K + 1)]
    return {arm.name: bench.measure(arm).means.tolist() for arm in (DENSE, *arms)}


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and the router read with one group per token, on all held-out windows."""
    router = trained_router(run.context, run.lm, numbers["router"])
    bench = Bench(run.lm, router, run.windows, numbers["n_sink"], None, run.context, expected=2)
    dense, one = (bench.measure(arm) for arm in (DENSE, _arm(numbers["router"], router, 1, numbers["window"])))
    row = {"k": 1, "router": numbers["router"]} | difference("against_dense", one.means, dense.means, run.documents)
    row |= {name: one.row("")[name] for name in ("loss", "perplexity", "pairs_share")}
    alone = {name: dense.row("")[name] for name in ("loss", "perplexity")}
    return {"rows": [row], "dense": alone, "protocol": {"text": bench.text}}


def shown(numbers: dict) -> dict:
    """What more groups per token bring, and what routers that were trained for a k of their own do there."""
    rows, first = numbers["rows"], numbers["router"]
    paired = [row for row in rows if "against_random" in row]
    lead = "Of this router, read with k groups per token: "

    def subject(row: dict) -> str:
        own = "" if row["router"] == first else f" ({row['router']}, trained for it)"
        reads = f"reads {row['pairs_share']:.0%} of the pairs (random tokens {row['random_pairs_share']:.0%})"
        return f"k = {row['k']}{own} {reads}"

    all_pairs = [row for row in rows if row["router"] == first and 2 * row["k"] > numbers["groups"]]
    equal = all(row["equals_dense"] for row in all_pairs)
    verdict = "equal it" if equal else "differ from dense attention, which indicates a bug"
    furthest = max(row["furthest"] for row in all_pairs)
    sentence = (
        f"{concluded(lead, paired, CONTROLS, subject)} From k = {all_pairs[0]['k']} on all pairs are read: these rows "
        f"are dense attention and {verdict} (largest change of a token's loss {furthest:.1e} nats)."
    )
    return presented("top", sentence, panels(numbers), interval_caveat(numbers["protocol"]))


def panels(numbers: dict) -> list[dict]:
    """Small multiples over k; with four groups the paper's numbers stand beside."""
    ks, dense = list(range(1, numbers["groups"] + 1)), numbers["dense"]["perplexity"]
    one = [row for row in numbers["rows"] if row["router"] == numbers["router"]]
    own = {row["k"]: row for row in numbers["rows"] if row["router"] != numbers["router"]}
    own_rows = [own.get(k, {}) for k in ks]

    def ratio(rows: list[dict], key: str = "perplexity") -> list:
        return [row[key] / dense if row.get(key) else None for row in rows]

    def paper(column: str, by: dict[str, float]) -> list[dict]:
        lines = {}
        for model, whole in by.items() if numbers["groups"] == 4 else ():
            cells = [printed("table 7", f"{model}, {NAMED_AS.get(k, f'top-k={k}')}", column) for k in ks]
            lines[f"{model}, paper"] = [cell and cell / whole for cell in cells]
        return paper_lines(lines)

    ratios = [series("one router, read with k", ratio(one))]
    above = [of_rows("one router, read with k", one, "against_dense")]
    if own:
        ratios.append(series("routers trained for k", ratio(own_rows)))
        above.append(of_rows("routers trained for k", own_rows, "against_dense"))
    for name, key in {"random tokens": "random", "window of equal pairs": "window"}.items():
        ratios.append(series(name, ratio(one, f"perplexity_{key}")))
        above.append(of_rows(name, one, f"{key}_against_dense"))
    shares = {"of all causal pairs": "pairs_share", "of the far pairs": "distant_share"}
    shares["random tokens, of all"] = "random_pairs_share"
    speed, x = {"1 / pairs read": "ideal", "K/k, as the paper says": "formula"}, ("k", "groups per token, k")
    retained = paper("Pairs retained", dict.fromkeys(PAPER, 100))
    return [
        panel("Perplexity by that of dense attention", *x, ks, "times", [*ratios, *paper("PPL", PAPER)]),
        panel("Loss above dense attention", *x, ks, "nats per token", above),
        chart("Pairs read", one, *x, "share of the pairs", shares, retained),
        chart("Speed-up that the pairs would allow", one, *x, "times", speed),
    ]


top = Study("top", __doc__, Sizes, measure, shown, sample, file="top-{router}", part=part)
