"""Documents made by hand: small ones that can be read, and hostile ones."""

import io
import json
import zipfile

import docx
import pypdf
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject


def pdf(pages: list[str], password: str = "") -> bytes:
    """A PDF with one line of text on each page; an empty line is a page without text."""
    writer = pypdf.PdfWriter()
    font = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = writer._add_object(DictionaryObject({NameObject(k): NameObject(v) for k, v in font.items()}))
    for words in pages:
        page = writer.add_blank_page(612, 792)
        fonts = DictionaryObject({NameObject("/F1"): font})
        page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
        drawn = DecodedStreamObject()
        drawn.set_data(f"BT /F1 12 Tf 72 720 Td ({words}) Tj ET".encode() if words else b"")
        page[NameObject("/Contents")] = writer._add_object(drawn)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word() -> bytes:
    """A Word document: a heading, a paragraph, a table of two rows, a paragraph."""
    document, out = docx.Document(), io.BytesIO()
    document.add_heading("The ferry", 1)
    document.add_paragraph("Marguerite took the first boat.")
    table = document.add_table(2, 2)
    for place, word in enumerate(("port", "hour", "Aberlour", "six")):
        table.cell(place // 2, place % 2).text = word
    document.add_paragraph("Nobody saw her leave.")
    document.save(out)
    return out.getvalue()


def word_with(body: bytes) -> bytes:
    """The same with another document.xml inside."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(word())) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, body if name == "word/document.xml" else old.read(name))
    return out.getvalue()


def notebook(*cells: tuple[str, str]) -> bytes:
    """A notebook of (kind, source) cells; every code cell printed a secret."""
    listed = [{"cell_type": kind, "source": [source], "outputs": [{"text": ["a secret"]}]} for kind, source in cells]
    return json.dumps({"cells": listed, "nbformat": 4}).encode()


PAGE = b"""<!DOCTYPE html><html><head><title>The ferry</title><style>p { color: red }</style></head><body>
<script>document.write("a secret")</script><!-- a secret --><h1>The  ferry</h1>
<p>Marguerite took<br>the <b>first</b>
boat.</p><ul><li>six</li><li>seven</li></ul><pre>def leave():
    return 1</pre><p>caf&eacute;</p></body></html>"""
