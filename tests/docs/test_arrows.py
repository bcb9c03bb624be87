"""Who may import whom, read from the source: the left side of a line below may import the right side, nothing else."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Every room may import itself and what stands behind its arrow. `analysis` is the door (analysis/__init__.py).
BOTTOM = "errors studies.registry commandline"
GROUND = f"models places costs corpus runs papers benchmarks fitted {BOTTOM}"
SEAMS = f"attention calls cache statistics kernels {GROUND}"
PARTS = f"groups routers metrics {SEAMS}"
METHODS = f"methods {PARTS}"
TOOLS = f"training timing inference probes {METHODS}"
STUDY = f"studies {TOOLS}"  # what every room of the studies may import, and in which order they stand on each other
TEXT = f"studies.text {STUDY}"
STORED = f"studies.stored {TEXT}"
PARTED = "heads groups budgets routing temperature worth"
READY = " ".join(f"studies.{name}" for name in PARTED.split()) + f" studies.ready {STORED}"
UPPER = "quality speed probes benchmarks training grids"
ROOMS = " ".join(f"studies.{name}" for name in [*UPPER.split(), "start"]) + f" {READY}"
SHARED = f"app jobs runs papers benchmarks corpus limits places {BOTTOM}"  # what every page may use
PAGES = {  # rooms of the pages, and those of other pages that they show a part of
    "benchmarks": "",
    "budgets": "app.quality app.training app.worth",
    "groups": "app.training",
    "heads": "",
    "pairs": "",
    "papers": "",
    "probes": "app.quality",
    "quality": "app.speed",
    "routing": "app.heads",
    "runs": "",
    "speed": "",
    "temperature": "app.heads",
    "training": "",
    "worth": "",
}
ARROWS = {
    # the app: no torch, no transformers
    "app": SHARED,
    **{f"app.{page}": f"{SHARED} {others}" for page, others in PAGES.items()},
    "app.views": f"{SHARED} " + " ".join(f"app.{page}" for page in PAGES),
    # the analysis: no streamlit
    "analysis": "",
    "__main__": f"cli cluster {ROOMS} jobs.worker",
    "cli": f"studies benchmarks {BOTTOM}",
    "cluster": f"jobs jobs.worker runs corpus studies studies.ready {BOTTOM}",
    "jobs.worker": f"{ROOMS} jobs limits",
    "jobs": f"runs corpus limits {BOTTOM}",
    "limits": BOTTOM,
    "studies": STUDY,
    "studies.text": TEXT,
    "studies.stored": STORED,
    **{f"studies.{name}": STORED for name in PARTED.split()},
    "studies.ready": READY,
    **{f"studies.{name}": f"{READY} studies.speed" for name in UPPER.split()},
    "studies.start": ROOMS,
    "training": TOOLS,
    "timing": TOOLS,
    "inference": TOOLS,
    "probes": METHODS,
    "methods": METHODS,
    "groups": PARTS,
    "routers": PARTS,
    "metrics": PARTS,
    "attention": SEAMS,
    "cache": SEAMS,
    "calls": SEAMS,
    "statistics": SEAMS,
    "kernels": SEAMS,
    "models": f"places refusals corpus {BOTTOM}",
    "places": f"refusals {BOTTOM}",
    "costs": BOTTOM,
    "refusals": BOTTOM,
    "corpus": BOTTOM,
    "runs": f"corpus {BOTTOM}",
    "papers": BOTTOM,
    "benchmarks": BOTTOM,
    "fitted": BOTTOM,
    "studies.registry": "",
    "commandline": "",
    "errors": "",
}
# Libraries that only some rooms may import, also inside a function ("studies.benchmarks" is one module of a room).
ONLY_IN = {
    "streamlit": " ".join(name for name in ARROWS if name.startswith("app")),
    "plotly": "",
    "transformers": "models attention cache training studies.benchmarks",
    "huggingface_hub": "models places refusals",
    "lm_eval": "studies.benchmarks.tasks",
    "datasets": "studies.benchmarks.tasks",
    "torch": f"{ROOMS} __main__ jobs.worker",
}
# Importing these must not load torch, transformers or streamlit: the app starts with them.
LIGHT = ["analysis", "analysis.errors", "analysis.corpus", "analysis.runs", "analysis.jobs", "analysis.__main__"]
LIGHT += ["analysis.studies.worth.worth"]


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the analysis and the app; the sample texts are no code."""
    files = [*ROOT.glob("analysis/**/*.py"), *ROOT.glob("app/**/*.py")]
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files if "samples" not in path.parts
    }
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def room(module: str) -> str:
    """The room of a dotted name: `analysis.groups.sinkhorn` -> `groups`, `app.budgets.cap` -> `app.budgets`."""
    parts = module.split(".")
    if parts[0] == "app":
        inner = (ROOT / "app" / "".join(parts[1:2])).is_dir() and parts[1:2] != []
        return ".".join(parts[:2]) if inner and parts[1] not in ("ui", "selection", "serve") else "app"
    if parts[1:] == ["studies", "registry"]:
        return "studies.registry"
    if parts[1:2] == ["studies"] and len(parts) > 3:
        return ".".join(parts[1:3])
    if parts[1:3] == ["jobs", "worker"]:
        return "jobs.worker"
    return parts[1] if len(parts) > 1 else "analysis"


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of everything a file imports, wherever the statement stands."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.relative_to(ROOT)}:{node.lineno}: write the full name of what is imported"
            inner = (f"{node.module}.{alias.name}" for alias in node.names)
            known = [name for name in inner if name in modules()]
            found += [(node.lineno, name) for name in known or [node.module]]
    return found


def test_every_room_has_a_place_in_the_table():
    strange = sorted({room(name) for name in modules()} - set(ARROWS))
    assert not strange, f"rooms without a line in ARROWS: {strange}"


@pytest.mark.parametrize("module", sorted(modules()))
def test_arrows_hold(module):
    path, here = modules()[module], room(module)
    for line, name in imports(path):
        if name.split(".")[0] not in ("analysis", "app"):
            continue
        there = room(name)
        assert there == here or there in ARROWS.get(here, "").split(), (
            f"{path.relative_to(ROOT)}:{line}: {here} may not import {there} ({name})"
        )


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_stay_in_their_rooms(library):
    allowed = ONLY_IN[library].split()
    for module, path in modules().items():
        for line, name in imports(path):
            if name.split(".")[0] == library:
                assert room(module) in allowed or module.removeprefix("analysis.") in allowed, (
                    f"{path.relative_to(ROOT)}:{line}: {library} may be imported in {', '.join(allowed)} only"
                )


def test_a_method_never_imports_another_method():
    for module, path in modules().items():
        if module.startswith("analysis.methods."):
            others = {name for _, name in imports(path) if name.startswith("analysis.methods.")}
            assert others <= {"analysis.methods.base"}, f"{module} imports {sorted(others)}"


def test_rooms_do_not_import_in_circles():
    below = {name: set() for name in ARROWS}
    for module, path in modules().items():
        for _, name in imports(path):
            if name.split(".")[0] in ("analysis", "app") and room(name) != room(module):
                below[room(module)].add(room(name))
    while free := [name for name, others in below.items() if not others & set(below)]:
        for name in free:
            del below[name]
    assert not below, f"these rooms import each other in a circle: { {name: sorted(o) for name, o in below.items()} }"


@pytest.mark.parametrize("module", LIGHT)
def test_light_modules_load_nothing_heavy(module):
    """In a process of its own: what this one has loaded would hide the mistake."""
    script = f"import sys, {module}; print(*(n for n in ('torch', 'transformers', 'streamlit') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], f"`import {module}` loads {done.stdout.strip()}"
