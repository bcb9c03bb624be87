"""Generated instructions: what a small copy of a model is tuned to follow, and asked again after it was adapted."""

import numpy as np

from analysis.corpus import sample_texts
from analysis.models import Model
from analysis.probes.pieces import Item, Pieces
from analysis.probes.scoring import control

CHOICES = 4
# Words of which instructions are made, one half in training and the other in the questions.
POOL = 128
# Names whose marks only the tuning tells.
KNOWN = 16
KINDS = {
    "repeat": "Repeat the word",
    "first": "Name the first of these words:",
    "last": "Name the last of these words:",
    "mark": "Say the mark of",
}
# A question, and what its answers score without the instruction.
Pair = tuple[Item, Item]


class Instructions:
    """Instructions in the tokens of a model, of the four KINDS. Three ask for a word of the instruction and are asked
    with other words than those of the tuning; `mark` asks for what the tuning taught, like a fact. Each is a forced
    choice among four. Errors: BadModel where the tokenizer cannot tell the words apart."""

    def __init__(self, lm: Model, seed: int) -> None:
        self.pieces = Pieces(lm.tokenizer, next(iter(sample_texts().values()))[1])
        words = self.pieces.values("word", POOL + 2 * KNOWN, np.random.default_rng([seed, 0]))
        self.names, self.marks = words[:KNOWN], words[KNOWN : 2 * KNOWN]
        self.halves = words[2 * KNOWN :: 2], words[2 * KNOWN + 1 :: 2]
        self.end = lm.tokenizer.eos_token_id
        self.seed = seed

    def one(self, kind: str, words: list[np.ndarray], random: np.random.Generator) -> Item:
        """An instruction of a kind, its four answers and which is right."""
        chosen = [words[i] for i in random.permutation(len(words))[:CHOICES]]
        right = {"first": 0, "last": CHOICES - 1}.get(kind, int(random.integers(CHOICES)))
        if kind == "mark":
            at = random.permutation(KNOWN)[:CHOICES]
            named, chosen = [self.names[at[right]]], [self.marks[i] for i in at]
        else:
            named = [chosen[right]] if kind == "repeat" else chosen
        comma, question_parts = self.pieces.ids(","), [self.pieces.ids(f"Instruction: {KINDS[kind]}")]
        for place, word in enumerate(named):
            question_parts += [comma, word] if place else [word]
        sentence = np.concatenate([*question_parts, self.pieces.ids(".")])
        question = self.pieces.ids("\nAnswer:")
        ids = np.concatenate([self.pieces.begin, sentence, question]).astype(np.int64)
        return Item(ids, np.stack(chosen), right, None, len(ids) - len(question))

    def stream(self, count: int) -> np.ndarray:
        """`count` instructions with their answers, one after the other, int64 [n]: what the tuning reads."""
        random, parts, kinds = np.random.default_rng([self.seed, 1]), [], list(KINDS)
        ending = self.pieces.ids("\n") if self.end is None else np.array([self.end])
        for number in range(count):
            item = self.one(kinds[number % len(kinds)], self.halves[0], random)
            parts += [item.ids, item.answer, ending]
        return np.concatenate(parts).astype(np.int64)

    def asked(self, items: int) -> dict[str, list[Pair]]:
        """kind -> questions with words that the tuning did not use, each with its control."""
        questions = {}
        for place, kind in enumerate(KINDS):
            random = np.random.default_rng([self.seed, 2, place])
            instructions = [self.one(kind, self.halves[1], random) for _ in range(items)]
            questions[kind] = [(item, control(self.pieces, item, random)) for item in instructions]
        return questions
