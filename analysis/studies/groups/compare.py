"""Two routers side by side on one text, and one router's groups beside groups of the same vectors that mean nothing."""

import numpy as np
import pandas as pd

from analysis.errors import BadSetting
from analysis.groups.contents import EMPTY, group_contents
from analysis.groups.dominance import largest_share, stability
from analysis.groups.kmeans import spherical_kmeans
from analysis.groups.words import categories
from analysis.models import Model
from analysis.runs import Result
from analysis.studies.context import Context, Reading, check_seed, protocol, read
from analysis.studies.groups.contents import router_notes
from analysis.studies.groups.far import routing_vectors
from analysis.studies.groups.routers import memberships, router_for, stored_routers
from analysis.studies.text.text import token_table

DRAWS = 20  # shuffles of one side's labels, matched like the real ones: what chance agrees on
ARMS = ("this router", "random centroids", "k-means")


def compare(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    other: str = "k8-top2",
    other_model: str = "",
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """How far two routers put the same tokens of a text together, layer by layer, groups matched one to one.

    Causal best groups of every token; the matching (Hungarian) keeps most tokens. `other_model`: the model `other`
    belongs to when it is not `model`, such as the one before fine-tuning; both must cut the text into the same tokens.
    numbers: `K`, `K_other`, `mean` agreement over layers and its `chance`, `sentence`, `layers` (`layer agreement
    chance share share_other`, chance: mean over 20 shuffles of one side's labels, matched anew; largest shares).
    tables: `matching` (`layer group other tokens shared`), `confusion` (`layer group place other tokens`: the other's
    groups by `place`, matched ones on the diagonal). Errors: BadSetting.
    """
    check_seed(seed)
    lm, reading, labels, K = _labels(context, model, text, router, long_text)
    name = other_model or model
    same = (name, other) == (model, router)
    theirs = (lm, reading, labels, K) if same else _labels(context, name, text, other, long_text)
    second, K_other = theirs[2:]
    if not np.array_equal(reading.tokens.ids, theirs[1].tokens.ids):
        raise BadSetting(
            f"{model} and {name[:80]} cut this text into different tokens: compare models with one tokenizer."
        )
    if len(labels) != len(second):
        raise BadSetting(f"{model} has {len(labels)} layers and {name[:80]} has {len(second)}: compare equal depths.")
    layers, matching, confusion = [], [], []
    for layer, (mine, its) in enumerate(zip(labels, second, strict=True)):
        agreement, matched, table = matched_table(mine, its, K, K_other)
        shares = {"share": largest_share(mine, K), "share_other": largest_share(its, K_other)}
        drawn = chance(mine, its, max(K, K_other), seed)
        layers.append({"layer": layer, "agreement": agreement, "chance": drawn, **shares})
        partners = [int(one) if one < K_other else None for one in matched]
        order = [one for one in partners if one is not None]
        order += [group for group in range(K_other) if group not in order]
        for group, partner in enumerate(partners):
            row, tokens = {"layer": layer, "group": group}, int(table[group].sum())
            shared = 0 if partner is None else int(table[group, partner])
            matching.append(row | {"other": partner, "tokens": tokens, "shared": shared / tokens if tokens else None})
            places = enumerate(order)
            confusion += [row | {"place": place, "other": at, "tokens": int(table[group, at])} for place, at in places]
    found = [row["agreement"] for row in layers]
    mean, by_chance = float(np.mean(found)), float(np.mean([row["chance"] for row in layers]))
    asked = {"seed": seed, "router": router, "other": other, "other_model": name}
    what = f"{router} and {other}" if name == model else f"{router} now and {other} of {name}"
    numbers = {
        "K": K,
        "K_other": K_other,
        "mean": mean,
        "chance": by_chance,
        "layers": layers,
        "sentence": (
            f"{what} put {mean:.0%} of the tokens into matching groups (mean of {len(layers)} layers; chance "
            f"{by_chance:.0%}); the most in layer {np.argmax(found)}, the fewest in layer {np.argmin(found)}."
        ),
        "notes": reading.notes,
        "protocol": protocol("compare", lm, text, len(reading.tokens), **asked),
    }
    matching = pd.DataFrame(matching).astype({"other": "Int64"})
    return Result(numbers, {"matching": matching, "confusion": pd.DataFrame(confusion)})


def _labels(
    context: Context, model: str, text: str, router: str, long_text: str
) -> tuple[Model, Reading, np.ndarray, int]:
    """(model, reading, best causal group of every token int64 [L, T], K) of a router that is there."""
    lm = context.model(model)
    there = [facts["name"] for facts in stored_routers(context, lm)]
    if router not in there:
        raise BadSetting(f"{model} has no router {router[:40]!r} here: choose one of {', '.join(there) or 'none'}.")
    made, _ = router_for(context, lm, router)
    reading = read(context, lm, text, long_text)
    context.progress(0.3, f"routing the text by {router}")
    soft = memberships(made, routing_vectors(context, lm, reading, made))[0]
    return lm, reading, soft.argmax(-1).numpy(), made.K


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


def group_controls(
    model: str = "demo",
    text: str = "",
    router: str = "k8-top1",
    seed: int = 0,
    long_text: str = "windows",
    *,
    context: Context,
) -> Result:
    """The table of Focus' section 5 for every layer of a text: this router, random centroids, k-means.

    k-means (spherical) sorts this text's own routing vectors, those the router scores, into as many groups; it has no
    assignment and so no confidence. numbers: `sentence`, `labels_by`, `rows`: `layer arm share` (largest group's)
    `smallest` (smallest group's share) `confidence purity purity_random` (mean over tokens, and that of random sets of
    equal size, labelled by the same rule) `labels` (the groups' labels, largest group first).
    """
    check_seed(seed)
    lm = context.model(model)
    reading = read(context, lm, text, long_text)
    made, control = router_for(context, lm, router)
    context.progress(0.3, "routing the text")
    arms = zip(ARMS, (made, control), strict=False)
    soft = {arm: memberships(one, routing_vectors(context, lm, reading, one))[0] for arm, one in arms}
    vectors = routing_vectors(context, lm, reading, made)
    words = token_table(reading)
    kinds, decided_by = categories(reading.text, reading.tokens.starts, reading.tokens.ends)
    if len(words) < made.K:
        raise BadSetting(f"The text has {len(words)} tokens and {made.K} groups are compared: use a longer text.")
    rows = []
    for layer in range(lm.num_layers):
        context.progress(0.4 + 0.6 * layer / lm.num_layers, f"groups of layer {layer}")
        for arm in ARMS:
            if arm == "k-means":
                group = spherical_kmeans(vectors[layer], made.K, seed)[1].numpy()
                sure = None
            else:
                group, sure = soft[arm][layer].argmax(-1).numpy(), soft[arm][layer].max(-1).values.numpy()
            rows.append({"layer": layer, "arm": arm, **_row(group, sure, words, kinds, made.K, seed)})
    numbers = {
        "K": made.K,
        "rows": rows,
        "labels_by": decided_by,
        "sentence": _sentence(pd.DataFrame(rows)),
        "notes": [*reading.notes, *router_notes(made, text)],
        "protocol": protocol("group-controls", lm, text, len(words), seed=seed, router=router),
    }
    return Result(numbers)


def _row(group: np.ndarray, sure: np.ndarray | None, words: pd.DataFrame, kinds: list[str], K: int, seed: int) -> dict:
    certain = np.ones(len(group)) if sure is None else sure
    contents, _ = group_contents(group, certain, words["word"].tolist(), kinds, K, seed)
    real = contents[contents["label"] != EMPTY].sort_values("share", ascending=False)
    return {
        "share": float(contents["share"].max()),
        "smallest": float(contents["share"].min()),
        "confidence": None if sure is None else float(sure.mean()),
        "purity": float(np.average(real["purity"], weights=real["tokens"])),
        "purity_random": float(np.average(real["purity_random"], weights=real["tokens"])),
        "labels": ", ".join(dict.fromkeys(real["label"])),
    }


def _sentence(rows: pd.DataFrame) -> str:
    """Who is purer, in words."""
    mean = rows.groupby("arm")["purity"].mean()
    others = " and ".join(f"{mean[arm]:.0%} with {arm}" for arm in ARMS[1:])
    return (
        f"A token's group is {mean[ARMS[0]]:.0%} of one kind with this router (mean of tokens and layers), {others}; "
        f"random sets of equal size reach {rows['purity_random'].mean():.0%}."
    )
