"""Documents as texts: what is read of each kind, and that a hostile one ends in a sentence and reads nothing else."""

import subprocess
import sys

import pytest

from analysis import documents
from analysis.corpus import MAX_BYTES, read_any, read_file, read_folder, texts_in
from analysis.documents import READER, read_document
from analysis.errors import BadText
from tests.made.documents import PAGE, notebook, pdf, word, word_with

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
CELLS = ("markdown", "# The ferry"), ("code", "leave()\nreturn_()"), ("code", "")


def test_one_script_is_said_in_the_singular():
    document = read_document(b"<p>The ferry left.</p><script>alert(1)</script>", "one.html")
    assert document.said == "HTML page: its text read, without tags; 1 script, style or frame left out; 3 words."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "text", "summary"),
    [
        (
            "a.pdf",
            pdf(["Marguerite took", "", "the first boat."]),
            "Marguerite took\n\nthe first boat.",
            "PDF: 3 pages read; 1 without text (pictures or scans); 5 words.",
        ),
        (
            "A.DOCX",
            word(),
            "The ferry\n\nMarguerite took the first boat.\n\nport | hour\n\nAberlour | six\n\nNobody saw her leave.",
            "Word document: 3 paragraphs read; 2 rows of tables; pictures, headers and notes left out; 17 words.",
        ),
        (
            "a.htm",
            PAGE,
            "The ferry\n\nThe ferry\n\nMarguerite took\nthe first boat.\n\nsix\nseven\n\ndef leave():\n    return 1\n\n"
            "café",
            "HTML page: its text read, without tags; 2 scripts, styles or frames left out; 16 words.",
        ),
        (
            "a.ipynb",
            notebook(*CELLS),
            "# The ferry\n\nleave()\nreturn_()",
            "Notebook: 1 text cell and 1 code cell read; outputs left out; 5 words.",
        ),
        (
            "a.md",
            b"# The *ferry*\n<script>x</script> ![](file:///etc/hostname)",
            "# The *ferry*\n<script>x</script> ![](file:///etc/hostname)",
            "",
        ),
    ],
)
def test_a_document_is_read_and_says_what_was_read(name, data, text, summary):
    document = read_any(data, name)
    assert (document.text, document.said) == (text, summary)


def test_an_encoding_that_a_page_names_is_used():
    page = "<meta charset=shift_jis><p>渡し船</p>".encode("shift_jis")
    assert read_document(page, "a.html").text == "渡し船"
    assert read_document("<p>渡し船</p>".encode("utf-16"), "a.html").text == "渡し船"


def test_a_pdf_that_opens_without_a_password_is_read_whatever_its_name():
    assert read_any(pdf(["Marguerite"]), "no name").text == "Marguerite"


@pytest.mark.slow
def test_of_a_very_long_pdf_the_first_pages_are_read_and_that_is_said():
    document = read_document(pdf(["word"] * 1200), "long.pdf")
    assert document.said == "PDF: the first 500 of 1,200 pages read; 500 words."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.pdf", pdf(["secret"], "key"), "is encrypted and opens with a password only"),
        ("a.pdf", pdf(["", ""]), "holds no text in 2 pages, only pictures"),
        ("a.pdf", b"%PDF-1.7\n1 0 obj << /Length 99999999 >> stream", "is damaged"),
        ("a.pdf", b"words", "is no PDF"),
        ("a.docx", lambda: word_with(b"\0" * 200_000_000), "unpacks to 201 MB"),
        ("a.docx", b"words", "is no Word document"),
        ("a.docx", word_with(b"<w:document"), "is damaged"),
        ("a.html", b"<script>only()</script>", "holds no text"),
        ("a.ipynb", b'{"cells": [\n{"cell_type"', "its JSON is broken (line 2)"),
        ("a.ipynb", b'{"cells": 3}', "it has no cells"),
        ("a.ipynb", b"[" * 200_000, "nested too deeply"),
        ("a.ipynb", b"\xff\xfe\x00", "its bytes are not UTF-8"),
    ],
)
def test_a_hostile_document_ends_in_one_sentence(name, data, words):
    with pytest.raises(BadText) as error:
        read_document(data() if callable(data) else data, name)
    assert str(error.value).startswith(f"{name} ") and words in str(error.value)
    assert str(error.value).count("\n") == 0 and str(error.value).endswith(".")


def test_markdown_that_is_no_text_ends_in_one_sentence():
    with pytest.raises(BadText, match=r"^a\.md is not valid UTF-8.*\.$"):
        read_any(b"caf\xe9 ![](file:///etc/hostname)", "a.md")


@pytest.mark.slow
def test_a_document_that_keeps_its_reader_busy_is_given_up(monkeypatch):
    monkeypatch.setattr(documents, "SECONDS", 1)
    with pytest.raises(BadText, match=r"a\.html takes longer than 1 s to read"):
        read_document(b"<div>" * 400_000, "a.html")


def test_a_document_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(documents, "MAX_BYTES", 2_000)
    monkeypatch.setattr(documents.subprocess, "run", lambda *a, **k: pytest.fail("it was read"))
    with pytest.raises(BadText, match="has 0.0 MB and the limit for a document is 0 MB"):
        read_document(b"%PDF-" + b"x" * 3_000, "a.pdf")


def test_the_text_of_a_document_is_bounded_as_every_text_is():
    with pytest.raises(BadText, match=r"a\.html (holds|has) .* and the limit is 5 "):
        read_any(b"<p>" + b"word " * (MAX_BYTES // 4), "a.html")


def test_nothing_outside_the_document_is_read(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("the password")
    entity = f'<!DOCTYPE d [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    page = f'{entity}<p>words &x;</p><iframe src="{secret.as_uri()}"></iframe><img src="{secret.as_uri()}">'
    assert "password" not in read_document(page.encode(), "a.html").text
    content = "<w:body><w:p><w:r><w:t>words &x;</w:t></w:r></w:p></w:body>"
    body = f"{entity}<w:document xmlns:w='{WORD}'>{content}</w:document>"
    assert "password" not in read_document(word_with(body.encode()), "a.docx").text


def test_the_reader_can_open_nothing_once_it_reads(tmp_path):
    (tmp_path / "secret.txt").write_text("the password")
    script = f"""
import runpy, socket, subprocess, sys
reader = runpy.run_path({str(READER)!r})
reader["shut"]()
def tried(what):
    try:
        what()
        return "done"
    except OSError as error:
        return error.errno
print(tried(lambda: open({str(tmp_path / "secret.txt")!r})))
print(tried(socket.socket), tried(lambda: subprocess.run(["id"])))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["24", "24", "24"], (done.stdout, done.stderr)  # too many open files


def test_a_folder_is_read_with_all_its_documents(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "a.txt").write_text("One line\nand another.")
    (tmp_path / "in" / "b.pdf").write_bytes(pdf(["A page."]))
    (tmp_path / "in" / "c.ipynb").write_bytes(notebook(*CELLS))
    (tmp_path / "d.png").write_bytes(b"\x89PNG")
    assert [path.name for path in texts_in(tmp_path)] == ["a.txt", "b.pdf", "c.ipynb"]
    assert read_file(tmp_path / "in" / "b.pdf").text == "A page."
    train, held_out = read_folder(tmp_path)
    assert sorted(train + held_out) == ["# The ferry\n\nleave()\nreturn_()", "A page.", "One line and another."]
