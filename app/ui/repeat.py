"""A result without its page: three lines for a notebook, and the command for a terminal."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import streamlit as st

from analysis.commands import COMMANDS
from analysis.package import PROGRAM
from analysis.runs import Run, compare
from analysis.runs.run import command_of
from app import cached
from app.ui import widgets

TITLE = "Copy as code: the same in a notebook or a terminal"
FOLDER = "DIR is a folder of texts."
KEY = re.compile(r"\b[0-9a-f]{12}\b")


def drawer(*commands: str, more: str = "") -> None:
    """Requests as code, folded away. `commands`: as `commandline` writes them. `more`: a sentence below."""
    cached.drawing().coded.update(_words(command).split()[0] for command in commands)
    with st.expander(TITLE, icon=":material/terminal:"):
        _code(commands)
        if more:
            widgets.prose(more, "quiet")


def rest() -> None:
    """At the end of a page: the results that it has read, as far as no `drawer` on it shows their code. They are
    written when it is opened. What pages need besides, or to take along, is no result."""
    drawing = cached.drawing()
    plain = {verb for verb, command in COMMANDS.items() if command.unasked} | {"take"} | drawing.coded
    runs = [run for run in drawing.runs.values() if run.verb not in plain]
    if not runs:
        return
    expander = st.expander(TITLE, icon=":material/terminal:", key="repeat_rest", on_change="rerun")
    if expander.open:
        with expander:
            _code([command_of(run) for run in runs])


def notebook(commands: Sequence[str], figures: Mapping[str, str] = MappingProxyType({})) -> str:
    """Lines for a notebook: `fs.run` takes the words of a command. `figures`: verb -> what draws its result."""
    lines = ["import focuscope as fs"]
    for command in commands:
        words = _words(command)
        verb = words.split()[0]
        name = verb.replace("-", "_")
        lines += [f"{name} = fs.run({words!r})", f"{name}.tables"]
        lines += [f"{name}{figures[verb]}"] if verb in figures else []
    return "\n".join(lines)


def figure(run: Run) -> str:
    """What draws the main table of a result in a notebook, behind its name; empty where it has none."""
    table, column = compare.MAIN.get(run.verb, ("", ""))
    return f".tables[{table!r}].plot(y={column!r}, backend='plotly')" if table in run.tables else ""


def _code(commands: Sequence[str]) -> None:
    figures = {run.verb: drawn for run in cached.drawing().runs.values() if (drawn := figure(run))}
    st.code(notebook(commands, figures), language="python", wrap_lines=True)
    st.code("\n".join(commands), language=None, wrap_lines=True)
    words, texts = " ".join(commands), cached.texts()
    said = [f"{key} is “{texts[key]}”, which is stored on this machine." for key in KEY.findall(words) if key in texts]
    widgets.prose([*dict.fromkeys(said), *([FOLDER] if "DIR" in words.split() else [])], "quiet")


def _words(command: str) -> str:
    return command.removeprefix(f"{PROGRAM} ")
