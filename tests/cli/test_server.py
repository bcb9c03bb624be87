"""The MCP server: which verbs it offers, what it refuses in one sentence, and a client that asks it over its pipes."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from analysis import package
from analysis.cli.server import MOST_BYTES, Desk, reading, server
from analysis.errors import AnalysisError
from analysis.package import version
from tests.made.asking import SHORT
from tests.made.tiny_tokenizer import save_model


@pytest.fixture
def desk(tmp_path):
    """A desk in a folder with a text and a tiny model, and beside the folder a text that nobody named."""
    root = tmp_path / "texts"
    (root / "more").mkdir(parents=True)
    (root / "a.txt").write_text(SHORT)
    (root / "large.txt").write_text("a" * (MOST_BYTES + 1))
    (root / "picture.png").write_bytes(b"\x89PNG\0\1\2")
    (tmp_path / "secret.txt").write_text("nobody's business")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    save_model(root / "tiny")
    return Desk(root)


def test_what_reads_is_offered_and_what_trains_times_or_writes_is_not():
    offered = reading()
    assert {"inspect", "statistics", "pairs", "groups", "temperature", "evaluate", "probe"} <= set(offered)
    assert not {"fetch", "train-router", "fit-router", "bench", "report", "calibrate", "study", "mcp"} & set(offered)


HOSTILE = {
    "a verb that trains": ("train-router", "--corpus {root}", "is not offered here"),
    "a path outside": ("inspect", "{root}/../secret.txt", "is no text file in"),
    "a file of the system": ("inspect", "/etc/passwd", "is no text file in"),
    "a link that leads outside": ("inspect", "{root}/link.txt", "is no text file in"),
    "a folder": ("inspect", "{root}/more", "is no text file in"),
    "the pipe itself": ("inspect", "-", "is no text file in"),
    "a text option": ("probe", "--text /etc/passwd", "is no text file in"),
    "a file that is no text": ("inspect", "{root}/picture.png", "looks like a binary file"),
    "a large file": ("inspect", "{root}/large.txt", "1,000,000 are read here"),
    "many texts": ("continuation", "story " * 30, "30 texts were named and 20 are read at once"),
    "another state": ("inspect", "{root}/a.txt --state /tmp", "--state names files"),
    "a model outside": ("inspect", "{root}/a.txt --model {root}/../elsewhere", "lies outside"),
    "an option that is none": ("inspect", "{root}/a.txt --shell ls", "unrecognized arguments"),
    "a quote left open": ("inspect", "'story", "is no command line"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_requests_get_a_sentence(case, desk):
    (desk.root.parent / "elsewhere").mkdir()
    verb, words, reason = HOSTILE[case]
    for call in (desk.price, desk.run):
        with pytest.raises(AnalysisError, match=reason) as refused:
            call(verb, words.format(root=desk.root))
        assert "nobody" not in str(refused.value) and len(str(refused.value)) < 800


def test_a_price_comes_before_a_run(desk, monkeypatch):
    words = f"{desk.root / 'a.txt'} --model {desk.root / 'tiny'}"
    with pytest.raises(AnalysisError, match="Ask `price` with the same verb and words first"):
        desk.run("inspect", words)
    assert desk.price("inspect", words)["price"]["seconds"] > 0
    assert desk.run("inspect", words)["characters"] == len(SHORT)
    monkeypatch.setattr("analysis.cli.server.MOST_SECONDS", 0)
    with pytest.raises(AnalysisError, match="at most 0 s are run here"):
        desk.price("inspect", words)
    monkeypatch.setattr("analysis.cli.server.MOST_ANSWER", 10)
    with pytest.raises(AnalysisError, match="and 10 are sent"):
        desk.run("inspect", words)
    assert "--min-distance" in desk.help("pairs") and '"controls"' in desk.help("pairs")


@pytest.mark.parametrize(
    ("verb", "words", "reason"),
    [
        ("pairs", "--min-distance 64", "smallest distance is 64"),
        ("evaluate", "--window 100000 --methods sparq", "reads 2 to 64 at once"),
        ("evaluate", "--methods streaming_llm --set streaming_llm.windw=4", "'windw'"),
        ("groups", "--router k99-top7", "groups of fit-router is 99"),
        ("statistics", "--model nobody/nothing", "nobody/nothing"),
    ],
)
def test_a_price_refuses_what_a_run_would(verb, words, reason, desk, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # Of two models the last one counts.
    words = f"{desk.root / 'a.txt'} --model {desk.root / 'tiny'} {words}"
    with pytest.raises(AnalysisError, match=reason):
        desk.price(verb, words)
    with pytest.raises(AnalysisError, match="Ask `price`"):
        desk.run(verb, words)


def test_a_price_reads_nothing(desk, monkeypatch):
    monkeypatch.setattr("torch.nn.Embedding.forward", lambda *arguments: pytest.fail("a pass was begun"))
    for verb in ("statistics", "evaluate", "generate", "temperature"):
        assert desk.price(verb, f"{desk.root / 'a.txt'} --model {desk.root / 'tiny'}")["verb"] == verb


def test_without_its_package_it_names_the_command_that_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    for home, words in (
        (Path(__file__).parents[2], "pip install -r requirements-mcp.txt"),
        (tmp_path, "'focuscope[mcp]'"),
    ):
        monkeypatch.setattr(package, "HOME", home)
        with pytest.raises(AnalysisError, match=re.escape(words)):
            server(tmp_path)


@pytest.mark.slow
def test_standard_output_carries_the_protocol_alone(tmp_path):
    pytest.importorskip("mcp", reason="the optional package mcp is not installed")
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    place = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "FOCUSCOPE_STATE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "analysis", "mcp"],
        input=json.dumps(request) + "\n",
        **{"capture_output": True, "text": True, "env": place, "cwd": tmp_path, "timeout": 120},
    )
    (answer,) = map(json.loads, done.stdout.splitlines())
    assert answer["result"]["serverInfo"] == {"name": "focuscope", "version": version()} and done.returncode == 0


@pytest.mark.slow
def test_a_client_over_pipes(desk):
    mcp = pytest.importorskip("mcp", reason="the optional package mcp is not installed")
    from mcp.client.stdio import StdioServerParameters

    place = {"PYTHONPATH": os.pathsep.join(sys.path), "FOCUSCOPE_STATE": str(desk.root / "state")}
    command = [sys.executable, "-m", "analysis", "mcp"]
    wanted = StdioServerParameters(command=command[0], args=command[1:], env=place, cwd=desk.root)

    async def talk():
        async with mcp.Client(wanted) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["help", "price", "run"]
            request = {"verb": "pairs", "words": "a.txt --model tiny --min-distance 8"}
            early = await client.call_tool("run", request)
            price = await client.call_tool("price", request)
            again = await client.call_tool("run", request)
            hostile = await client.call_tool("price", {"verb": "inspect", "words": "../secret.txt"})
        return early, price, again, hostile

    early, price, again, hostile = asyncio.run(talk())
    assert early.is_error and "first." in early.content[0].text
    assert json.loads(price.content[0].text)["price"]["seconds"] > 0
    reply = json.loads(again.content[0].text)
    assert reply["protocol"]["verb"] == "pairs" and all(row["distance"] >= 8 for row in reply["pairs"])
    assert hostile.is_error and hostile.content[0].text.count("\n") == 0 and "no text file" in hostile.content[0].text
