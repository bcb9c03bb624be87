"""What a stored study is, and the one runner of all of them.

A new stored study is one script, `lab/NAME.py`, and a line in `studies/stored.csv` where a page shows it:

1. A frozen dataclass of `Sizes` (or of `Texts`, `Windows`, `Routed` below): every field is an option of the command
   line, with its default and its help. One that trains has `Seeds` before them, and says `seeds` in its protocol.
2. `measure(at)`: what is found at a `Setting`, as plain data; `rows` among it, and under `protocol` what was read.
   What takes long goes through `at.context.part`, so that a stopped study goes on.
3. `shown(numbers)`: the `sentence`, `columns`, `panels` and `notes` of these numbers; `panels.presented` takes columns
   and notes that never change from `columns.csv` and `notes.csv`.
4. `sample(at, numbers)`: name -> values of a small part on the bundled samples. It is stored, and has to come again.
5. `part(at, numbers)`: a piece of the numbers themselves, computed again on the study's own texts in under two minutes,
   for `--quick`; its docstring says which. Where there is none, `whole` says why.
6. `NAME = Study("name", __doc__, Sizes, measure, shown, sample, part=part)`.

The runner refuses, opens the model, writes the file with its protocol, and looks whether the sample comes again.
"""

import dataclasses
import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...commands import commandline
from ...corpus import text_hash
from ...declaration import field, fields_of
from ...errors import BadSetting, Cancelled
from ...files import read_json, write_json
from ...metrics.intervals import SEEDS
from ...models import Model
from ...runs import Result
from ...runs.arguments import check_arguments
from ...runs.brought import corpus_folder
from .. import NAMED
from ..context import Context, check_seed, protocol
from ..registry import version_of
from ..text.held_out import check_range, held_out_windows, ids_hash, make_folder, texts_of
from .quick import check, stored_of

OWN_MACHINE = ("output", "work", "quick")  # what only a command line may ask for
OPEN = ("corpus", "model", "seed")  # options that a protocol names by themselves
TIMES = "they are times, other ones on every machine and in every hour"  # why a study has no part
TRAINED = "they are of trainings to their end, of which nothing is kept"
PORTIONS = ("rows", "rates", "widths", "seeds")  # options that choose among pieces which other calls share


def option(default: Any, help: str) -> Any:
    """A field that is an option of the command line."""
    return field(default, help)


@dataclass(frozen=True)
class Sizes:
    """What every stored study can be asked for."""

    model: str = option("demo", "demo, a Hugging Face id, or a local folder")
    seed: int = option(0, "seed of everything random")

    def check(self, lm: Model) -> None:
        """Refuse what cannot be measured. Errors: BadSetting."""


@dataclass(frozen=True)
class Texts(Sizes):
    """Of a study that reads a folder of texts."""

    corpus: str = option("", "folder of texts, those of the router's training")

    def check(self, lm: Model) -> None:
        if not self.corpus:
            raise BadSetting("The study needs a corpus: name a folder of texts, or one that holds a folder per domain.")


@dataclass(frozen=True)
class Windows(Texts):
    """Of a study that reads held-out windows of texts."""

    length: int = option(1024, "tokens of a window of text")
    windows: int = option(64, "held-out windows of text")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("A window of text", self.length, 16, lm.max_positions)
        check_range("The number of windows of text", self.windows, 2, 4096)
        check_range("The window that is always read", getattr(self, "window", None), 1, self.length - 1)
        check_range("The number of sinks", getattr(self, "n_sink", None), 0, 64)


@dataclass(frozen=True)
class Seeds:
    """Beside the sizes of a study that trains: every arm is trained that often. The protocol names it, too."""

    seeds: int = option(SEEDS, "trainings of every arm, each from a seed of its own")

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("The number of seeds", self.seeds, 1, 99)

    @property
    def every_seed(self) -> range:
        """The seeds of the trainings of an arm, from the study's on."""
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True)
class Routed(Windows):
    """Of a study that reads held-out windows with a trained router."""

    router: str = option("k8-top1", "router of Focus, named by its groups and memberships, such as k8-top1")
    window: int | None = option(None, "tokens that are always read (default: the router's)")
    n_sink: int | None = option(None, "first tokens always read (default: the router's)")


@dataclass
class Setting:
    """Where a study is measured: the model, what was asked for, and the folder of what is measured so far (None where
    nothing is kept)."""

    context: Context
    lm: Model
    sizes: Sizes
    work: Path | None

    @cached_property
    def texts(self) -> tuple[list[str], list[str]]:
        """The training and the held-out documents of the corpus."""
        return texts_of(self.sizes.corpus, self.context)

    @cached_property
    def held(self) -> tuple[np.ndarray, np.ndarray]:
        """Evenly spaced held-out windows, int64 [n, T], and which document each is of [n]."""
        return held_out_windows(self.lm, self.texts[1], self.sizes.length, self.sizes.windows)

    @property
    def windows(self) -> np.ndarray:
        """The held-out windows [n, T]."""
        return self.held[0]

    @property
    def documents(self) -> np.ndarray:
        """The unit of each held-out window [n]: the document that it is of."""
        return self.held[1]

    def about(self, ids: np.ndarray, documents: np.ndarray | None = None, **more: Any) -> dict:
        """What a protocol says of the windows [n, T] of the corpus that were read, and of the `documents` [n] that they
        are of (default: those of the setting); `more` adds to it and overrides."""
        train, held_out = (len(texts) for texts in self.texts)
        corpus = f"{Path(self.sizes.corpus).name}, {train} training and {held_out} held-out documents"
        found = {"text": ids_hash(ids), "tokens": int(ids.size), "window": ids.shape[1], "corpus": corpus}
        units = len(np.unique(self.documents if documents is None else documents))
        return found | {"unit": "documents", "units": units} | more


@dataclass(eq=False)
class Study:
    """A stored study, called as a function of its options; see the top of this file.

    `file`: the name of its result, which may hold options in braces; `tables`: the lists among its numbers that are
    tables; `tolerance`: by how much, as a share, its sample may differ when it comes again; `part`, or why it can
    only be measured as a `whole`: see `quick`.
    """

    name: str
    question: str
    sizes: type[Sizes]
    measure: Callable[[Setting], dict]
    shown: Callable[[dict], dict]
    sample: Callable[[Setting, dict], dict]
    file: str = ""
    tables: tuple[str, ...] = ("rows",)
    tolerance: float = 1e-3
    part: Callable[[Setting, dict], dict] | None = None
    whole: str = ""

    def __post_init__(self) -> None:
        """Give the study the signature, the annotations and the name of the function that it is."""
        kinds = {one.name: (one.type, one.default) for one in dataclasses.fields(self.sizes)}
        kinds |= dict.fromkeys(("output", "work"), (str | None, None)) | {"quick": (bool, False)}
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in kinds.items()
        ]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        self.__signature__ = inspect.Signature([*options, context], return_annotation=Result)
        self.__annotations__ = {name: kind for name, (kind, _) in kinds.items()}
        self.__name__, self.__doc__ = self.name.replace("-", "_"), self.question

    @property
    def help(self) -> dict[str, str]:
        """What each of its own options says of itself."""
        return {one.name: one.declared.help for one in fields_of(self.sizes)}

    def __call__(
        self, *, context: Context, output: str | None = None, work: str | None = None, quick: bool = False, **given: Any
    ) -> Result:
        """Measure, store and return the study; it goes on from what an earlier call left in `work` (default: beside the
        `output`, which is by default in `studies/` of the fitted state). `quick`: compute a part of what is stored
        again and store nothing. Errors: BadSetting, and those of measuring."""
        sizes = self.sizes(**given)
        check_seed(sizes.seed)
        lm = context.model(sizes.model)
        if quick:
            stored = stored_of(self, context, lm, given)
            return check(self, self.setting(stored, context, given.get("corpus", "")), stored)
        sizes.check(lm)
        name = (self.file or self.name).format(**dataclasses.asdict(sizes))
        path = Path(output) if output else context.state_dirs(lm)[0] / "studies" / f"{name}.json"
        folder = Path(work) if work else path.parent / "work"
        if path.is_dir():
            raise BadSetting(f"{path} is a folder and the result is one file: name it, such as {path / name}.json.")
        for one in (path.parent, folder):
            make_folder(one)
        at = Setting(context, lm, sizes, folder)
        asked = {one.name: getattr(sizes, one.name) for one in dataclasses.fields(sizes) if one.name not in OPEN}
        changed = {name: value for name, value in asked.items() if value != self.defaults[name]}
        shared = {name: value for name, value in dataclasses.asdict(sizes).items() if name not in PORTIONS}
        with stopwatch(folder / f"{self.name}-{text_hash(repr([lm.revision, shared]))}-seconds.json") as seconds:
            numbers = self.measure(at)
        told = {"version": self.version, "sizes": asked, "asked": changed, "seconds": round(seconds(), 1)}
        if getattr(sizes, "corpus", ""):
            told["folder"] = Path(sizes.corpus).name
        corpus = {"corpus": "DIR"} if "folder" in told else {}
        asked = {"name": self.name, **corpus, "model": lm.name, **changed, "seed": sizes.seed}
        told |= {"seed": sizes.seed, "command": commandline("study", asked)}
        numbers["protocol"] = protocol(f"study {self.name}", lm, **numbers.pop("protocol") | told)
        numbers = json.loads(json.dumps(self.shown(numbers) | numbers, allow_nan=False))
        write_json(path, numbers | {"check": self.sample(at, numbers)})
        return Result(numbers | {"path": str(path)}, {name: table(numbers[name]) for name in self.tables})

    @property
    def defaults(self) -> dict:
        """Its options and their defaults, without what every study can be asked for."""
        return {one.name: one.default for one in dataclasses.fields(self.sizes) if one.name not in OPEN}

    def recheck(self, stored: dict, *, context: Context) -> dict[str, tuple]:
        """The sample of a stored study: name -> (what is stored, what comes out now)."""
        again = self.sample(self.setting(stored, context), stored)
        return {name: (kept, again[name]) for name, kept in stored["check"].items()}

    def setting(self, stored: dict, context: Context, corpus: str = "") -> Setting:
        """Where a stored study was measured, its texts in the folder `corpus`; nothing is kept there."""
        told = stored["protocol"]
        texts = {"corpus": corpus} if corpus else {}
        sizes = self.sizes(**told["sizes"], **texts, model=told["model"], seed=told["seed"])
        return Setting(context, context.model(told["model"]), sizes, None)

    @property
    def version(self) -> int:
        """Raised in the registry when the same sizes would give other numbers."""
        return version_of(self.name)


def table(rows: list[dict]) -> pd.DataFrame:
    """Rows of a study without the lists and dictionaries in them."""
    return pd.DataFrame([{k: v for k, v in row.items() if not isinstance(v, (list, dict))} for row in rows])


@contextmanager
def stopwatch(path: Path) -> Iterator[Callable[[], float]]:
    """Seconds since it began, and those of earlier calls that left theirs at `path`: a study that was stopped took
    both, and so did one that collects what was measured in portions."""
    before, began = (read_json(path) or {"seconds": 0.0})["seconds"], time.monotonic()

    def seconds() -> float:
        return before + time.monotonic() - began

    try:
        yield seconds
    except (Cancelled, KeyboardInterrupt):
        write_json(path, {"seconds": seconds()})
        raise
    write_json(path, {"seconds": seconds()})


def study(name: str, *, context: Context, **options: Any) -> Result:
    """Run the study `name` with `options`, named as its own parameters; it goes on where it was stopped.

    In a browser `corpus` is what `runs.brought` allows, and the result lies in the store's own state, where pages find
    it. Errors: BadSetting, and those of the study.
    """
    if name not in NAMED:
        raise BadSetting(f"There is no study {name[:40]!r}; there are: {', '.join(NAMED)}.")
    if not options.get("corpus") or "corpus" not in inspect.signature(NAMED[name]).parameters:
        options.pop("corpus", None)  # a page names the folder it has, for every study
    given = check_arguments(f"study {name}", NAMED[name], options)
    if context.browser and (named := [option for option in OWN_MACHINE if given.get(option)]):
        raise BadSetting(f"A page stores a study in its own folder: leave {named[0]} out.")
    if context.browser and given.get("corpus"):
        given["corpus"] = str(corpus_folder(context.store, given["corpus"]))
    return NAMED[name](**given, context=context)
