"""What the studies of a corpus are tried on: a tiny model, a small corpus and a router that counts as trained."""

from pathlib import Path

from analysis.corpus import natural_samples
from analysis.groups.router import FocusRouter
from analysis.models import load_model
from analysis.studies.context import Context
from analysis.studies.stored.quick import SAME, check
from tests.made.evaluating import tiny_models
from tests.made.models import watched


def studied_home(home: Path) -> Path:
    """Makes in `home` the model `tiny`, the folder `corpus` with three training and six held-out documents and, in
    `state`, the trained router k4-top1 and k2-top1, which nobody trained."""
    tiny_models(home)
    for side in ("train", "valid"):
        (home / "corpus" / side).mkdir(parents=True)
    for name, text in natural_samples().items():
        (home / "corpus" / "train" / f"{name}.txt").write_text(text[:3000])
        for part in range(2):
            begin = 3000 + 900 * part
            (home / "corpus" / "valid" / f"{name} {part}.txt").write_text(text[begin : begin + 900])
    model = load_model(str(home / "tiny"))
    router = FocusRouter(model.num_layers, model.width, groups=4, window=4, n_sink=1, seed=3)
    about = {"model": model.name, "revision": model.revision, "corpus": "corpus", "kind": "trained"}
    for kind in ("", "random-"):
        router.save(home / "state" / "focus" / f"{kind}k4-top1.safetensors", **about)
    router.save(home / "state" / "focus" / "k2-top1.safetensors", **about | {"kind": "not trained"})
    return home


def part_again(study, stored: dict, home: Path, state: Path | None = None, corpus: str | None = None) -> bool:
    """Whether a part of the numbers of a study of the small corpus comes again, beside its sample."""
    context = Context(state=state or home / "state", browser=False)
    setting = study.setting(stored, context, str(home / "corpus") if corpus is None else corpus)
    rows = check(setting, stored).numbers["rows"]
    apart = [row for row in rows if row["verdict"] != SAME]
    assert not apart, apart
    return any(not row["number"].startswith("check") for row in rows)


def asker(study, home: Path, **defaults):
    """`ask(progress, **arguments)` -> Result of a study on the tiny model."""

    def ask(progress=None, **arguments):
        context = watched(home / "state", progress)
        return study(**{"model": str(home / "tiny")} | defaults | arguments, context=context)

    return ask
