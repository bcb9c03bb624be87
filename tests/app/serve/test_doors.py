"""The doors before Streamlit: no page is lost, uploads are bounded and freed, nobody outside is asked."""

import asyncio
import contextlib
import http.client
import urllib.error
import urllib.request

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from analysis.limits import DEMO, OPEN
from app.serve.gate import foreign
from app.serve.visits import Visit
from tests.made.small.late import OUTSIDE
from tests.stress.scene import until
from tests.stress.server import served
from tests.stress.session import Session

SMALL = "tests/made/small/served.py"
MB = 1 << 20
NOTICED = 40 * MB  # of memory, beside what Python and Streamlit take for themselves meanwhile


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with served(tmp_path_factory.mktemp("small"), SMALL) as server:
        yield server


@pytest.fixture(scope="module")
def small_demo(tmp_path_factory):
    with served(tmp_path_factory.mktemp("demo"), SMALL, FOCUSCOPE_DEMO="1") as server:
        yield server


def test_a_part_that_asks_while_its_page_ends_does_not_swallow_the_page(small):
    async def reads():
        async with Session(small.address) as reader:
            for _ in range(3):
                await reader.open()

    asyncio.run(asyncio.wait_for(reads(), 100))


def asks(part: str = "", timer: bool = False) -> dict:
    request = BackMsg()
    request.rerun_script.fragment_id, request.rerun_script.is_auto_rerun = part, timer
    return {
        "type": "websocket.receive",
        "bytes": request.SerializeToString() or BackMsg(rerun_script={}).SerializeToString(),
    }


def begins(*parts: str) -> dict:
    message = ForwardMsg(new_session={"name": "x"})
    message.metadata.run.fragment_ids.extend(parts)
    return {"type": "websocket.send", "bytes": message.SerializeToString()}


def ends(status: str) -> dict:
    message = ForwardMsg(script_finished=ForwardMsg.ScriptFinishedStatus.Value(status))
    return {"type": "websocket.send", "bytes": message.SerializeToString()}


def through(*steps: dict) -> list[str]:
    """What a visit hands on to Streamlit, in order, while these messages pass: parts by their name."""

    async def passes() -> list[str]:
        async def nothing(message: dict) -> None:
            pass

        coming: asyncio.Queue[dict] = asyncio.Queue()
        visit, handed = Visit(coming.get, nothing), []
        reading = asyncio.create_task(visit.read())
        for step in steps:
            if step["type"] == "websocket.receive":
                coming.put_nowait(step)
            else:
                await visit.send(step)
            for _ in range(3):
                await asyncio.sleep(0)  # one turn of the loop for the reader, and one for what it hands on
            while not visit.received.empty():
                handed.append(
                    BackMsg.FromString(visit.received.get_nowait()["bytes"]).rerun_script.fragment_id or "page"
                )
        reading.cancel()
        visit.over()
        return handed

    return asyncio.run(passes())


def test_parts_wait_for_the_end_of_what_is_drawn_and_timers_come_again():
    early, done = ends("FINISHED_EARLY_FOR_RERUN"), ends("FINISHED_SUCCESSFULLY")
    assert through(asks(), asks("a"), asks("b", timer=True)) == ["page"]
    assert through(asks(), asks("a"), begins(), early, begins()) == ["page"], "a run that is drawn anew goes on"
    assert through(asks(), asks("a"), done, begins(), done) == ["page", "a"], "the end of a run before is none"
    part = ends("FINISHED_FRAGMENT_RUN_SUCCESSFULLY")
    assert through(asks(), begins(), asks("a"), asks("b"), done) == ["page", "a"]
    assert through(asks(), begins(), asks("a"), asks("b"), done, begins("a"), part) == ["page", "a", "b"]
    assert through(asks("a"), begins("a"), asks(), part, asks("b")) == ["a", "page"], "a page never waits"
    newer = [asks(), begins(), asks("a"), asks(), begins(), done]
    assert through(*newer) == ["page", "page"], "what a part held is older than what the page was asked with"
    assert through(*[asks(), *[asks(f"{i}") for i in range(20)]])[1:] == ["16", "17", "18", "19"]


def put(server, session: str, name: str, size: int, **headers: str) -> int:
    """The status that an upload of `size` zeros is answered with, past every check of a page."""
    with urllib.request.urlopen(f"http://{server.address}/_stcore/health") as answer:
        cookie = answer.headers["Set-Cookie"].split(";")[0]
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    body = head + bytes(size) + b"\r\n--x--\r\n"
    pieces = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    headers = {"Content-Length": str(len(body)), **headers}
    headers |= {"Content-Type": "multipart/form-data; boundary=x", "Cookie": cookie}
    connection = http.client.HTTPConnection(server.address, timeout=60)
    try:
        connection.putrequest("PUT", f"/_stcore/upload_file/{session}/{name}")
        for key, value in (headers | {"X-Xsrftoken": cookie.partition("=")[2]}).items():
            if value:
                connection.putheader(key, value)
        connection.endheaders()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not be read to be refused
            connection.send(pieces if "Transfer-Encoding" in headers else body)
        return connection.getresponse().status
    finally:
        connection.close()


def uploaded(server, sizes: list[int], **headers: str) -> list[int]:
    """The answers to uploads of one visitor, and then it leaves."""

    async def visits() -> list[int]:
        async with Session(server.address) as reader:
            await reader.open()
            return [
                await asyncio.to_thread(put, server, reader.session, str(number), size, **headers)
                for number, size in enumerate(sizes)
            ]

    return asyncio.run(visits())


@pytest.mark.slow
def test_a_demo_takes_no_large_file_at_the_upload_address_and_few_small_ones(small_demo):
    before = small_demo.memory()
    assert set(uploaded(small_demo, [60 * MB] * 4)) == {413}
    assert small_demo.memory() < before + NOTICED
    small = uploaded(small_demo, [900_000] * 6)
    assert small == [204] * (DEMO.uploads_bytes // 900_000) + [413] * (6 - DEMO.uploads_bytes // 900_000)
    assert uploaded(small_demo, [10] * 22) == [204] * DEMO.uploads + [413] * 2
    assert uploaded(small_demo, [10], **{"Content-Length": "", "Transfer-Encoding": "chunked"}) == [411]


@pytest.mark.slow
def test_what_a_visitor_brought_is_bounded_and_freed_when_the_visitor_leaves(small):
    before = small.memory()
    fit = OPEN.uploads_bytes // (60 * MB)
    assert uploaded(small, [60 * MB] * 6) == [204] * fit + [413] * (6 - fit)
    until(lambda: small.memory() < before + NOTICED, "the memory is not given back", 30)


def test_no_page_of_another_site_gets_in_and_nothing_is_asked_outside(small):
    async def knocks(origin: str) -> None:
        async with connect(f"ws://{small.address}/_stcore/stream", origin=origin, subprotocols=["streamlit"]):
            pass

    for origin in ("http://example.org", "null", "http://127.0.0.1:1"):
        with pytest.raises(InvalidStatus, match="403"):
            asyncio.run(knocks(origin))
    asyncio.run(knocks(f"http://{small.address}"))
    request = urllib.request.Request(f"http://{small.address}/", headers={"Origin": "http://example.org"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request)
    assert OUTSIDE not in small.log
    assert foreign("https://a.example", "b.example") and not foreign("https://a.example:8", "a.example:8")
    assert not foreign(None, "a.example")


def test_numbers_of_the_process_are_shut_in_a_demo(small, small_demo):
    address = "http://{}/_stcore/metrics"
    with urllib.request.urlopen(address.format(small.address)) as answer:
        assert answer.status == 200
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address.format(small_demo.address))
