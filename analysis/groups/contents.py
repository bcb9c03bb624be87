"""What is in a group: share, confidence, a label with its purity against chance, and the words that mark it.

Source: Focus, section 5 (word lists per group, "96% pure"). The paper gives no rule for its labels and no chance
level; here one rule labels learned groups and random sets of tokens of equal size alike.
"""

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from pandas import DataFrame, factorize

from ..answer import doc, record

# A word marks a group only if it occurs there at least this often.
MIN_COUNT = 2
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


def group_contents(
    group: np.ndarray,
    confidence: np.ndarray,
    words: Sequence[str],
    categories: Sequence[str],
    groups: int,
    seed: int = 0,
    draws: int = 200,
    top: int = 12,
) -> tuple[DataFrame, DataFrame]:
    """Contents of the K groups of one layer -> (rows of GroupContent, the `top` words of each as rows of GroupWord).

    group int [T] (0..K-1), confidence float [T], words and categories [T] (`words.word_of_tokens`,
    `words.categories`); `draws` random sets say what chance gives.
    """
    group = np.asarray(group, dtype=np.int64)
    assert len(group) == len(confidence) == len(words) == len(categories)
    sizes = np.bincount(group, minlength=groups)  # [K]
    codes, names = factorize(np.asarray(categories, dtype=object), sort=True)
    kinds = max(1, len(names))
    counts = np.bincount(group * kinds + codes, minlength=groups * kinds).reshape(groups, kinds)  # [K, C]
    total = counts.sum(0)  # [C]
    certain = np.bincount(group, weights=confidence, minlength=groups)  # [K]
    # One stream of draws for all groups, so the order of the groups decides the numbers.
    random, rows = np.random.default_rng(seed), []
    for k, size in enumerate(sizes.tolist()):
        if size == 0:
            rows.append(GroupContent(k, 0, 0.0, np.nan, EMPTY, np.nan, np.nan, np.nan, np.nan))
            continue
        label, purity = label_of(counts[k], total)
        chance = label_of(random.multivariate_hypergeometric(total, size, size=draws), total)[1]  # [draws]
        low, high = np.quantile(chance, [0.025, 0.975])
        measured = size / len(group), certain[k] / size, names[label], float(purity), chance.mean(), low, high
        rows.append(GroupContent(k, size, *measured))
    return DataFrame(rows), _words(group, words, sizes, top)


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


def overlap(group: np.ndarray, categories: Sequence[str], first: str, second: str) -> float | None:
    """How far the tokens of two categories lie in the same groups: 2 p.q / (p.p + q.q) of their shares p, q [K] of the
    groups (Horn's form of Morisita's index, 1966): 0 in none together, 1 alike. None where the text lacks one of them.

    group int [T], categories [T].
    """
    kinds = np.asarray(categories, dtype=object)
    counts = [np.bincount(group[kinds == kind], minlength=group.max() + 1) for kind in (first, second)]
    if not all(count.any() for count in counts):
        return None
    p, q = (count / count.sum() for count in counts)
    return float(2 * p @ q / (p @ p + q @ q))


def _words(group: np.ndarray, words: Sequence[str], sizes: np.ndarray, top: int) -> DataFrame:
    form_of, forms = factorize(np.asarray(words, dtype=object), sort=True)
    word_of_form, _ = factorize(np.array([form.casefold() for form in forms], dtype=object), sort=True)
    uses = DataFrame({"form": forms, "word": word_of_form, "uses": np.bincount(form_of, minlength=len(forms))})
    # The shown form is the commonest one: the last when the forms stand by rising use.
    spelling = uses.sort_values("uses", kind="stable").groupby("word")["form"].last().to_numpy()
    total = uses.groupby("word")["uses"].sum().to_numpy()
    table = DataFrame({"group": group, "word": word_of_form[form_of]})
    table = table.groupby(["group", "word"]).size().rename("count").reset_index()
    table["lift"] = table["count"] * len(group) / (sizes[table["group"]] * total[table["word"]])
    # Below a lift of 1 a word marks the other groups.
    table = table[(table["count"] >= MIN_COUNT) & (table["lift"] > 1)]
    table = table.assign(word=spelling[table["word"]], rating=table["count"] * np.log(table["lift"]))
    table = table.sort_values(["group", "rating", "count", "word"], ascending=[True, False, False, True])
    table["rank"] = table.groupby("group").cumcount() + 1
    columns = [column.name for column in fields(GroupWord)]
    return table[table["rank"] <= top][columns].reset_index(drop=True)
