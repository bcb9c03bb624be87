"""The notebooks of `docs/` run, and what is stored under their cells is what they print.

`python -m tests.docs.test_notebooks` runs them and stores their outputs anew.
"""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

BOOKS = sorted((Path(__file__).resolve().parents[2] / "docs").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d[\d,.]*")


def printed(book: dict) -> list[str]:
    """What each cell of code prints, run in turn in one namespace."""
    outputs, namespace = [], {"__name__": "__main__"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)
            outputs.append(output.getvalue())
    return outputs


def numbers(text: str) -> list[float]:
    """The numbers in a text, in their order."""
    return [float(word.replace(",", "").rstrip(".")) for word in NUMBER.findall(text)]


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored_under_its_cells(path, state):
    """Words as they are stored, numbers as far as another processor rounds them."""
    book = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    stored = ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]
    assert any(stored)
    for before, now in zip(stored, printed(book), strict=True):
        assert NUMBER.sub("#", now).split() == NUMBER.sub("#", before).split()
        assert numbers(now) == pytest.approx(numbers(before), rel=0.02, abs=0.01)


def main() -> None:
    """Store what each cell prints."""
    for path in BOOKS:
        book = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        for count, (cell, text) in enumerate(zip(cells, printed(book), strict=True), start=1):
            stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}
            cell["execution_count"], cell["outputs"] = count, [stream] if text else []
        path.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
