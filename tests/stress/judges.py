"""Hostile input straight into what the app itself judges: links, and the methods and edits that stand in them."""

import contextlib
import random
from collections.abc import Callable

from app.budgets import edits
from app.quality import cards
from app.selection import state
from tests.stress.deal import judged
from tests.stress.hostile import hostile_text
from tests.stress.rows import Row
from tests.stress.scene import hold


def tried(count: int, seed: int = 0) -> list[Row]:
    """`count` inputs, dealt to the judges in turn; one row per judge."""
    return judged(JUDGES, count, seed)


def _url(dice: random.Random) -> object:
    session, names = {}, dice.sample(sorted(state.CONTROLS), 4)
    params = {name: hostile_text(dice) for name in [*names, *([hostile_text(dice)] if dice.random() < 0.2 else [])]}
    for sentence in state.read(session, params):
        hold(len(sentence) < 400, "the sentence repeats what was sent")
    back = state.read({}, state.address(session))
    hold(not back, f"what was taken is not taken again: {back}")
    return state.write(session, params)


def _words(dice: random.Random) -> object:
    with contextlib.suppress(ValueError):  # what the page drops, with a sentence
        edits.parse(hostile_text(dice))
    return cards.parse(hostile_text(dice), ["focus", "csa"])


JUDGES: dict[str, Callable[[random.Random], object]] = {"URL parameters": _url, "methods and edits in a link": _words}
