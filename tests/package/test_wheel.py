"""The wheel holds the files of this folder as they are, under one name, and passes the tests of this folder."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INSIDE = ("analysis", "app", "focuscope", ".streamlit/config.toml", "models_cache/demo", "models_cache/demo-gpt2")
BESIDE = ("tests", "docs", "models_cache", "pyproject.toml", "README.md", "requirements-mcp.txt")  # what tests read
LAB = "study or studies or remeasure or measured or every_verb or reference"  # tests that read the lab or its documents
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

USE = """
import sys, transformers, focuscope as fs
kinds = (transformers.AutoModelForCausalLM, transformers.AutoTokenizer)
lm, tokenizer = (kind.from_pretrained(sys.argv[1]) for kind in kinds)
shown = fs.inspect(lm, tokenizer, "Hester lit the lamp. Edmund wrote to Hester about the lamp. " * 8, min_distance=16)
shown.save("page.html")
strange = [name for name in sys.modules if name.split(".")[0] in ("analysis", "app")]
print(fs.__file__, strange, len(shown._repr_html_()))
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it: the wheel's file, the environment's folder, and where its packages lie."""

    wheel: Path
    home: Path
    site: Path

    def run(self, program: str, *words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
        """A program of the environment, which knows nothing of this folder."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        command = [str(self.home / "bin" / program), *words]
        return subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True)


@pytest.fixture(scope="session")
def installed(once) -> Installed:
    """The wheel built and installed in an environment of its own. The libraries that Focuscope imports are those of the
    environment that runs the tests, seen through a .pth file, because they are gigabytes."""

    def install(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
        source = folder / "source"  # a build leaves files behind
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, source], check=True)
        for name in ("setup.py", "pyproject.toml", *INSIDE):  # as they stand now, committed or not
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, dirs_exist_ok=True)
            else:
                shutil.copyfile(ROOT / name, source / name)
        subprocess.run([*pip, "-w", folder / "wheels", source], check=True)
        venv.create(folder / "clean")
        (wheel,) = (folder / "wheels").glob("focuscope-*.whl")
        python = folder / "clean" / "bin" / "python"
        into = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index"]
        subprocess.run([*into, wheel], check=True)
        site = sysconfig.get_path("purelib", vars={"base": str(folder / "clean")})
        Path(site, "libraries.pth").write_text(sysconfig.get_path("purelib"))

    folder = once("wheel", install)
    (wheel,) = (folder / "wheels").glob("focuscope-*.whl")
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "clean")}))
    return Installed(wheel, folder / "clean", site)


def test_the_wheel_holds_the_tracked_files_as_they_are(installed):
    listed = subprocess.run(["git", "ls-files", *INSIDE], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    with zipfile.ZipFile(installed.wheel) as wheel:
        inside = {name: wheel.read(name) for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = wheel.read(next(name for name in wheel.namelist() if name.endswith("METADATA"))).decode()
    names = {name if name.startswith("focuscope/") else f"focuscope/{name}": ROOT / name for name in tracked}
    assert set(names) - set(inside) == set() and {name.split("/")[0] for name in inside} == {"focuscope"}
    assert [name for name, path in names.items() if path.suffix == ".py" and path.read_bytes() != inside[name]] == []
    wanted = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert len(needed) == len(wanted)


def test_the_command_and_the_notebook_work_without_this_folder(installed, tmp_path):
    done = installed.run("focuscope", "statistics", "story", "--first", "--json", folder=tmp_path)
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["protocol"]["model"] == "demo" and answer["rows"] and (tmp_path / ".focuscope").is_dir()
    model, inside = str(installed.site / "focuscope/models_cache/demo"), str(installed.site / "focuscope")
    # As the app imports it first: what numba then stores must not be taken for the notebook's.
    as_app = USE.replace("focuscope as fs", "analysis.notebook as fs")
    by_app = installed.run("python", "-c", as_app, model, folder=tmp_path, PYTHONPATH=inside)
    assert by_app.returncode == 0, by_app.stderr[-2000:]
    used = installed.run("python", "-c", USE, model, folder=tmp_path)
    assert used.returncode == 0, used.stderr[-2000:]
    place, strange, length = used.stdout.split()
    assert Path(place).is_relative_to(installed.site) and strange == "[]" and int(length) > 10_000
    assert "<h2>Heads</h2>" in (tmp_path / "page.html").read_text()
    assert "focuscope serve" in installed.run("focuscope", "serve", "--nothing", folder=tmp_path).stderr


def test_an_agent_is_told_prices_and_no_secrets(installed, tmp_path):
    import mcp
    from mcp.client.stdio import StdioServerParameters

    async def prices() -> list:
        place = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = str(installed.home / "bin" / "focuscope")
        server = StdioServerParameters(command=command, args=["mcp"], env=place, cwd=tmp_path)
        async with mcp.Client(server) as client:
            requests = [{"verb": "inspect", "words": text} for text in ("story", "/etc/hostname")]
            return [await client.call_tool("price", request) for request in requests]

    price, secret = asyncio.run(prices())
    assert not price.is_error and json.loads(price.content[0].text)["price"]["seconds"] > 0
    assert secret.is_error and "no text file" in secret.content[0].text


def test_the_tests_of_three_rooms_pass_with_what_is_installed(installed, tmp_path):
    """As the app and its worker run there: `analysis` is found in the package's folder, and nowhere else."""
    for name in BESIDE:
        (tmp_path / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(installed.site / "focuscope"), str(tmp_path)])
    words = ["-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-k", f"not ({LAB})"]
    rooms = [f"tests/{room}" for room in ("contract", "methods", "cli")]
    done = installed.run("python", "-m", "pytest", *words, *rooms, folder=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
