"""What a request may bring and reach before Streamlit sees it: its origin, what an upload weighs, what is shut in a
demo."""

import re
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocketClose
from streamlit import config, runtime

from analysis.limits import limits

UPLOAD = re.compile(r"/_stcore/upload_file/([^/]+)/[^/]+$")
METRICS = "/_stcore/metrics"
# Bytes of a form around the file it carries: boundaries and the file's name.
AROUND = 1 << 14


class Gate:
    """ASGI middleware: who may not pass is answered with a sentence, and nothing of the request is read."""

    def __init__(self, app: Callable):
        self.app = app
        # Session and bytes of the uploads that are on their way.
        self.coming: list[tuple[str, int]] = []

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self.app(scope, receive, send)
        headers, path = Headers(scope=scope), scope["path"]
        if foreign(headers.get("origin"), headers.get("host")):
            # Streamlit would look up this machine's external address at a server outside, to compare it.
            reason = "A page of another site asks: name its address in server.corsAllowedOrigins if that is meant."
            return await _refused(403, reason)(scope, receive, send)
        if path.endswith(METRICS) and limits().demo:
            return await _refused(404, "Not shown in a shared demo.")(scope, receive, send)
        place = UPLOAD.search(path) if scope.get("method") == "PUT" else None
        if place is None:
            return await self.app(scope, receive, send)
        session, length = place[1], headers.get("content-length", "")
        # What comes in pieces would be counted when it is here.
        if not length.isdecimal():
            return await _refused(411, "An upload says how long it is.")(scope, receive, send)
        if no_room := self.full(session, int(length)):
            return await _refused(413, no_room)(scope, receive, send)
        self.coming.append(upload := (session, int(length)))
        try:
            await self.app(scope, receive, send)
        finally:
            self.coming.remove(upload)

    def full(self, session: str, size: int) -> str | None:
        """Why an upload of `size` bytes finds no room beside what its visitor and all others left here."""
        bounds, present = limits(), [*_here(), *self.coming]
        session_sizes = [bytes_ for owner, bytes_ in present if owner == session]
        if size > bounds.upload_bytes + AROUND:
            return f"A file here has at most {bounds.upload_bytes / 1e6:,.0f} MB."
        if len(session_sizes) >= bounds.uploads or sum(session_sizes) + size > bounds.uploads_bytes:
            return (
                f"At most {bounds.uploads} files and {bounds.uploads_bytes / 1e6:,.0f} MB of one visitor wait here: "
                "reload the page to begin anew."
            )
        if sum(bytes_ for _, bytes_ in present) + size > bounds.uploads_bytes_all:
            return "There is no room for more files now: try again in some minutes."
        return None


def foreign(origin: str | None, host: str | None) -> bool:
    """Whether a page of another site asks. A client that is no browser names no origin."""
    if origin is None or origin in config.get_option("server.corsAllowedOrigins"):
        return False
    return origin.partition("://")[2] != host


def _here() -> list[tuple[str, int]]:
    """Session and bytes of every file that Streamlit keeps in this process."""
    files: Any = runtime.get_instance().uploaded_file_mgr
    storage = files.file_storage
    return [(session, len(file.data)) for session, files in list(storage.items()) for file in list(files.values())]


def _refused(status: int, reason: str) -> Callable:
    async def answer(scope: dict, receive: Callable, send: Callable) -> None:
        closed = WebSocketClose(code=1008) if scope["type"] == "websocket" else PlainTextResponse(reason, status)
        await closed(scope, receive, send)

    return answer
