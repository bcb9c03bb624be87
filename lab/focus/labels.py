"""Do the categories of the groups stay while all weights are tuned? (Focus, section 5: they do.)"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from pandas import factorize

from analysis.corpus import tokenize
from analysis.groups.contents import label_of
from analysis.groups.router import FocusRouter
from analysis.groups.words import categories
from analysis.models import Model
from analysis.statistics import attention_inputs
from analysis.studies.stored.comparisons import Row, lowest_highest

# What `labels_after` gives.
LABELS = ("labels_kept", "labels_chance", "purity_before", "purity_after")


@dataclass(frozen=True)
class LabelledWindows:
    """Windows of text, token ids [n][T], and the number of every token's category [sum of T] among `kinds` many."""

    ids: list[np.ndarray]
    category: np.ndarray
    kinds: int

    @classmethod
    def of(cls, lm: Model, windows: np.ndarray) -> "LabelledWindows":
        """Windows of token ids [n, T], read as the text that they are: one may begin within a word."""
        ids, names = [], []
        for window in windows:
            text = lm.tokenizer.decode(window, skip_special_tokens=True)
            tokens = tokenize(lm.tokenizer, text, windows.shape[1], max_windows=1)
            ids.append(tokens.ids)
            names += categories(text, tokens.starts, tokens.ends)[0]
        category, kinds = factorize(np.array(names, dtype=object), sort=True)
        return cls(ids, category, len(kinds))

    def counts(self, lm: Model, router: FocusRouter) -> np.ndarray:
        """Tokens of every category in every group of every layer, int64 [L, K, C], groups as the paper assigns them:
        balanced over each window."""
        edges, tables = np.cumsum([len(ids) for ids in self.ids])[:-1].tolist(), []
        for layer, joined in enumerate(attention_inputs(lm, self.ids)):
            of_windows = [router.soft(layer, hidden).argmax(-1).numpy() for hidden in joined.tensor_split(edges)]
            pairs = np.concatenate(of_windows) * self.kinds + self.category
            tables.append(np.bincount(pairs, minlength=router.K * self.kinds).reshape(router.K, self.kinds))
        return np.stack(tables)

    def watch(self, lm: Model, router: FocusRouter) -> Callable[[Model, FocusRouter], dict[str, float]]:
        """What tells, of a copy of the model and its router, what became of the labels of this router's groups."""
        before = self.counts(lm, router)
        return lambda copy, own: labels_after(before, self.counts(copy, own))


def labels_after(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """What became of the groups' labels from counts [L, K, C] to others of the same tokens: the share of the labelled
    groups that have the same one, `labels_chance` where the later labels are dealt to the groups of a layer by chance,
    and the `purity` of both, the share of a group's tokens that has its label, mean over tokens. An empty group has no
    label, so it keeps none."""
    total, same, chance = before[0].sum(0), [], []
    pure = dict.fromkeys(("before", "after"), 0.0)
    for first, second in zip(before, after, strict=True):
        labels = {}
        for name, counts in (("before", first), ("after", second)):
            sizes = counts.sum(-1)
            index, purity = label_of(np.where(sizes[:, None] > 0, counts, 1), total)
            labels[name] = np.where(sizes > 0, index, -1)
            pure[name] += float((purity * sizes).sum() / sizes.sum()) / len(before)
        labelled = labels["before"] >= 0
        equal = labels["before"][:, None] == labels["after"]
        same.append(equal.diagonal()[labelled])
        chance.append(equal.mean(1)[labelled])
    kept, dealt = (float(np.concatenate(shares).mean()) for shares in (same, chance))
    return {"labels_kept": kept, "labels_chance": dealt} | {f"purity_{name}": share for name, share in pure.items()}


def label_row(of_seeds: list[dict[str, float]]) -> Row:
    """What became of the labels in the trainings of an arm; nothing of one without groups."""
    row: Row = dict.fromkeys((*LABELS, "labels_kept_lowest", "labels_kept_highest"))
    if of_seeds:
        row |= {name: float(np.mean([labels[name] for labels in of_seeds])) for name in LABELS}
        row |= lowest_highest("labels_kept", [labels["labels_kept"] for labels in of_seeds])
    return row
