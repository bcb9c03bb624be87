"""The scripts of pages run in node, to be held against Python."""

import json
import shutil
import subprocess
from typing import Any

import pytest

NEEDS_NODE = pytest.mark.skipif(shutil.which("node") is None, reason="the walk in Chromium holds the same numbers")
# What stands before every program: `sent`, what Python has sent.
SENT = """
const sent = JSON.parse(await new Promise((read) => { let all = ""; process.stdin.on("data", (part) => { all += part })
  process.stdin.on("end", () => read(all)) }))
"""


def by_node(program: str, sent: Any) -> Any:
    """What a program prints as JSON that finds `sent` under this name."""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SENT + program],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)
