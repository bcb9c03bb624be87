"""Benchmarks on local files: which tasks there are, in which formats their files come, and where they lie.

Nothing heavy is loaded here. The prompts, filters and metrics are those of lm-evaluation-harness, an optional extra
(requirements-benchmarks.txt), which `analysis.studies.benchmark_tasks` asks.
"""

from pathlib import Path

from analysis.benchmarks.files import documents
from analysis.benchmarks.set_ups import SET_UPS, SetUp
from analysis.benchmarks.tasks import TASKS, Task

__all__ = ["FOLDER", "SET_UPS", "TASKS", "SetUp", "Task", "documents", "here"]

FOLDER = Path(__file__).resolve().parents[2] / "models_cache" / "benchmarks"  # one folder of files per task


def here(folder: Path | None = None) -> list[str]:
    """The tasks that have a folder of files; what is in it is read when a task runs."""
    folder = folder or FOLDER
    return [name for name in TASKS if (folder / name).is_dir()]
