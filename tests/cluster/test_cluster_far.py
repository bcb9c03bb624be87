"""A real cluster of one machine, asked through `ray://`: the code and the model travel there, the run comes back."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.stress.server import free_port

ROOT = Path(__file__).resolve().parents[2]
TEXT = "The cat that the dog saw ran home, and the dog saw that the cat ran. " * 20


@pytest.fixture
def head():
    """Address and environment of a cluster that nobody else can use; it ends with the test."""
    pytest.importorskip("ray", reason="Ray is not installed (requirements-ray.txt)")
    program = shutil.which("ray", path=Path(sys.executable).parent)
    place = tempfile.mkdtemp(prefix="ray-")  # short: it holds sockets
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_agent_register_timeout_ms": "300000"}
    client, words = free_port(), ["--include-dashboard=false", "--num-cpus=2", f"--temp-dir={place}"]
    words += [f"--port={free_port()}", f"--ray-client-server-port={client}", "--node-ip-address=127.0.0.1"]
    started = subprocess.Popen(
        [program, "start", "--head", "--block", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output = []
        for line in started.stdout:
            output.append(line)
            if "Ray runtime started" in line:
                break
        else:
            pytest.fail("Ray did not start: " + "".join(output)[-800:])
        yield f"ray://127.0.0.1:{client}", environment
    finally:
        started.terminate()
        try:
            started.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()
        started.stdout.close()
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_study_goes_to_a_cluster_and_its_parts_come_back(head, tmp_path):
    address, environment = head
    (tmp_path / "words.txt").write_text(TEXT)
    words = json.dumps({"text": str(tmp_path / "words.txt"), "methods": [{"name": "dense"}, {"name": "streaming_llm"}]})
    command = [sys.executable, "-m", "analysis", "spread", "evaluate", "--over", "seed=0,1", "--with", words, "--json"]

    def ask(state, engine):
        place = {**environment, "FOCUSCOPE_STATE": str(tmp_path / state)}
        line = [*command, "--engine", engine]
        done = subprocess.run(line, cwd=ROOT, env=place, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-800:]
        return json.loads(done.stdout)

    far, near = ask("far", address), ask("near", "local")
    assert [part["seed"] for part in far["parts"]] == [0, 1] and far["protocol"]["spread"] == "seed"
    assert sorted(part["run"] for part in far["parts"]) == sorted(
        path.name for path in (tmp_path / "far/runs").iterdir()
    )
    for row, near_row in zip(far["rows"], near["rows"], strict=True):
        assert (row["method"], row["seed"]) == (near_row["method"], near_row["seed"])
        assert row["perplexity"] == pytest.approx(near_row["perplexity"], rel=1e-6)
