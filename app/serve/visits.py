"""The connection of an open page: a part of it that asks again waits until the page is drawn, and what a visitor leaves
behind is dropped."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection

from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from app.serve.memory import tidy

STREAM = "/_stcore/stream"
# Seconds for which a page may come back; Streamlit's own 120 free nothing until another page leaves.
LEFT = 100.0
# Seconds from one who is forgotten to tidying.
QUIET = 5.0
# Seconds after which a part of a page will not begin: it stands there no more.
SILENT = 5.0
# Requests of parts that wait for their page; more go on to Streamlit, which folds them into one.
WAITING = 16
# Bytes: a message that begins or ends a run is shorter.
SHORT = 1 << 16
PAGE = {ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_WITH_COMPILE_ERROR}
PART = PAGE | {ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY}


class Visits:
    """ASGI middleware around Streamlit's websocket. `left`: seconds after which who has left is forgotten."""

    def __init__(self, app: Callable, left: float = LEFT):
        self.app, self.left = app, left
        self._tidying: asyncio.TimerHandle | None = None

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] != "websocket" or not scope["path"].endswith(STREAM):
            return await self.app(scope, receive, send)
        visit = Visit(receive, send)
        reading = asyncio.create_task(visit.read())
        try:
            await self.app(scope, visit.received.get, visit.send)
        finally:
            reading.cancel()
            visit.over()
            if visit.session:
                asyncio.get_running_loop().call_later(self.left, self._forget, visit.session)

    def _forget(self, session: str) -> None:
        """Free what a visitor has left behind, unless the page has come back; then tidy, once for all who leave now."""
        if runtime.exists() and not runtime.get_instance().is_active_session(session):
            runtime.get_instance().close_session(session)
            if self._tidying is None:
                self._tidying = asyncio.get_running_loop().call_later(QUIET, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        tidy()


class Visit:
    """One connection. Streamlit starts another thread for a part of a page that asks when the thread of the page has
    ended, and then throws away what of the page was not handled yet: under load the whole page, and its end. So a part
    is handed on only after the end of what is being drawn was sent."""

    def __init__(self, receive: Callable, send: Callable):
        self._receive, self._send = receive, send
        # What Streamlit gets.
        self.received: asyncio.Queue[dict] = asyncio.Queue()
        self.session = ""
        self._waiting: deque[dict] = deque()
        # What ends the run that is going, none where none is.
        self._ends: Collection[int] = set()
        self._begun = False
        self._silent: asyncio.TimerHandle | None = None

    async def read(self) -> None:
        """Hand on what the browser sends, as long as it is there."""
        message: dict = {"type": ""}
        try:
            while message["type"] != "websocket.disconnect":
                message = await self._receive()
                if not self._kept(message):
                    self.received.put_nowait(message)
        finally:
            self.received.put_nowait({"type": "websocket.disconnect", "code": 1006})

    def _kept(self, message: dict) -> bool:
        """Whether a message goes no further now. A timer that comes too early is dropped: it comes again."""
        try:
            request = BackMsg.FromString(message.get("bytes") or b"")
        # No message at all: Streamlit answers that.
        except Exception:
            return False
        if request.WhichOneof("type") != "rerun_script":
            return False
        part = bool(request.rerun_script.fragment_id)
        if part and self._ends and len(self._waiting) < WAITING:
            if not request.rerun_script.is_auto_rerun:
                self._waiting.append(message)
            return True
        if not part:
            # The page draws all parts, and their requests hold older values than its own.
            self._waiting.clear()
        self._asked(part)
        return False

    def _asked(self, part: bool) -> None:
        self.over()
        self._ends, self._begun = (PART if part else PAGE), False
        if part:
            self._silent = asyncio.get_running_loop().call_later(SILENT, self._ended)

    async def send(self, message: dict) -> None:
        """Send to the browser, and see what begins and what ends."""
        await self._send(message)
        data = message.get("bytes")
        if not data or len(data) > SHORT:
            return
        forwarded = ForwardMsg.FromString(data)
        kind = forwarded.WhichOneof("type")
        if kind == "new_session":
            self.session = forwarded.new_session.initialize.session_id
            if self._ends is PART or not forwarded.metadata.run.fragment_ids:
                self._begun = True
                self.over()
        elif kind == "script_finished" and self._begun and forwarded.script_finished in self._ends:
            self._ended()

    def _ended(self) -> None:
        """Nothing is being drawn: the next part that waits may ask."""
        self.over()
        self._ends = set()
        if self._waiting:
            self._asked(part=True)
            self.received.put_nowait(self._waiting.popleft())

    def over(self) -> None:
        """Wait for no beginning any more."""
        if self._silent is not None:
            self._silent.cancel()
