"""The package: the wheel claims no name but `focuscope`, and works without this folder."""

import ast
import asyncio
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import setup
from tests.conftest import missing

ROOT = Path(__file__).resolve().parents[2]
OURS = ("analysis", "app")


@pytest.mark.parametrize(
    ("checkout", "wheel"),
    [
        ("from analysis.errors import BadText", "from focuscope.analysis.errors import BadText"),
        ("    from app import cached", "    from focuscope.app import cached"),
        ("import analysis", "from focuscope import analysis"),
        ('X = """import analysis\nx = analysis.x"""', 'X = """from focuscope import analysis\nx = analysis.x"""'),
        ('STUDIES = "analysis.studies:STUDIES"', 'STUDIES = "focuscope.analysis.studies:STUDIES"'),
        ('f"analysis.{_ROOMS[name]}"', 'f"focuscope.analysis.{_ROOMS[name]}"'),
        ("runs,analysis.runs.commands:runs,,", "runs,focuscope.analysis.runs.commands:runs,,"),
        ('PROGRAM = "python -m analysis"', 'PROGRAM = "python -m focuscope"'),
        ("from analyser import x  # the analysis. of", "from analyser import x  # the analysis. of"),
        ('"The analysis.jobs are"', '"The analysis.jobs are"'),
    ],
)
def test_a_line_as_it_stands_in_the_wheel(checkout, wheel):
    assert setup.rewritten(checkout) == wheel


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder that holds the package as the wheel does, without the bundled models."""
    target = tmp_path_factory.mktemp("site") / "focuscope"
    shutil.copytree(ROOT / "focuscope", target, ignore=setup.LEFT_OUT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "INSIDE", ["analysis", "app"])
        setup.build(target)
    return target.parent


def test_no_module_of_the_wheel_imports_by_a_name_of_the_checkout(built):
    files = list(built.rglob("*.py"))
    assert len(files) > 300
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            for name in names:
                assert not (name in OURS and isinstance(node, (ast.Import, ast.ImportFrom))), (path, name)
                assert not name.startswith(tuple(f"{one}." for one in OURS)), (path, name)


def run(python: object, *words: str, folder: Path, **more: str) -> str:
    """What a command prints that knows nothing of this folder."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(python), *words], cwd=folder, env=environment | more, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_verbs_run_from_the_package(built, tmp_path):
    told = json.loads(
        run(sys.executable, "-m", "focuscope", "worth", "--plan", "--json", folder=tmp_path, PYTHONPATH=str(built))
    )
    assert told["verb"] == "worth" and (tmp_path / ".focuscope").is_dir()


USE = """
import sys, transformers, focuscope as fs
name = fs.__file__.replace("__init__.py", "models_cache/demo")
lm, tokenizer = (kind.from_pretrained(name) for kind in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer))
shown = fs.inspect(lm, tokenizer, "Hester lit the lamp. Edmund wrote to Hester about the lamp. " * 8, min_distance=16)
shown.save("page.html")
strange = [name for name in sys.modules if name.split(".")[0] in ("analysis", "app")]
print(fs.__file__, strange, len(shown._repr_html_()))
"""


async def served(command: Path, folder: Path) -> tuple:
    """What an agent is told by `focuscope mcp`: the price of a verb on a bundled text, and of a file elsewhere."""
    import mcp
    from mcp.client.stdio import StdioServerParameters

    place = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    async with mcp.Client(StdioServerParameters(command=str(command), args=["mcp"], env=place, cwd=folder)) as client:
        asked = [{"verb": "inspect", "words": text} for text in ("story", "/etc/hostname")]
        return tuple([await client.call_tool("price", one) for one in asked])


@pytest.mark.slow
@pytest.mark.timeout(900)  # two minutes where nothing else runs
def test_the_wheel_is_built_installed_and_used_in_a_clean_environment(tmp_path):
    """Built by pip with what its build needs, from the index; the libraries that Focuscope imports are those of the
    environment that runs the tests, seen through a .pth file, because they are gigabytes."""
    out = tmp_path / "wheels"
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "-q", "-w", str(out), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode and ("No matching distribution" in done.stderr or "ConnectionError" in done.stderr):
        missing("no package index can be reached, which building the wheel needs")
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = out.glob("focuscope-*.whl")
    with zipfile.ZipFile(wheel) as held:
        top = {name.split("/")[0] for name in held.namelist()}
        metadata = held.read(next(n for n in held.namelist() if n.endswith("METADATA"))).decode()
    assert top == {"focuscope", next(name for name in top if name.endswith(".dist-info"))}
    wanted = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    needed = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ")]
    assert len([line for line in needed if "extra ==" not in line]) == len(wanted)
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel], check=True)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip())
    ours = run(sys.executable, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip()
    (site / "libraries.pth").write_text(ours)
    command = tmp_path / "clean" / "bin" / "focuscope"
    told = json.loads(run(command, "statistics", "story", "--first", "--json", folder=tmp_path).splitlines()[-1])
    assert told["protocol"]["model"] == "demo" and told["rows"]
    place, strange, length = run(python, "-c", USE, folder=tmp_path).split()
    assert Path(place).is_relative_to(tmp_path) and strange == "[]" and int(length) > 10_000
    assert "<h2>Heads</h2>" in (tmp_path / "page.html").read_text()
    price, secret = asyncio.run(served(command, tmp_path))
    assert not price.is_error and json.loads(price.content[0].text)["price"]["seconds"] > 0
    assert secret.is_error and "no text file" in secret.content[0].text
    assert "focuscope serve" in subprocess.run([command, "serve", "--nothing"], capture_output=True, text=True).stderr
