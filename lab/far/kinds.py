"""The kinds of recall documents, each a function that fills a document, and their shares."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lab.far.recall import KEYS, SHORT, STYLES, Document, Source, Writer, lookups, spread, thinness

# Tokens of a document that has room for keys of 25 tokens.
LONG = 1000
# First tokens of a passage that comes again: nothing says that it begins.
ENTRY = 3
# Last tokens of a passage whose mark is asked for.
QUOTE = 12

FACTS = (
    "The {what} of {key} is {value}.\n",
    "{key} has the {what} {value}.\n",
    "For {key} the {what} is {value}.\n",
    "{key}'s {what} was {value}.\n",
    "Remember that the {what} of {key} is {value}.\n",
    "They wrote down {value} as the {what} of {key}.\n",
)
QUESTIONS = (
    "Q: What is the {what} of {key}?\nA: {value}\n",
    "Which {what} has {key}? {value}.\n",
    '"And the {what} of {key}?" "{value}," she said.\n',
)
PAIRS = (
    '{"{key}": "{value}"},\n',
    ' {"{key}": "{value}"},',
    '  "{key}": "{value}",\n',
    "{key} = {value}\n",
    "{key}: {value}\n",
    "{key},{value}\n",
    "| {key} | {value} |\n",
    "<{key}>{value}</{key}>\n",
)
ARROWS = (" =", " ->", ":", " is", " =>", " |")
CODE = (  # how a value is set, and how it is asked for
    ("{key} = {value}\n", ("assert {key} == {value}\n", "print({key})  # {value}\n")),
    ("def {key}():\n    return {value}\n\n\n", ("assert {key}() == {value}\n", ">>> {key}()\n{value}\n")),
    ("        self.{key} = {value}\n", ("        assert self.{key} == {value}\n",)),
    ("config['{key}'] = {value}\n", ("assert config['{key}'] == {value}\n", "config.get('{key}', {value})\n")),
    ("class {key}:\n    size = {value}\n\n\n", ("assert {key}.size == {value}\n",)),
    ('parser.add_argument("--{key}", default={value})\n', ("args.{key}  # {value}\n",)),
)
RECORDS = (
    ("{key}, {a} {0}, {b} {1}, {c} {2}.\n", "{key}: {what} {value}.\n"),
    ("{key} came with {a} {0}, {b} {1} and {c} {2}.\n", "Which {what} had {key}? {value}.\n"),
    ("Entry {key}: {a} {0}; {b} {1}; {c} {2}\n", "Q: Name the {what} of {key}.\nA: {value}\n"),
)


def repeats(writer: Writer) -> None:
    """A segment of random tokens, at most half as long as the document, again and again: each document has its own
    distance, so that only a match of tokens tells what follows."""
    rng = writer.rng
    segment = rng.integers(1, writer.source.vocabulary, rng.integers(4, max(5, writer.length // 2 + 1)))
    writer.add(segment)
    while not writer.full:
        writer.add(segment[:1], answer=writer.written > len(segment))
        writer.add(segment[1:], answer=True)


def loops(writer: Writer) -> None:
    """One passage of random tokens, of the whole vocabulary or of a text, again and again: nothing else asks so often
    for the two heads that look back."""
    rng, source = writer.rng, writer.source
    count = spread(rng, 4, max(5, min(64, writer.length // 3)))
    if rng.random() < 0.5:
        passage = rng.integers(1, source.vocabulary, count)
    else:
        text = source.tokens[next(iter(source.tokens))]
        passage = np.maximum(1, text[rng.integers(len(text), size=count)].astype(np.int64))
    writer.add(passage)
    writer.add(passage[:1])
    writer.add(passage[1:], answer=True)
    while not writer.full:
        writer.add(passage, answer=True)


def copies(writer: Writer) -> None:
    """Passages of natural text, of random words or of random tokens that come again, once or several times."""
    rng, source = writer.rng, writer.source
    made_of = rng.choice(("text", "tokens", "words"), p=(0.5, 0.35, 0.15))
    while not writer.full:
        count = spread(rng, 8, max(9, min(150, writer.length // 3)))
        if made_of == "text":
            passage = writer.more(count)
        elif made_of == "tokens":
            passage = rng.integers(1, source.vocabulary, count)
        else:
            drawn = " ".join(writer.words.draw("word", rng) for _ in range(count))
            passage = np.array(source.tokenizer.encode(" " + drawn).ids, np.int64)
        writer.add(passage)
        for _ in range(rng.integers(1, 4)):
            if writer.thin or made_of == "text" and rng.random() < 0.5:
                writer.add(writer.more(spread(rng, 4, max(5, writer.length * 3 // 5))))
            writer.add(passage[:ENTRY])
            writer.add(passage[ENTRY:], answer=True)


def facts(writer: Writer) -> None:
    """Sentences that tell a made-up property of a made-up thing, and the same words or a question again."""
    rng = writer.rng
    noun = writer.words.draw("word", rng)
    # The last one has its key behind the value: it is told, never asked.
    tell = FACTS[rng.integers(len(FACTS) - 1)]
    tell = FACTS[-1] if rng.random() < 0.1 else tell
    asks = [FACTS[0] if tell == FACTS[-1] else tell]
    if rng.random() < 0.4:
        asks.append(QUESTIONS[rng.integers(len(QUESTIONS))])
    statement, *questions = (text.replace("{what}", noun) for text in (tell, *asks))
    lookups(writer, statement, questions, rng.choice(KEYS), rng.choice(STYLES))


def pairs(writer: Writer) -> None:
    """Lists of keys and values as JSON, settings, tables; then the same pairs again in another order."""
    form = PAIRS[writer.rng.integers(len(PAIRS))]
    styles = ("word", "made", "hex", "number", "code", "uuid")[: None if writer.length > LONG else -1]
    lookups(writer, form, [form], writer.rng.choice(styles), writer.rng.choice(STYLES))


def labels(writer: Writer) -> None:
    """Items with labels of this document's own, items coming again; or passages with a mark, quoted again."""
    rng = writer.rng
    if rng.random() < 0.25:
        return marks(writer)
    arrow, style = ARROWS[rng.integers(len(ARROWS))], rng.choice(("word", "made"))
    count, pool = int(rng.integers(2, 4 + min(9, writer.length // 128))), int(rng.integers(1, 5))
    names = [writer.fresh("word") for _ in range(count)]
    items = [[writer.fresh(style) for _ in range(pool)] for _ in names]
    drawn_at_once = int(rng.integers(1, min(2, pool) + 1))
    before: set[str] = set()
    while not writer.full:
        label = rng.integers(count)
        drawn = [items[label][i] for i in rng.permutation(pool)[:drawn_at_once]]
        writer.say("\n" + "".join(f" {item}" for item in drawn) + arrow)
        writer.say(f" {names[label]}", answer=not before.isdisjoint(drawn))
        before.update(drawn)
        writer.rest()


def marks(writer: Writer) -> None:
    """Passages of one text with a mark behind each; then the end of one and its mark."""
    rng = writer.rng
    passages: list[tuple[np.ndarray, str]] = []
    size, end = int(rng.integers(12, 41)), writer.length * rng.uniform(0.4, 0.7)
    lead = f" {writer.words.draw('word', rng).capitalize()}:"
    while not writer.full:
        if writer.written < end or not passages:
            passages.append((writer.more(size), writer.fresh("word")))
            passage, mark = passages[-1]
        else:
            passage, mark = passages[rng.integers(len(passages))]
        asking = writer.written >= end
        writer.add(passage[-QUOTE:] if asking else passage)
        writer.say(lead)
        writer.say(f" {mark}", answer=asking)
        writer.say("\n")


def code(writer: Writer) -> None:
    """Constants, functions and attributes, and assertions about them."""
    rng = writer.rng
    tell, asks = CODE[rng.integers(len(CODE))]
    keys = rng.choice(("made", "word"))
    lookups(writer, tell, list(asks), keys, rng.choice(("number", "number", "hex", "made", "word")))


def register(writer: Writer) -> None:
    """A register of made-up people with three entries each, and questions about one of them in free order."""
    rng = writer.rng
    people: list[tuple[str, list[str]]] = []
    columns = [writer.fresh("word") for _ in range(3)]
    styles = rng.choice(("word", "number", "name", "made"), 3)
    entry, question = RECORDS[rng.integers(len(RECORDS))]
    for name, column in zip("abc", columns, strict=True):
        entry = entry.replace(f"{{{name}}}", column)
    end = writer.length * rng.uniform(0.3, 0.6)
    while not writer.full:
        if writer.written < end or not people:
            key, values = writer.fresh("name"), [writer.fresh(style) for style in styles]
            people.append((key, values))
            line = entry.replace("{key}", key)
            for n, value in enumerate(values):
                before, line = line.split(f"{{{n}}}")
                writer.say(before.removesuffix(" "))
                writer.say(f" {value}")
            writer.say(line)
        else:
            key, values = people[rng.integers(len(people))]
            n = int(rng.integers(3))
            writer.line(question.replace("{what}", columns[n]), key, values[n], ask=True)
        writer.rest()


class Kind(NamedTuple):
    """`write` fills a document; `share` of all recall documents, `short` of those of at most 300 tokens; `code`: the
    natural text between its lines is source code."""

    share: float
    short: float
    write: Callable[[Writer], None]
    code: bool = False


KINDS = {  # among short documents, with which training begins, those with the most answers come more often
    "loops": Kind(0.02, 0.10, loops),
    "copies": Kind(0.25, 0.35, copies),
    "facts": Kind(0.28, 0.20, facts),
    "pairs": Kind(0.15, 0.08, pairs),
    "labels": Kind(0.10, 0.18, labels),
    "code": Kind(0.15, 0.08, code, code=True),
    "register": Kind(0.05, 0.01, register),
    "repeats": Kind(0.0, 0.0, repeats),  # the first phases alone
}


def document(
    source: Source, seed: int, row: int, length: int, kind: str | None = None, own: dict[str, float] | None = None
) -> Document:
    """The recall document of a row: exactly `length` tokens, of `kind` or of one drawn by its share, usual or `own`."""
    rng = np.random.default_rng([seed, row, length])
    usual = {name: about.short if length <= SHORT else about.share for name, about in KINDS.items()}
    names, shares = list(own or usual), np.array(list((own or usual).values()))
    drawn = names[rng.choice(len(names), p=shares / shares.sum())]
    about = KINDS[kind or drawn]
    natural = [name for name in source.tokens if name != source.code] or [source.code]
    domain = source.code if about.code and source.code in source.tokens else natural[rng.integers(len(natural))]
    writer = Writer(source, length, rng, domain, thin=rng.random() < thinness(length))
    about.write(writer)
    return writer.document(kind or drawn)
