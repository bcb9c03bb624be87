"""Text out of documents: PDF, Word, HTML and notebooks.

The libraries that read them run in a process of their own (`reader.py`): bounded in time, memory and bytes, and unable
to open a file or a connection, so that nothing outside the document is read. Nothing here imports them.
"""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadText

KINDS = {".pdf": "PDF", ".docx": "Word document", ".html": "HTML page", ".htm": "HTML page", ".ipynb": "Notebook"}
# Of a document; its text is bounded as every text is.
MAX_BYTES = 30_000_000
SECONDS = 20  # of one core
# Seconds on the clock, on a busy machine.
PATIENCE = 180
READER = Path(__file__).with_name("reader.py")


@dataclass(frozen=True)
class Document:
    """The text of a file, and one sentence about what of it was read; empty for plain text, which is read as it is."""

    text: str
    said: str = ""


def kind(name: str, data: bytes = b"") -> str | None:
    """What a file is, by the end of its name and its first bytes: a key of KINDS, or None for plain text."""
    suffix = Path(name).suffix.lower()
    return ".pdf" if data.startswith(b"%PDF-") else suffix if suffix in KINDS else None


def read_document(data: bytes, name: str) -> Document:
    """The text of a PDF, Word document, HTML page or notebook. Errors: BadText in one sentence: too large, damaged,
    encrypted, without text, or more work than SECONDS."""
    suffix = kind(name, data)
    if suffix is None:
        raise ValueError(f"{name} is no document")
    if len(data) > MAX_BYTES:
        raise too_large(name, len(data))
    try:
        command = [sys.executable, "-P", str(READER), suffix, str(SECONDS)]
        done = subprocess.run(command, input=data, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        raise BadText(f"{name} takes longer than {SECONDS} s to read: give a part of it, or its text.")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        reason = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise BadText(f"{name} could not be read ({reason[0][:120]}): give its text instead.") from None
    if "refused" in answer:
        raise BadText(f"{name} {answer['refused']}")
    return Document(answer["text"], f"{KINDS[suffix]}: {answer['said']}.")


def too_large(name: str, size: int) -> BadText:
    """The error for a document of `size` bytes."""
    limit = f"{MAX_BYTES / 1e6:,.0f} MB"
    return BadText(f"{name} has {size / 1e6:,.1f} MB and the limit for a document is {limit}: take a part of it.")
