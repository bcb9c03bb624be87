"""Why less can be more, measured (Focus, appendix A): what the pruned pairs of each layer held, and what they cost."""

import numpy as np

from analysis.errors import BadSetting
from analysis.groups.router import FocusRouter
from analysis.studies.stored.comparisons import Row, difference, holm_corrected, interval_caveat
from analysis.studies.stored.measured import DENSE, Arm, Measured, layer_seeds, router_hash
from analysis.studies.stored.panels import chart, column, presented
from analysis.studies.stored.runner import Setting
from analysis.studies.text.held_out import ids_hash, sample_windows
from lab.focus.pruning import NAMES, look
from lab.harness.routed import Routed, equal_pairs_window
from lab.harness.telling import concluded, counted

# What prunes: the router, groups of the same sizes by chance, a window alone.
WAYS = {"groups": "trained groups", "random": "random groups of these sizes", "window": "a window of equal pairs"}
TITLES = {  # key of a row -> (panel, what its values are, unit)
    "entropy": ("Entropy of attention", "entropy of a query's attention", "nats"),
    "candidates": ("Candidate set", "keys that a query reads", "keys"),
    "mass": ("Attention mass of the pruned pairs", "share of dense attention", ""),
    "norm": ("Output of the pruned pairs", "norm of theirs by norm of output", ""),
    "change": ("Change of the layer's output", "norm of change by norm of output", ""),
    "loss": ("Loss when this layer alone is pruned", "change of the loss", "nats per token"),
}
# Keys that dense attention has as well.
DENSE_TOO = ("entropy", "candidates")
CONTROLS = {"loss_groups": "dense attention", "groups_minus_random": "random groups of the same sizes"}


class Pruned(Routed):
    """What a trained router's groups leave out of every layer, and what leaving it out of that layer alone does, beside
    its groups dealt to the tokens by chance and a window that reads as many pairs in that layer. Nothing is trained."""

    file = "pruned-{router}"

    def measure(self, run: Setting) -> dict:
        layers = run.lm.num_layers
        router, window, bench = self.bench(run, 3 * (layers + 1) + 2)
        dense, pruned, wide, rows = bench.measure(DENSE), [], [], []
        for layer in [*range(layers), None]:
            arms = {way: bench.measure(arm) for way, arm in layer_arms(router, window, layer, self.seed).items()}
            pairs = arms["groups"].pairs[:, slice(None) if layer is None else layer]
            wide.append(equal_pairs_window(float(pairs.mean()), self.length, bench.n_sink))
            alone = Arm(f"window {wide[-1]} in {_where(layer)}", {"window": wide[-1]}, layer=layer)
            pruned.append(arms | {"window": bench.measure(alone)})
        for layer, (before, *after) in enumerate(self.looks(run, router, window, bench.n_sink, wide[:-1])):
            row: Row = {"layer": layer, "equal_window": wide[layer]}
            for place, key in enumerate(NAMES):
                row |= {f"{key}_dense": float(before[place])} if key in DENSE_TOO else {}
                row |= {f"{key}_{way}": float(values[place]) for way, values in zip(WAYS, after, strict=True)}
            rows.append(row | _losses(pruned[layer], dense, run.documents))
        together = _losses(pruned[-1], dense, run.documents) | {"equal_window": wide[-1]}
        together["sum_of_layers"] = {way: sum(row[f"loss_{way}"] for row in rows) for way in WAYS}
        about = self.facts(run, router, window, bench.n_sink)
        return {"rows": rows, "all_layers": together, "dense": dense.level} | about

    def looks(self, run: Setting, router: FocusRouter, window: int, n_sink: int, wide: list[int]) -> np.ndarray:
        """What `look` says, mean of all windows [L, 4, 5]."""

        def make() -> dict:
            looks = []
            for index, ids in enumerate(run.windows):
                run.context.progress(0.99, f"what is pruned, window {index + 1} of {len(run.windows)}")
                chance = layer_seeds(self.seed, index, run.lm.num_layers)
                looks.append(look(run.lm, router, ids, window, n_sink, wide, chance))
                if not len(looks[-1]):
                    raise BadSetting(
                        f"{run.lm.name} has sliding windows or soft-capped scores, and this study reads attention "
                        "where there is neither: choose another model."
                    )
            return {"looks": np.mean(looks, axis=0).tolist()}

        decides = [ids_hash(run.windows), router_hash(router), window, n_sink, wide, self.seed]
        return np.array(run.part("pruned", decides, make)["looks"])

    def sample(self, run: Setting, numbers: dict) -> dict:
        lm, ids = run.lm, sample_windows(run.lm, self.length)
        router, window, bench = self.bench(run, 1, ids)
        arms = [layer_arms(router, window, layer, self.seed)["groups"] for layer in range(lm.num_layers)]
        values = self.sample_losses(run, lambda router, window: [DENSE, *arms])
        wide = [row["equal_window"] for row in numbers["rows"]]
        looks = look(lm, router, ids[0], window, bench.n_sink, wide, layer_seeds(self.seed, 0, lm.num_layers))
        for place, way in enumerate(("dense", *WAYS)):
            values[f"pruned by {way}"] = looks[:, place].ravel().tolist()
        return values

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows = numbers["rows"]
        *layers, together = family = holm_corrected([*rows, numbers["all_layers"]], *CONTROLS)
        lead = f"One layer alone is pruned by this router. {counted(layers, 'layers', CONTROLS)} "
        sentence = concluded(lead, [together], CONTROLS, "Loss of all layers together", family=family)
        columns, charts = [column("layer", "layer"), column("equal_window", "window of equal pairs", "tokens")], []
        for key, (title, label, unit) in TITLES.items():
            keys = {"dense attention": f"{key}_dense"} if key in DENSE_TOO else {}
            keys |= {name: f"{key}_{way}" for way, name in WAYS.items()}
            for name, field in keys.items():
                columns.append(column(field, f"{title}: {name.removesuffix(' attention')}", unit))
            label = f"{label}, {unit}" if unit and unit not in label else label
            charts.append(chart(title, rows, "layer", "layer", label, keys))
        columns.append(column("groups_minus_random", "loss: trained minus random groups", "nats per token"))
        return presented("pruned", sentence, charts, interval_caveat(numbers["protocol"])) | {"columns": columns}


def layer_arms(router: FocusRouter, window: int, layer: int | None, seed: int) -> dict[str, Arm]:
    """The router's groups, and those dealt by chance, in one layer alone (None: in all)."""
    where, settings = _where(layer), {"window": window}
    return {
        "groups": Arm(f"groups in {where}", settings, router, layer=layer),
        "random": Arm(f"random groups {seed} in {where}", settings, router, layer=layer, chance=seed),
    }


def _where(layer: int | None) -> str:
    return "all layers" if layer is None else f"layer {layer}"


def _losses(arms: dict[str, Measured], dense: Measured, documents: np.ndarray) -> Row:
    """Losses above dense, and of the groups above random ones, with their intervals over `documents` [n]."""
    row: Row = {}
    for way, arm in arms.items():
        row |= difference(f"loss_{way}", arm.means, dense.means, documents)
    return row | difference("groups_minus_random", arms["groups"].means, arms["random"].means, documents)
