"""Ends of what fits and trains, on models made here: whatever stood before can be read, and what is asked again ends as
if nothing had happened."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from analysis.fitted import Fitted
from analysis.groups.router import FocusRouter
from analysis.models import arithmetic, load_model
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.studies.routing import states
from analysis.studies.routing.cells import Cell
from analysis.studies.routing.score import Curves
from analysis.studies.training import pretrain as study
from analysis.training import mixture, run
from analysis.training.checkpoints import read_log
from analysis.training.focus import train_router
from analysis.training.pretrain import train as train_model
from analysis.training.settings import RouterTraining
from tests.made.tiny import tiny, token_ids
from tests.stress.kills import Case
from tests.stress.scene import hold

PLAN = RouterTraining(
    groups=4, window=4, n_sink=0, steps=4, tokens_per_step=32, length=32, warm_up=1, calibration_windows=2
)
SMALL = {"layers": 1, "width": 16, "heads": 2, "kv_heads": 1, "intermediate": 16}
ASKED = {"steps": 4, "length": 64, "tokens_per_step": 64, "vocabulary": 300}
WORDS = "the dog saw a cat in old houses by sea while rain fell on green hills".split()


def fit(root: Path, value: int) -> None:
    """All numbers of a fit are one value, and its note says which."""
    Fitted("csa", {"ranks": torch.full((4, 4), float(value))}, {"made": value}).save(root)
    router = FocusRouter(2, 24, groups=4)
    with torch.no_grad():
        router.centroids.fill_(value)
    router.save(root / "focus" / "k4-top1", steps=value, kind="trained")
    cell, shape = Cell(4, 0), np.full((2, 1, 3), float(value), np.float32)
    curves = Curves(
        [(0, 0)], [1, 2, 3], 4, {cell: {"random": shape}}, {cell: {"random": shape}}, {cell: shape[:, :, 0]}
    )
    (root / "routing").mkdir(exist_ok=True)
    states.keep(root / "routing", states.Kept(curves, {"made": value}, states.Beside([], [], [])))


def of_one_fit(root: Path) -> None:
    """Each of them can be read and is of the earlier fit or of the new one."""
    csa = Fitted.load(root / "csa.safetensors")
    hold(csa.about["made"] in (1, 2) and bool((csa["ranks"] == csa.about["made"]).all()), "the fit is mixed")
    router = FocusRouter.load(root / "focus" / "k4-top1")
    hold(bool((router.centroids == router.about["steps"]).all()), "the router is mixed")
    curves = states.read_curves(root / "routing" / states.NAME)
    hold(bool((curves.curves.recall[Cell(4, 0)]["random"] == curves.about["made"]).all()), "the curves are mixed")
    fit(root, 3)
    hold(Fitted.load(root / "csa.safetensors").about["made"] == 3, "nothing can be fitted any more")
    left = [path.name for path in root.rglob(".*")]
    hold(not left, f"{left} is left over after the next fit")


def train(root: Path) -> None:
    """A router's training that keeps every step."""
    root.mkdir(exist_ok=True)
    run.PATIENCE, run.WRITING, run.KEEP_EVERY = -1.0, -1, 1
    model, ids = load_model(tiny("llama")), token_ids(1, 400, seed=5)[0].numpy()
    router, _, log = train_router(model, ids, PLAN, root / "checkpoint")
    router.save(root / "k4", kind="trained", losses=[row["loss"] for row in log])


def trained_as_ever(root: Path) -> None:
    """Asked again, the training ends at the same losses and numbers as one that nothing stopped."""
    if (root / "k4.json").exists():
        FocusRouter.load(root / "k4")
    train(root)
    ends = [FocusRouter.load(place / "k4") for place in (root, root / "whole")]
    hold(ends[0].about["losses"] == ends[1].about["losses"], "the losses are others")
    hold(bool((ends[0].centroids == ends[1].centroids).all()), "the numbers are others")


def corpus(root: Path) -> None:
    """A corpus of the usual layout, and an earlier model in the output."""
    rng = np.random.default_rng(0)
    for split in mixture.SPLITS:
        for folder, suffix in (("books", "txt"), ("python", "py")):
            (root / "corpus" / folder / split).mkdir(parents=True)
            text = "\n".join(" ".join(rng.choice(WORDS, 8)) for _ in range(60))
            (root / "corpus" / folder / split / f"0.{suffix}").write_text(text)
        (root / "corpus" / "wikitext2").mkdir(exist_ok=True)
        (root / "corpus" / "wikitext2" / f"wiki.{split}.tokens").write_text(" = A = \n" + " a known dog . \n" * 120)
    for seed in (1, 0):
        pretrain(root, seed)
        (root / str(seed)).write_text(_sum(root))
        if seed:
            shutil.rmtree(root / "out"), shutil.rmtree(root / "work-1")
    (root / "out" / "fitted.json").write_text("{}")


def pretrain(root: Path, seed: int = 1) -> None:
    """A model trained into the output, with a checkpoint after each step."""
    study.SIZES["llama"] = SMALL
    # Measured, so a busy machine might begin two trainings in two types.
    arithmetic.bfloat16_gain = lambda: 0.0
    torch.set_num_threads(1)
    study.train = partial(train_model, checkpoint_seconds=-1.0, evaluate_every=2)
    options = ASKED | {"seed": seed, "work": str(root / f"work-{seed}"), "context": Context(device="cpu")}
    STUDIES["pretrain"](corpus=str(root / "corpus"), output=str(root / "out"), **options)


def _sum(root: Path) -> str:
    return hashlib.sha256((root / "out" / "model.safetensors").read_bytes()).hexdigest()


def one_model(root: Path) -> None:
    """The output is the earlier model or the new one, whole; asked again, the training ends with the new one."""
    trained = json.loads((root / "out" / "pretrain.json").read_text())
    seed = trained["recipe"]["seed"]
    hold(_sum(root) == (root / str(seed)).read_text(), "the folder holds weights of one training, notes of another")
    load_file(root / "out" / "model.safetensors")
    hold((root / "out" / "fitted.json").exists(), "what was fitted on the model is lost")
    pretrain(root)
    hold(_sum(root) == (root / "1").read_text(), "it ended at other weights than a training that nothing stopped")
    hold([row["step"] for row in read_log(root / "out")] == [2, 4], "the log is torn")


def arm(root: Path) -> None:
    """An arm of a study that keeps what is half done."""

    def make(doing: Path) -> dict:
        doing.mkdir(exist_ok=True)
        for step in range(3):
            if not (doing / f"{step}.json").exists():
                states.put(doing / f"{step}.safetensors", bytes([step]), {"step": step})
        return {"loss": 1.5}

    Context().part(root, "arm", [1], make)


def arm_once(root: Path) -> None:
    """Asked again it is there, and nothing else is."""
    hold(json.loads((root / "earlier.json").read_text()) == {"loss": 2.5}, "another arm is lost")
    arm(root)
    names = sorted(path.name for path in root.iterdir())
    hold(len(names) == 2 and all(name.endswith(".json") for name in names), f"{names} are there")


FITS = {
    "fitted numbers": Case(lambda root: fit(root, 1), lambda root: fit(root, 2), of_one_fit),
    "an arm of a study": Case(lambda root: (root / "earlier.json").write_text('{"loss": 2.5}'), arm, arm_once),
    "a router's training": Case(lambda root: train(root / "whole"), train, trained_as_ever),
    "a model's training": Case(corpus, pretrain, one_model),
}
