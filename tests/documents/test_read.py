"""The verb `read`: files and folders as texts of the app, and what was read of each."""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.runs import RunStore
from tests.made.documents import notebook


@pytest.fixture
def folder(tmp_path) -> Path:
    """Two texts and one that is none."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.ipynb").write_bytes(notebook(("markdown", "the ferry left")))
    (tmp_path / "in" / "b.md").write_text("# words of my own")
    (tmp_path / "in" / "c.ipynb").write_bytes(b"{")
    return tmp_path


def test_a_folder_becomes_texts_of_the_app_and_says_what_was_read(folder, capsys):
    state, out = str(folder / "state"), folder / "out"
    assert main(["read", str(folder / "in"), "-o", str(out), "--runs", state, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["said"] for row in rows[:2]] == [
        "Notebook: 1 text cell and 0 code cells read; outputs left out; 3 words.",
        "plain text",
    ]
    assert rows[2]["text"] is None and "c.ipynb is no notebook" in rows[2]["refused"]
    store = RunStore(state)
    assert store.text(rows[0]["text"]) == ("a.ipynb", "the ferry left") and store.said(rows[1]["text"]) == ""
    assert sorted(path.name for path in out.iterdir()) == ["a.ipynb.txt", "b.md.txt"]


def test_where_nothing_could_be_read_one_sentence_says_why(folder, capsys):
    assert main(["read", str(folder / "in" / "c.ipynb"), "--runs", str(folder / "state")]) == 2
    assert "c.ipynb is no notebook: its JSON is broken" in capsys.readouterr().err
    assert main(["read", str(folder / "nowhere")]) == 2
    assert "There is no file or folder" in capsys.readouterr().err
