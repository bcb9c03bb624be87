"""`docs/measured.md`: every stored study as tables, generated, so that nobody types a measured number twice."""

from pathlib import Path
from typing import Any

from analysis.files import read_json, write_whole
from analysis.places import CACHE, revision
from analysis.runs import Result
from analysis.runs.conclusions import conclusions, ends_of
from analysis.runs.studies import other_version, other_weights, study_files
from analysis.studies import NAMED
from analysis.studies.stored.panels import column
from analysis.studies.stored.quick import checks
from analysis.studies.stored.runner import Study

PLACE = Path(__file__).resolve().parents[2] / "docs" / "measured.md"
MOST_ROWS = 64  # of a table beside the rows: a longer one is a curve, which a page draws
HEAD = """# What was measured

Made by `python -m analysis measured` from the stored studies in `models_cache`. Do not edit: run a study again, and
make this page anew. With `--quick` a command computes a part of what is stored again, in under two minutes, and says
whether it came out the same; what part that is stands below it. `python -m analysis remeasure --stale --corpus DIR
--state models_cache/demo` measures the studies that are out of date, and with `--minutes 0` only says which. Numbers in
brackets are 95% intervals, or as the notes below a table say.
"""

COLUMNS = [
    column("study", "study"),
    column("conclusion", "conclusion"),
    column("before", "first model"),
    column("now", "this model"),
    column("verdict", "the conclusion is"),
]
CHANGED = """## Do the conclusions change?

The first bundled model hardly read far (0.018 nats from far context on novels); this one does. Each headline number on
both, whatever else a study has changed since. "The same" means that both intervals lie on one side of 0. The first
model's brackets are rough: they are over windows of 3 novels and of one training. Today's are over more documents, and
over trainings where there are any, so "no longer significant" may be the interval's doing. Nothing is said where a
number is a level, or where there are too few documents to judge. Each interval is judged by itself: of so many, one or
two may leave 0 by chance."""


def measured(output: str = "") -> Result:
    """Write `docs/measured.md` (or `output`) from the studies stored with the bundled models.

    numbers: `path`, `studies`, their titles.
    """
    path, found = Path(output) if output else PLACE, stored()
    with write_whole(path) as place:
        place.write_text(document(found), encoding="utf-8")
    about = dict.fromkeys(("model", "revision", "text", "window", "seed", "dtype", "device", "kernel"))
    protocol = about | {"verb": "measured", "versions": {}}
    return Result({"path": str(path), "studies": list(found), "protocol": protocol})


def stored() -> dict[str, dict]:
    """Title -> numbers of every study that came with the program."""
    found = {path.stem: read_json(path) for path in study_files([CACHE / "demo" / "studies"])}
    for folder in sorted(CACHE.glob("demo-gpt2/*/studies")):
        found |= {f"{path.stem}, demo-gpt2": read_json(path) for path in study_files([folder])}
    order = {name: place for place, name in enumerate(NAMED)}
    return dict(sorted(found.items(), key=lambda one: (order[_name(one[1])], one[0])))


def document(studies: dict[str, dict]) -> str:
    """The page, Markdown."""
    contents = (f"- [{title}](#{_anchor(title)}): {_question(one)}" for title, one in studies.items())
    of_now = {name: one for name, one in studies.items() if not earlier(one["protocol"])}
    parts = [HEAD.strip(), CHANGED, table(COLUMNS, conclusions(of_now)), "\n".join(contents)]
    for title, numbers in studies.items():
        parts += [f"## {title}", f"**{_question(numbers)}** {numbers['sentence']}", *earlier(numbers["protocol"])]
        parts += tables(numbers)
        parts += ["\n".join(f"- {note}" for note in numbers["notes"])] if numbers.get("notes") else []
        parts += [f"```\n{numbers['protocol']['command']}\n```", checks(NAMED[_name(numbers)], numbers["protocol"])]
        parts += [made(numbers["protocol"])]
    return "\n\n".join(parts) + "\n"


def earlier(told: dict) -> list[str]:
    """One line where the model has other weights by now, or the study would give other numbers."""
    why = [f"on earlier weights of {told['model']}"] if other_weights(told, revision(told["model"])) else []
    why += ["by an earlier version of this study"] if other_version(told) else []
    return [f"*Measured {' and '.join(why)}: these numbers wait to be measured again.*"] if why else []


def tables(numbers: dict) -> list[str]:
    """The tables of a study: the first under its own columns, what is short beside it under the names of its keys."""
    study = NAMED[_name(numbers)]
    first, *others = study.tables
    found = [table(numbers["columns"], numbers[first])]
    for name in others:
        rows = numbers[name]
        if 0 < len(rows) <= MOST_ROWS:
            found += [f"{name.replace('_', ' ').capitalize()}:", table(_columns(rows), rows)]
    return found


def table(columns: list[dict], rows: list[dict]) -> str:
    """Markdown: a column for each of `columns` that some row has a value for; an interval stands with its value."""
    ends = {end for one in columns for row in rows for end in ends_of(row, one["name"])}
    named = [one for one in columns if one["name"] not in ends]
    shown = [one for one in named if any(row.get(one["name"]) is not None for row in rows)]
    units = {one["name"]: f", {one['unit']}" if one["unit"] not in ("", "share") else "" for one in shown}
    head = " | ".join(f"{one['label']}{units[one['name']]}" for one in shown)
    lines = [f"| {head} |", "|---" * len(shown) + "|"]
    lines += [f"| {' | '.join(cell(row, one) for one in shown)} |" for row in rows]
    return "\n".join(lines)


def cell(row: dict, about: dict) -> str:
    """A value of a row, with its interval where it has one; over pieces of documents there is none to say."""
    name, share = about["name"], about["unit"] == "share"
    said = spelled(row.get(name), share)
    ends = [row[end] for end in ends_of(row, name)]
    known = ends and None not in (row[name], *ends) and row.get("unit", "documents") == "documents"
    return f"{said} ({' to '.join(spelled(end, share) for end in ends)})" if known else said


def spelled(value: Any, share: bool = False) -> str:
    """A value in words: shares as per cent, other numbers with four digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if share:
            return f"{100 * value:z.2f}%"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 10 else f"{value:.4g}"
    return str(value).replace("|", "\\|")


def made(told: dict) -> str:
    """One line of how a study was made."""
    facts = [f"{told['date'][:10]}", f"model {told['model']} {told['revision']}", told["machine"], told["device"]]
    facts += [told["dtype"], f"seed {told['seed']}", told["kernel"], told.get("corpus")]
    facts += [f"{told['seconds']:,.0f} seconds"] if told.get("seconds") else []
    facts += [f"{name} {version}" for name, version in told["versions"].items()]
    return f"*{'; '.join(fact for fact in facts if fact)}*"


def _columns(rows: list[dict]) -> list[dict]:
    """The keys of rows as columns, without lists and dictionaries."""
    names = dict.fromkeys(name for row in rows for name in row)
    plain = [name for name in names if not any(isinstance(row.get(name), (list, dict)) for row in rows)]
    return [column(name, name.replace("_", " ")) for name in plain]


def _name(numbers: dict) -> str:
    return numbers["protocol"]["verb"].removeprefix("study ")


def question(study: Study) -> str:
    """What a study asks: the whole first paragraph of its docstring, in one line."""
    return " ".join(study.question.split("\n\n")[0].split())


def _question(numbers: dict) -> str:
    return question(NAMED[_name(numbers)])


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")
