"""Who may import whom, read from the source: the left side of a line below may import the right side, nothing else."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Every room may import itself and what stands behind its arrow. `analysis` is the door (analysis/__init__.py).
BOTTOM = "answer claims commands declaration files package errors sheet"
BOTTOM += " studies.registry"
LOADED = "available models places"
GROUND = f"documents costs corpus runs papers benchmarks fitted {LOADED} {BOTTOM}"
SEAMS = f"seam statistics kernels {GROUND}"
PARTS = f"groups routers indexers metrics {SEAMS}"
METHODS = f"methods {PARTS}"
TOOLS = f"take training timing probes {METHODS}"
STUDY = f"studies {TOOLS}"  # what every room of the studies may import, and their order
TEXT = f"studies.text {STUDY}"
STORED = f"studies.stored {TEXT}"
PARTED = "heads groups budgets routing temperature worth"
READY = " ".join(f"studies.{name}" for name in PARTED.split()) + f" studies.ready {STORED}"
UPPER = "quality speed generate probes benchmarks training grids take"
ROOMS = " ".join(f"studies.{name}" for name in [*UPPER.split(), "start"]) + f" {READY}"
# What the app may know of the analysis.
DATA = f"documents available jobs runs papers benchmarks corpus limits places {BOTTOM}"
SELECTION = "app.selection"
KIT = f"app.ui app.cached {SELECTION} {DATA}"
PAGE = f"app.topbar {KIT}"  # what every page may use
PAGES = {  # rooms of the pages, and those of other pages that they show a part of
    "benchmarks": "app.quality",
    "budgets": "app.quality app.worth",
    "generate": "app.quality app.speed",
    "groups": "app.start app.training",
    "heads": "",
    "pairs": "app.start",
    "papers": "",
    "probes": "app.benchmarks app.quality",
    "quality": "app.speed",
    "routing": "app.heads",
    "runs": "",
    "speed": "",
    "start": "",
    "temperature": "app.heads",
    "tour": "app.budgets",
    "training": "",
    "worth": "app.speed",
}
VIEWS = " ".join(f"app.{page}" for page in PAGES)
ARROWS = {
    # the app: no torch, no transformers
    "app": "",
    SELECTION: f"papers {BOTTOM}",
    "app.cached": DATA,
    "app.ui": KIT,
    "app.serve": KIT,
    "app.topbar": f"app.model_box app.serve {KIT}",
    "app.model_box": KIT,
    **{f"app.{page}": f"{PAGE} {views}" for page, views in PAGES.items()},
    "app.views": f"{PAGE} {VIEWS}",
    "app.streamlit_app": f"app.serve app.tour app.views app.worth {PAGE}",
    # the lab beside the product: the right side of no other arrow
    "lab": f"jobs cli shapes {ROOMS}",
    # the analysis: no streamlit
    "analysis": "moved",
    "moved": "",
    "__main__": f"cli {BOTTOM}",
    "cli": f"{ROOMS} jobs",
    "notebook": f"{ROOMS} cli sound",
    "cluster": f"jobs jobs.worker runs corpus studies studies.ready {BOTTOM}",
    "jobs.worker": f"{ROOMS} jobs limits",
    "jobs": f"runs corpus limits studies {BOTTOM}",  # it names the studies for its worker, in a string
    "limits": f"places {BOTTOM}",
    "studies": STUDY,
    "studies.text": TEXT,
    "studies.stored": STORED,
    **{f"studies.{name}": STORED for name in PARTED.split()},
    "studies.ready": READY,
    **{f"studies.{name}": f"{READY} studies.speed" for name in UPPER.split()},
    # what was trained is asked benchmarks
    "studies.training": f"{READY} studies.speed studies.benchmarks",
    "studies.speed": f"{READY} studies.speed shapes",
    "studies.start": f"pages {ROOMS}",
    # files that compute in a browser, without torch
    "pages": f"places corpus runs {BOTTOM}",
    "training": TOOLS,
    "timing": TOOLS,
    "probes": METHODS,
    "take": METHODS,
    "methods": METHODS,
    "groups": PARTS,
    "routers": PARTS,
    "indexers": PARTS,
    "metrics": PARTS,
    "seam": SEAMS,
    "statistics": SEAMS,
    "kernels": SEAMS,
    "answer": "",
    "shapes": f"models seam places costs runs {BOTTOM}",
    "available": f"places costs {BOTTOM}",
    "models": f"seam places corpus costs {BOTTOM}",
    "places": BOTTOM,
    "costs": BOTTOM,
    "corpus": f"documents {BOTTOM}",
    "documents": BOTTOM,
    "runs": f"limits places corpus documents {BOTTOM}",
    "papers": BOTTOM,
    "benchmarks": BOTTOM,
    "fitted": BOTTOM,
    "studies.registry": "",
    "commands": "declaration errors",
    "declaration": "errors package",
    "claims": "",
    "files": "",
    "sheet": "",
    "errors": "",
    "package": "",
}
OURS = ("analysis", "app", "lab")
IMPORTERS = ("import_module", "__import__")
# Their strings name where a command is computed; who runs it imports it.
DECLARED = {ROOT / "analysis" / "studies" / "registry.py", *(ROOT / "analysis" / "commands").glob("*.py")}
# Libraries that only some rooms may import, also inside a function ("studies.benchmarks" is one module of a room).
ONLY_IN = {
    "streamlit": " ".join(name for name in ARROWS if name.startswith("app")),
    "plotly": "app.ui.figure",
    "transformers": "models seam shapes training studies.benchmarks take lab",
    "huggingface_hub": "models places",
    "lm_eval": "studies.benchmarks.tasks notebook.evaluation",
    "mcp": "cli.server",
    "datasets": "studies.benchmarks.tasks",
    "torch": f"{ROOMS} shapes models __main__ cli.server jobs.worker lab",
}
# Importing these must not load what is heavy, the first ones no tables either: the app starts with them.
HEAVY, TABLES = "torch transformers streamlit", "pandas pyarrow arro3 huggingface_hub"
LIGHT = dict.fromkeys(["analysis.errors", "analysis.runs", "analysis.jobs", "analysis.commands"], f"{HEAVY} {TABLES}")
LIGHT |= dict.fromkeys(["focuscope", "analysis.corpus", "analysis.__main__", "analysis.studies.worth.worth"], HEAVY)
LIGHT |= dict.fromkeys(["analysis.claims", "analysis.papers.beside", "analysis.runs.stored"], HEAVY)


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, of every module of the analysis, the app and the lab."""
    files = [path for folder in OURS for path in ROOT.glob(f"{folder}/**/*.py")]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in files}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def room(module: str) -> str:
    """The room of a dotted name: `analysis.groups.sinkhorn` -> `groups`, `analysis.studies.heads.head` ->
    `studies.heads`, `app.budgets.cap` -> `app.budgets`. A module at the root of the app is a room of its own; what a
    room of the app declares for the URL lies below all of them."""
    parts = module.split(".")
    if parts[0] == "lab":
        return "lab"
    if parts[0] == "app":
        return ".".join(parts[:2])
    if parts[1:] == ["studies", "registry"]:
        return "studies.registry"
    if parts[1:2] == ["studies"] and len(parts) > 3:
        return ".".join(parts[1:3])
    if parts[1:3] == ["jobs", "worker"]:
        return "jobs.worker"
    return parts[1] if len(parts) > 1 else "analysis"


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of everything a file imports, wherever it does so: in statements at any depth, by
    `import_module` of a written name, and as a string "module:attribute" that somebody else imports."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*package, *filter(None, [node.module])])
            inner = [f"{module}.{alias.name}" for alias in node.names]
            modules_of = [name for name in inner if name in modules()]
            names += [(node.lineno, name) for name in modules_of]
            names += [(node.lineno, module)] if len(modules_of) < len(inner) else []
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in IMPORTERS:
            argument = node.args[0] if node.args else None
            names += [(node.lineno, argument.value)] if isinstance(argument, ast.Constant) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path not in DECLARED:
            module, colon, attribute = node.value.partition(":")
            names += [(node.lineno, module)] if colon and attribute.isidentifier() and module in modules() else []
    return names


@cache
def below() -> dict[str, frozenset[str]]:
    """module -> the modules of the analysis and the app that it imports, deferred and string imports included."""
    return {
        module: frozenset(name for _, name in imports(path) if name in modules()) - {module}
        for module, path in modules().items()
    }


def circle(arrows: Mapping[str, Iterable[str]]) -> list[str]:
    """Names that reach each other; none where there is no circle."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def test_arrows_hold():
    strange = sorted({room(name) for name in modules()} - set(ARROWS))
    assert not strange, f"rooms without a line in ARROWS: {strange}"
    wrong = []
    for module, path in modules().items():
        own_room = room(module)
        for line, name in imports(path):
            if name.split(".")[0] in OURS and room(name) not in (own_room, *ARROWS.get(own_room, "").split()):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {own_room} may not import {room(name)} ({name})")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_stay_in_their_rooms(library):
    allowed = ONLY_IN[library].split()
    for module, path in modules().items():
        for line, name in imports(path):
            if name.split(".")[0] == library:
                assert room(module) in allowed or module.removeprefix("analysis.") in allowed, (
                    f"{path.relative_to(ROOT)}:{line}: {library} may be imported in {', '.join(allowed)} only"
                )


SHARED = {f"analysis.methods.{name}" for name in ("base", "evicting", "while_decoding")}  # what methods are made of
# Ada-KV and PyramidKV take the scores of other methods
COMPOSED = {"budgets": "eviction expected_attention kvzip triattention"}


def test_a_method_never_imports_another_method_but_those_that_are_made_of_others():
    for module, path in modules().items():
        if module.startswith("analysis.methods."):
            methods = {name for _, name in imports(path) if name.startswith("analysis.methods.")}
            parts = COMPOSED.get(module.rpartition(".")[2], "").split()
            assert methods <= SHARED | {f"analysis.methods.{name}" for name in parts}, (
                f"{module} imports {sorted(methods)}"
            )


def test_private_names_of_transformers_stand_in_the_seam_alone():
    """Attributes of its models and configurations that begin with an underscore, and imports from its submodules."""
    import torch
    import transformers

    classes = transformers.PreTrainedModel, transformers.PreTrainedConfig, transformers.AutoModelForCausalLM
    private = {name for kind in classes for name in dir(kind) if name.startswith("_") and not name.startswith("__")}
    private |= {"_attn_implementation", "_name_or_path"}  # made by the constructor of a configuration
    private -= set(dir(torch.nn.Module))
    uses = []
    for module, path in modules().items():
        if room(module) in ("seam", "lab") or module == "analysis.take.attach":
            continue
        uses += [f"{module}:{line} imports {name}" for line, name in imports(path) if name.startswith("transformers.")]
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        used = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in private - defined]
        uses += [f"{module}:{node.lineno} {node.attr}" for node in used]
    assert not uses, "\n".join(uses)


def test_neither_modules_nor_rooms_import_each_other_in_a_circle():
    """A circle stays one when it is hidden in a function or behind a string."""
    rooms = {name: set() for name in ARROWS}
    for module, names in below().items():
        rooms[room(module)] |= {room(name) for name in names} - {room(module)}
    assert circle(below()) == circle(rooms) == []


def test_light_modules_load_nothing_heavy():
    """One after the other in another process: what this one has loaded would hide the mistake."""
    script = "import importlib, sys\nfor line in sys.argv[1:]:\n    name, *heavy = line.split()\n"
    script += "    importlib.import_module(name)\n    print(name, *(set(heavy) & set(sys.modules)))"
    lines = [f"{name} {heavy}" for name, heavy in LIGHT.items()]
    done = subprocess.run([sys.executable, "-c", script, *lines], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == list(LIGHT), "the first line with more than a name: what this module loads"
