"""What the tests of studies share: asking a command about a text on a tiny model, or on the bundled one."""

import pytest

from analysis.declaration import fields_of
from tests.made.asking import asker, study_context
from tests.made.evaluating import TEXT


@pytest.fixture(scope="module")
def ask(context, home):
    """`ask(command, text=TEXT, model="tiny", **arguments)` -> the answer of a command about a text, or `texts`."""

    def answer(command, text=TEXT, model="tiny", **arguments):
        names = {field.name for field in fields_of(command)}
        if "texts" in names:
            texts = arguments.pop("texts", [text])
            arguments["texts"] = [context.add_text(f"text {place}", text) for place, text in enumerate(texts)]
        elif "text" in names:
            arguments["text"] = context.add_text("a text", text)
        return command(model=str(home / model), **arguments).compute(context=context)

    return answer


@pytest.fixture(scope="module")
def bundled(tmp_path_factory):
    """A context of the bundled model, with its router in a folder that may be written to."""
    return study_context(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def run(bundled):
    """`run(verb, text, **arguments)` on the bundled model; equal requests are answered once."""
    return asker(bundled)
