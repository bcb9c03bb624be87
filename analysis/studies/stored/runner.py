"""What a stored study is, and the one runner of all of them.

A new stored study is one script, `lab/some_name.py`, and a line in `studies/stored.csv` where a page shows it. It holds
a class `SomeName` from `Study` (or from `Texts`, `Windows` below; one that trains has `Seeds` before them), whose
fields are its options. Its runner, `SomeName.run`, opens the model, checks the options, calls `measure`, writes the
file with its protocol, and `--quick` looks whether a part of it comes again.
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
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import pandas as pd

from ...commands import commandline
from ...corpus import text_hash
from ...declaration import field, fields_of
from ...declaration.command import Command, hyphened, seed as declared_seed
from ...declaration.undeclared import check_arguments
from ...errors import BadSetting, Cancelled
from ...files import read_json, write_json
from ...metrics.intervals import SEEDS
from ...models import Model
from ...runs import Result
from ...runs.brought import corpus_folder
from .. import NAMED
from ..context import Context, protocol
from ..registry import version_of
from ..text.held_out import check_range, corpus_hash, held_out_windows, ids_hash, make_folder, texts_of
from .quick import check, stored_of

# Options that a protocol names by themselves.
OPEN = ("corpus", "model", "seed")
# How a study was trained, which its protocol names beside the options.
TRAINED_WITH = ("steps", "seeds", "rate", "base_rate")
# Options that choose among pieces which other calls share.
PORTIONS = ("rows", "rates", "seeds", "others", "method")
# Why a study has no part.
TIMES = "they are times, other ones on every machine and in every hour"
TRAINED = "they are of trainings to their end, which are not stored"
# Of the command line: its default, its help and, for a number, `low` and `high`.
option = field


def declared_option(command: type[Command], name: str) -> Any:
    """The option of this name as a command declares it that runs a study."""
    (declared,) = (setting for setting in fields_of(command) if setting.name == name)
    about = declared.declared
    return option(declared.default, about.help, low=about.low, high=about.high)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
@dataclass(frozen=True)
class Study:
    """A stored study. `name`: of its command, its class's unless another is given; `run`: measures and stores it;
    `file`: of its result, which may hold options in braces; `question`: what it asks, the first paragraph of its
    script. `tables`: the lists among its numbers that are tables. `tolerance`: by how much, as a share, its sample may
    differ when it comes again. `whole`: why no part of its rows comes again."""

    name: ClassVar[str]
    run: ClassVar["Runnable"]
    file: ClassVar[str] = ""
    tables: ClassVar[tuple[str, ...]] = ("rows",)
    tolerance: ClassVar[float] = 1e-3
    whole: ClassVar[str] = ""

    model: str = option("demo", "demo, a Hugging Face id, or a local folder")
    seed: int = declared_seed()

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        if "name" not in vars(cls):
            cls.name = hyphened(cls)
        cls.run = Runnable(cls)

    def check(self, lm: Model) -> None:
        """Refuse what cannot be measured with this model; ranges are declared. Errors: BadSetting."""

    def measure(self, run: "Setting") -> dict:
        """What is measured, as plain data; `rows` among it, and under `protocol` what was read. What takes long goes
        through `run.part`, so that a stopped study continues. Errors: BadSetting, BadText."""
        raise NotImplementedError

    @staticmethod
    def shown(numbers: dict) -> dict:
        """The `sentence`, `columns`, `panels` and `notes` of these numbers, see `panels.presented`."""
        raise NotImplementedError

    def sample(self, run: "Setting", numbers: dict) -> dict:
        """Name -> values of a small part on the bundled samples. It is stored, and has to come again."""
        raise NotImplementedError

    def part(self, run: "Setting", numbers: dict) -> dict:
        """A piece of the numbers, computed again on the study's own texts in under two minutes."""
        return {}


@dataclass
class Setting:
    """Where a study is measured: the model, the study with its options, and the folder of what is measured so far (None
    where nothing is stored)."""

    context: Context
    lm: Model
    sizes: Study
    work: Path | None

    @property
    def folder(self) -> Path:
        """The folder of what is measured so far, of a study that cannot do without."""
        assert self.work is not None
        return self.work

    @property
    def corpus(self) -> str:
        """The folder of texts; empty where the study reads none."""
        return vars(self.sizes).get("corpus", "")

    @cached_property
    def texts(self) -> tuple[list[str], list[str]]:
        """The training and the held-out documents of the corpus."""
        return texts_of(self.corpus, self.context)

    @cached_property
    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Evenly spaced held-out windows, int64 [n, T], and which document each is of [n]."""
        assert isinstance(self.sizes, Windows)
        return held_out_windows(self.lm, self.texts[1], self.sizes.length, self.sizes.windows)

    @property
    def windows(self) -> np.ndarray:
        """The held-out windows [n, T]."""
        return self.held_out[0]

    @property
    def documents(self) -> np.ndarray:
        """The unit of each held-out window [n]: the document that it is of."""
        return self.held_out[1]

    def part(self, name: str, decides: list, make: Callable[[], dict]) -> dict:
        """What `make()` gives, found again in the folder of the work where the same was made before: of this model in
        this type, and of all that `decides` it."""
        return self.context.part(self.work, name, [self.lm.revision, str(self.lm.dtype), *decides], lambda _: make())

    def about(self, ids: np.ndarray, documents: np.ndarray | None = None, /, **more: Any) -> dict[str, Any]:
        """What a protocol says of the windows [n, T] of the corpus that were read, and of the `documents` [n] that they
        are of (default: those of the setting); `more` adds to it and overrides."""
        train, held_out = (len(texts) for texts in self.texts)
        corpus = f"{Path(self.corpus).name}, {train} training and {held_out} held-out documents"
        read = {"text": ids_hash(ids), "tokens": int(ids.size), "window": ids.shape[1], "corpus": corpus}
        if isinstance(self.sizes, Seeds):
            read["training_text"] = corpus_hash(self.texts[0])
        units = len(np.unique(self.documents if documents is None else documents))
        return read | {"unit": "documents", "units": units} | more


class Runnable:
    """A stored study as a function of its options."""

    def __init__(self, kind: type[Study]) -> None:
        self.sizes, self.name, self.file = kind, kind.name, kind.file
        self.tables, self.shown = kind.tables, kind.shown
        self.question = (inspect.getmodule(kind).__doc__ or "").split("\n\n")[0]
        kinds = {one.name: (one.type, one.default) for one in dataclasses.fields(kind)}
        kinds |= dict.fromkeys(("output", "work"), (str | None, None)) | {"quick": (bool, False)}
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, (annotation, default) in kinds.items()
        ]
        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
        self.__signature__ = inspect.Signature([*options, context], return_annotation=Result)
        self.__annotations__ = {name: annotation for name, (annotation, _) in kinds.items()}
        self.__name__, self.__doc__ = self.name.replace("-", "_"), self.question

    def __call__(
        self, *, context: Context, output: str | None = None, work: str | None = None, quick: bool = False, **asked: Any
    ) -> Result:
        """Measure, store and return the study; it goes on from what an earlier call left in `work` (default: beside the
        `output`, which is by default in `studies/` of the fitted state). `quick`: compute a part of what is stored
        again and store nothing. Errors: BadSetting, and those of measuring."""
        sizes = self.sizes(**asked)
        for declared in fields_of(self.sizes):
            declared.check(getattr(sizes, declared.name), self.name)
        lm = context.model(sizes.model)
        if quick:
            stored = stored_of(sizes, self.defaults, context, lm)
            return check(self.setting(stored, context, asked.get("corpus", "")), stored)
        sizes.check(lm)
        name = (sizes.file or self.name).format(**vars(sizes))
        path = Path(output) if output else context.state_dirs(lm)[0] / "studies" / f"{name}.json"
        if path.is_dir():
            raise BadSetting(f"{path} is a folder and the result is one file: name it, such as {path / name}.json.")
        folder = Path(work) if work else path.parent / "work"
        make_folder(path.parent)
        make_folder(folder)
        run = Setting(context, lm, sizes, folder)
        shared = {name: value for name, value in vars(sizes).items() if name not in PORTIONS}
        with stopwatch(folder / f"{self.name}-{text_hash(repr([lm.revision, shared]))}-seconds.json") as seconds:
            numbers = sizes.measure(run)
        about = numbers.pop("protocol") | self._asked(run) | {"seconds": round(seconds(), 1)}
        numbers["protocol"] = protocol(f"study {self.name}", lm, **about)
        numbers = json.loads(json.dumps(self.shown(numbers) | numbers, allow_nan=False))
        write_json(path, numbers | {"check": sizes.sample(run, numbers)})
        return Result(numbers | {"path": str(path)}, {name: table(numbers[name]) for name in self.tables})

    def _asked(self, run: Setting) -> dict[str, Any]:
        """What a protocol says of the options."""
        options = {name: value for name, value in vars(run.sizes).items() if name not in OPEN}
        changed = {name: value for name, value in options.items() if value != self.defaults[name]}
        corpus = {"corpus": "DIR"} if run.corpus else {}
        asked = {"name": self.name, **corpus, "model": run.lm.name, **changed, "seed": run.sizes.seed}
        about = {"version": version_of(self.name), "sizes": options, "asked": changed, "seed": run.sizes.seed}
        about |= {name: options[name] for name in TRAINED_WITH if name in options}
        about |= {"folder": Path(run.corpus).name} if run.corpus else {}
        return about | {"command": commandline("study", asked)}

    @property
    def defaults(self) -> dict[str, Any]:
        """Its options and their defaults, without what every study can be asked for."""
        return {one.name: one.default for one in dataclasses.fields(self.sizes) if one.name not in OPEN}

    def setting(self, stored: dict, context: Context, corpus: str = "") -> Setting:
        """Where a stored study was measured, its texts in the folder `corpus`; nothing is stored there."""
        made_with = stored["protocol"]
        texts = {"corpus": corpus} if corpus else {}
        sizes = self.sizes(**made_with["sizes"], **texts, model=made_with["model"], seed=made_with["seed"])
        return Setting(context, context.model(made_with["model"]), sizes, None)


class Texts(Study):
    """A study that reads a folder of texts."""

    corpus: str = option("", "folder of texts, those of the router's training")

    def check(self, lm: Model) -> None:
        if not self.corpus:
            raise BadSetting("The study needs a corpus: name a folder of texts, or one that holds a folder per domain.")


class Windows(Texts):
    """A study that reads held-out windows of texts."""

    length: int = option(1024, "tokens of a window of text", low=16)
    windows: int = option(64, "held-out windows of text", low=2, high=4096)

    def check(self, lm: Model) -> None:
        super().check(lm)
        check_range("A window of text", self.length, 16, lm.max_positions)
        check_range("The window that is always read", vars(self).get("window"), 1, self.length - 1)


class Seeds(Study):
    """A study that trains: every arm is trained that often."""

    seeds: int = option(SEEDS, "trainings of every arm, each from a seed of its own", low=1, high=99)

    @property
    def every_seed(self) -> range:
        """The seeds of the trainings of an arm, from the study's on."""
        return range(self.seed, self.seed + self.seeds)


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
        # A page names the folder it has, for every study.
        options.pop("corpus", None)
    checked = check_arguments(f"study {name}", NAMED[name], options)
    if context.browser:
        if own := [option for option in ("output", "work", "quick") if checked.get(option)]:
            raise BadSetting(f"A page stores a study in its own folder: leave {own[0]} out.")
        if checked.get("corpus"):
            checked["corpus"] = str(corpus_folder(context.store, checked["corpus"]))
    return NAMED[name](**checked, context=context)
