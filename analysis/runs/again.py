"""The command that asks a stored run's question again."""

from ..commandline import commandline
from ..corpus import sample_texts, text_hash
from .run import Run

PLACES = ("text", "texts", "against")  # arguments that name texts by their hash


def command_of(run: Run) -> str:
    """The command that makes a stored run; a text that did not come with the program is TEXT, a word to fill in, and a
    corpus is DIR."""
    names = {text_hash(words): name for name, (_, words) in sample_texts().items()}
    args = {name: value for name, value in run.request.items() if name != "made"}
    for name in PLACES:
        if isinstance(value := args.get(name), list):
            args[name] = [names.get(key, "TEXT") for key in value]
        elif value:
            args[name] = names.get(value, "TEXT")
    return commandline(run.verb, args | ({"corpus": "DIR"} if args.get("corpus") else {}))
