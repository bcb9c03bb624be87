"""Why less can be more, measured (Focus, appendix A): what the pruned pairs of each layer held, and what they cost."""

import numpy as np

from analysis.claims import Claim, Comparison, detectable
from analysis.groups.router import FocusRouter
from analysis.studies.groups.routers import trained_router
from analysis.studies.stored.comparisons import (
    difference,
    holm_corrected,
    interval_caveat,
    minimum_detectable_effect,
    multiplicity_note,
)
from analysis.studies.stored.measured import DENSE, KERNELS, Measured, always, router_hash
from analysis.studies.stored.panels import chart, column, presented
from analysis.studies.stored.runner import Routed, Setting, Study
from analysis.studies.text.held_out import sample_windows
from lab.focus.pruning import NAMES, LayerArm, LayerBench, look, seeds
from lab.harness.pairs import equal_pairs_window

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


def measure(at: Setting) -> dict:
    """What a trained router's groups leave out of every layer, and what leaving it out of that layer alone does.

    Everything is measured on the same held-out windows with the router's window and sinks unless said otherwise, beside
    two controls: the router's groups dealt to the tokens by chance, and a window alone that reads as many pairs in that
    layer. Nothing is trained.
    `rows`: one per layer, `layer equal_window`, and of `entropy candidates mass norm change` (see `pruning.block_sums`)
    `KEY_dense` where it has one, `KEY_groups KEY_random KEY_window`; `loss_groups loss_random loss_window`, nats per
    token above dense, and `groups_minus_random`, each with `_low` and `_high`. `all_layers`: losses with every layer
    pruned, and `sum_of_layers`. Errors: BadSetting (also for models with sliding windows or soft caps), BadText.
    """
    lm, sizes, ids, seed = at.lm, at.sizes, at.windows, at.sizes.seed
    made = trained_router(at.context, lm, sizes.router)
    window, n_sink = always(sizes, made)
    layers, length = lm.num_layers, ids.shape[1]
    bench = LayerBench(lm, made, ids, n_sink, at.work, at.context, expected=3 * (layers + 1) + 2)
    dense = bench.measure(DENSE)
    found, wide = {}, []
    for layer in [*range(layers), None]:
        arms = layer_arms(made, window, layer, seed)
        found |= {(way, layer): bench.measure(arm) for way, arm in arms.items()}
        pairs = found["groups", layer].pairs[:, slice(None) if layer is None else layer]
        wide.append(equal_pairs_window(float(pairs.mean()), length, n_sink))
        alone = LayerArm(f"window {wide[-1]} in {_where(layer)}", {"window": wide[-1]}, layer=layer)
        found["window", layer] = bench.measure(alone)
    *wide, widest = wide
    seen = bench.looks(window, wide, seed)  # [n, L, 4, 5]
    rows = []
    for layer, ((before, *after), equal) in enumerate(zip(seen.mean(0), wide, strict=True)):
        row = {"layer": layer, "equal_window": equal}
        for place, key in enumerate(NAMES):
            row |= {f"{key}_dense": float(before[place])} if key in DENSE_TOO else {}
            row |= {f"{key}_{way}": float(values[place]) for way, values in zip(WAYS, after, strict=True)}
        rows.append(row | _losses({way: found[way, layer] for way in WAYS}, dense, at.documents))
    together = _losses({way: found[way, None] for way in WAYS}, dense, at.documents) | {"equal_window": widest}
    together["sum_of_layers"] = {way: sum(row[f"loss_{way}"] for row in rows) for way in WAYS}
    return {
        "rows": rows,
        "all_layers": together,
        "dense": {"loss": float(dense.means.mean()), "perplexity": float(np.exp(dense.means.mean()))},
        "router": sizes.router,
        "window": window,
        "n_sink": n_sink,
        "windows": len(ids),
        "length": length,
        "protocol": at.about(ids, kernel=KERNELS, router=sizes.router, router_hash=router_hash(made)),
    }


def shown(numbers: dict) -> dict:
    """How the study is told and drawn."""
    rows = numbers["rows"]
    columns, panels = drawn(rows)
    said = sentence(rows, numbers["all_layers"])
    return presented("pruned", said, panels, interval_caveat(numbers["protocol"])) | {"columns": columns}


def layer_arms(made: FocusRouter, window: int, layer: int | None, seed: int) -> dict[str, LayerArm]:
    """The router's groups, and those dealt by chance, in one layer alone (None: in all)."""
    where, settings = _where(layer), {"window": window}
    return {
        "groups": LayerArm(f"groups in {where}", settings, made, layer=layer),
        "random": LayerArm(f"random groups {seed} in {where}", settings, made, layer=layer, chance=seed),
    }


def sample(at: Setting, numbers: dict) -> dict[str, list[float]]:
    """Two windows of the bundled samples: every layer's losses and what was pruned of the first window."""
    lm, seed, n_sink, window = at.lm, at.sizes.seed, numbers["n_sink"], numbers["window"]
    made, ids = trained_router(at.context, lm, numbers["router"]), sample_windows(lm, numbers["length"])
    wide = [row["equal_window"] for row in numbers["rows"]]
    bench = LayerBench(lm, made, ids, n_sink, None, at.context, expected=lm.num_layers + 1)
    arms = [layer_arms(made, window, layer, seed)["groups"] for layer in range(lm.num_layers)]
    found = {arm.name: bench.measure(arm).means.tolist() for arm in (DENSE, *arms)}
    seen = look(lm, made, ids[0], window, n_sink, wide, seeds(seed, 0, lm.num_layers))
    ways = ("dense", *WAYS)
    return found | {f"pruned by {way}": seen[:, at].ravel().tolist() for at, way in enumerate(ways)}


def part(at: Setting, numbers: dict) -> dict:
    """Dense attention and the groups in the first layer alone, on all held-out windows."""
    made = trained_router(at.context, at.lm, numbers["router"])
    bench = LayerBench(at.lm, made, at.windows, numbers["n_sink"], None, at.context, expected=2)
    dense, first = bench.measure(DENSE), layer_arms(made, numbers["window"], 0, at.sizes.seed)["groups"]
    row = {"layer": 0} | difference("loss_groups", bench.measure(first).means, dense.means, at.documents)
    loss = float(dense.means.mean())
    return {"rows": [row], "dense": {"loss": loss, "perplexity": float(np.exp(loss))}, "protocol": {"text": bench.text}}


def _where(layer: int | None) -> str:
    return "all layers" if layer is None else f"layer {layer}"


def _losses(found: dict[str, Measured], dense: Measured, documents: np.ndarray) -> dict:
    """Losses above dense, and of the groups above random ones, with their intervals over `documents` [n]."""
    row = {}
    for way, arm in found.items():
        row |= difference(f"loss_{way}", arm.means, dense.means, documents)
    return row | difference("groups_minus_random", found["groups"].means, found["random"].means, documents)


def drawn(rows: list[dict]) -> tuple[list[dict], list[dict]]:
    """(the columns of the rows, one small chart over the layers for each thing that is measured)."""
    found, made = [column("layer", "layer"), column("equal_window", "window of equal pairs", "tokens")], []
    for key, (title, label, unit) in TITLES.items():
        keys = {"dense attention": f"{key}_dense"} if key in DENSE_TOO else {}
        keys |= {LABELS[way]: f"{key}_{way}" for way in WAYS}
        found += [column(name, f"{title}: {said.removesuffix(' attention')}", unit) for said, name in keys.items()]
        label = f"{label}, {unit}" if unit and unit not in label else label
        made.append(chart(title, rows, "layer", "layer", label, keys))
    return [*found, column("groups_minus_random", "loss: trained minus random groups", "nats per token")], made


def sentence(rows: list[dict], together: dict) -> str:
    """What was found, whichever way it came out."""
    keys = ("loss_groups", "groups_minus_random")
    *rows, together = holm_corrected([*rows, together], *keys)
    lower, higher, rest = _sides(rows, "loss_groups")
    less, more, alike = _sides(rows, "groups_minus_random")
    alone, paired = (Comparison.of(together, key) for key in keys)
    beside = Claim(paired, lower="they lose less", higher="they lose more").text()
    held = [row["mass_groups"] for row in rows]
    return (
        f"Pruning one layer alone by this router lowers the loss in {lower} and raises it in {higher}{rest}. "
        f"All layers together: {alone.evidence}. Against groups of the same sizes by chance, those of "
        f"this router lose less in {less} and more in {more}{alike}; all layers together: {beside}."
        f"{multiplicity_note([*rows, together], *keys)} The pruned pairs held "
        f"{min(held):.1%} to {max(held):.1%} of a layer's attention."
    )


def _sides(rows: list[dict], key: str) -> list[str]:
    """In which layers a comparison is below 0, and above; and the others, with what could have been detected there."""
    below, above, neither = ([row for row in rows if Comparison.of(row, key).direction == sign] for sign in (-1, 1, 0))
    least = minimum_detectable_effect(neither, key)
    unseen = f"{'not significant; ' if least else ''}{detectable(least)}"
    where = [_layers([str(row["layer"]) for row in some]) for some in (below, above, neither)]
    return [*where[:2], f" ({where[2]}: {unseen})" if neither else ""]


def _layers(names: list[str]) -> str:
    return f"layer{'s' * (len(names) > 1)} {', '.join(names)}" if names else "no layer"


pruned = Study("pruned", __doc__, Routed, measure, shown, sample, file="pruned-{router}", part=part)
