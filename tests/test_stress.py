"""The parts of `stress` in small: faults with quick studies, a few readers, a few hostile inputs."""

import asyncio
import json
import random
import shutil
import subprocess

import pytest

from analysis.errors import BadSetting
from analysis.stress import faults, pages, stress, validators
from analysis.stress.scene import Scene
from analysis.stress.session import Session

FAKES = "tests.fake_studies:STUDIES"


def scene(folder):
    """Quick studies in the place of real ones: the long one waits in its middle until it is resumed."""
    return Scene(
        folder,
        FAKES,
        long=("count", {"steps": 30, "wait_at": 20}),
        quick=("echo", {"value": 1}),
        other=("echo", {"value": 2}),
        greedy=("greedy", {}),
        waits=lambda status: status.stage == "holding",
    )


def own_disk():
    """Whether this machine lets us make a small file system of our own."""
    if not shutil.which("unshare"):
        return False
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
    return subprocess.run(words, capture_output=True).returncode == 0


@pytest.mark.parametrize("name", [name for name in faults.FAULTS if "model" not in name])
def test_nothing_is_lost_and_the_reader_is_told(name, tmp_path):
    if name == "full disk" and not own_disk():
        pytest.skip("this machine lets nobody mount a small file system")
    (row,) = faults.broken(lambda _: scene(tmp_path), [name])
    assert row.held == 1, row.said


def test_no_hostile_input_gets_past_the_validators(tmp_path):
    rows = validators.tried(20 * len(validators.JUDGES), tmp_path, seed=7)
    assert len(rows) == len(validators.JUDGES) + 1 and all(row.held == row.tried for row in rows), rows


@pytest.mark.parametrize("way", pages.WAYS)
def test_no_hostile_input_breaks_a_page(client, way):
    dice = random.Random(11)
    for _ in range(2):
        pages.sound(pages.WAYS[way](dice))


def test_a_reader_without_a_browser_speaks_as_a_page_does(app_server):
    async def reads():
        async with Session(app_server.removeprefix("http://")) as reader:
            await reader.open()
            assert {"", "token-groups", "kv-budgets"} <= set(reader.pages) and "text=" in reader.query
            await reader.visit("token-groups")
            layers = reader.options()["layer_pick"]
            await reader.choose("layer_pick", layers[-1])
            assert f"layer={layers[-1]}" in reader.query and reader.failures == [] and reader.received > 100_000

    asyncio.run(reads())


def test_the_table_says_what_held_and_nonsense_is_refused(tmp_path):
    made = stress(["validators"], validators=30, output=str(tmp_path / "table.json"))
    stored = json.loads((tmp_path / "table.json").read_text())
    assert stored["rows"] == made.numbers["rows"] and stored["sentence"] == f"All {len(stored['rows'])} cases hold."
    assert (tmp_path / "table.md").read_text().count("\n") == len(stored["rows"]) + 2
    for wrong in ({"parts": ["nothing"]}, {"sessions": 0}, {"every": 0}, {"chromium": 10**9}):
        with pytest.raises(BadSetting):
            stress(**wrong)


@pytest.mark.slow
@pytest.mark.browser
def test_load_faults_and_a_browser_in_small():
    made = stress(["load", "faults", "chromium"], sessions=5, seconds=20, every=4, chromium=12)
    assert made.numbers["sentence"].startswith("All"), made.numbers["sentence"]
