"""One reader without a browser: speaks Streamlit's own protocol (protobuf over a websocket) as its pages do.

It keeps what a page keeps: which widgets there are, what was chosen in them, the address, and the parts of the page
that ask again by themselves every few seconds.
"""

import asyncio
import time
from collections.abc import Callable

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import connect

PATIENCE = 300  # seconds for one answer
MOST = 64_000_000  # bytes of one message
DONE = ForwardMsg.FINISHED_SUCCESSFULLY
EARLY = ForwardMsg.FINISHED_EARLY_FOR_RERUN


class Session:
    """`async with Session(address, query) as reader:`; then `await reader.open()` and the rest. Seconds are returned by
    what waits for the page; `failures` holds every exception box that the page has shown."""

    def __init__(self, address: str, query: str = ""):
        self.address, self.query = address, query
        # The page's place in the URL -> its hash.
        self.pages: dict[str, str] = {}
        # Key -> the widget as it was drawn last.
        self.widgets: dict[str, object] = {}
        self.failures: list[str] = []
        # Bytes.
        self.received = 0
        self.entered = False
        # The app's name for this connection.
        self.session = ""
        # Parts of the page that ask again by themselves.
        self.timers: dict[str, asyncio.Task] = {}
        self._page, self._states = "", {}
        self._finished: asyncio.Queue = asyncio.Queue()

    async def __aenter__(self):
        origin = f"http://{self.address}"
        where = f"ws://{self.address}/_stcore/stream"
        self._socket = await connect(where, subprotocols=["streamlit"], origin=origin, max_size=MOST)
        self._listener, self.entered = asyncio.create_task(self._listen()), True
        return self

    async def __aexit__(self, *error):
        for timer in (*self.timers.values(), self._listener):
            timer.cancel()
        await self._socket.close()

    async def open(self) -> float:
        """The first run of the page; seconds until it is complete."""
        return await self._run()

    async def visit(self, place: str) -> float:
        """Another page, by its place in the URL ("" is the first one)."""
        self._page = self.pages[place]
        return await self._run()

    async def follow(self, query: str) -> float:
        """A link to the same page with other choices."""
        self.query = query
        return await self._run()

    async def choose(self, key: str, option: str) -> float:
        """One option of a list, of pills or of a segmented control."""
        widget = self.widgets[key]
        state = WidgetState(id=widget.id)
        if widget.DESCRIPTOR.name == "Selectbox":
            state.string_value = option
        else:
            state.string_array_value.data.append(option)
        self._states[state.id] = state
        return await self._run()

    async def press(self, key: str) -> float:
        """A button."""
        return await self._run(WidgetState(id=self.widgets[key].id, trigger_value=True))

    def options(self) -> dict[str, list[str]]:
        """key -> options of every list, of pills and of segmented controls on the page, two at least."""
        choices = {}
        for key, widget in self.widgets.items():
            kind = widget.DESCRIPTOR.name
            if kind in ("ButtonGroup", "Selectbox") and not widget.disabled and len(widget.options) > 1:
                choices[key] = [option if kind == "Selectbox" else option.content for option in widget.options]
        return choices

    async def _run(self, pressed: WidgetState | None = None) -> float:
        """Send what changed and wait until the script has run to its end."""
        while not self._finished.empty():
            self._finished.get_nowait()
        began = time.perf_counter()
        await self._send(pressed)
        async with asyncio.timeout(PATIENCE):
            while await self._finished.get() != DONE:
                pass
        # The app closed the connection, or said what is not understood here.
        if self._listener.done():
            self._listener.result()
            raise ConnectionError("The app ended the connection.")
        return time.perf_counter() - began

    async def _send(self, pressed: WidgetState | None = None, fragment: str = "") -> None:
        state = ClientState(query_string=self.query, page_script_hash=self._page, fragment_id=fragment)
        state.is_auto_rerun = bool(fragment)
        state.widget_states.widgets.extend([*self._states.values(), *([pressed] if pressed else ())])
        await self._socket.send(BackMsg(rerun_script=state).SerializeToString())

    async def _listen(self) -> None:
        try:
            async for data in self._socket:
                self.received += len(data)
                message = ForwardMsg.FromString(data)
                hear: Callable | None = getattr(self, f"_on_{message.WhichOneof('type')}", None)
                if hear is not None:
                    hear(message)
        finally:
            self._finished.put_nowait(DONE)

    def _on_new_session(self, message: ForwardMsg) -> None:
        self.session = message.new_session.initialize.session_id
        if not message.metadata.run.fragment_ids:
            self._page = message.new_session.page_script_hash
            self.widgets = {}
            for timer in self.timers.values():
                timer.cancel()
            self.timers = {}

    def _on_navigation(self, message: ForwardMsg) -> None:
        pages = message.navigation.app_pages
        self.pages = {"" if page.is_default else page.url_pathname: page.page_script_hash for page in pages}
        self._page = message.navigation.page_script_hash or self._page

    def _on_page_info_changed(self, message: ForwardMsg) -> None:
        self.query = message.page_info_changed.query_string

    def _on_script_finished(self, message: ForwardMsg) -> None:
        self._finished.put_nowait(message.script_finished)

    def _on_auto_rerun(self, message: ForwardMsg) -> None:
        timer = message.auto_rerun
        if old := self.timers.pop(timer.fragment_id, None):
            old.cancel()
        self.timers[timer.fragment_id] = asyncio.create_task(self._repeat(timer.interval, timer.fragment_id))

    async def _repeat(self, seconds: float, fragment: str) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._send(fragment=fragment)

    def _on_delta(self, message: ForwardMsg) -> None:
        element = message.delta.new_element
        kind = element.WhichOneof("type")
        if kind == "exception":
            self.failures.append(f"{element.exception.type}: {element.exception.message}"[:200])
        widget = getattr(element, kind, None) if kind else None
        name = getattr(widget, "id", "") if hasattr(widget, "DESCRIPTOR") else ""
        if isinstance(name, str) and name.startswith("$$"):
            self.widgets[name.split("-", 2)[-1]] = widget
