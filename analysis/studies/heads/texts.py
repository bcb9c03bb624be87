"""Where in a corpus a head does what it does: queries of every tenth, and the tokens it reads and reads from."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...corpus import Tokens, natural_samples, read_folder, text_hash, tokenize
from ...errors import BadSetting
from ...models import Model
from ...runs.brought import corpus_folder
from ...statistics.heads import ALL
from ...statistics.reader import Reader
from ...statistics.sampled import QueryReading
from ..context import STREAMED, Context, check_seed, protocol
from ..text.held_out import check_range
from ..text.kept import Readings, Tensors
from .lift import lifted

TOKENS = 16_384  # of the corpus that are read
QUERIES = 2048  # drawn from them
TENTHS = 10
EACH = 2  # queries shown of every tenth
AROUND = 12  # tokens shown before a query
LEAST = 64  # tokens of a corpus
CHARACTERS = 8  # that surely hold a token
KIND = "queries of all heads"


@dataclass(frozen=True)
class Document:
    """A text of the corpus as it is read."""

    tokens: Tokens  # in windows
    queries: np.ndarray  # places of the queries drawn from it

    @property
    def windows(self) -> list[np.ndarray]:
        """Token ids of each window."""
        return [self.tokens.ids[a:b] for a, b in self.tokens.spans]


@record
class HeadTexts(Worded):
    """Where in a corpus every head does what it does. Shares, tenths and tokens are of the drawn queries, the largest
    numbers of all."""

    read: int = doc("tokens that were read")
    drawn: int = doc("queries that were drawn from them")
    texts: int = doc("texts that they are of")
    spread: pd.DataFrame = doc("layer head statistic, mean of all queries, q0 q10 ... q100 of those drawn")
    examples: pd.DataFrame = doc("queries: decile 0 the largest of all, 1 to 10 two in the middle of each tenth")
    tokens: pd.DataFrame = doc("layer head kind query key count lift, see `lifted`")
    begins: pd.DataFrame = doc("how each text begins, and its tokens", name="texts")


def head_texts(
    model: str = "demo",
    corpus: str = "",
    tokens: int = TOKENS,
    queries: int = QUERIES,
    seed: int = 0,
    *,
    context: Context,
) -> HeadTexts:
    """For every head, where in a corpus each of its nine statistics is large, small and between; one run for all heads.

    `corpus`: a folder of texts (the bundled samples unless given), of which evenly about `tokens` tokens are read, a
    text at a time; `queries` of them are drawn at random. Errors: BadSetting, BadText, TooLarge.
    """
    check_seed(seed)
    lm = context.model(model)
    check_range("The number of tokens", tokens, LEAST, 1 << 24)
    check_range("The number of queries", queries, TENTHS, 1 << 16)
    context.progress(0.0, "reading the corpus")
    corpus_texts = _texts(context, corpus)
    documents = _drawn(lm, corpus_texts, tokens, queries, seed)
    read = []
    for index, document in enumerate(documents):
        read.append(_read(context.within(index / len(documents), 1 / len(documents)), lm, document))
    drawn = {name: np.concatenate([tensors[name].numpy() for tensors in read]) for name in ("values", "best", "weight")}
    of = np.repeat(np.arange(len(documents)), [len(document.queries) for document in documents])  # text of each query
    spread = _spread(drawn["values"], read)
    sizes = [len(document.tokens) for document in documents]
    begins = ["".join(document.tokens.pieces[:AROUND]).strip() for document in documents]
    named = text_hash(" ".join(text_hash(text) for text in corpus_texts))
    about = {"seed": seed, "kernel": STREAMED, "queries": len(of), "mass": 0.9}
    return HeadTexts(
        read=sum(sizes),
        drawn=len(of),
        texts=len(documents),
        sentence=_sentence(spread, len(documents), sum(sizes), len(of)),
        notes=["The first token of each window, often a sink, is no key of a pair and no query that is drawn."],
        spread=spread,
        examples=_examples(documents, read, drawn["values"], of),
        tokens=_tokens(lm, documents, drawn, of),
        begins=pd.DataFrame({"text": range(len(documents)), "begins": begins, "tokens": sizes}),
        protocol=protocol("head-texts", lm, named, sum(sizes), **about),
    )


def _texts(context: Context, corpus: str) -> list[str]:
    """The documents of a folder, or the bundled samples."""
    if not corpus:
        return list(natural_samples().values())
    train, held_out = read_folder(corpus_folder(context.store, corpus) if context.browser else Path(corpus))
    return list(dict.fromkeys([*train, *held_out]))


def _drawn(lm: Model, texts: list[str], tokens: int, queries: int, seed: int) -> list[Document]:
    """As many tokens of each text as make about `tokens` in all, and the queries drawn from all of them alike."""
    texts = [text for text in texts if len(text) >= 2 * CHARACTERS]
    if not texts:
        raise BadSetting("No text of the corpus is long enough to read from: give more text.")
    few = min(len(texts), max(1, tokens // LEAST))
    chosen = [texts[place] for place in np.linspace(0, len(texts) - 1, few).round().astype(int)]
    coded: dict[int, Tokens] = {}
    left = tokens
    for place in sorted(range(few), key=lambda place: len(chosen[place])):  # what short ones leave goes to long ones
        share = max(LEAST, left // (few - len(coded)))
        size = min(lm.max_positions, share)
        coded[place] = tokenize(lm.tokenizer, chosen[place][: CHARACTERS * share], size, max(1, share // size))
        left -= len(coded[place])
    texts_tokens = [coded[place] for place in range(few)]
    # The first token of a window reads only itself, so it is no query.
    free = [np.setdiff1d(np.arange(len(text)), [first for first, _ in text.spans]) for text in texts_tokens]
    edges = np.cumsum([0, *map(len, free)])
    random = np.random.default_rng(seed)
    picked = np.sort(random.choice(edges[-1], min(queries, edges[-1]), replace=False))
    if len(picked) < TENTHS:
        raise BadSetting(f"The corpus has {edges[-1]} tokens to read from and {TENTHS} are needed: give more text.")
    places = zip(texts_tokens, free, edges[:-1], edges[1:], strict=True)
    return [Document(text, some[picked[(picked >= a) & (picked < b)] - a]) for text, some, a, b in places]


def _read(context: Context, lm: Model, document: Document) -> Tensors:
    """What a pass over one text gives, or gave before."""
    readings = Readings(context, lm, document.windows)

    def make() -> Tensors:
        reading = QueryReading(lm.num_layers, lm.num_heads, document.queries)
        spans = document.tokens.spans
        for index, ((start, _), ids) in enumerate(zip(spans, document.windows, strict=True)):
            context.progress(index / len(spans), f"text of {len(document.tokens):,} tokens, window {index + 1}")
            reading.begin_window(start)
            reading.read(lm, ids, reader=Reader(reading, [reading.watch]))
        names = ("values", "best", "weight", "high", "at", "sums", "counts")
        return {name: torch.from_numpy(getattr(reading, name)) for name in names}

    return readings.made(KIND, [document.queries], make)


def _heads(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int, dict]]:
    """Every (layer, head, number of a statistic) with its columns."""
    for layer, head, number in np.ndindex(*shape[1:]):
        yield layer, head, number, {"layer": layer, "head": head, "statistic": ALL[number]}


def _spread(values: np.ndarray, read: list[Tensors]) -> pd.DataFrame:
    """Mean over all queries and tenths of those drawn, [Q, L, H, 9]."""
    sums, counts = (sum(tensors[name].numpy()[:, :-1] for tensors in read) for name in ("sums", "counts"))
    steps = np.arange(0, 101, TENTHS)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    rows = []
    for layer, head, number, cell in _heads(values.shape):
        some = values[:, layer, head, number]
        finite = some[~np.isnan(some)]
        tenths = np.percentile(finite, steps) if len(finite) else np.full(len(steps), np.nan)
        edges = {f"q{step}": float(edge) for step, edge in zip(steps, tenths, strict=True)}
        rows.append(cell | {"mean": float(means[layer, head, number])} | edges)
    return pd.DataFrame(rows)


def _examples(documents: list[Document], read: list[Tensors], values: np.ndarray, of: np.ndarray) -> pd.DataFrame:
    """The largest numbers of all queries, and two in the middle of each tenth of those drawn."""
    places = np.concatenate([tensors.queries for tensors in documents])
    high = np.concatenate([tensors["high"].numpy() for tensors in read], -1)  # [L, H, 9, TOP of each text]
    at_text = np.repeat(np.arange(len(read)), [tensors["high"].shape[-1] for tensors in read])
    at_place = np.concatenate([tensors["at"].numpy() for tensors in read], -1)
    top = read[0]["high"].shape[-1]
    rows = []
    for layer, head, number, cell in _heads(values.shape):
        best = np.argsort(-high[layer, head, number], kind="stable")[:top]
        found = [(0, at_text[i], at_place[layer, head, number, i], high[layer, head, number, i]) for i in best]
        some = values[:, layer, head, number]
        order = np.argsort(-some, kind="stable")[: int((~np.isnan(some)).sum())]  # NaN comes last
        for decile, part in enumerate(np.array_split(order, TENTHS), 1):
            middle = part[max(0, len(part) // 2 - EACH // 2) :][:EACH]
            found += [(decile, of[i], places[i], some[i]) for i in middle]
        for decile, text, place, value in found:
            if np.isfinite(value):
                pieces = documents[text].tokens.pieces
                before = "".join(pieces[max(0, place - AROUND) : place])
                shown_text = {"value": float(value), "query": pieces[place], "before": before}
                rows.append(cell | {"decile": decile, "text": int(text), "position": int(place)} | shown_text)
    return pd.DataFrame(rows)


def _tokens(lm: Model, documents: list[Document], drawn: dict[str, np.ndarray], of: np.ndarray) -> pd.DataFrame:
    """Of every head the tokens it reads from and reads, and the pairs of both, that come more often than by chance."""
    ids = [document.tokens.ids for document in documents]
    query = np.concatenate([some[document.queries] for some, document in zip(ids, documents, strict=True)])
    chance: dict[int, float] = {}  # token -> how many of the drawn queries would read it most if keys were drawn evenly
    for document in documents:
        for start, stop in document.tokens.spans:
            weights = np.zeros(stop - start)
            inside = document.queries[(document.queries >= start) & (document.queries < stop)] - start
            weights[inside] = 1 / inside  # a query reads the keys from the second token of its window to itself
            share = weights[::-1].cumsum()[::-1]
            for token, weight in zip(document.tokens.ids[start + 1 : stop].tolist(), share[1:], strict=True):
                chance[token] = chance.get(token, 0.0) + weight
    offsets = np.cumsum([0, *map(len, ids)])
    joined = np.concatenate(ids)
    key = joined[drawn["best"] + offsets[of][:, None, None]]  # [Q, L, H]
    names = {}

    def word(token: int) -> str:
        if token not in names:
            names[token] = lm.tokenizer.decode([token])
        return names[token]

    rows = []
    for layer, head in np.ndindex(key.shape[1:]):
        for row in lifted(query, key[:, layer, head], drawn["weight"][:, layer, head], chance):
            words = {side: None if row[side] is None else word(row[side]) for side in ("query", "key")}
            rows.append({"layer": layer, "head": head} | row | words)
    return pd.DataFrame(rows, columns=["layer", "head", "kind", "query", "key", "count", "lift"])


def _sentence(spread: pd.DataFrame, texts: int, tokens: int, drawn: int) -> str:
    """The head whose far reading is the strongest over the corpus, and how uneven it is."""
    sentence = f"{tokens:,} tokens of {texts} text{'s' * (texts != 1)} were read and {drawn:,} queries drawn."
    far = spread[(spread["statistic"] == "far_peaks") & spread["mean"].notna()]
    if far.empty:
        return f"{sentence} No query has a key far enough back to speak of far reading."
    best = far.loc[far["mean"].idxmax()]
    return (
        f"{sentence} Head {best['head']} of layer {best['layer']} picks out most from afar: {best['mean']:.0%} of its "
        f"attention above chance, in the top tenth of the queries {best['q90']:.0%} or more, in half of them "
        f"{best['q50']:.0%} or less."
    )
