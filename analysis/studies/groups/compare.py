"""Two routers side by side on one text."""

import numpy as np
from pandas import DataFrame

from ...answer import Answer, doc, frame, record
from ...commands.groups import Compare
from ...errors import BadSetting
from ...groups.dominance import largest_share, stability
from ...groups.router import FocusRouter
from ..context import Context, Reading, protocol, read
from .far import routing_vectors
from .routers import heads_note, memberships, shared_router, stored_routers

# Shuffles of one side's labels, matched like the real ones: what chance agrees on.
DRAWS = 20


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


def compare(request: Compare, *, context: Context) -> RouterComparison:
    """How far two routers put the same tokens of a text together, layer by layer, by the best causal group of each.
    `other_model`, such as the one before fine-tuning, must cut the text into the same tokens. Errors: BadSetting."""
    second_model = request.other_model or request.model
    reading, labels, router = _labels(context, request, request.model, request.router)
    made_with = protocol(
        "compare",
        context.model(request.model),
        request.text,
        len(reading.tokens),
        seed=request.seed,
        router=request.router,
        other=request.other,
        other_model=second_model,
    )
    other_reading, other_labels, other = reading, labels, router
    if (second_model, request.other) != (request.model, request.router):
        other_reading, other_labels, other = _labels(context, request, second_model, request.other)
    K, K_other = router.K, other.K
    if not np.array_equal(reading.tokens.ids, other_reading.tokens.ids) or len(labels) != len(other_labels):
        raise BadSetting(
            f"{request.model} and {second_model[:80]} cut this text into different tokens or differ in layers "
            f"({len(labels)} and {len(other_labels)}): compare models with one tokenizer and equal depths."
        )
    layers, matching, confusion = [], [], []
    for layer, (first, second) in enumerate(zip(labels, other_labels, strict=True)):
        agreement, matched, table = matched_table(first, second, K, K_other)
        # Matching finds some agreement in any two labellings.
        drawn = chance(first, second, max(K, K_other), request.seed)
        shares = largest_share(first, K), largest_share(second, K_other)
        layers.append(LayerAgreement(layer, agreement, drawn, *shares))
        partners = [int(group) if group < K_other else None for group in matched]
        # Matched groups first, so that they stand on the diagonal.
        order = list(dict.fromkeys([*(group for group in partners if group is not None), *range(K_other)]))
        for group, partner in enumerate(partners):
            tokens = int(table[group].sum())
            shared = 0 if partner is None else int(table[group, partner])
            matching.append(GroupMatch(layer, group, partner, tokens, shared / tokens if tokens else None))
            confusion += [Confusion(layer, group, place, at, int(table[group, at])) for place, at in enumerate(order)]
    agreements = [row.agreement for row in layers]
    mean, by_chance = float(np.mean(agreements)), float(np.mean([row.chance for row in layers]))
    names = f"{request.router} and {request.other}"
    if second_model != request.model:
        names = f"{request.router} now and {request.other} of {second_model}"
    return RouterComparison(
        K=K,
        K_other=K_other,
        mean=mean,
        chance=by_chance,
        layers=layers,
        sentence=f"{names} put {mean:.0%} of the tokens into matching groups (mean of {len(layers)} layers; chance "
        f"{by_chance:.0%}); the most in layer {np.argmax(agreements)}, the fewest in layer {np.argmin(agreements)}.",
        notes=[*reading.notes, *dict.fromkeys(heads_note(router) + heads_note(other))],
        matching=frame(GroupMatch, matching).astype({"other": "Int64"}),
        confusion=frame(Confusion, confusion),
        protocol=made_with,
    )


def _labels(context: Context, request: Compare, model: str, name: str) -> tuple[Reading, np.ndarray, FocusRouter]:
    """(the text, best causal group of every token int64 [L, T], the router) of a stored router."""
    lm = context.model(model)
    names = [facts["name"] for facts in stored_routers(context, lm)]
    if name not in names:
        raise BadSetting(f"{model} has no router {name[:40]!r} here: choose one of {', '.join(names) or 'none'}.")
    router, _ = shared_router(context, lm, name)
    reading = read(context, lm, request.text, request.long_text)
    context.progress(0.3, f"routing the text by {name}")
    soft, _ = memberships(router, routing_vectors(context, lm, reading, router))
    return reading, soft.argmax(-1).numpy(), router


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
