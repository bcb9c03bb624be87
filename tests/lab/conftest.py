"""Every study of the lab on tiny models: each is run once for all processes of a session, and its file is shared."""

import json
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from analysis.corpus import sample_texts
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.places import CACHE
from analysis.studies import NAMED
from analysis.studies.context import Context
from analysis.studies.stored.quick import check
from analysis.training.pretrain import build_model
from lab.far.recipe import AFTER, Asked, FarRecipe
from tests.lab import cases
from tests.lab.cases import CASES
from tests.made.calibrated import text
from tests.made.models import save_models
from tests.made.studied import studied_home

FAR = FarRecipe(
    layers=2, width=32, heads=2, kv_heads=1, intermediate=48, context=256, tokens_per_step=8192, tokens=65_536,
    decay=8192, warm_up=2, marks=((None, 256, 8192, 0.25, 0.02, 1.0, 1.0),), heads_asked=(Asked(1, 0, AFTER),),
)  # fmt: skip


def lab_home(home: Path) -> None:
    """What `studied_home` makes; a router trained for two groups a token; models that read 512 tokens, and one that
    `lab.far.run` trained; folders of three domains, of two corpora and of five texts."""
    studied_home(home)
    tiny = load_model(str(home / "tiny"))
    router = FocusRouter(tiny.num_layers, tiny.width, groups=4, top=2, window=4, n_sink=1, seed=5)
    about = {"model": tiny.name, "revision": tiny.revision, "corpus": "corpus", "kind": "trained"}
    for kind in ("", "random-"):
        router.save(home / "state" / "focus" / f"{kind}k4-top2.safetensors", **about)
    save_models(home, long=512)
    build_model(FAR, 4096).save_pretrained(home / "far")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(CACHE / "demo" / name, home / "far")
    (home / "far" / "pretrain.json").write_text(json.dumps({"recipe": asdict(FAR)}))
    texts = [sample for _, sample in sample_texts().values()]
    for folder, ending in (("books", "txt"), ("python", "py")):
        for number, side in enumerate(("train", "valid")):
            write(home / "three" / folder / side / f"a.{ending}", texts[number][:3000])
            write(home / "two" / folder / side / f"{number}.{ending}", text(10 * (ending == "py") + number))
    for side in ("train", "valid"):
        titles = [f" = Title {side} {index} = \n\n the cat sat on the mat . \n" * 9 for index in range(9)]
        write(home / "three" / "wikitext2" / f"wiki.{side}.tokens", "".join(titles))
    for seed in range(5):
        write(home / "five" / f"{seed}.txt", text(seed))


def write(path: Path, content: str) -> None:
    """A file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def run(name: str, home: Path, work: Path, folder: Path) -> None:
    """Runs a study into `folder` and checks there what it has stored, as `--quick` does."""
    case, path = CASES[name], folder / "study.json"
    cases.ask(name, home, path, work=str(work))
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    context = Context(state=home / "state", browser=False)
    with cases.patched(name):
        setting = NAMED[name].setting(stored, context, str(home / case.corpus) if case.corpus else "")
        (folder / "check.json").write_text(json.dumps(check(setting, stored).numbers["rows"]))


@pytest.fixture(scope="session")
def home(once) -> Path:
    """The folder of models, corpora and routers."""
    return once("lab-home", lab_home)


@pytest.fixture(scope="session")
def folder_of(once, home, tmp_path_factory):
    """`folder_of(name)` -> the folder with `study.json`, what a study stored, and `check.json`, its rows checked."""
    base = home.parent
    return lambda name: once(f"lab-{name}", partial(run, name, home, base / f"lab-work-{CASES[name].work or name}"))


@pytest.fixture
def stored(folder_of):
    """`stored(name)` -> what a study stored."""
    return lambda name: json.loads((folder_of(name) / "study.json").read_text(), parse_constant=pytest.fail)


@pytest.fixture
def ask(home, tmp_path):
    """`ask(name, progress, **options)` -> Result of a study that is run anew; its work lies in `tmp_path`."""
    return lambda name, *progress, **options: cases.ask(name, home, tmp_path / f"{name}.json", *progress, **options)
