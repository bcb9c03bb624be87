"""Two routers side by side on one text, and one router's groups beside groups of the same vectors that mean nothing."""

import numpy as np
from pandas import DataFrame
from torch import Tensor

from ...answer import Answer, doc, frame, record
from ...commands.groups import Compare, GroupControls
from ...errors import BadSetting
from ...groups.contents import EMPTY, group_contents
from ...groups.dominance import largest_share, stability
from ...groups.kmeans import spherical_kmeans
from ...groups.words import categories
from ...models import Model
from ..context import Context, Reading, check_seed, protocol, read
from ..text.text import token_table
from .contents import router_notes
from .far import routing_vectors
from .routers import memberships, router_for, stored_routers

DRAWS = 20  # shuffles of one side's labels, matched like the real ones: what chance agrees on
ROUTER, RANDOM, KMEANS = ARMS = "this router", "random centroids", "k-means"


@record
class LayerAgreement:
    """How far two routers agree in one layer."""

    layer: int
    agreement: float = doc("share of the tokens in matched groups, groups matched one to one (Hungarian)")
    chance: float = doc("the same, mean over shuffles of one side's labels that are matched anew")
    share: float = doc("largest group's share of the tokens, by the router")
    share_other: float = doc("the same by the other one")


@record
class GroupMatch:
    """A group and its partner."""

    layer: int
    group: int
    other: int | None = doc("the other router's group that it is matched with; None where none is left for it")
    tokens: int = doc("tokens in the group")
    shared: float | None = doc("share of them that are in the partner too; None for an empty group")


@record
class Confusion:
    """Tokens in a group of each router."""

    layer: int
    group: int
    place: int = doc("place of the other router's group, matched ones on the diagonal")
    other: int
    tokens: int


@record
class RouterComparison(Answer):
    """How far two routers put the same tokens of a text together."""

    K: int = doc("groups of the router")
    K_other: int = doc("groups of the other one")
    mean: float = doc("share of tokens in matched groups, mean over layers")
    chance: float = doc("what shuffled labels agree on")
    layers: list[LayerAgreement] = doc("one per layer")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know of the text")
    matching: DataFrame = doc("which groups belong together", row=GroupMatch)
    confusion: DataFrame = doc("tokens in every pair of groups", row=Confusion)


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


@record
class ControlledGroups(Answer):
    """The table of Focus' section 5 for every layer of a text."""

    K: int = doc("groups of the router")
    rows: list[ArmRow] = doc("one per layer and arm")
    labels_by: str = doc("what decided the categories of words")
    sentence: str = doc("the result in words")
    notes: list[str] = doc("what a reader must know of the text and the router")


def compare(request: Compare, *, context: Context) -> RouterComparison:
    """How far two routers put the same tokens of a text together, layer by layer, by the best causal group of each.

    `other_model`: the model `other` belongs to when it is not `model`, such as the one before fine-tuning; both must
    cut the text into the same tokens. Errors: BadSetting.
    """
    check_seed(request.seed)
    second_model = request.other_model or request.model
    lm, reading, labels, K = _labels(context, request.model, request.text, request.router, request.long_text)
    other_reading, other_labels, K_other = reading, labels, K
    if (second_model, request.other) != (request.model, request.router):
        _, other_reading, other_labels, K_other = _labels(
            context, second_model, request.text, request.other, request.long_text
        )
    if not np.array_equal(reading.tokens.ids, other_reading.tokens.ids):
        raise BadSetting(
            f"{request.model} and {second_model[:80]} cut this text into different tokens: compare models with one "
            "tokenizer."
        )
    if len(labels) != len(other_labels):
        raise BadSetting(
            f"{request.model} has {len(labels)} layers and {second_model[:80]} has {len(other_labels)}: compare equal "
            "depths."
        )
    layers: list[LayerAgreement] = []
    matching: list[GroupMatch] = []
    confusion: list[Confusion] = []
    for layer, (first, second) in enumerate(zip(labels, other_labels, strict=True)):
        agreement, matched, table = matched_table(first, second, K, K_other)
        drawn = chance(first, second, max(K, K_other), request.seed)
        shares = largest_share(first, K), largest_share(second, K_other)
        layers.append(LayerAgreement(layer, agreement, drawn, *shares))
        partners = [int(group) if group < K_other else None for group in matched]
        order = [group for group in partners if group is not None]
        order += [group for group in range(K_other) if group not in order]
        for group, partner in enumerate(partners):
            tokens = int(table[group].sum())
            shared = 0 if partner is None else int(table[group, partner])
            matching.append(GroupMatch(layer, group, partner, tokens, shared / tokens if tokens else None))
            for place, column in enumerate(order):
                confusion.append(Confusion(layer, group, place, column, int(table[group, column])))
    agreements = [row.agreement for row in layers]
    mean, by_chance = float(np.mean(agreements)), float(np.mean([row.chance for row in layers]))
    names = f"{request.router} and {request.other}"
    if second_model != request.model:
        names = f"{request.router} now and {request.other} of {second_model}"
    settings = {"seed": request.seed, "router": request.router, "other": request.other, "other_model": second_model}
    return RouterComparison(
        K=K,
        K_other=K_other,
        mean=mean,
        chance=by_chance,
        layers=layers,
        sentence=f"{names} put {mean:.0%} of the tokens into matching groups (mean of {len(layers)} layers; chance "
        f"{by_chance:.0%}); the most in layer {np.argmax(agreements)}, the fewest in layer {np.argmin(agreements)}.",
        notes=reading.notes,
        matching=frame(GroupMatch, matching).astype({"other": "Int64"}),
        confusion=frame(Confusion, confusion),
        protocol=protocol("compare", lm, request.text, len(reading.tokens), **settings),
    )


def _labels(
    context: Context, model: str, text: str, router: str, long_text: str
) -> tuple[Model, Reading, np.ndarray, int]:
    """(model, reading, best causal group of every token int64 [L, T], K) of a stored router."""
    lm = context.model(model)
    names = [facts["name"] for facts in stored_routers(context, lm)]
    if router not in names:
        raise BadSetting(f"{model} has no router {router[:40]!r} here: choose one of {', '.join(names) or 'none'}.")
    focus_router, _ = router_for(context, lm, router)
    reading = read(context, lm, text, long_text)
    context.progress(0.3, f"routing the text by {router}")
    soft, _ = memberships(focus_router, routing_vectors(context, lm, reading, focus_router))
    return lm, reading, soft.argmax(-1).numpy(), focus_router.K


def matched_table(first: np.ndarray, second: np.ndarray, K: int, K_other: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Labels [T] of two routers -> (share of tokens in matched groups, matched [K], tokens in both int64 [K, K_other]);
    a matched number from K_other on means that no group is left for it."""
    agreement, matched = stability(first, second, max(K, K_other))
    table = np.bincount(first.astype(np.int64) * K_other + second, minlength=K * K_other).reshape(K, K_other)
    return agreement, matched[:K], table


def chance(first: np.ndarray, second: np.ndarray, groups: int, seed: int = 0) -> float:
    """What the matching agrees on when nothing does: mean over shuffles of one side's labels [T], group sizes kept."""
    random = np.random.default_rng(seed)
    return float(np.mean([stability(first, random.permutation(second), groups)[0] for _ in range(DRAWS)]))


def group_controls(request: GroupControls, *, context: Context) -> ControlledGroups:
    """The groups of every layer by this router, by random centroids, and by k-means.

    k-means (spherical) sorts the routing vectors of this very text, those that the router scores, into as many groups.
    """
    check_seed(request.seed)
    lm = context.model(request.model)
    reading = read(context, lm, request.text, request.long_text)
    focus_router, control = router_for(context, lm, request.router)
    context.progress(0.3, "routing the text")
    vectors = routing_vectors(context, lm, reading, focus_router)
    soft = {
        ROUTER: memberships(focus_router, vectors)[0],
        RANDOM: memberships(control, routing_vectors(context, lm, reading, control))[0],
    }
    words = token_table(reading)
    kinds, labels_by = categories(reading.text, reading.tokens.starts, reading.tokens.ends)
    K = focus_router.K
    if len(words) < K:
        raise BadSetting(f"The text has {len(words)} tokens and {K} groups are compared: use a longer text.")
    rows = []
    for layer in range(lm.num_layers):
        context.progress(0.4 + 0.6 * layer / lm.num_layers, f"groups of layer {layer}")
        for arm in ARMS:
            if arm == KMEANS:
                group, confidence = spherical_kmeans(vectors[layer], K, request.seed)[1].numpy(), None
            else:
                group, confidence = _best(soft[arm][layer])
            rows.append(_arm_row(layer, arm, group, confidence, words, kinds, K, request.seed))
    return ControlledGroups(
        K=K,
        rows=rows,
        labels_by=labels_by,
        sentence=_purity_sentence(frame(ArmRow, rows)),
        notes=[*reading.notes, *router_notes(focus_router, request.text)],
        protocol=protocol("group-controls", lm, request.text, len(words), seed=request.seed, router=request.router),
    )


def _best(soft: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Soft groups [T, K] -> (best group int64 [T], its assignment float32 [T])."""
    best = soft.max(-1)
    return best.indices.numpy(), best.values.numpy()


def _arm_row(
    layer: int,
    arm: str,
    group: np.ndarray,
    confidence: np.ndarray | None,
    words: DataFrame,
    kinds: list[str],
    K: int,
    seed: int,
) -> ArmRow:
    certain = np.ones(len(group)) if confidence is None else confidence
    contents, _ = group_contents(group, certain, words["word"].tolist(), kinds, K, seed)
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
    )


def _purity_sentence(rows: DataFrame) -> str:
    mean = rows.groupby("arm")["purity"].mean()
    return (
        f"A token's group is {mean[ROUTER]:.0%} of one kind with this router (mean of tokens and layers), "
        f"{mean[RANDOM]:.0%} with {RANDOM} and {mean[KMEANS]:.0%} with {KMEANS}; "
        f"random sets of equal size reach {rows['purity_random'].mean():.0%}."
    )
