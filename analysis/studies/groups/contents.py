"""What the learned groups hold in one text, beside what chance and an untrained router would show."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from ...answer import Answer, doc, record
from ...commands.groups import Groups, Umap
from ...errors import BadSetting
from ...groups.contents import GroupContent, GroupWord, group_contents
from ...groups.dominance import balanced_largest_share, largest_share
from ...groups.router import FocusRouter
from ...groups.vectors import pca, umap2d
from ...groups.words import categories
from ..context import Context, check_seed, protocol, read
from ..text.text import token_table
from .far import routing_vectors
from .routers import memberships, router_facts, router_for


@record
class LayerGroups:
    """One layer's groups beside its controls; NaN where the shuffled text was not read."""

    layer: int
    dominance: float = doc("largest group's share of the tokens")
    confidence: float = doc("mean of each token's largest assignment")
    dominance_random: float = doc("the largest group's share by random centroids")
    confidence_random: float
    dominance_shuffled: float = doc("the largest group's share of the text with its tokens shuffled")
    confidence_shuffled: float
    balanced: float = doc("largest share that balanced chance shows on as many tokens")


@record
class TextGroup(GroupContent):
    """One group of one layer of the text, beside its controls."""

    share_random: float = doc("share of the tokens in the group of this number by random centroids")
    share_shuffled: float = doc("the same of the text with its tokens shuffled; NaN where that was not read")
    layer: int


@dataclass(frozen=True)
class TextGroupWord(GroupWord):
    """A word that marks a group of a layer."""

    layer: int


@record
class TextGroups(Answer):
    """What the learned groups hold in a text."""

    K: int = doc("groups of the router")
    top: int = doc("groups that a token is in")
    window: int = doc("recent tokens that are read whatever their group")
    router: dict[str, Any] = doc("the router's name, sizes and how it was made")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know of the text and the router")
    labels_by: str = doc("what decided the categories of words")
    tokens: DataFrame = doc("the tokens of the text with their words")
    layers: DataFrame = doc("one row per layer", row=LayerGroups)
    groups: DataFrame = doc("one row per layer and group", row=TextGroup)
    words: DataFrame = doc("the words that mark each group", row=TextGroupWord)
    group: np.ndarray = doc("best group of every token, int16 [L, T]")
    confidence: np.ndarray = doc("its assignment, float32 [L, T]")
    pca: np.ndarray = doc("first two principal components of the routing vectors, float32 [L, T, 2]")
    pca_variance: np.ndarray = doc("their share of the variance, float32 [L, 2]")


@record
class VectorMap(Answer):
    """The routing vectors of one layer on a map."""

    umap: np.ndarray = doc("float32 [n, 2], of at most 4,096 tokens")
    positions: np.ndarray = doc("which tokens of the text they are, int32 [n]")


def groups(request: Groups, *, context: Context) -> TextGroups:
    """Group contents of a text, layer by layer (Focus, section 5), with the null controls on the same scale.

    `shuffled`: whether the text is read once more with its tokens shuffled, as one of the controls.
    """
    check_seed(request.seed)
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text)
    focus_router, control = router_for(context, lm, request.router)
    K = focus_router.K
    context.progress(0.3, "routing the text")
    vectors = routing_vectors(context, lm, reading, focus_router)
    soft = memberships(focus_router, vectors)[0].numpy()  # [L, T, K]
    controls = {"random": memberships(control, routing_vectors(context, lm, reading, control))[0].numpy()}
    if request.shuffled:
        of_shuffled = routing_vectors(context, lm, reading, focus_router, request.seed)
        controls["shuffled"] = memberships(focus_router, of_shuffled)[0].numpy()
    context.progress(0.6, "reading the groups")
    words = token_table(reading)
    kinds, labels_by = categories(reading.text, reading.tokens.starts, reading.tokens.ends)
    balanced = balanced_largest_share(len(words), K)
    layers, contents_of_layers, words_of_layers = [], [], []
    for layer in range(lm.num_layers):
        group, confidence = soft[layer].argmax(-1), soft[layer].max(-1)  # [T]
        contents, marks = group_contents(group, confidence, words["word"].tolist(), kinds, K, request.seed)
        row = {"layer": layer, "dominance": largest_share(group, K), "confidence": float(confidence.mean())}
        for name in ("random", "shuffled"):
            if name in controls:
                best = controls[name][layer].argmax(-1)
                contents[f"share_{name}"] = np.bincount(best, minlength=K) / len(best)
                row[f"dominance_{name}"] = largest_share(best, K)
                row[f"confidence_{name}"] = float(controls[name][layer].max(-1).mean())
            else:
                contents[f"share_{name}"] = row[f"dominance_{name}"] = row[f"confidence_{name}"] = np.nan
        contents_of_layers.append(contents.assign(layer=layer))
        words_of_layers.append(marks.assign(layer=layer))
        layers.append(row | {"balanced": balanced})
    layer_table, group_table = DataFrame(layers), concat(contents_of_layers)
    flat = [pca(of_layer.numpy()) for of_layer in vectors]
    return TextGroups(
        K=K,
        top=focus_router.top,
        window=focus_router.window,
        router=router_facts(request.router, focus_router),
        sentence=_sentence(focus_router, layer_table, group_table),
        notes=[*reading.notes, *router_notes(focus_router, request.text)],
        labels_by=labels_by,
        tokens=words,
        layers=layer_table,
        groups=group_table,
        words=concat(words_of_layers),
        group=soft.argmax(-1).astype(np.int16),
        confidence=soft.max(-1).astype(np.float32),
        pca=np.stack([coordinates for coordinates, _ in flat]).astype(np.float32),
        pca_variance=np.stack([share for _, share in flat]).astype(np.float32),
        protocol=protocol("groups", lm, request.text, len(words), seed=request.seed, router=request.router),
    )


def umap(request: Umap, *, context: Context) -> VectorMap:
    """UMAP of one layer's routing vectors."""
    check_seed(request.seed)
    lm = context.model(request.model)
    focus_router, _ = router_for(context, lm, request.router)
    if not 0 <= request.layer < lm.num_layers:
        raise BadSetting(f"Layer {request.layer} does not exist: {lm.name} has layers 0 to {lm.num_layers - 1}.")
    reading = read(context, lm, request.text, request.long_text)
    vectors = routing_vectors(context, lm, reading, focus_router)
    context.progress(0.1, "UMAP (its first run in a process compiles for 10 to 40 s)")
    coordinates, positions = umap2d(vectors[request.layer].numpy(), request.seed)
    made_with = protocol(
        "umap", lm, request.text, len(reading.tokens), seed=request.seed, router=request.router, layer=request.layer
    )
    return VectorMap(umap=coordinates, positions=positions, protocol=made_with)


def router_notes(router: FocusRouter, text: str) -> list[str]:
    """Sentences a reader must see beside this router's groups."""
    notes = []
    if not router.trained:
        notes.append(
            "This router is not trained: it was fitted on a sample of the model's own vectors, so it groups tokens of "
            "one kind, and such groups need not be better than random ones."
        )
    if text in router.about.get("calibration", []):
        notes.append("This text is one of those the router was fitted on.")
    return notes


def _sentence(router: FocusRouter, layers: DataFrame, groups_of_text: DataFrame) -> str:
    nonempty = groups_of_text[groups_of_text["tokens"] > 0]
    clear = (nonempty["purity"] > nonempty["purity_random_high"]).mean()
    worst = layers.loc[layers["dominance"].idxmax()]
    return (
        f"{clear:.0%} of the {len(nonempty)} groups (of {router.K} in each of {len(layers)} layers) are purer than "
        f"random sets of equal size; the largest holds {worst['dominance']:.0%} of the tokens (layer "
        f"{int(worst['layer'])}; even groups would hold {1 / router.K:.0%})."
    )
