"""What stands beside every printed row and behind every finding, read from `beside.json`.

The file holds, for rows of one table that have the same beside them, the panel by its name, the job, and a line for
each number; the fields are those of `ours.Beside`, `Job` and `Number`, and what has its default is left out. `command`
is a job that has no button: its verb and arguments; of `pretrain` the arguments are what the row prints.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..commands import commandline
from ..commands.training import TRAINED_AS_PRINTED
from ..studies.registry import STORED, of_file
from . import PAPERS, find
from .cells import Cell
from .ours import Beside, Job, Number, Panel

FILE = Path(__file__).with_name("beside.json")
# Of Focal Attention: its sizes, and how each was trained.
SETTINGS = ("table 3", "table 4")
Key = tuple[str, str, str]  # paper, table, row
# Name of a stored study -> its protocol, where it is stored.
Protocols = Callable[[str], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Finding:
    """Something about the papers that shapes what is measured here."""

    number: int
    title: str
    says: str  # what is the matter
    # The job, the panel and the numbers of ours that show it.
    beside: Beside


@cache
def printed() -> dict[Key, list[Cell]]:
    """Every row that the papers print, in their order, with its cells."""
    rows: dict[Key, list[Cell]] = {}
    for paper in PAPERS:
        for cell in find(paper):
            rows.setdefault((paper, cell.table, cell.row), []).append(cell)
    return rows


@cache
def beside() -> dict[Key, Beside]:
    """What stands beside every printed row. A row that the file lacks is an error of the program: KeyError."""
    mapping = {(of["paper"], of["table"], row): _beside(of, row) for of in _file()["rows"] for row in of["rows"]}
    return {key: mapping[key] for key in printed()}


@cache
def findings() -> list[Finding]:
    """All findings, in their order; the numbers that follow from the papers alone are computed."""
    chances = {
        f"{tables}_at_{name}": collisions(cosine, 10, 150, least)
        for tables, least in (("one", 1), ("two", 2))
        for name, cosine in (("0", 0.0), ("06", 0.6))
    }
    summary = find("focal_summary_zh")
    facts = {"printed": len(summary), "differing": differing(), "paper": PAPERS["focal_attention"], **chances}
    return [Finding(of["number"], of["title"], of["says"].format(**facts), _beside(of)) for of in _file()["findings"]]


@cache
def panels_of_studies() -> dict[str, Panel]:
    """Stored studies that stand beside rows about something else -> the panel of each."""
    return {study: _panel(name) for study, name in _file()["panels of studies"].items()}


def collisions(cosine: float, bits: int, tables: int, least: int) -> float:
    """Chance that a key is found in at least `least` (1 or 2) of the hash tables (MagicPIG, section 4)."""
    same = (1 - math.acos(cosine) / math.pi) ** bits  # one table's code agrees
    missed = (1 - same) ** tables
    return 1 - missed - (tables * same * (1 - same) ** (tables - 1) if least == 2 else 0.0)


def differing() -> int:
    """How many numbers of the Chinese summary differ from its paper's table 1."""
    paper = {(cell.row, cell.column): cell.value for cell in find("focal_attention", "table 1")}
    return sum(paper[cell.row, cell.column] != cell.value for cell in find("focal_summary_zh"))


def maker(stored: str) -> Job:
    """The job that stores a study: `top-k4-top1` is `study top` with that router."""
    kind, router = of_file(stored)
    # What the page of speed shows is timed on shapes, not on texts.
    texts = {} if kind in STORED and STORED[kind].page.startswith("/speed") else {"corpus": ""}
    return Job("study", {"name": kind} | texts | ({"router": router} if router else {}))


def made(beside: Beside, protocol: Protocols) -> dict[str, Job]:
    """Stored study -> the job that makes its numbers again, of every one that a row has numbers from. The row's own job
    stands there where it is that study's."""
    jobs = {}
    for name in dict.fromkeys(number.study for number in beside.numbers if number.study):
        job, stored = beside.job if _stores(beside.job, name) else maker(name), protocol(name)
        jobs[name] = job.again(stored) if stored else job
    return jobs


def measuring(beside: Beside, protocol: Protocols) -> Job:
    """The row's own job, with what its stored study was asked for."""
    job = beside.job
    for name, again in made(beside, protocol).items():
        if _stores(job, name):
            return again
    stored = protocol(job.args["name"]) if job.verb == "study" else None
    return job.again(stored) if stored else job


def _stores(job: Job, name: str) -> bool:
    """Whether a job is of the study that is stored by this name."""
    return job.verb == "study" and (job.args["name"], job.args.get("router")) == of_file(name)


@cache
def _file() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def _panel(name: str) -> Panel:
    return Panel(**_file()["panels"][name])


def pretraining(size: str) -> dict[str, Any]:
    """The arguments that train a model of a size of Focal Attention's table 3 as its section 3.2 and table 4 print."""
    of_size = {cell.column: float(cell.value) for cell in find("focal_attention", row=size) if cell.table in SETTINGS}
    named = {"width": "Hidden Size", "intermediate": "Intermediate Size", "heads": "# Heads", "layers": "# Layers"}
    sizes: dict[str, Any] = {name: int(of_size[column]) for name, column in named.items()}
    sizes |= {"kv_heads": sizes["heads"], "steps": round(1000 * of_size["# Training Steps"])}
    rates = dict.fromkeys(("matrix_rate", "other_rate"), of_size["Learning Rate"])
    return {"corpus": "DIR", "output": "DIR", "attention": "focal"} | TRAINED_AS_PRINTED | sizes | rates


def _beside(of: dict[str, Any], row: str = "") -> Beside:
    numbers = tuple(Number(**{**number, "path": tuple(number["path"])}) for number in of.get("numbers", ()))
    if of.get("command") == ["pretrain"]:
        job = Job(said=commandline("pretrain", pretraining(row)))
    else:
        job = Job(said=commandline(*of["command"])) if "command" in of else Job(**of["job"])
    told = {name: of[name] for name in ("needs", "cannot", "damaged", "finding") if name in of}
    return Beside(job, _panel(of["panel"]), numbers, **told)
