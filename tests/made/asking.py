"""Asking studies as the worker does: one context, equal requests answered once, nothing written beside the test."""

import json
import shutil
from pathlib import Path

from analysis.models import CACHE
from analysis.studies import STUDIES
from analysis.studies.context import Context
from tests.made.models import watched

SHORT = "Hester lit the lamp. Edmund Farrow wrote to Perpetua about the lamp, and Hester kept the letter.\n" * 6


def study_context(state: Path) -> Context:
    """The bundled model with its tracked router, copied to `state`."""
    (state / "focus").mkdir(parents=True)
    for path in (CACHE / "demo" / "focus").glob("*k8-top1.[sj]*"):
        shutil.copy(path, state / "focus")
    return watched(state)


def asker(context: Context):
    """`ask(verb, text, **arguments)` -> Result."""
    answered = {}

    def ask(verb, text=SHORT, **arguments):
        key = json.dumps([verb, text, arguments])
        if key not in answered:
            text_key = {} if text is None else {"text": context.add_text("a text", text)}
            answered[key] = STUDIES[verb](**text_key, **arguments, context=context)
        return answered[key]

    return ask
