"""Reading the papers' files: strict, light, and a clear sentence for what is damaged or does not exist."""

import csv
import io
from pathlib import Path

import pytest

from analysis import papers
from analysis.errors import BadSetting
from analysis.papers.cells import FIELDS, KINDS, parse

ROOT = Path(__file__).resolve().parents[2]
GOOD = ["focus", "table 1", "a", "b", "1.5", "x", "model, length", "read: the text at hand has 15"]


def lines(*cells: list[str], header=FIELDS) -> io.StringIO:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([header, *cells])
    text.seek(0)
    return text


def changed(**fields: str) -> list[str]:
    return [fields.get(name, text) for name, text in zip(FIELDS, GOOD, strict=True)]


def test_a_file_is_read_as_it_stands():
    first, second = parse("focus", lines(GOOD, changed(column="c", value="15+", unit="", note="")))
    assert (first.value, first.note) == (1.5, GOOD[-1]) and (second.value, second.unit, second.note) == ("15+", "", "")


@pytest.mark.parametrize(
    "damaged, says",
    [
        (lines(GOOD[:-1]), "line 2: 7 fields instead of 8"),
        (lines([*GOOD, ""]), "9 fields"),
        (lines(GOOD, GOOD), "line 3: table 1, a, b stands there twice"),
        (lines(changed(paper="gwr")), "the paper is another one"),
        (lines(changed(row=" a")), "starts or ends with a blank"),
        (lines(changed(protocol="")), "only the unit and the note may be empty"),
        (lines(changed(value="")), "only the unit and the note may be empty"),
        (lines(changed(note="odd")), f"the note says none of {KINDS[0]}"),
        (lines(GOOD, header=FIELDS[1:]), "the columns are"),
        (lines(GOOD, []), "0 fields"),
        (io.StringIO(",".join(FIELDS) + '\nfocus,"table"1,a,b,1,x,m,\n'), "line 2"),
        (io.StringIO(",".join(FIELDS) + '\nfocus,"table 1,a,b,1,x,m,\n'), "unexpected end of data"),
        (io.StringIO(""), "the columns are []"),
    ],
)
def test_a_damaged_file_is_refused(damaged, says):
    with pytest.raises(BadSetting) as error:
        parse("focus", damaged)
    assert says in str(error.value) and "restore its CSV file" in str(error.value)


def test_files_are_plain_utf8_and_one_per_paper():
    folder = Path(papers.__file__).parent
    assert {path.stem for path in folder.glob("*.csv")} == set(papers.PAPERS)
    for path in folder.glob("*.csv"):
        assert b"\r" not in path.read_bytes() and path.read_bytes().endswith(b"\n")


def test_find_refuses_names_that_do_not_exist():
    assert papers.find("focus", "table 6", column="2M") == []
    assert {cell.paper for cell in papers.find(table="table 1")} == set(papers.PAPERS)
    with pytest.raises(BadSetting, match="no paper 'focal' here: choose one of focus"):
        papers.find("focal")
    with pytest.raises(BadSetting, match="has no 'table 11' here: choose one of table 1"):
        papers.find("focus", "table 11")
    with pytest.raises(BadSetting):
        papers.tables("../papers/focus")
