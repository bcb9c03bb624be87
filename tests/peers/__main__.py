"""`python -m tests.peers [PEER ...]`: asks peers anew, all unless named, and stores what came of it beside this file.

A peer's environment holds what its PEER.txt names and sees the project's packages for the rest. There runs
`in_PEER.py FOLDER`, which reads what `of_PEER.ask` wrote and writes what `of_PEER.compare` holds against the project.
"""

import importlib
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from datetime import date
from importlib.metadata import version
from pathlib import Path

from analysis.files import write_json

HERE = Path(__file__).parent
PEERS = ("kvpress", "modelopt", "transformer_lens", "lm_eval")
OURS = ("torch", "transformers")
VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


def environment(peer: str, home: Path) -> Path:
    """The Python of a new environment in `home` with what PEER.txt names."""
    venv.create(home, with_pip=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(home)}))
    (packages / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = home / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / f"{peer}.txt"], check=True)
    return python


def answer_of(peer: str, home: Path) -> dict:
    """What a peer answered, held against the project."""
    began, of = time.monotonic(), importlib.import_module(f"tests.peers.of_{peer}")
    python, folder = environment(peer, home / "environment"), home / "asked"
    folder.mkdir()
    of.ask(folder)
    subprocess.run([python, "-I", HERE / f"in_{peer}.py", folder], check=True)
    names = [line.split("==")[0] for line in (HERE / f"{peer}.txt").read_text().split()]
    versions = subprocess.run([python, "-c", VERSIONS, *names, *OURS], check=True, capture_output=True, text=True)
    return {
        "date": date.today().isoformat(),
        "command": f"python -m tests.peers {peer}",
        "seconds": round(time.monotonic() - began),
        "versions": json.loads(versions.stdout),
        "project": {name: version(name) for name in OURS},
        "rows": of.compare(folder),
    }


def main(peers: list[str]) -> None:
    """Ask each, and store it."""
    for peer in peers or PEERS:
        with tempfile.TemporaryDirectory() as home:
            write_json(HERE / f"{peer}.json", answer_of(peer, Path(home)))
        print(f"{peer}: stored", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
