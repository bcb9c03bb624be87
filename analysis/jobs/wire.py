"""What app and worker say to each other: one JSON object per line, errors by class and sentence.

to the worker    {"do": id, "kind": "request"|"job", "verb": ..., "args": {...}}      {"cancel": id}
from the worker  {"ready": true}   {"beat": true}   {"begun": id}   {"id": id, "run": ..., "cached": ...}
                 {"id": id, "value": {...}}   {"id": id, "error": {"type", "message"}}
                 {"fatal": why it ends}, alone or with its last answer
"""

import json
from collections.abc import Iterator
from typing import IO, Any

from .. import errors
from ..errors import AnalysisError

Message = dict[str, Any]
# Bytes; a longer line is skipped whole.
MAX_LINE = 16_000_000


def encode(message: Message) -> bytes:
    """One line of bytes for a dict."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def messages(stream: IO[bytes]) -> Iterator[Message]:
    """The dicts that arrive on a binary stream until it ends; lines that are none, or too long, are skipped."""
    while line := stream.readline(MAX_LINE):
        if not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE)
            continue
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(message, dict):
            yield message


def describe_error(error: AnalysisError) -> dict[str, str]:
    """An AnalysisError as data: the nearest class of analysis.errors, and the sentence."""
    kind = next(kind for kind in type(error).__mro__ if vars(errors).get(kind.__name__) is kind)
    return {"type": kind.__name__, "message": str(error)}


def rebuild_error(data: Message) -> AnalysisError:
    """The exception that `describe_error` described."""
    kind = vars(errors).get(str(data.get("type")))
    if not isinstance(kind, type) or not issubclass(kind, AnalysisError):
        kind = AnalysisError
    return kind(data.get("message") or "The worker gave no reason: see its log.")
