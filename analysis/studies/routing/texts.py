"""The texts of bucket routing: documents that calibrate and others that test, cut into prompts of one length."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...commands.routing import SPARE
from ...corpus import tokenize
from ...errors import BadSetting, BadText
from ...models import Model
from ...runs.brought import corpus_folder
from ..context import Context
from ..text.held_out import texts_of
from ..text.states import heads_named

LEAST = 3  # documents on either side


@dataclass(frozen=True)
class Prompt:
    """One window of a document: `document` its number among those of its side, `ids` int64 [T]."""

    document: int
    ids: np.ndarray


def sides_of(context: Context, texts: list[str] | None, corpus: str) -> tuple[list[str], list[str]]:
    """(documents that calibrate, others that test): the first half of `texts` (hashes) and the rest; or those of the
    folder `corpus`, its training and its held-out ones where there are enough of both. Errors: BadText, BadSetting."""
    if bool(texts) == bool(corpus):
        raise BadSetting("Routing needs several texts or one folder of texts: give either.")
    if texts:
        calibrate, test = [context.text(key)[1] for key in texts], list[str]()
    else:
        calibrate, test = texts_of(corpus_folder(context.store, corpus) if context.browser else Path(corpus), context)
    if min(len(calibrate), len(test)) < LEAST:
        documents = list(dict.fromkeys([*calibrate, *test]))
        calibrate, test = documents[: len(documents) // 2], documents[len(documents) // 2 :]
    if min(len(calibrate), len(test)) < LEAST:
        raise BadText(
            f"Routing needs {LEAST} documents to calibrate and {LEAST} others to test, and "
            f"{len(calibrate) + len(test)} different ones were given: give at least {2 * LEAST}."
        )
    return calibrate, test


def prompts_of(model: Model, documents: list[str], length: int, count: int, needed: int) -> list[Prompt]:
    """About `count` windows of at most `length` tokens: of evenly spaced documents, and of each evenly spaced ones that
    do not overlap. Errors: BadText for a document that yields no window of `needed` tokens.
    """
    if len(documents) > count:
        documents = [documents[place] for place in np.linspace(0, len(documents) - 1, count).round().astype(int)]
    per_document, prompts = -(-count // len(documents)), []
    for number, text in enumerate(documents):
        windows = max(1, min(per_document, len(text) // (SPARE * length)))
        # Windows are cut from characters first: a whole novel would take minutes to tokenise.
        edges = np.linspace(0, len(text), windows + 1).astype(int)
        pieces = [text[a:b][: SPARE * length] for a, b in zip(edges[:-1], edges[1:], strict=True)]
        tokenized = [tokenize(model.tokenizer, piece, length, 1).ids for piece in pieces]
        longest = max(len(ids) for ids in tokenized)
        if longest < needed:
            raise too_short(f"Document {number + 1}", longest, needed)
        prompts += [Prompt(number, ids) for ids in tokenized if len(ids) >= needed]
    return prompts


def too_short(name: str, tokens: int, needed: int) -> BadText:
    """The error for a text in which no query has a key far enough back."""
    return BadText(
        f"{name} has {tokens:,} tokens and no query in it has a key far enough back: it must be at least {needed:,} "
        "tokens long, or the minimum distance smaller."
    )


def heads_of(model: Model, heads: str = "all") -> dict[int, list[int]]:
    """Place of a layer among those of softmax attention -> its query heads, from "all" or a list as "2.0,7.0"; former
    links have colons. Errors: BadSetting for one that is missing."""
    if heads == "all":
        return {layer: list(range(model.num_heads)) for layer in range(model.num_layers)}
    named: dict[int, list[int]] = {}
    for layer, head in sorted(heads_named(model, heads.replace(":", "."))):
        named.setdefault(model.layer_numbers.index(layer), []).append(head)
    return named
