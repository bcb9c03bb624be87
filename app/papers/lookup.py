"""Where the numbers beside a printed row are: the studies stored for the model in use, and stored runs."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from analysis.benchmarks import here
from analysis.commands import request as requested
from analysis.declaration.command import Command
from analysis.papers.beside import made, measuring
from analysis.papers.ours import Beside, Job, Number
from analysis.runs import Run
from analysis.runs.brought import corpora
from app import cached
from app.ui import asking

# Commands whose findings have a button: they take seconds.
LIVE = ("pitfalls",)
# Command -> tables that numbers are read from.
TABLES = {"groups": ("groups", "layers"), "pairs": ("pairs",)}
# Command -> table whose rows are read in the order of a column.
BEST_FIRST = {"groups": ("groups", "purity")}


class Lookup:
    """What is stored for the model in use, looked up once for a drawing of the page."""

    def __init__(self) -> None:
        self._model = st.session_state["model"]
        self._revision = asking.card(self._model)["revision"]
        self._runs: dict[Command, dict[str, Any] | None] = {}

    def __call__(self, number: Number, beside: Beside) -> Mapping[str, Any] | None:
        """The stored numbers that a number stands in: a study's, else those of the run of the row's job."""
        return self.study(number.study) if number.study else self.run(beside.job)

    def study(self, name: str) -> dict[str, Any] | None:
        """The numbers of a stored study; None where it is not stored."""
        study = cached.study(self._model, self._revision, name)[0]
        return None if study is None else study.numbers

    def run(self, job: Job) -> dict[str, Any] | None:
        """The numbers of the stored run of a job, with the tables that are read as rows; None where there is none."""
        request = request_of(job)
        if request is None or job.verb == "study":
            return None
        if request not in self._runs:
            run = cached.store().find(request)
            self._runs[request] = None
            if run is not None:
                self._runs[request] = run.numbers | {name: _rows(run, name) for name in TABLES.get(job.verb, ())}
        return self._runs[request]

    def job(self, beside: Beside) -> Job:
        """The row's own job, as its stored study was asked for where there is one."""
        return measuring(beside, self._protocol)

    def other_commands(self, beside: Beside) -> dict[str, str]:
        """Stored study -> the command that makes its numbers again, of every one that a row has numbers from and that
        is not its own job's."""
        its_command = self.job(beside).command
        commands = {name: job.command for name, job in made(beside, self._protocol).items() if self.study(name)}
        return {name: command for name, command in commands.items() if command != its_command}

    def _protocol(self, name: str) -> dict[str, Any] | None:
        return (self.study(name) or {}).get("protocol")

    def missing(self, beside: Beside) -> list[str]:
        """The studies that a row has numbers from and that are not stored for this model."""
        names = dict.fromkeys(number.study for number in beside.numbers if number.study)
        return [name for name in names if self.study(name) is None]

    def protocols(self, beside: Beside, numbers: list[Number]) -> list[dict[str, Any]]:
        """How these numbers were made, each source once."""
        names = dict.fromkeys(number.study for number in numbers)
        sources = (self.study(name) if name else self.run(beside.job) for name in names)
        return [source["protocol"] for source in sources if source]


def request_of(job: Job) -> Command | None:
    """The request of a job for the model in use; None where it cannot be asked for here: without a command, a folder
    of texts for one that reads a corpus, or the files of its benchmarks."""
    if not job.verb or (job.verb == "benchmark" and not set(job.args["tasks"]) <= set(here())):
        return None
    model, args = st.session_state["model"], dict(job.args)
    if not args.get("model", model):
        args["model"] = model
    if args.get("text") == "":
        args["text"] = cached.samples()[0][0]
    if job.verb == "study":
        folders = corpora()
        if not folders:
            return None
        chosen = st.session_state["train_corpus"]
        args |= {"model": model, "corpus": chosen if chosen in folders else folders[0]}
    return requested(job.verb, args)


def _rows(run: Run, name: str) -> list[dict[str, Any]]:
    table = cached.columns(run, name)
    rows = [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]
    sorted_table, column = BEST_FIRST.get(run.verb, ("", ""))
    return sorted(rows, key=lambda row: -(row[column] or 0)) if name == sorted_table else rows
