"""Small stand-ins for passage reranking, questions over a long text and answers with citations, the families of HELMET
(Yen et al. 2025; Focal Attention, section 3.5.2) whose own data are texts that people wrote."""

from dataclasses import replace

import numpy as np

from .pieces import Item, Pieces
from .prompts import LINE, Ask, blocks_of, enough, hidden, others

# Tokens of a passage, and words of the query, all of which stand in the most relevant one.
PASSAGE, QUERY = 24, 4


def reranking(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Marked passages: the most relevant holds all words of a query, the next ones a word fewer each, all others none;
    its mark is asked for. The candidates are the most relevant passages in this order, whose `relevance` is the number
    of words that they hold."""
    line, named, colon = pieces.ids(LINE), pieces.ids("Passage"), pieces.ids(":")
    asks, leads = pieces.ids("Query:"), pieces.ids("Passages, the most relevant first:")
    around = 2 * len(line) + len(named) + len(colon) + PASSAGE

    def fits(size: int) -> int:
        question_tokens = 2 * len(line) + len(asks) + QUERY * size + len(leads)
        return (ask.length - len(pieces.begin) - question_tokens - size) // (around + (1 + QUERY) * size)

    # In one draw, so that no mark is also a word of the query.
    drawn = pieces.values("word", max(fits(1), ask.choices) + QUERY, random)
    size = len(drawn[0])
    count = fits(size)
    enough("reranking", ask, count, ask.choices, around + (1 + QUERY) * size, "passages")
    words, marks = drawn[:QUERY], drawn[QUERY : QUERY + count]
    question = [line, asks, *words, line, leads]
    target = round(ask.fraction * (count - 1))
    # Places of the passages by their rank, the most relevant first.
    ranked = [target, *(int(place) for place in random.permutation(count) if place != target)]
    blocks = []
    for place in range(count):
        held = max(0, QUERY - ranked.index(place))
        shown = [words[word] for word in random.permutation(QUERY)[:held]]
        text = pieces.hay(PASSAGE + size * (QUERY - held), random)
        cuts = np.sort(random.integers(0, len(text) + 1, held))
        mixed = [part for pair in zip(np.split(text, cuts), [*shown, text[:0]], strict=True) for part in pair]
        blocks.append([line, named, marks[place], colon, np.concatenate(mixed), line])
    order = random.permutation(ask.choices)
    candidates = [marks[ranked[rank]] for rank in order]
    right = int(np.flatnonzero(order == 0)[0])
    item = blocks_of(pieces, ask, random, blocks, (target, 2), question, (candidates, right))
    return replace(item, relevance=tuple(max(0, QUERY - int(rank)) for rank in order))


def long_questions(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """People go to one place and, further on in the text, to another; asked is where one of them went last. The
    candidates are the last places of all, and the first one of who is asked for."""
    people = ask.choices - 1
    # In one draw, so that no name is also a place.
    drawn = pieces.values("word", 3 * people, random)
    names, first, last = drawn[:people], drawn[people : 2 * people], drawn[2 * people :]
    asked = int(random.integers(people))
    line, went, end = pieces.ids(LINE), pieces.ids(" went to the"), pieces.ids(".")
    moves = [*zip(names, first, strict=True), *zip(names, last, strict=True)]
    needles = [[line, name, went, place, end, line] for name, place in moves]
    question = [line, pieces.ids("The last place of"), names[asked], pieces.ids(" is the")]
    candidates = others([*last, first[asked]], asked, ask.choices, random)
    earlier = [(person, people + person) for person in range(people)]
    return hidden(pieces, ask, random, needles, people + asked, question, candidates, earlier)


def citations(pieces: Pieces, ask: Ask, random: np.random.Generator) -> Item:
    """Marked sources, each with the code of a name; asked is the code of one with the mark of its source. Of the wrong
    candidates a third has the right code with another mark, a third another code with the right mark."""
    # In one draw, so that no code is also a name or a mark.
    drawn = pieces.values("word", 3 * ask.choices, random)
    names, codes, marks = (drawn[part * ask.choices : (part + 1) * ask.choices] for part in range(3))
    line, source, end = pieces.ids(LINE), pieces.ids(" from source"), pieces.ids(".")
    says = pieces.ids(" is")
    needles = [
        [line, pieces.ids("Source"), mark, pieces.ids(": The code of"), name, says, code, end, line]
        for mark, name, code in zip(marks, names, codes, strict=True)
    ]
    asked = int(random.integers(ask.choices))
    answers = [np.concatenate([codes[asked], source, marks[asked]])]
    for number, other in enumerate(place for place in range(ask.choices) if place != asked):
        code = codes[asked if number % 3 == 0 else other]
        mark = marks[asked if number % 3 == 1 else other]
        answers.append(np.concatenate([code, source, mark]))
    candidates = others(answers, 0, ask.choices, random)
    question = [line, pieces.ids("The code of"), names[asked], says]
    return hidden(pieces, ask, random, needles, asked, question, candidates)
