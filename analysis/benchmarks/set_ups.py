"""Set-up A and set-up B: how the question of a prompt is read. This is their one definition; app and verbs quote it.

A prompt is examples, then the question, which ends with the words that ask for its answer, then an answer. Without
examples the prompt is the question alone. The names are this project's own.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class SetUp:
    """A way to read the question: its letter, a few words, and the whole sentence."""

    letter: str
    short: str
    means: str


SET_UPS = {  # value of `question` -> the set-up
    "sparse": SetUp(
        "A",
        "read with the method",
        "Examples, question and answer are all read with the method.",
    ),
    "dense": SetUp(
        "B",
        "reads everything",
        "The tokens of the question read all that is before them; the examples before it and the answer behind it are "
        "read with the method, as when a context was made sparse before the question was known.",
    ),
}
