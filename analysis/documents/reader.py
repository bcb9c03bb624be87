"""Reads one document from standard input: `python -P reader.py SUFFIX SECONDS`; its answer is JSON on standard output.

{"text", "said"}, `said` being what was read and what was left out, or {"refused"}, the end of a sentence that begins
with the file's name. Started by `analysis.documents`; it imports nothing of Focuscope, so that it starts quickly and
runs from any place. Once the libraries are loaded, `shut` takes away the right to open anything: what is not in the
document cannot be read.
"""

import contextlib
import encodings
import importlib
import io
import itertools
import json
import os
import pkgutil
import re
import sys
import time
import zipfile
from collections.abc import Callable
from types import ModuleType

MEMORY = 1_500_000_000  # bytes of address space
PAGES = 500  # of a PDF
CHARACTERS = 5_000_000  # of text
# Bytes in a .docx, which is a zip file.
UNPACKED = 100_000_000
PARTS = 5_000  # files in it
BLOCKS = (
    "address article aside blockquote dd details div dl dt figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hr li main nav ol p pre section summary table title tr ul"
).split()
UNSEEN = ["script", "style", "template", "noscript", "svg", "iframe", "object"]
# Blocks that only begin a line.
LINES = "dd dt li tr".split()
# Blanks inside <pre> are replaced while those outside are squeezed, and put back afterwards.
PROTECT = str.maketrans(" \t\n", "\0\1\2")
RESTORE = str.maketrans("\0\1\2", " \t\n")
Read = tuple[str, list[str]]


class Refused(Exception):
    """The rest of a sentence that begins with the file's name."""


def pdf(data: bytes, until: float) -> Read:
    """The pages of a PDF one after the other, as many as there is time for."""
    import pypdf

    _load(pypdf)
    shut()
    if b"%PDF-" not in data[:1024]:
        raise Refused("is no PDF (it does not begin with %PDF-): save it again as PDF, or give its text.")
    reader = pypdf.PdfReader(io.BytesIO(data))
    # One that only forbids to print opens with an empty password; some ways of encryption need more libraries.
    opens = not reader.is_encrypted
    if not opens:
        with contextlib.suppress(Exception):
            opens = bool(reader.decrypt(""))
    if not opens:
        raise Refused("is encrypted and opens with a password only: save it without one.")
    pages: list[str] = []
    count, length = len(reader.pages), 0
    for page in reader.pages:
        if len(pages) == PAGES or length > CHARACTERS or (pages and time.process_time() > until):
            break
        pages.append(_tidy(page.extract_text()))
        length += len(pages[-1])
    if not length:
        raise Refused(
            f"holds no text in {_count(len(pages), 'page')}, only pictures: run text recognition (OCR) on it first."
        )
    notes = [f"{_count(count, 'page')} read"]
    if len(pages) < count:
        notes = [f"the first {len(pages):,} of {count:,} pages read"]
    if empty := pages.count(""):
        notes.append(f"{empty:,} without text (pictures or scans)")
    return "\n\n".join(filter(None, pages)), notes


def docx(data: bytes, until: float) -> Read:
    """Paragraphs and tables of a Word document in their order; a row of a table is a line."""
    import docx
    import docx.table

    shut()
    try:
        parts = zipfile.ZipFile(io.BytesIO(data)).infolist()
    except zipfile.BadZipFile:
        raise Refused("is no Word document (.docx): save it again as .docx, or give its text.") from None
    size = sum(part.file_size for part in parts)
    if size > UNPACKED or len(parts) > PARTS:
        raise Refused(
            f"unpacks to {size / 1e6:,.0f} MB in {len(parts):,} parts and the limit is {UNPACKED / 1e6:.0f} MB in "
            f"{PARTS:,}: give its text."
        )
    paragraphs = rows = 0
    lines = []
    for block in docx.Document(io.BytesIO(data)).iter_inner_content():
        if isinstance(block, docx.table.Table):
            # A cell that spans several columns is listed once for each of them.
            for row in block.rows:
                cells = itertools.groupby(cell.text.strip() for cell in row.cells)
                lines.append(" | ".join(text for text, _ in cells))
            rows += len(block.rows)
        elif block.text.strip():
            paragraphs += 1
            lines.append(block.text)
    notes = [f"{_count(paragraphs, 'paragraph')} read"]
    if rows:
        notes.append(f"{_count(rows, 'row')} of tables")
    return _tidy("\n\n".join(lines)), [*notes, "pictures, headers and notes left out"]


def html(data: bytes, until: float) -> Read:
    """What a page says to a reader: no scripts, styles or comments; nothing that it links is fetched."""
    import bs4
    from bs4.dammit import EncodingDetector

    declared = EncodingDetector.find_declared_encoding(data, is_html=True)
    marked = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    page = ""
    for encoding in filter(None, (marked, declared, "cp1252")):
        with contextlib.suppress(LookupError, ValueError):
            page = page or data.decode(encoding)
    if data and not page:
        raise Refused("is written in an encoding that its first lines do not name: save it as UTF-8.")
    shut()
    soup = bs4.BeautifulSoup(page, "html.parser")
    unseen = [tag.extract() for tag in soup(UNSEEN)]
    for pre in soup("pre"):
        for string in pre(string=True):
            string.replace_with(string.translate(PROTECT))
    for string in soup(string=re.compile(r"[\r\n]")):
        if type(string) is bs4.NavigableString:
            string.replace_with(re.sub(r"\s+", " ", string))
    for tag in soup("br"):
        tag.replace_with("\n")
    for tag in soup(["td", "th"]):
        tag.insert_after(" ")
    for tag in soup(BLOCKS):
        tag.insert_before("\n")
        if tag.name not in LINES:
            tag.insert_before("\n")
            tag.insert_after("\n\n")
    lines = [" ".join(line.split()).translate(RESTORE) for line in soup.get_text().split("\n")]
    notes = ["its text read, without tags"]
    if unseen:
        kinds = "script, style or frame" if len(unseen) == 1 else "scripts, styles or frames"
        notes.append(f"{len(unseen):,} {kinds} left out")
    return _tidy("\n".join(lines)), notes


def notebook(data: bytes, until: float) -> Read:
    """The cells of a Jupyter notebook as they are written; what they printed is left out."""
    shut()
    try:
        book = json.loads(data.decode("utf-8-sig"))
    except ValueError as error:
        where = f"line {error.lineno:,}" if isinstance(error, json.JSONDecodeError) else "its bytes are not UTF-8"
        raise Refused(f"is no notebook: its JSON is broken ({where}): open it in Jupyter and save it again.") from None
    cells = None
    if isinstance(book, dict):
        # Before 2015 the cells stood in a worksheet.
        sheets = book.get("worksheets") or [{}]
        cells = book.get("cells", sheets[0].get("cells"))
    if not isinstance(cells, list):
        raise Refused("is JSON but no notebook (it has no cells): give a .ipynb file that Jupyter wrote.")
    texts, code = [], 0
    for cell in cells:
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("markdown", "code", "heading", "raw"):
            continue
        source = cell.get("source", cell.get("input", ""))
        text = ("".join(map(str, source)) if isinstance(source, list) else str(source)).strip()
        if text:
            code += cell["cell_type"] == "code"
            texts.append(text)
    notes = [f"{_count(len(texts) - code, 'text cell')} and {_count(code, 'code cell')} read", "outputs left out"]
    return _tidy("\n\n".join(texts)), notes


READERS: dict[str, Callable[[bytes, float], Read]] = {
    ".pdf": pdf,
    ".docx": docx,
    ".html": html,
    ".htm": html,
    ".ipynb": notebook,
}


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _tidy(text: str) -> str:
    """Line ends as `\\n`, no spaces at the end of a line, at most one blank line, no control characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", "", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip("\n").rstrip()


def bound(seconds: int) -> None:
    """Limits of time and memory for this process; what a system does not know is left out."""
    # Windows.
    with contextlib.suppress(ImportError):
        import resource

        for limit, value in (("RLIMIT_CPU", seconds), ("RLIMIT_AS", MEMORY), ("RLIMIT_CORE", 0)):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                resource.setrlimit(getattr(resource, limit), (value, value))


def shut() -> None:
    """From now on nothing can be opened: no file, no connection, no process. Standard input and output stay."""
    with contextlib.suppress(ImportError):
        import resource

        _load(encodings)
        # The lowest number that is free.
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))


def _load(package: ModuleType) -> None:
    """All modules of a package, also those that it would load only when they are used."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        # Of another system, or of a library that is not here.
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def main(suffix: str, seconds: int) -> dict[str, str]:
    """The answer for the document on standard input."""
    bound(seconds)
    try:
        text, notes = READERS[suffix](sys.stdin.buffer.read(), 0.75 * seconds)
    except Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": f"needs more than {MEMORY / 1e9:.1f} GB of memory to be read: give a part of it."}
    except RecursionError:
        return {"refused": "is nested too deeply to be read: give its text."}
    except Exception as error:  # whatever a library meets in a damaged file
        return {"refused": f"is damaged ({type(error).__name__}: {str(error)[:80]}): save it again, or give its text."}
    if len(text) > CHARACTERS:
        length, limit = len(text) / 1e6, CHARACTERS / 1e6
        return {"refused": f"holds {length:,.1f} million characters and the limit is {limit:.0f} million: give a part."}
    if not text.strip():
        return {"refused": "holds no text: choose a file with some text in it."}
    return {"text": text, "said": "; ".join([*notes, _count(len(text.split()), "word")])}


if __name__ == "__main__":
    json.dump(main(sys.argv[1], int(sys.argv[2])), sys.stdout)
