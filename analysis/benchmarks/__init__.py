"""Benchmarks on local files: which tasks there are, in which formats their files come, and where they lie.

Nothing heavy is loaded here. The prompts, filters and metrics are those of lm-evaluation-harness, an optional extra
(requirements-benchmarks.txt), which `analysis.studies.benchmarks.tasks` asks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .tasks import TASKS, Task, documents

__all__ = ["FOLDER", "SET_UPS", "TASKS", "SetUp", "Task", "documents", "here"]

# One folder of files per task.
FOLDER = Path(__file__).resolve().parents[2] / "models_cache" / "benchmarks"


@dataclass(frozen=True)
class SetUp:
    """How the question of a prompt is read: its letter, a few words, and the whole sentence. A prompt is examples, then
    the question, which ends with the words that ask for its answer, then an answer. Without examples the prompt is the
    question alone. The names are this project's own, and this is their one definition; app and verbs quote it."""

    letter: str
    short: str
    means: str


SET_UPS = {  # value of `question` -> the set-up
    "sparse": SetUp("A", "read with the method", "Examples, question and answer are all read with the method."),
    "dense": SetUp(
        "B",
        "reads everything",
        "The tokens of the question read all that is before them; the examples before it and the answer behind it are "
        "read with the method, as when a context was made sparse before the question was known.",
    ),
}


def here(folder: Path | None = None, names: Iterable[str] = TASKS) -> list[str]:
    """Those of the names that have a folder of files; what is in it is read when a task runs."""
    folder = folder or FOLDER
    return [name for name in names if (folder / name).is_dir()]
