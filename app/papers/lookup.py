"""Where the numbers beside a printed row are: the studies stored for the model in use, and stored runs."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from analysis.benchmarks import here
from analysis.commands import request as requested
from analysis.commands.training import Pretrain
from analysis.declaration.command import Command
from analysis.papers.beside import Key, beside, findings, made, measuring, printed
from analysis.papers.ours import Beside, Job, Number, Reading, reading
from analysis.papers.setting import differences
from analysis.runs import Run
from analysis.runs.brought import corpora
from analysis.runs.stored import read_study
from app import cached
from app.papers.paper_words import size

# Commands whose findings have a button: they take seconds.
LIVE = ("pitfalls",)
# Command -> tables that numbers are read from.
TABLES = {"groups": ("groups", "layers"), "pairs": ("pairs",)}
# Command -> table whose rows are read in the order of a column.
BEST_FIRST = {"groups": ("groups", "purity")}


@dataclass(frozen=True)
class Extract:
    """What the page needs of a stored study, which as a whole takes megabytes: its protocol, and each number that
    stands beside a row or in a finding, by how it is written (`str`)."""

    protocol: dict[str, Any]
    numbers: dict[str, Reading | None]


@cache
def _numbers() -> dict[str, list[Number]]:
    """Name of a study -> its numbers that stand beside a row or in a finding."""
    of_studies: dict[str, list[Number]] = defaultdict(list)
    for place in [*beside().values(), *(finding.beside for finding in findings())]:
        for number in place.numbers:
            of_studies[number.study].append(number)
    return dict(of_studies)


@st.cache_resource(max_entries=64, show_spinner=False)
def _extract(file: Path, changed: float) -> Extract | None:
    study, _ = read_study(file)
    if study is None:
        return None
    extracted = {str(number): reading(number, study.numbers) for number in _numbers().get(file.stem, [])}
    return Extract(study.numbers["protocol"] | _trained(study.numbers), extracted)


def _trained(numbers: dict[str, Any]) -> dict[str, list[int]]:
    """`parameters`, from the smallest to the largest, of a study that trained models of its own from their first
    step."""
    if "training_tokens" not in numbers["protocol"]:
        return {}
    counts = {row["parameters"] for row in numbers["rows"] if "parameters" in row}
    return {"parameters": sorted(counts or {Pretrain.parameters(numbers["recipe"])})}


class Lookup:
    """What is stored for the model in use, looked up once for a drawing of the page. Of a model that was never loaded
    here nothing is; it is not loaded for this."""

    def __init__(self) -> None:
        model = st.session_state["model"]
        card = cached.card(model)
        files = cached.files_of_studies(model, card.numbers["revision"]) if card else []
        self._files = {file.stem: file for file in files}
        self._studies: dict[str, Extract | None] = {}
        # Of a job, as it is written.
        self._runs: dict[str, dict[str, Any] | None] = {}

    def __call__(self, number: Number, beside: Beside) -> Reading | None:
        """A number in its stored study, else in the run of the row's job."""
        if not number.study:
            return reading(number, self.run(beside.job))
        study = self.study(number.study)
        return None if study is None else study.numbers[str(number)]

    def study(self, name: str) -> Extract | None:
        """What stands here of a stored study; None where it is not stored."""
        if name not in self._studies:
            file = self._files.get(name)
            self._studies[name] = None if file is None else _extract(file, file.stat().st_mtime)
        return self._studies[name]

    def run(self, job: Job) -> dict[str, Any] | None:
        """The numbers of the stored run of a job, with the tables that are read as rows; None where there is none."""
        written = str(job)
        if written not in self._runs:
            request = request_of(job)
            run = None if request is None or job.verb == "study" else cached.store().find(request)
            tables = {} if run is None else {name: _rows(run, name) for name in TABLES.get(job.verb, ())}
            self._runs[written] = None if run is None else run.numbers | tables
        return self._runs[written]

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
        study = self.study(name)
        return None if study is None else study.protocol

    def missing(self, beside: Beside) -> list[str]:
        """The studies that a row has numbers from and that are not stored for this model."""
        names = dict.fromkeys(number.study for number in beside.numbers if number.study)
        return [name for name in names if self.study(name) is None]

    def differences(self, key: Key, readings: list[Reading]) -> list[str]:
        """For each number of a row that is a quantity the row prints: what it was measured on that the row was not."""
        return differences(printed()[key], readings, lambda number: self.protocols(beside()[key], [number])[0])

    def protocols(self, beside: Beside, numbers: list[Number]) -> list[dict[str, Any]]:
        """How these numbers were made, each source once."""
        names = dict.fromkeys(number.study for number in numbers)
        protocols = (self._protocol(name) if name else (self.run(beside.job) or {}).get("protocol") for name in names)
        return [protocol for protocol in protocols if protocol]

    def sizes(self, beside: Beside, readings: list[Reading]) -> list[str]:
        """How large that was which a row's numbers were measured on, each size once."""
        card = cached.card(st.session_state["model"])
        parameters = card.numbers["parameters"] if card else None
        protocols = self.protocols(beside, [reading.number for reading in readings])
        words = list(dict.fromkeys(size(protocol, parameters) for protocol in protocols))
        # What another one says with more beside it is not said twice.
        return [word for word in words if word and not any(other.startswith(f"{word}, ") for other in words)]


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
