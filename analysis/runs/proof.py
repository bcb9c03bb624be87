"""Tables and arrays from elsewhere are first opened in a process of its own, which may die of them.

    python -m analysis.runs.proof FOLDER...     1 and one sentence when a file is not what a run holds

A table of a few kilobytes can say that it unpacks to gigabytes; the limits of this process end it then.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from .run import ARRAYS, TABLES, Damaged

SECONDS, MEMORY = 120, 4 << 30  # of the process
# Of all tables of a run, and columns of one: a page holds 40 bytes of a cell.
MOST_CELLS, MOST_COLUMNS = 4_000_000, 500
# Bytes of text in all tables of a run, each cell with its own.
MOST_WORDS = 100_000_000
KINDS = "biuf"
BEYOND = "a table in it could not be opened within its limits"


def prove(folders: Iterable[Path]) -> None:
    """Open every table and array of these run folders elsewhere; Damaged with the reason when one is none."""
    command = [sys.executable, "-m", "analysis.runs.proof", *map(str, folders)]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parents[2], capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise Damaged(BEYOND) from None
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        raise Damaged(lines[-1][:200] if lines and done.returncode == 1 else BEYOND)


def check(folder: Path) -> None:
    """Read everything in one run folder; ValueError with the reason when it is not what a run holds."""
    from pyarrow import compute, parquet, types

    cells = words = 0
    for path in sorted((folder / TABLES).glob("*.parquet")):
        file = parquet.ParquetFile(path)
        groups = sum(file.metadata.row_group(index).num_rows for index in range(file.metadata.num_row_groups))
        # Readers go by either.
        cells += max(file.metadata.num_rows, groups) * max(file.metadata.num_columns, 1)
        if file.metadata.num_columns > MOST_COLUMNS or cells > MOST_CELLS:
            raise ValueError(f"the table {path.stem} has {cells:,} cells")
        for batch in file.iter_batches(batch_size=4_096):
            for field, column in zip(batch.schema, batch.columns, strict=True):
                kind = field.type.value_type if types.is_dictionary(field.type) else field.type
                plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
                if not (plain or types.is_null(kind) or types.is_string(kind) or types.is_large_string(kind)):
                    raise ValueError(f"the table {path.stem} has a column of type {field.type}")
                if types.is_string(kind) or types.is_large_string(kind):
                    words += compute.sum(compute.binary_length(column.cast(kind))).as_py() or 0
            if words > MOST_WORDS:
                raise ValueError(f"the table {path.stem} has over {MOST_WORDS / 1e6:,.0f} MB of text")
    if (folder / ARRAYS).exists():
        from safetensors import safe_open

        with safe_open(folder / ARRAYS, framework="numpy") as file:
            for name in file.keys():
                if file.get_tensor(name).dtype.kind not in KINDS:
                    raise ValueError(f"the array {name[:40]} holds no numbers")


def main() -> int:
    """Check the folders that are named, under limits of memory and time."""
    # A system without such limits.
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for folder in map(Path, sys.argv[1:]):
        try:
            check(folder)
        except Exception as error:
            reason = " ".join(str(error).split()).rstrip(".")[:120]
            print(f"the run {folder.name} cannot be opened: {reason or type(error).__name__}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
