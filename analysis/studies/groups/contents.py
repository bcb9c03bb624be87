"""What the learned groups hold in one text, beside what chance and an untrained router would show."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.groups.contents import group_contents
from analysis.groups.dominance import balanced_largest_share, largest_share
from analysis.groups.router import FocusRouter
from analysis.groups.vectors import pca, umap2d
from analysis.groups.words import categories
from analysis.runs import Result
from analysis.studies.context import Context, check_seed, protocol, read
from analysis.studies.groups.far import routing_vectors
from analysis.studies.groups.routers import memberships, router_facts, router_for
from analysis.studies.text.text import token_table


def groups(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    seed: int = 0,
    shuffled: bool = True,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """Group contents of a text, layer by layer (Focus, section 5), with the null controls on the same scale.

    `shuffled`: whether the text is read once more with its tokens shuffled; the columns of that control are NaN else.
    tables: `tokens`; `layers` (largest group's share and confidence, of this router, of random centroids and of this
    router on the text with its tokens shuffled); `groups` (share, label, purity beside the purity of random sets of
    equal size); `words`. arrays: `group` int16 [L, T], `confidence` float32 [L, T], `pca` float32 [L, T, 2].
    """
    check_seed(seed)
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    made, control = router_for(context, lm, router)
    context.progress(0.3, "routing the text")
    vectors = routing_vectors(context, lm, reading, made)
    soft = memberships(made, vectors)[0].numpy()  # [L, T, K]
    other = memberships(control, routing_vectors(context, lm, reading, control))[0].numpy()
    assignments = {"random": other, "shuffled": np.full_like(soft, np.nan)}
    if shuffled:
        assignments["shuffled"] = memberships(made, routing_vectors(context, lm, reading, made, seed))[0].numpy()
    context.progress(0.6, "reading the groups")
    words = token_table(reading)
    kinds, decided_by = categories(reading.text, reading.tokens.starts, reading.tokens.ends)
    layers, members, top_words = [], [], []
    for layer in range(lm.num_layers):
        group, sure = soft[layer].argmax(-1), soft[layer].max(-1)  # [T]
        contents, marks = group_contents(group, sure, words["word"].tolist(), kinds, made.K, seed)
        row = {"layer": layer, "dominance": largest_share(group, made.K), "confidence": float(sure.mean())}
        for name, assigned in assignments.items():
            own, best = assigned[layer], assigned[layer].argmax(-1)
            known = not np.isnan(own).any()
            contents[f"share_{name}"] = np.bincount(best, minlength=made.K) / len(best) if known else np.nan
            row[f"dominance_{name}"] = largest_share(best, made.K) if known else np.nan
            row[f"confidence_{name}"] = float(own.max(-1).mean())
        members.append(contents.assign(layer=layer))
        top_words.append(marks.assign(layer=layer))
        layers.append(row | {"balanced": balanced_largest_share(len(words), made.K)})
    layers, members, top_words = pd.DataFrame(layers), pd.concat(members), pd.concat(top_words)
    flat = [pca(own.numpy()) for own in vectors]
    numbers = {
        "K": made.K,
        "top": made.top,
        "window": made.window,
        "router": router_facts(router, made),
        "sentence": _sentence(made, layers, members),
        "notes": [*reading.notes, *router_notes(made, text)],
        "labels_by": decided_by,
        "protocol": protocol("groups", lm, text, len(words), seed=seed, router=router),
    }
    return Result(
        numbers,
        {"tokens": words, "layers": layers, "groups": members, "words": top_words},
        {
            "group": soft.argmax(-1).astype(np.int16),
            "confidence": soft.max(-1).astype(np.float32),
            "pca": np.stack([xy for xy, _ in flat]).astype(np.float32),
            "pca_variance": np.stack([share for _, share in flat]).astype(np.float32),
        },
    )


def umap(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    layer: int = 0,
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """UMAP of one layer's routing vectors. arrays: `umap` float32 [n, 2], `positions` int32 [n] (at most 4,096)."""
    check_seed(seed)
    lm = context.model(model)
    made, _ = router_for(context, lm, router)
    if not 0 <= layer < lm.num_layers:
        raise BadSetting(f"Layer {layer} does not exist: {lm.name} has layers 0 to {lm.num_layers - 1}.")
    reading = read(context, lm, text, long_text)
    vectors = routing_vectors(context, lm, reading, made)
    context.progress(0.1, "UMAP (its first run in a process compiles for 10 to 40 s)")
    xy, positions = umap2d(vectors[layer].numpy(), seed)
    made_with = protocol("umap", lm, text, len(reading.tokens), seed=seed, router=router, layer=layer)
    return Result({"protocol": made_with}, {}, {"umap": xy, "positions": positions})


def router_notes(router: FocusRouter, text: str) -> list[str]:
    """Sentences a reader must see beside this router's groups."""
    said = []
    if not router.trained:
        said.append(
            "This router is not trained: it was fitted on a sample of the model's own vectors, so it groups tokens of "
            "one kind, and such groups need not be better than random ones."
        )
    if text in router.about.get("calibration", []):
        said.append("This text is one of those the router was fitted on.")
    return said


def _sentence(router: FocusRouter, layers: pd.DataFrame, members: pd.DataFrame) -> str:
    real = members[members["tokens"] > 0]
    clear = (real["purity"] > real["purity_random_high"]).mean()
    worst = layers.loc[layers["dominance"].idxmax()]
    return (
        f"{clear:.0%} of the {len(real)} groups (of {router.K} in each of {len(layers)} layers) are purer than random "
        f"sets of equal size; the largest holds {worst['dominance']:.0%} of the tokens (layer {int(worst['layer'])}; "
        f"even groups would hold {1 / router.K:.0%})."
    )
