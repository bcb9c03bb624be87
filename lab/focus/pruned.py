"""Why less can be more, measured (Focus, appendix A): what the pruned pairs of each layer held, and what they cost."""

import numpy as np

from analysis.groups.router import FocusRouter
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.comparisons import difference, holm_corrected, interval_caveat
from analysis.studies.stored.measured import DENSE, KERNELS, Measured, always, router_hash
from analysis.studies.stored.panels import chart, column, presented
from analysis.studies.stored.runner import Routed, Setting, Study
from analysis.studies.text.held_out import sample_windows
from lab.focus.pruning import NAMES, LayerArm, LayerBench, look, seeds
from lab.harness.pairs import equal_pairs_window
from lab.harness.telling import concluded, counted

WAYS = ("groups", "random", "window")  # what prunes: the router, groups of the same sizes by chance, a window alone
LABELS = {"groups": "trained groups", "random": "random groups of these sizes", "window": "a window of equal pairs"}
TITLES = {  # key of a row -> (panel, what its values are, unit)
    "entropy": ("Entropy of attention", "entropy of a query's attention", "nats"),
    "candidates": ("Candidate set", "keys that a query reads", "keys"),
    "mass": ("Attention mass of the pruned pairs", "share of dense attention", ""),
    "norm": ("Output of the pruned pairs", "norm of theirs by norm of output", ""),
    "change": ("Change of the layer's output", "norm of change by norm of output", ""),
    "loss": ("Loss when this layer alone is pruned", "change of the loss", "nats per token"),
}
DENSE_TOO = ("entropy", "candidates")  # keys that dense attention has as well
CONTROLS = {"loss_groups": "dense attention", "groups_minus_random": "random groups of the same sizes"}


def measure(run: Setting) -> dict:
    """What a trained router's groups leave out of every layer, and what leaving it out of that layer alone does, beside
    its groups dealt to the tokens by chance and a window that reads as many pairs in that layer. Nothing is trained.
    Errors: BadSetting (also for models with sliding windows or soft caps), BadText."""
    lm, sizes, ids, seed = run.lm, run.sizes, run.windows, run.sizes.seed
    router = trained_router(run.context, lm, sizes.router)
    window, n_sink = always(sizes, router)
    layers, length = lm.num_layers, ids.shape[1]
    bench = LayerBench(lm, router, ids, n_sink, run.work, run.context, expected=3 * (layers + 1) + 2)
    dense = bench.measure(DENSE)
    pruned, wide = [], []
    for layer in [*range(layers), None]:
        arms = {way: bench.measure(arm) for way, arm in layer_arms(router, window, layer, seed).items()}
        pairs = arms["groups"].pairs[:, slice(None) if layer is None else layer]
        wide.append(equal_pairs_window(float(pairs.mean()), length, n_sink))
        alone = LayerArm(f"window {wide[-1]} in {_where(layer)}", {"window": wide[-1]}, layer=layer)
        pruned.append(arms | {"window": bench.measure(alone)})
    looks = bench.looks(window, wide[:-1], seed).mean(0)  # [L, 4, 5]
    rows = []
    for layer, (before, *after) in enumerate(looks):
        row = {"layer": layer, "equal_window": wide[layer]}
        for place, key in enumerate(NAMES):
            if key in DENSE_TOO:
                row[f"{key}_dense"] = float(before[place])
            for way, values in zip(WAYS, after, strict=True):
                row[f"{key}_{way}"] = float(values[place])
        rows.append(row | _losses(pruned[layer], dense, run.documents))
    together = _losses(pruned[-1], dense, run.documents) | {"equal_window": wide[-1]}
    together["sum_of_layers"] = {way: sum(row[f"loss_{way}"] for row in rows) for way in WAYS}
    return {
        "rows": rows,
        "all_layers": together,
        "dense": {name: dense.row("")[name] for name in ("loss", "perplexity")},
        "router": sizes.router,
        "window": window,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "protocol": run.about(ids, kernel=KERNELS, router=sizes.router, router_hash=router_hash(router)),
    }


def layer_arms(router: FocusRouter, window: int, layer: int | None, seed: int) -> dict[str, LayerArm]:
    """The router's groups, and those dealt by chance, in one layer alone (None: in all)."""
    where, settings = _where(layer), {"window": window}
    return {
        "groups": LayerArm(f"groups in {where}", settings, router, layer=layer),
        "random": LayerArm(f"random groups {seed} in {where}", settings, router, layer=layer, chance=seed),
    }


def _where(layer: int | None) -> str:
    return "all layers" if layer is None else f"layer {layer}"


def _losses(arms: dict[str, Measured], dense: Measured, documents: np.ndarray) -> dict:
    """Losses above dense, and of the groups above random ones, with their intervals over `documents` [n]."""
    row = {}
    for way, arm in arms.items():
        row |= difference(f"loss_{way}", arm.means, dense.means, documents)
    return row | difference("groups_minus_random", arms["groups"].means, arms["random"].means, documents)


def sample(run: Setting, numbers: dict) -> dict[str, list[float]]:
    """Two windows of the bundled samples: every layer's losses and what was pruned of the first window."""
    lm, seed, n_sink, window = run.lm, run.sizes.seed, numbers["n_sink"], numbers["window"]
    router, ids = trained_router(run.context, lm, numbers["router"]), sample_windows(lm, numbers["length"])
    bench = LayerBench(lm, router, ids, n_sink, None, run.context, expected=lm.num_layers + 1)
    arms = [layer_arms(router, window, layer, seed)["groups"] for layer in range(lm.num_layers)]
    values = {arm.name: bench.measure(arm).means.tolist() for arm in (DENSE, *arms)}
    wide = [row["equal_window"] for row in numbers["rows"]]
    looks = look(lm, router, ids[0], window, n_sink, wide, seeds(seed, 0, lm.num_layers))
    for place, way in enumerate(("dense", *WAYS)):
        values[f"pruned by {way}"] = looks[:, place].ravel().tolist()
    return values


def part(run: Setting, numbers: dict) -> dict:
    """Dense attention and the groups in the first layer alone, on all held-out windows."""
    router = trained_router(run.context, run.lm, numbers["router"])
    bench = LayerBench(run.lm, router, run.windows, numbers["n_sink"], None, run.context, expected=2)
    dense, first = bench.measure(DENSE), layer_arms(router, numbers["window"], 0, run.sizes.seed)["groups"]
    row = {"layer": 0} | difference("loss_groups", bench.measure(first).means, dense.means, run.documents)
    alone = {name: dense.row("")[name] for name in ("loss", "perplexity")}
    return {"rows": [row], "dense": alone, "protocol": {"text": bench.text}}


def shown(numbers: dict) -> dict:
    """What pruning each layer alone, and all of them, does to the loss."""
    rows, shares = numbers["rows"], [row["mass_groups"] for row in numbers["rows"]]
    family = holm_corrected([*rows, numbers["all_layers"]], *CONTROLS)
    *layers, whole = family
    lead = f"One layer alone is pruned by this router. {counted(layers, 'layers', CONTROLS)} "
    whole = concluded(lead, [whole], CONTROLS, lambda row: "All layers together", family=family)
    sentence = f"{whole} The pruned pairs held {min(shares):.1%} to {max(shares):.1%} of a layer's attention."
    columns, charts = [column("layer", "layer"), column("equal_window", "window of equal pairs", "tokens")], []
    for key, (title, label, unit) in TITLES.items():
        keys = {"dense attention": f"{key}_dense"} if key in DENSE_TOO else {}
        keys |= {LABELS[way]: f"{key}_{way}" for way in WAYS}
        for name, field in keys.items():
            columns.append(column(field, f"{title}: {name.removesuffix(' attention')}", unit))
        label = f"{label}, {unit}" if unit and unit not in label else label
        charts.append(chart(title, rows, "layer", "layer", label, keys))
    columns.append(column("groups_minus_random", "loss: trained minus random groups", "nats per token"))
    return presented("pruned", sentence, charts, interval_caveat(numbers["protocol"])) | {"columns": columns}


pruned = Study("pruned", __doc__, Routed, measure, shown, sample, file="pruned-{router}", part=part)
