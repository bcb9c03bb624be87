"""How many groups should a token be in? One trained router read with every k (Focus, table 7), beside its controls."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analysis.claims import Claim, Comparison
from analysis.groups.router import FocusRouter
from analysis.models import Model
from analysis.studies.context import Context
from analysis.studies.groups.routers import stored_routers, trained_router
from analysis.studies.stored.comparisons import difference, holm_corrected, interval_caveat, multiplicity_note
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
from lab.harness.pairs import equal_pairs_window, window_pairs

SAME = 1e-3  # nats of a token by which two ways to compute one loss may differ
PAPER = {"GPT-2 124M": 42.8, "Mistral 7B": 10.8}  # model -> perplexity before Focus, as the caption of table 7 says
CONTROLS = {"against_dense": "dense", "against_random": "random tokens", "against_window": "a window of equal pairs"}
NAMED_AS = {1: "top-k=1 (argmax)", 4: "top-k=4 (full)"}


@dataclass(frozen=True)
class Sizes(Routed):
    """What the study can be asked for."""

    router: str = option("k4-top1", "router of Focus, named by its groups and memberships, such as k8-top1")


def measure(at: Setting) -> dict:
    """A trained router of K groups read with k = 1 to K groups per token, on the same held-out windows.

    Controls: random tokens in k of K groups (3 draws) and a window alone of equal pairs, both where 2 k <= K; dense.
    Trained routers `kK-topJ` of the same model stand beside at their own k.
    `rows`: `k router loss perplexity pairs_share distant_share`, the latter of the pairs that neither window nor sinks
    give; `against_dense`, `literal_minus_causal`, `against_random`, `against_window` in nats with `_low` and `_high`;
    `perplexity_random perplexity_window equal_window formula ideal furthest equals_dense`, `furthest` the largest
    change of a token's loss from dense. Beside them `dense`. Errors: BadSetting, BadText.
    """
    sizes, ids = at.sizes, at.windows
    made = trained_router(at.context, at.lm, sizes.router)
    window, n_sink = always(sizes, made)
    readings = {(sizes.router, k): made for k in range(1, made.K + 1)} | _own(at.context, at.lm, sizes.router, made)
    paired = sum(2 * k <= made.K for k in range(1, made.K + 1))
    expected = 1 + 2 * len(readings) + paired * (DRAWS + 1)
    bench = Bench(at.lm, made, ids, n_sink, at.work, at.context, expected, units=at.documents)
    dense = bench.measure(DENSE)
    drawn = {k: drawn_arms(made, window, sizes.seed, k) for k in range(1, made.K // 2 + 1)}
    random = {k: Measured.pool([bench.measure(arm) for arm in arms]) for k, arms in drawn.items()}
    hashes = {name: router_hash(one) for (name, _), one in readings.items()}
    return {
        "rows": [_row(bench, name, k, one, window, dense, random.get(k)) for (name, k), one in readings.items()],
        "dense": {"loss": float(dense.means.mean()), "perplexity": float(np.exp(dense.means.mean()))},
        "router": sizes.router,
        "groups": made.K,
        "window": window,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": ids.shape[1],
        "protocol": at.about(ids, kernel=KERNELS, router=sizes.router, router_hash=hashes),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    said = sentence(numbers["rows"], numbers["groups"])
    return presented("top", said, panels(numbers), interval_caveat(numbers["protocol"]))


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Mean loss of two windows of the bundled samples, dense and with every k."""
    made = trained_router(at.context, at.lm, numbers["router"])
    ids = sample_windows(at.lm, numbers["length"])
    bench = Bench(at.lm, made, ids, numbers["n_sink"], None, at.context, expected=made.K + 1)
    arms = [_trained(numbers["router"], made, k, numbers["window"]) for k in range(1, made.K + 1)]
    return {arm.name: bench.measure(arm).means.tolist() for arm in (DENSE, *arms)}


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention and the router read with one group per token, on all held-out windows."""
    made = trained_router(at.context, at.lm, numbers["router"])
    bench = Bench(at.lm, made, at.windows, numbers["n_sink"], None, at.context, expected=2)
    dense, one = (bench.measure(arm) for arm in (DENSE, _trained(numbers["router"], made, 1, numbers["window"])))
    row = {"k": 1, "router": numbers["router"]} | difference("against_dense", one.means, dense.means, at.documents)
    row |= {name: one.row("")[name] for name in ("loss", "perplexity", "pairs_share")}
    found = {name: dense.row("")[name] for name in ("loss", "perplexity")}
    return {"rows": [row], "dense": found, "protocol": {"text": bench.text}}


def _own(context: Context, lm: Model, router: str, made: FocusRouter) -> dict[tuple[str, int], FocusRouter]:
    """Trained routers of as many groups that were made for a k of their own, (name, k) -> router."""
    known = [
        facts
        for facts in stored_routers(context, lm)
        if facts["kind"] == "trained" and facts.get("revision") == lm.revision and facts["groups"] == made.K
    ]
    named = {(facts["name"], facts["top"]) for facts in known if facts["name"] == f"k{made.K}-top{facts['top']}"}
    return {(name, k): trained_router(context, lm, name) for name, k in sorted(named) if name != router}


def _trained(name: str, router: FocusRouter, k: int, window: int, **more: Any) -> Arm:
    said = "".join(f", {value}" for value in more.values())
    return Arm(f"{name} with top {k}{said}", {"window": window, "top": k, **more}, router)


def _row(
    bench: Bench, name: str, k: int, router: FocusRouter, window: int, dense: Measured, random: Measured | None
) -> dict:
    length, n_sink = bench.ids.shape[1], bench.n_sink
    found = bench.measure(_trained(name, router, k, window))
    literal = bench.measure(_trained(name, router, k, window, membership="literal"))
    near, every = window_pairs(window, length, n_sink), length * (length + 1) // 2
    told = found.row("trained")
    furthest = float(np.abs(found.losses - dense.losses).max())
    row = {"k": k, "router": name} | {key: told[key] for key in ("loss", "perplexity", "pairs_share")}
    row["distant_share"] = (found.mean_pairs - near) / (every - near)
    row |= difference("against_dense", found.means, dense.means, bench.units)
    row |= difference("literal_minus_causal", literal.means, found.means, bench.units)
    equal = equal_pairs_window(found.mean_pairs, length, n_sink)
    row |= {"perplexity_random": None, "perplexity_window": None, "equal_window": equal}
    if random is not None:
        for key, control in {"random": random, "window": bench.measure(window_arm(equal))}.items():
            read = control.row("")
            row |= difference(f"against_{key}", found.means, control.means, bench.units)
            row |= {f"{key}_pairs_share": read["pairs_share"], f"perplexity_{key}": read["perplexity"]}
            row |= difference(f"{key}_against_dense", control.means, dense.means, bench.units)
    ideal = {"formula": router.K / k, "ideal": 1 / row["pairs_share"]}
    return row | ideal | {"furthest": furthest, "equals_dense": furthest < SAME}


def panels(numbers: dict) -> list[dict]:
    """Small multiples over k; with four groups the paper's numbers stand beside."""
    ks = list(range(1, numbers["groups"] + 1))
    one = [row for row in numbers["rows"] if row["router"] == numbers["router"]]
    own = {row["k"]: row for row in numbers["rows"] if row["router"] != numbers["router"]}
    others = [own.get(k, {}) for k in ks]
    printed_too = _paper(ks) if numbers["groups"] == 4 else {}
    dense = numbers["dense"]["perplexity"]

    def ratio(rows: list[dict], key: str = "perplexity") -> list:
        return [row[key] / dense if row.get(key) else None for row in rows]

    def paper(name: str) -> list[dict]:
        return paper_lines({f"{model}, paper": cells[name] for model, cells in printed_too.items()})

    alone = {"random tokens": "random", "window of equal pairs": "window"}
    trained = [series("routers trained for k", ratio(others))] if own else []
    lines = [series(name, ratio(one, f"perplexity_{key}")) for name, key in alone.items()]
    lines = [series("one router, read with k", ratio(one)), *trained, *lines, *paper("PPL")]
    trained = [of_rows("routers trained for k", others, "against_dense")] if own else []
    above = [of_rows(name, one, f"{key}_against_dense") for name, key in alone.items()]
    above = [of_rows("one router, read with k", one, "against_dense"), *trained, *above]
    pairs = {"of all causal pairs": "pairs_share", "of the far pairs": "distant_share"}
    pairs["random tokens, of all"] = "random_pairs_share"
    speed, x = {"1 / pairs read": "ideal", "K/k, as the paper says": "formula"}, ("k", "groups per token, k")
    return [
        panel("Perplexity by that of dense attention", *x, ks, "times", lines),
        panel("Loss above dense attention", *x, ks, "nats per token", above),
        chart("Pairs read", one, *x, "share of the pairs", pairs, paper("Pairs retained")),
        chart("Speed-up that the pairs would allow", one, *x, "times", speed),
    ]


def _paper(ks: list[int]) -> dict[str, dict[str, list]]:
    """Table 7 as the paper prints it: perplexity by that of the pretrained model, and the share of pairs."""
    found = {}
    for name, pretrained in PAPER.items():
        rows = [f"{name}, {NAMED_AS.get(k, f'top-k={k}')}" for k in ks]
        found[name] = {
            column: [value and value / by for value in (printed("table 7", row, column) for row in rows)]
            for column, by in {"PPL": pretrained, "Pairs retained": 100}.items()
        }
    return found


def sentence(rows: list[dict], groups: int) -> str:
    """What more groups per token bring, and what routers that were trained for a k of their own do there."""
    keys = tuple(CONTROLS)
    paired = holm_corrected([row for row in rows if "against_random" in row], *keys)
    told = {True: [], False: []}
    for row in paired:
        first = row["router"] == rows[0]["router"]
        held = ", ".join(_held(row, key, _control(row, key)) for key in keys)
        name = f"k = {row['k']}" if first else f"{row['router']}, trained for k = {row['k']},"
        told[first].append(f"{name} reads {row['pairs_share']:.0%} of the pairs: {held}")
    full = [row for row in rows if row["router"] == rows[0]["router"] and 2 * row["k"] > groups]
    furthest = max(row["furthest"] for row in full)
    verdict = (
        "equal it" if all(row["equals_dense"] for row in full) else "differ from dense attention, which indicates a bug"
    )
    how = f" (largest change of a token's loss {furthest:.1e} nats)" if furthest else " bit for bit"
    others = f" Beside it, {'; '.join(told[False])}." if told[False] else ""
    return (
        f"Of this router, {'; '.join(told[True])}.{others}{multiplicity_note(paired, *keys)} "
        f"From k = {full[0]['k']} on all pairs are read: these rows are dense attention and {verdict}{how}."
    )


def _control(row: dict, key: str) -> str:
    """What a row is held against, and which share of the pairs that reads where it is not the row's own."""
    read = f"{row.get('random_pairs_share', 0):.0%}" if key == "against_random" else ""
    return CONTROLS[key] + (
        f", which read {read} of the pairs" if read not in ("", f"{row['pairs_share']:.0%}") else ""
    )


def _held(row: dict, key: str, other: str) -> str:
    """A row against a control, in words."""
    return Claim(Comparison.of(row, key, versus=other)).text()


top = Study("top", __doc__, Sizes, measure, shown, sample, file="top-{router}", part=part)
