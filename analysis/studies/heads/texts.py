"""Where in a corpus a head does what it does: queries of every tenth, and the tokens it reads and reads from."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from ...answer import Worded, doc, record
from ...commands.heads import HeadTexts
from ...corpus import Tokens, natural_samples, read_folder, text_hash, tokenize
from ...errors import BadSetting
from ...models import Model
from ...runs.brought import corpus_folder
from ...statistics.heads import ALL
from ...statistics.reader import Reader
from ...statistics.sampled import QueryReading
from ..context import STREAMED, Context, protocol
from ..text.kept import Readings, Tensors
from ..text.text import numbered

TENTHS = 10
# Queries shown of every tenth.
EXAMPLES = 2
# Tokens shown before a query.
AROUND = 12
# Tokens of a text that is read.
SHORTEST = 64
# That surely hold a token.
CHARACTERS = 8
KIND = "queries of all heads"
# Tokens and pairs of each kind.
SHOWN = 8
# Times that something must come.
FEWEST = 3
# Of the queries: those that give their first key most.
STRONG = 0.1
CELL = ["layer", "head", "statistic"]


@dataclass(frozen=True)
class Document:
    """A text of the corpus as it is read."""

    # In windows.
    tokens: Tokens
    # Places of the queries drawn from it.
    queries: np.ndarray

    @property
    def windows(self) -> list[np.ndarray]:
        """Token ids of each window."""
        return [self.tokens.ids[a:b] for a, b in self.tokens.spans]


@record
class HeadsOverTexts(Worded):
    """Where in a corpus every head does what it does. Shares, tenths and tokens are of the drawn queries, the largest
    numbers of all."""

    read: int = doc("tokens that were read")
    drawn: int = doc("queries that were drawn from them")
    texts: int = doc("texts that they are of")
    spread: pd.DataFrame = doc("layer head statistic, mean of all queries, q0 q10 ... q100 of those drawn")
    examples: pd.DataFrame = doc("queries: decile 0 the largest of all, 1 to 10 two in the middle of each tenth")
    tokens: pd.DataFrame = doc("layer head kind query key count lift, see `lifted`")
    begins: pd.DataFrame = doc("how each text begins, and its tokens", name="texts")


def head_texts(request: HeadTexts, *, context: Context) -> HeadsOverTexts:
    """For every head, where in a corpus each of its nine statistics is large, small and between; one run for all heads,
    of evenly about `tokens` tokens. In the app what was read is kept. Errors: BadSetting, BadText, TooLarge."""
    lm = context.model(request.model)
    context.progress(0.0, "reading the corpus")
    texts = list(natural_samples().values())
    if request.corpus:
        folder = corpus_folder(context.store, request.corpus) if context.browser else Path(request.corpus)
        train, held_out = read_folder(folder)
        texts = list(dict.fromkeys([*train, *held_out]))
    documents = drawn_documents(lm, texts, request.tokens, request.queries, request.seed)
    share = 1 / len(documents)
    read = [_read(context.within(index * share, share), lm, document) for index, document in enumerate(documents)]
    drawn = {name: np.concatenate([tensors[name].numpy() for tensors in read]) for name in ("values", "best", "weight")}
    text_of = np.repeat(np.arange(len(documents)), [len(document.queries) for document in documents])
    spread = numbered(lm, _spread(drawn["values"], read))
    sizes = [len(document.tokens) for document in documents]
    begins = ["".join(document.tokens.pieces[:AROUND]).strip() for document in documents]
    key = text_hash(" ".join(text_hash(text) for text in texts))
    about = {"seed": request.seed, "kernel": STREAMED, "queries": len(text_of), "mass": 0.9}
    return HeadsOverTexts(
        read=sum(sizes),
        drawn=len(text_of),
        texts=len(documents),
        sentence=_sentence(spread, len(documents), sum(sizes), len(text_of)),
        notes=["The first token of each window, often a sink, is no key of a pair and no query that is drawn."],
        spread=spread,
        examples=numbered(lm, _examples(documents, read, drawn["values"], text_of)),
        tokens=numbered(lm, _tokens(lm, documents, drawn, text_of)),
        begins=pd.DataFrame({"text": range(len(documents)), "begins": begins, "tokens": sizes}),
        protocol=protocol("head-texts", lm, key, sum(sizes), **about),
    )


def drawn_documents(lm: Model, texts: list[str], tokens: int, queries: int, seed: int) -> list[Document]:
    """As many tokens of each text as make about `tokens` in all, and the queries drawn from all of them alike."""
    texts = [text for text in texts if len(text) >= 2 * CHARACTERS]
    if not texts:
        raise BadSetting("No text of the corpus is long enough to read from: give more text.")
    few = min(len(texts), max(1, tokens // SHORTEST))
    chosen = [texts[place] for place in np.linspace(0, len(texts) - 1, few).round().astype(int)]
    coded: dict[int, Tokens] = {}
    left = tokens
    # The shortest first: what they leave goes to the longer ones.
    for place in sorted(range(few), key=lambda place: len(chosen[place])):
        share = max(SHORTEST, left // (few - len(coded)))
        size = min(lm.max_positions, share)
        coded[place] = tokenize(lm.tokenizer, chosen[place][: CHARACTERS * share], size, max(1, share // size))
        left -= len(coded[place])
    texts_tokens = [coded[place] for place in range(few)]
    # The first token of a window reads only itself, so it is no query.
    free = [np.setdiff1d(np.arange(len(text)), [first for first, _ in text.spans]) for text in texts_tokens]
    edges = np.cumsum([0, *map(len, free)])
    picked = np.random.default_rng(seed).choice(edges[-1], min(queries, edges[-1]), replace=False)
    picked.sort()
    if len(picked) < TENTHS:
        raise BadSetting(f"The corpus has {edges[-1]} tokens to read from and {TENTHS} are needed: give more text.")
    places = zip(texts_tokens, free, edges[:-1], edges[1:], strict=True)
    return [Document(text, some[picked[(picked >= a) & (picked < b)] - a]) for text, some, a, b in places]


def _read(context: Context, lm: Model, document: Document) -> Tensors:
    """What a pass over one text gives, or gave before."""

    def make() -> Tensors:
        reading = QueryReading(lm.num_layers, lm.num_heads, document.queries)
        spans = document.tokens.spans
        for index, ((start, _), ids) in enumerate(zip(spans, document.windows, strict=True)):
            context.progress(index / len(spans), f"text of {len(document.tokens):,} tokens, window {index + 1}")
            reading.begin_window(start)
            reading.read(lm, ids, reader=Reader(reading, [reading.watch]))
        names = ("values", "best", "weight", "high", "at", "sums", "counts")
        return {name: torch.from_numpy(getattr(reading, name)) for name in names}

    return Readings(context, lm, document.windows).made(KIND, [document.queries], make)


def _spread(values: np.ndarray, read: list[Tensors]) -> pd.DataFrame:
    """Mean over all queries and tenths of those drawn, [Q, L, H, 9]."""
    sums, counts = (np.sum([tensors[name].numpy()[:, :-1] for tensors in read], axis=0) for name in ("sums", "counts"))
    steps = range(0, 101, TENTHS)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    rows = []
    for layer, head, number in np.ndindex(values.shape[1:]):
        some = values[:, layer, head, number]
        finite = some[~np.isnan(some)]
        tenths = np.percentile(finite, steps) if len(finite) else np.full(len(steps), np.nan)
        rows.append((layer, head, ALL[number], float(means[layer, head, number]), *tenths.tolist()))
    return pd.DataFrame(rows, columns=[*CELL, "mean", *(f"q{step}" for step in steps)])


def _examples(documents: list[Document], read: list[Tensors], values: np.ndarray, text_of: np.ndarray) -> pd.DataFrame:
    """The largest numbers of all queries, and two in the middle of each tenth of those drawn."""
    places = np.concatenate([document.queries for document in documents])
    high = np.concatenate([tensors["high"].numpy() for tensors in read], -1)  # [L, H, 9, TOP of each text]
    high_place = np.concatenate([tensors["at"].numpy() for tensors in read], -1)
    high_text = np.repeat(np.arange(len(read)), [tensors["high"].shape[-1] for tensors in read])
    top = read[0]["high"].shape[-1]
    rows = []
    for cell in np.ndindex(values.shape[1:]):
        best = np.argsort(-high[cell], kind="stable")[:top]
        chosen = [(0, high_text[i], high_place[cell][i], high[cell][i]) for i in best]
        some = values[:, *cell]
        # NaN comes last.
        order = np.argsort(-some, kind="stable")[: int((~np.isnan(some)).sum())]
        for decile, part in enumerate(np.array_split(order, TENTHS), 1):
            middle = part[max(0, len(part) // 2 - EXAMPLES // 2) :][:EXAMPLES]
            chosen += [(decile, text_of[i], places[i], some[i]) for i in middle]
        for decile, text, place, value in chosen:
            if np.isfinite(value):
                pieces = documents[text].tokens.pieces
                before = "".join(pieces[max(0, place - AROUND) : place])
                layer, head, number = cell
                row = (layer, head, ALL[number], decile, int(text), int(place), float(value), pieces[place], before)
                rows.append(row)
    return pd.DataFrame(rows, columns=[*CELL, "decile", "text", "position", "value", "query", "before"])


def _tokens(lm: Model, documents: list[Document], drawn: dict[str, np.ndarray], text_of: np.ndarray) -> pd.DataFrame:
    """Of every head the tokens it reads from and reads, and the pairs of both, that come more often than by chance."""
    ids = [document.tokens.ids for document in documents]
    query = np.concatenate([some[document.queries] for some, document in zip(ids, documents, strict=True)])
    # token -> how many of the drawn queries would read it most if keys were drawn evenly
    chance: Counter[int] = Counter()
    for document in documents:
        for start, stop in document.tokens.spans:
            weights = np.zeros(stop - start)
            inside = document.queries[(document.queries >= start) & (document.queries < stop)] - start
            # A query reads the keys from the second token of its window to itself.
            weights[inside] = 1 / inside
            share = weights[::-1].cumsum()[::-1]
            for token, weight in zip(document.tokens.ids[start + 1 : stop].tolist(), share[1:], strict=True):
                chance[token] += weight
    offsets = np.cumsum([0, *map(len, ids)])
    key = np.concatenate(ids)[drawn["best"] + offsets[text_of][:, None, None]]  # [Q, L, H]
    rows = []
    for layer, head in np.ndindex(key.shape[1:]):
        lifts = lifted(query, key[:, layer, head], drawn["weight"][:, layer, head], chance)
        rows += [{"layer": layer, "head": head} | row for row in lifts]
    table = pd.DataFrame(rows, columns=["layer", "head", "kind", "query", "key", "count", "lift"])
    words = {token: lm.tokenizer.decode([token]) for token in {*query.tolist(), *np.unique(key).tolist()}}
    for side in ("query", "key"):
        table[side] = [None if pd.isna(token) else words[int(token)] for token in table[side]]
    return table


def lifted(query: np.ndarray, key: np.ndarray, weight: np.ndarray, chance: Mapping[int, float]) -> list[dict]:
    """Rows `kind query key count lift` of one head, at most 8 of each kind, from what Q queries read most.

    query, key int64 [Q]: tokens of each query and of the key that it reads most; weight [Q]: what that key gets;
    chance: token -> how many of the Q keys it would be if each were drawn evenly from those visible. `key`: how often
    a token is the key, over chance; `query`: how often a token asks among the tenth that gives its key most, over a
    tenth of its times; `pair`: how often both come together, over what independence gives. Lift 1: chance. What comes
    fewer than 3 times is left out; the order is by count times log lift, so that the rare do not win.
    """
    strong = np.argsort(-weight, kind="stable")[: max(1, round(STRONG * len(weight)))]
    keys, queries = Counter(key.tolist()), Counter(query.tolist())
    pairs = Counter(zip(query.tolist(), key.tolist(), strict=True))
    share = len(strong) / len(query)
    kinds = {
        "key": [(None, k, count, count / chance[k]) for k, count in keys.items()],
        "query": [(q, None, n, n / (share * queries[q])) for q, n in Counter(query[strong].tolist()).items()],
        "pair": [(q, k, count, count * len(query) / (queries[q] * keys[k])) for (q, k), count in pairs.items()],
    }
    rows = []
    for kind, entries in kinds.items():
        frequent = [entry for entry in entries if entry[2] >= FEWEST and entry[3] > 1]
        frequent.sort(key=lambda entry: -entry[2] * np.log(entry[3]))
        for entry in frequent[:SHOWN]:
            rows.append(dict(zip(("kind", "query", "key", "count", "lift"), (kind, *entry), strict=True)))
    return rows


def _sentence(spread: pd.DataFrame, texts: int, tokens: int, drawn: int) -> str:
    """The head whose far reading is the strongest over the corpus, and how uneven it is."""
    sentence = f"{tokens:,} tokens of {texts} text{'s' * (texts != 1)} were read and {drawn:,} queries drawn."
    far = spread[(spread["statistic"] == "far_peaks") & spread["mean"].notna()]
    if far.empty:
        return f"{sentence} No query has a key far enough back to speak of far reading."
    best = far.loc[far["mean"].idxmax()]
    return (
        f"{sentence} Head {best['layer']}.{best['head']} picks out most from afar: {best['mean']:.0%} of its "
        f"attention above chance, in the top tenth of the queries {best['q90']:.0%} or more, in half of them "
        f"{best['q50']:.0%} or less."
    )
