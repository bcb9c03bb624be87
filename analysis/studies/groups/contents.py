"""What the learned groups hold in one text, beside what chance, an untrained router and k-means would show."""

from typing import Any

import numpy as np
from pandas import DataFrame, concat

from ...answer import Answer, doc, frame, record
from ...commands.groups import GroupControls, Groups, Umap
from ...errors import BadSetting
from ...groups.contents import EMPTY, GroupContent, GroupWord, group_contents, overlap
from ...groups.dominance import balanced_largest_share, largest_share
from ...groups.kmeans import spherical_kmeans
from ...groups.router import FocusRouter
from ...groups.vectors import pca, umap2d
from ...groups.words import categories
from ...models import Model
from ..context import Context, protocol, read
from ..text.states import check_head
from ..text.text import numbered, token_table
from .far import CENTROIDS, ROUTER, routing_vectors
from .routers import heads_note, memberships, router_facts, shared_router

KMEANS = "k-means"
ARMS = (ROUTER, CENTROIDS, KMEANS)
# The paper says of these two that they form separate groups.
APART = ("determiner", "preposition")


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


@record
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


@record
class ArmRow:
    """The groups of one layer by one arm."""

    layer: int
    arm: str = doc(f"one of {', '.join(ARMS)}")
    share: float = doc("largest group's share of the tokens")
    smallest: float = doc("smallest group's")
    confidence: float | None = doc("mean of each token's largest assignment; k-means assigns nothing softly")
    purity: float = doc("share of a group that has its label, mean over tokens")
    purity_random: float = doc("the same of random sets of equal size, labelled by the same rule")
    labels: str = doc("the groups' labels, largest group first")
    overlap: float | None = doc(
        "how far determiners and prepositions lie in the same groups, 0 to 1; null where the text lacks one of them",
        default=None,
    )


@record
class ControlledGroups(Answer):
    """The table of Focus' section 5 for every layer of a text."""

    K: int = doc("groups of the router")
    rows: list[ArmRow] = doc("one per layer and arm")
    labels_by: str = doc("what decided the categories of words")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know of the text and the router")


class RoutedText:
    """A text whose tokens a router and its control have sorted into groups: `soft[arm]` [L, T, K], routing `vectors`
    L x [T, d_s], the `words` of its tokens and the categories (`kinds`) of these."""

    def __init__(self, context: Context, lm: Model, request: Groups | GroupControls) -> None:
        self.reading = read(context, lm, request.text, request.long_text)
        self.router, control = shared_router(context, lm, request.router)
        context.progress(0.3, "routing the text")
        self.vectors = routing_vectors(context, lm, self.reading, self.router)
        of_control = routing_vectors(context, lm, self.reading, control)
        self.soft = {
            ROUTER: memberships(self.router, self.vectors)[0].numpy(),
            CENTROIDS: memberships(control, of_control)[0].numpy(),
        }
        self.words = token_table(self.reading)
        tokens = self.reading.tokens
        self.kinds, self.labels_by = categories(self.reading.text, tokens.starts, tokens.ends)
        self.notes = [*self.reading.notes, *router_notes(self.router, request.text)]
        self.seed = request.seed
        self.protocol = protocol(
            request.verb, lm, request.text, len(self.words), seed=request.seed, router=request.router
        )

    def contents(self, group: np.ndarray, confidence: np.ndarray) -> tuple[DataFrame, DataFrame]:
        """`group_contents` of labels [T] of this text."""
        return group_contents(group, confidence, self.words["word"].tolist(), self.kinds, self.router.K, self.seed)


def groups(request: Groups, *, context: Context) -> TextGroups:
    """Group contents of a text, layer by layer (Focus, section 5), with the null controls on the same scale."""
    lm = context.model(request.model)
    text = RoutedText(context, lm, request)
    K, soft = text.router.K, text.soft[ROUTER]
    controls: dict[str, np.ndarray | None] = {"random": text.soft[CENTROIDS], "shuffled": None}
    if request.shuffled:
        of_shuffled = routing_vectors(context, lm, text.reading, text.router, request.seed)
        controls["shuffled"] = memberships(text.router, of_shuffled)[0].numpy()
    context.progress(0.6, "reading the groups")
    balanced = balanced_largest_share(len(text.words), K)
    layers, contents_of_layers, words_of_layers = [], [], []
    for layer, of_layer in enumerate(soft):
        contents, marks = text.contents(of_layer.argmax(-1), of_layer.max(-1))
        row = {"layer": layer, "dominance": largest_share(of_layer.argmax(-1), K), "confidence": _sure(of_layer)}
        for name, assignment in controls.items():
            contents[f"share_{name}"] = row[f"dominance_{name}"] = row[f"confidence_{name}"] = np.nan
            if assignment is not None:
                best = assignment[layer].argmax(-1)
                contents[f"share_{name}"] = np.bincount(best, minlength=K) / len(best)
                row |= {f"dominance_{name}": largest_share(best, K), f"confidence_{name}": _sure(assignment[layer])}
        contents_of_layers.append(contents.assign(layer=layer))
        words_of_layers.append(marks.assign(layer=layer))
        layers.append(row | {"balanced": balanced})
    layer_table = numbered(lm, DataFrame(layers))
    group_table, word_table = (numbered(lm, concat(part)) for part in (contents_of_layers, words_of_layers))
    # PCA of all layers is quick; UMAP of one is a command of its own.
    flat = [pca(of_layer.numpy()) for of_layer in text.vectors]
    return TextGroups(
        K=K,
        top=text.router.top,
        window=text.router.window,
        router=router_facts(request.router, text.router),
        sentence=_sentence(K, layer_table, group_table),
        notes=text.notes,
        labels_by=text.labels_by,
        tokens=text.words,
        layers=layer_table,
        groups=group_table,
        words=word_table,
        group=soft.argmax(-1).astype(np.int16),
        confidence=soft.max(-1).astype(np.float32),
        pca=np.stack([coordinates for coordinates, _ in flat]),
        pca_variance=np.stack([share for _, share in flat]),
        protocol=text.protocol,
    )


def umap(request: Umap, *, context: Context) -> VectorMap:
    """UMAP of one layer's routing vectors."""
    lm = context.model(request.model)
    place = check_head(lm, request.layer, 0)
    router, _ = shared_router(context, lm, request.router)
    reading = read(context, lm, request.text, request.long_text)
    vectors = routing_vectors(context, lm, reading, router)
    context.progress(0.1, "UMAP (its first run in a process compiles for 10 to 40 s)")
    coordinates, positions = umap2d(vectors[place].numpy(), request.seed)
    about = {"seed": request.seed, "router": request.router, "layer": request.layer}
    made_with = protocol("umap", lm, request.text, len(reading.tokens), **about)
    return VectorMap(umap=coordinates, positions=positions, protocol=made_with)


def group_controls(request: GroupControls, *, context: Context) -> ControlledGroups:
    """The groups of every layer by this router, by random centroids, and by spherical k-means of the routing vectors of
    this very text, into as many groups."""
    lm = context.model(request.model)
    text = RoutedText(context, lm, request)
    K, tokens = text.router.K, len(text.words)
    if tokens < K:
        raise BadSetting(f"The text has {tokens} tokens and {K} groups are compared: use a longer text.")
    rows = []
    for place, (layer, vectors) in enumerate(zip(lm.layer_numbers, text.vectors, strict=True)):
        context.progress(0.4 + 0.6 * place / len(text.vectors), f"groups of layer {layer}")
        # The table of the paper: one line a layer and arm.
        for arm, soft in text.soft.items():
            of_layer = soft[place]
            rows.append(_arm_row(text, layer, arm, of_layer.argmax(-1), of_layer.max(-1)))
        rows.append(_arm_row(text, layer, KMEANS, spherical_kmeans(vectors, K, request.seed)[1].numpy(), None))
    table = frame(ArmRow, rows)
    mean = table.groupby("arm")["purity"].mean()
    sentence = (
        f"A token's group is {mean[ROUTER]:.0%} of one kind with this router (mean of tokens and layers), "
        f"{mean[CENTROIDS]:.0%} with {CENTROIDS} and {mean[KMEANS]:.0%} with {KMEANS}; "
        f"random sets of equal size reach {table['purity_random'].mean():.0%}."
    )
    if rows[0].overlap is not None:
        together = ", ".join(f"{share:.0%} with {arm}" for arm, share in table.groupby("arm")["overlap"].mean().items())
        sentence += f" Determiners and prepositions lie in the same groups to {together} (0%: never, 100%: alike)."
    return ControlledGroups(
        K=K, rows=rows, labels_by=text.labels_by, sentence=sentence, notes=text.notes, protocol=text.protocol
    )


def _arm_row(text: RoutedText, layer: int, arm: str, group: np.ndarray, confidence: np.ndarray | None) -> ArmRow:
    contents, _ = text.contents(group, np.ones(len(group)) if confidence is None else confidence)
    nonempty = contents[contents["label"] != EMPTY].sort_values("share", ascending=False)
    return ArmRow(
        layer=layer,
        arm=arm,
        share=float(contents["share"].max()),
        smallest=float(contents["share"].min()),
        confidence=None if confidence is None else float(confidence.mean()),
        purity=float(np.average(nonempty["purity"], weights=nonempty["tokens"])),
        purity_random=float(np.average(nonempty["purity_random"], weights=nonempty["tokens"])),
        labels=", ".join(dict.fromkeys(nonempty["label"])),
        overlap=overlap(group, text.kinds, *APART),
    )


def router_notes(router: FocusRouter, text: str) -> list[str]:
    """Sentences a reader must see beside this router's groups."""
    notes = []
    if not router.trained:
        notes.append(
            "This router is not trained: it was fitted on a sample of the model's own vectors, so it groups tokens of "
            "one kind, and such groups need not be better than random ones."
        )
    if router.settings.grouped_layers is not None:
        grouped = ", ".join(map(str, router.grouped))
        notes.append(
            f"This router has groups in the layers {grouped} alone: the others read everything, and what stands here "
            "of their groups was never trained."
        )
    notes += heads_note(router)
    if text in router.about.get("calibration", []):
        notes.append("This text is one of those the router was fitted on.")
    return notes


def _sure(soft: np.ndarray) -> float:
    """Mean largest assignment of soft groups [T, K], in their own float32."""
    return float(soft.max(-1).mean())


def _sentence(K: int, layers: DataFrame, groups_of_text: DataFrame) -> str:
    nonempty = groups_of_text[groups_of_text["tokens"] > 0]
    clear = (nonempty["purity"] > nonempty["purity_random_high"]).mean()
    worst = layers.loc[layers["dominance"].idxmax()]
    return (
        f"{clear:.0%} of the {len(nonempty)} groups (of {K} in each of {len(layers)} layers) are purer than "
        f"random sets of equal size; the largest holds {worst['dominance']:.0%} of the tokens (layer "
        f"{int(worst['layer'])}; even groups would hold {1 / K:.0%})."
    )
