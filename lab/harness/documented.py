"""`docs/measured.md`: what every stored study claims, with one table, generated so that nobody types a number twice."""

from pathlib import Path
from typing import Any

from analysis.files import write_text
from analysis.places import CACHE, revision
from analysis.runs import Result
from analysis.runs.conclusions import conclusions, ends_of
from analysis.runs.stored import Column, StoredStudy, StudyProtocol, read_study, study_files
from analysis.studies import NAMED
from analysis.studies.registry import STORED
from analysis.studies.stored.comparisons import Row

PLACE = Path(__file__).resolve().parents[2] / "docs" / "measured.md"
# Of a table here: a page of the app shows the whole one, and draws it.
ROWS, COLUMNS = 7, 6
HEAD = """# What was measured

Made by `python -m analysis measured` from the stored studies in `models_cache`; do not edit. Of every study: its
question, what it claims, the beginning of its main table, and the command that measures it again; with `--quick` it
checks a part of it in under two minutes. All rows, all columns, curves and notes are on the app's page that is named,
and in its file `models_cache/*/studies/NAME.json`.
`python -m analysis remeasure --stale --corpus DIR --state models_cache/demo` measures the studies that are out of date,
and with `--minutes 0` only says which. Brackets hold 95% intervals, or what the notes on the page say.
"""
CHANGED = """## Do the conclusions change?

The first bundled model hardly read far (0.018 nats from far context on novels); this one does. Each headline number on
both, whatever else a study has changed since. "The same" means that both intervals lie on one side of 0. The first
model's brackets are rough: they are over windows of 3 novels and of one training. Today's are over more documents, and
over trainings where there are any, so "no longer significant" may be the interval's doing. Nothing is said where a
number is a level, or where there are too few documents to judge. Each interval is judged by itself: of so many, one or
two may leave 0 by chance."""
HEADLINES = {"study": "study", "conclusion": "conclusion", "before": "first model", "now": "this model"}
HEADLINES |= {"verdict": "the conclusion is"}


def measured(output: str = "") -> Result:
    """Write `docs/measured.md` (or `output`) from the studies stored with the bundled models."""
    path, studies = Path(output) if output else PLACE, stored()
    write_text(path, document(studies))
    about = dict.fromkeys(("model", "revision", "text", "window", "seed", "dtype", "device", "kernel"))
    protocol = about | {"verb": "measured", "versions": {}}
    return Result({"path": str(path), "studies": list(studies), "protocol": protocol})


def stored() -> dict[str, StoredStudy]:
    """Title -> every study that came with the program, in the order of the registry."""
    studies, order = {}, {name: place for place, name in enumerate(NAMED)}
    for model, folders in (("", [CACHE / "demo" / "studies"]), (", demo-gpt2", [*CACHE.glob("demo-gpt2/*/studies")])):
        for path in study_files(folders):
            study = read_study(path)[0]
            if study is not None:
                studies[f"{path.stem}{model}"] = study
    return dict(sorted(studies.items(), key=lambda item: (order[item[1].protocol.study], item[0])))


def document(studies: dict[str, StoredStudy]) -> str:
    """The page, Markdown."""
    current = {title: study.numbers for title, study in studies.items() if not earlier(study.protocol)}
    contents = " · ".join(f"[{title}](#{title.lower().replace(',', '').replace(' ', '-')})" for title in studies)
    headlines = []
    for conclusion in conclusions(current):
        row: dict[str, Any] = {
            "study": conclusion.headline.study,
            "conclusion": conclusion.headline.conclusion,
            "verdict": conclusion.verdict,
        }
        for name, change in (("before", conclusion.headline.before), ("now", conclusion.now)):
            if change is not None:
                row |= {name: change.value, f"{name}_low": change.low, f"{name}_high": change.high}
        headlines.append(row)
    parts = [HEAD.strip(), contents, CHANGED, table([Column(*names) for names in HEADLINES.items()], headlines)]
    for title, study in studies.items():
        protocol, made_with = study.protocol, study.numbers["protocol"]
        parts += [f"## {title}", f"**{question(protocol.study)}** {study.sentence}", *earlier(protocol)]
        parts += [*main_table(study), f"```\n{protocol.command}\n```"]
        facts = [protocol.date[:10], f"model {protocol.model} {protocol.revision}", made_with["machine"]]
        facts += [protocol.dtype, f"seed {protocol.seed}", protocol.corpus]
        facts += [f"{made_with['seconds']:,.0f} seconds"] if made_with.get("seconds") else []
        parts.append(f"*{'; '.join(filter(None, facts))}*")
    return "\n\n".join(parts) + "\n"


def question(study: str) -> str:
    """What a stored study asks: the whole first paragraph of its docstring, in one line."""
    return " ".join(NAMED[study].question.split("\n\n")[0].split())


def earlier(protocol: StudyProtocol) -> list[str]:
    """One line where the model has other weights by now, or the study would give other numbers."""
    why = [f"on earlier weights of {protocol.model}"] if protocol.other_weights(revision(protocol.model)) else []
    why += ["by an earlier version of this study"] if protocol.other_version else []
    return [f"*Measured {' and '.join(why)}: these numbers wait to be measured again.*"] if why else []


def main_table(study: StoredStudy) -> list[str]:
    """The first table of a study, and where the rest of it is; the means where the first is a grid and has some."""
    rows, columns = study.numbers[NAMED[study.protocol.study].tables[0]], study.columns
    if len(rows) > ROWS and 0 < len(study.numbers.get("means", ())) < len(rows):
        rows = study.numbers["means"]
        columns = [Column(key, key.replace("_", " ")) for key in rows[0]]
    filled = [about for about in columns if any(row.get(about.name) is not None for row in rows)]
    left_out = [f"{len(rows) - ROWS} more rows"] if len(rows) > ROWS else []
    left_out += [f"{len(filled) - COLUMNS} more columns"] if len(filled) > COLUMNS else []
    remainder = [f"{' and '.join(left_out)} on the page `{STORED[study.protocol.study].page}`."] if left_out else []
    return [table(filled[:COLUMNS], rows[:ROWS]), *remainder]


def table(columns: list[Column], rows: list[Row]) -> str:
    """Markdown: a column for each of `columns` that some row has a value for; an interval stands with its value."""
    edges = {edge for about in columns for row in rows for edge in ends_of(row, about.name)}
    filled = []
    for about in columns:
        if about.name not in edges and any(row.get(about.name) is not None for row in rows):
            filled.append(about)
    head = " | ".join(about.label + (f", {about.unit}" if about.unit not in ("", "share") else "") for about in filled)
    lines = [f"| {head} |", "|---" * len(filled) + "|"]
    lines += [f"| {' | '.join(cell(row, about) for about in filled)} |" for row in rows]
    return "\n".join(lines)


def cell(row: Row, about: Column) -> str:
    """A value of a row, with its interval where it has one; over pieces of documents there is none to say."""
    share = about.unit == "share"
    value = spelled(row.get(about.name), share)
    edges = [row[edge] for edge in ends_of(row, about.name)]
    if not edges or None in (row[about.name], *edges) or row.get("unit", "documents") != "documents":
        return value
    return f"{value} ({' to '.join(spelled(edge, share) for edge in edges)})"


def spelled(value: Any, share: bool = False) -> str:
    """A value in words: shares as per cent, other numbers with four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value).replace("|", "\\|")
    if share:
        return f"{100 * value:z.2f}%"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4g}"
