"""A bundle made on one checkout opens on a fresh one: the same numbers and the same page, with no worker to ask."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = "Old Marguerite kept the ferry. Nobody asked why the ferry waited for Marguerite when the river was low. " * 12
PAGE = """
import json, sys
from pathlib import Path
import analysis
from streamlit.testing.v1 import AppTest
from app import cached

class Nobody:
    def request(self, verb, args, timeout=60):
        raise AssertionError(f"{verb} with {args} was not in the bundle")

    def status(self):
        return {"state": "cold", "pid": None, "memory": 0}

    def recent(self, session=None, limit=20):
        return []

    def active(self, session=None):
        return []

    def compute(self, verb, args, timeout=60, tell=None):
        return self.request(verb, args)

text, worker = sys.argv[1:]
store = cached.store()
key = store.put_text(Path(text).read_text(), "ferry.txt") if worker == "worker" else text
if worker != "worker":
    cached.jobs = Nobody
app = AppTest.from_file("app/streamlit_app.py", default_timeout=280)
app.query_params["text"] = key
app.run()
print(json.dumps({
    "from": str(Path(analysis.__file__).parents[1]),
    "text": key,
    "failed": [found.message for found in app.exception] + [found.value for found in app.error],
    "title": app.title[0].value,
    "said": [found.value for found in app.main.html],
    "drawn": [found.proto.spec for found in app.get("plotly_chart")],
    "runs": {row.id: store.open(row.id).numbers for row in store.search(examples=False)},
}))
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A second checkout: the files that git knows, or would take up, and nothing that was ever computed here."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this folder is no clone")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / "second" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, tmp_path / "second" / name)
    return tmp_path / "second"


def said(folder: Path, state: Path | None, *words: str) -> str:
    """What a Python of one checkout prints; without `state` it keeps its results where it always does."""
    environment = {name: value for name, value in os.environ.items() if name not in ("FOCUSCOPE_STATE", "PYTHONPATH")}
    environment |= {"FOCUSCOPE_STATE": str(state)} if state else {}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=290
    )
    assert done.returncode == 0, done.stderr[-800:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_bundle_of_this_checkout_opens_on_a_fresh_one(checkout, tmp_path):
    (tmp_path / "ferry.txt").write_text(TEXT)
    here = json.loads(said(ROOT, tmp_path / "state", "-c", PAGE, str(tmp_path / "ferry.txt"), "worker"))
    assert not here["failed"] and here["drawn"] and len(here["runs"]) >= 2
    out = ["bundle-out", *here["runs"], "-o", str(tmp_path / "out.zip")]
    said(ROOT, tmp_path / "state", "-m", "analysis", *out)
    assert not (checkout / "models_cache" / "state").exists()
    arrived = json.loads(said(checkout, None, "-m", "analysis", "bundle-in", str(tmp_path / "out.zip"), "--json"))
    assert sorted(arrived["new"]) == sorted(here["runs"]) and arrived["texts"] == [here["text"]]
    there = json.loads(said(checkout, None, "-c", PAGE, here["text"], "nobody"))
    assert there.pop("from") == str(checkout) and here.pop("from") == str(ROOT)
    assert there == here
