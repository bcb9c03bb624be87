"""A result without its page: three lines for a notebook, and the command for a terminal."""

from collections.abc import Sequence

import streamlit as st

from analysis.package import PROGRAM
from analysis.runs.run import command_of
from app import cached
from app.ui import widgets

TITLE = "Copy as code: the same in a notebook or a terminal"
TOLD = "_told"  # of the session: verbs whose code the page has shown while it is drawn
FILL_IN = {"TEXT": "TEXT is the file that holds the text", "DIR": "DIR is a folder of texts"}
UNASKED = ("model", "inspect", "take")  # what pages need besides: no results


def begin() -> None:
    """A page is about to be drawn: it has shown no code yet."""
    st.session_state[TOLD] = set()


def drawer(*commands: str, more: str = "") -> None:
    """Requests as code, folded away. `commands`: as `commandline` writes them. `more`: a sentence below."""
    st.session_state[TOLD].update(map(_verb, commands))
    with st.expander(TITLE, icon=":material/terminal:"):
        _code(commands)
        if more:
            widgets.prose(more, "quiet")


def rest() -> None:
    """At the end of a page: the results that it has read, as far as no `drawer` on it shows their code. They are
    written when it is opened."""
    runs = [run for run in cached.seen() if run.verb not in (*UNASKED, *st.session_state[TOLD])]
    if not runs:
        return
    expander = st.expander(TITLE, icon=":material/terminal:", key="repeat_rest", on_change="rerun")
    if expander.open:
        with expander:
            _code([command_of(run) for run in runs])


def notebook(commands: Sequence[str]) -> str:
    """Lines for a notebook: `run` takes the words of a command."""
    lines = ["import focuscope as fs"]
    for command in commands:
        name = _verb(command).replace("-", "_")
        lines += [f"{name} = fs.run({_words(command)!r})", f"{name}.tables"]
    return "\n".join(lines)


def _code(commands: Sequence[str]) -> None:
    st.code(notebook(commands), language="python", wrap_lines=True)
    st.code("\n".join(commands), language=None, wrap_lines=True)
    left = [about for word, about in FILL_IN.items() if any(word in command.split() for command in commands)]
    widgets.prose(f"{', '.join(left)}." if left else [], "quiet")


def _verb(command: str) -> str:
    return _words(command).split()[0]


def _words(command: str) -> str:
    return command.removeprefix(f"{PROGRAM} ")
