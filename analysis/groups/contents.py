"""What is in a group: share, confidence, a label with its purity against chance, and the words that mark it.

Source: Focus, section 5 (word lists per group, "96% pure"). The paper gives no rule for its labels and no chance
level; here one rule labels learned groups and random sets of tokens of equal size alike.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pandas as pd

from ..answer import doc, record
from ..errors import BadSetting

MIN_COUNT = 2  # a word marks a group only if it occurs there at least this often
EMPTY = "empty"


@record
class GroupContent:
    """One group of one layer. An empty group has the label "empty" and NaN for what it has no number of."""

    group: int
    tokens: int = doc("tokens of the text in the group")
    share: float = doc("their share of the text")
    confidence: float = doc("mean of their assignment to the group")
    label: str = doc("category with the largest share in the group times lift (that share over the text's)")
    purity: float = doc("the label's share of the group")
    purity_random: float = doc("mean purity of random sets of as many tokens of this text, labelled by the same rule")
    purity_random_low: float = doc("their 2.5% quantile")
    purity_random_high: float = doc("their 97.5% quantile")


@record
class GroupWord:
    """A word that marks a group; case is folded and the commonest form shown."""

    group: int
    rank: int = doc("by count times log(lift)")
    word: str
    count: int = doc("occurrences in the group, at least 2")
    lift: float = doc("count by what independence expects, above 1")


GROUP_COLUMNS = [column.name for column in fields(GroupContent)]
WORD_COLUMNS = [column.name for column in fields(GroupWord)]


def group_contents(
    group: np.ndarray,
    confidence: np.ndarray,
    words: Sequence[str],
    categories: Sequence[str],
    groups: int,
    seed: int = 0,
    draws: int = 200,
    top: int = 12,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Contents of the K groups of one layer -> (rows of GroupContent, the `top` words of each as rows of GroupWord).

    group int [T] (0..K-1), confidence float [T], words and categories [T] (`words.word_of_tokens`,
    `words.categories`); `draws` random sets say what chance gives. Errors: BadSetting for unequal lengths or a group
    outside 0..K-1.
    """
    group, confidence = np.asarray(group).astype(np.int64), np.asarray(confidence, dtype=np.float64)
    tokens = len(group)
    if not (len(confidence) == len(words) == len(categories) == tokens):
        raise BadSetting(
            f"Group contents need one word, category and confidence per token, and got {len(words)}, "
            f"{len(categories)} and {len(confidence)} for {tokens} tokens."
        )
    if tokens and not (0 <= group.min() and group.max() < groups):
        raise BadSetting(f"Group numbers run from 0 to {groups - 1}, and these from {group.min()} to {group.max()}.")
    sizes = np.bincount(group, minlength=groups)  # [K]
    return _labels(group, confidence, categories, sizes, seed, draws), _words(group, words, sizes, top)


def label_of(counts: np.ndarray, total: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The labelling rule: counts [..., C] of categories in sets, total [C] in the text -> (index, purity) [...].

    The index has the largest share * lift, proportional to counts^2 / total; ties go to the category of larger
    share, then to the lower index. Sets must not be empty.
    """
    counts = np.asarray(counts, dtype=np.float64)
    rating = counts**2 / np.maximum(total, 1)
    best = rating >= rating.max(-1, keepdims=True) * (1 - 1e-12)
    index = np.where(best, counts, -1.0).argmax(-1)
    return index, np.take_along_axis(counts, index[..., None], -1)[..., 0] / counts.sum(-1)


def _labels(
    group: np.ndarray, confidence: np.ndarray, categories: Sequence[str], sizes: np.ndarray, seed: int, draws: int
) -> pd.DataFrame:
    groups, tokens = len(sizes), len(group)
    names, codes = np.unique(np.asarray(categories, object), return_inverse=True) if tokens else (np.array([]), group)
    kinds = max(1, len(names))
    counts = np.bincount(group * kinds + codes, minlength=groups * kinds).reshape(groups, kinds)  # [K, C]
    total = counts.sum(0)  # [C]
    certain = np.bincount(group, weights=confidence, minlength=groups)  # [K]
    random, rows = np.random.default_rng(seed), []
    for k, size in enumerate(sizes.tolist()):
        if size == 0:
            rows.append([k, 0, 0.0, np.nan, EMPTY, *[np.nan] * 4])
            continue
        label, purity = label_of(counts[k], total)
        chance = label_of(random.multivariate_hypergeometric(total, size, size=draws), total)[1]  # [draws]
        low, high = np.quantile(chance, [0.025, 0.975])
        rows.append([k, size, size / tokens, certain[k] / size, names[label], purity, chance.mean(), low, high])
    return pd.DataFrame(rows, columns=GROUP_COLUMNS)


def _words(group: np.ndarray, words: Sequence[str], sizes: np.ndarray, top: int) -> pd.DataFrame:
    forms, form_of = np.array([], dtype=object), group
    if len(group):
        forms, form_of = np.unique(np.asarray(words, dtype=object), return_inverse=True)
    uses = np.bincount(form_of, minlength=len(forms))
    folded, fold = np.unique(np.array([form.casefold() for form in forms], dtype=object), return_inverse=True)
    # The shown form is the commonest one: written last when the forms go in by rising use.
    spelling = np.empty(len(folded), dtype=object)
    rising = np.argsort(uses, kind="stable")
    spelling[fold[rising]] = forms[rising]
    pairs, counts = np.unique(group * max(1, len(folded)) + fold[form_of] if len(group) else group, return_counts=True)
    owner, word = np.divmod(pairs, max(1, len(folded)))
    total = np.bincount(fold, weights=uses, minlength=len(folded))
    lift = counts * len(group) / (sizes[owner] * total[word])
    keep = (counts >= MIN_COUNT) & (lift > 1)
    frame = pd.DataFrame({"group": owner, "word": spelling[word], "count": counts, "lift": lift})[keep]
    frame["rating"] = frame["count"] * np.log(frame["lift"])
    frame = frame.sort_values(["group", "rating", "count", "word"], ascending=[True, False, False, True])
    frame["rank"] = frame.groupby("group").cumcount() + 1
    return frame[frame["rank"] <= top][WORD_COLUMNS].reset_index(drop=True)
