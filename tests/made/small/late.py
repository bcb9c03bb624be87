"""The worst moment for a part of a page to ask: the page's thread has ended, and nothing it has sent was handled yet.
And a word in the log where Streamlit would ask a server outside."""

import threading
from collections.abc import Callable

from streamlit import net_util
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.runtime.app_session import AppSession

OUTSIDE = "a server outside was asked"
called = threading.Event()  # whether a part of the page has asked since its thread began


class Noticed:
    """ASGI middleware that sets `called` when a part of the page asks."""

    def __init__(self, app: Callable):
        self.app = app

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        async def received() -> dict:
            message = await receive()
            if BackMsg.FromString(message.get("bytes") or b"").rerun_script.fragment_id:
                called.set()
            return message

        await self.app(scope, received if scope["type"] == "websocket" else receive, send)


def late() -> None:
    """From now on Streamlit hears of a part that asks when the thread that draws the page has ended."""
    usual = AppSession.request_rerun

    def request_rerun(session: AppSession, client_state) -> None:
        if client_state is not None and client_state.fragment_id and session._scriptrunner is not None:
            session._scriptrunner._script_thread.join()
        usual(session, client_state)

    AppSession.request_rerun = request_rerun


def noted() -> None:
    """From now on the log says OUTSIDE where Streamlit would look up the external address of this machine."""
    net_util.get_external_ip = lambda: print(OUTSIDE, flush=True)
