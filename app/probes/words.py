"""The words of the long-context tests: tasks, ways to reach further, one method's row, the command line."""

from analysis.commands import commandline
from analysis.corpus import sample_texts, text_hash
from app.quality import asked as by_method
from app.quality.asked import Asked
from app.selection.decide import PROBE_TASKS

AXES = {"depth": "depth of the answer", "examples": "examples", None: ""}

RULER = {  # task -> the closest one of RULER (arXiv 2404.06654), by its name in lm-evaluation-harness
    "uuid_needle": "niah_single_3",
    "several_needles": "niah_multikey_1",
    "json": "niah_multikey_3",
    "frequent_words": "ruler_fwe",
}


def title(task: str) -> str:
    """The name of a task."""
    return PROBE_TASKS[task][0]


def ruler() -> str:
    """Which tasks correspond to RULER's, in sentences."""
    named = ", ".join(f"{title(task)} is like {name}" for task, name in RULER.items())
    none = " and ".join(title(task) for task in PROBE_TASKS if task not in RULER)
    return f"Tasks of RULER: {named}. {none} have none there. RULER lets the model write its answer."


def spread(row: dict) -> str:
    """The share of right answers with its interval."""
    return f"{row['score']:.0%} ({row['low']:.0%} to {row['high']:.0%})"


def against(row: dict) -> str:
    """Points against dense, with their interval."""
    if row["difference"] is None:
        return "–"
    points = [
        f"{100 * row[name]:+.0f}".replace("-", "−") for name in ("difference", "difference_low", "difference_high")
    ]
    return f"{points[0]} ({points[1]} to {points[2]})"


def command(args: dict, choices: list[Asked]) -> str:
    """The same from the command line; a text that is no sample is a file there."""
    samples = {text_hash(text): name for name, (_, text) in sample_texts().items()}
    methods = [choice.spec for choice in choices] or None
    return commandline("probe", args | {"text": samples.get(args["text"], "FILE"), "methods": methods})


def changed(choices: list[Asked]) -> str:
    """The settings that came from the page on quality, in words; empty without any."""
    changes = [f"{choice.about['title']}: {by_method.changes(choice).lower()}" for choice in choices if choice.changed]
    return "; ".join(changes)
