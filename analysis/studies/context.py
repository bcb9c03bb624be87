"""What every study is given beside its arguments: models, texts, where fitted state lives, a way to report progress.

Torch is imported where a model is: a verb that only counts tokens starts without it.
"""

import copy
import datetime
import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..commands import COMMANDS
from ..corpus import MAX_WINDOWS, Tokens, notes, text_hash, tokenize
from ..declaration import fields_of
from ..errors import BadSetting
from ..files import clear, locked, read_json, sweep, write_json
from ..models.tokenizer import Unloaded, unloaded
from ..places import CACHE, SPREAD, revision
from ..runs import RunStore, state_root
from ..runs.search import USUAL, named

if TYPE_CHECKING:
    from torch.nn import Module

    from ..models import Model

Others = Callable[[str, list[dict], Callable[[float, str], None]], list[dict]]
VERSIONS = ("torch", "transformers", "tokenizers", "numpy")
# The kernel of whatever looks at the attention itself.
STREAMED = "softmax over blocks of queries"


class Context:
    """Loads models once, finds texts by their hash, says where fitted state lives, and passes progress on.

    `store` answers `text(hash)`; without one, texts are those given to `add_text`. `progress(fraction, stage)` is
    called at every border of a chunk and may raise Cancelled; `at` from inside a pass, while hooks or a method are on
    the model. `show(curve)`: what a long study can draw before it has ended, column -> values. `browser` restricts
    local model folders to `models_cache/`. `kept`: what a study leaves for its next call. `others(verb, requests,
    progress)` -> the numbers of each request, computed by other workers that help; None without any.
    """

    def __init__(
        self,
        store: RunStore | None = None,
        progress: Callable[[float, str], None] | None = None,
        device: str = "auto",
        state: Path | None = None,
        browser: bool = True,
        show: Callable[[dict[str, list]], None] | None = None,
        at: Callable[[float, str], None] | None = None,
        others: Others | None = None,
    ) -> None:
        self.store, self.device, self.state, self.browser, self.others = store, device, state, browser, others
        self.progress = progress or (lambda fraction, stage: None)
        self.show = show or (lambda curve: None)
        self.at = at or (lambda fraction, stage: None)
        # Name -> (what it belongs to, the thing).
        self.kept: dict[str, tuple[object, Any]] = {}
        self._texts: dict[str, tuple[str, str]] = {}
        # Name, model, the revision that was loaded.
        self._model: tuple[str, Model, str] | None = None

    @contextmanager
    def by_layer(self, model: "Model", began: float, share: float, stage: str) -> Iterator[None]:
        """Tell layer by layer how far a pass of the model is, from the fraction `began` on a `share` of the work."""
        from ..seam.layers import attention_modules

        def hook(place: int, module: "Module", args: tuple) -> None:
            self.at(began + share * place / model.num_layers, f"{stage}, layer {place + 1} of {model.num_layers}")

        handles = [
            module.register_forward_pre_hook(partial(hook, place))
            for place, module in enumerate(attention_modules(model.lm))
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def model(self, name: str = "demo") -> "Model":
        """The model by name; the last one used stays loaded while its files stay the same."""
        from ..models import load_model

        root = CACHE if self.browser else None
        if self._model is None or self._model[::2] != (name, revision(name, root)):
            self.progress(0.0, f"loading {name}")
            self._model = None
            loaded = load_model(name, self.device, root=root)
            self._model = (name, loaded, loaded.revision)
        return self._model[1]

    def counts(self, name: str = "demo") -> "Model | Unloaded":
        """The model by name, to count tokens with: its weights are loaded only where its tokenizer cannot be had
        without, or where a device was named, which has to be tried."""
        loaded = self._model is not None and self._model[0] == name
        light = None if loaded or self.device != "auto" else unloaded(name, CACHE if self.browser else None)
        return light or self.model(name)

    def add_text(self, name: str, text: str) -> str:
        """Keep a text for this context; returns its hash."""
        key = text_hash(text)
        self._texts[key] = (name, text)
        return key

    def text(self, key: str) -> tuple[str, str]:
        """(name, text) of a hash."""
        if key in self._texts:
            return self._texts[key]
        if self.store is None:
            raise BadSetting(f"There is no text {key!r} here: give the text itself.")
        return self.store.text(key)

    def torch_device(self) -> str:
        """The device for a model that is made here: a CUDA device when there is one, unless one was named."""
        import torch

        named = self.device not in ("auto", SPREAD)
        return self.device if named else ("cuda" if torch.cuda.is_available() else "cpu")

    def within(self, began: float, share: float, name: str = "") -> "Context":
        """This context for a part of the work, from the fraction `began` on a `share` of it."""
        part, before = copy.copy(self), f"{name}, " if name else ""
        part.progress = lambda done, stage: self.progress(min(1.0, began + share * done), f"{before}{stage}")
        part.at = lambda done, stage: self.at(min(1.0, began + share * done), f"{before}{stage}")
        return part

    def aside(self) -> "Context":
        """This context with its model, without its store and what it keeps: for what is to leave nothing behind."""
        part = copy.copy(self)
        part.store, part.kept, part._texts = None, {}, {}
        return part

    def part(self, folder: Path | None, name: str, decides: list, make: Callable[[Path | None], dict]) -> dict:
        """What `make(doing)` gives, kept as NAME-HASH.json in `folder`, by the hash of all that decides the numbers.
        `doing` is a folder for checkpoints, which goes when the part is written. Without a folder nothing is kept."""
        if folder is None:
            return make(None)
        place = folder / f"{name}-{text_hash(repr(decides))}.json"
        if (stored := read_json(place)) is None:
            with self.alone(place, name):
                # Looked up again: the process that held the lock before may have made it.
                if (stored := read_json(place)) is None:
                    stored = make(place.with_suffix(""))
                    write_json(place, stored)
        clear(place.with_suffix(""))
        # Of one who was killed when it was written.
        sweep(folder, f".tmp-{place.name}-*", f"{place.stem}.lock")
        return stored

    def alone(self, place: Path, name: str) -> AbstractContextManager[None]:
        """While something is made at `place`: another process that wants the same waits, and can be stopped."""
        return locked(
            place.with_suffix(".lock"), lambda: self.progress(0.0, f"{name} is being made by another process")
        )

    def once(self, name: str, belongs: object, make: Callable[[], Any]) -> Any:
        """What `make()` gives, kept under a name until the same is asked of something that it does not belong to."""
        if self.kept.get(name, (None,))[0] != belongs:
            self.kept[name] = belongs, make()
        return self.kept[name][1]

    def forget(self, kind: str, name: str, model: "Model") -> list[str]:
        """A `router`, `policy` or `method` of a model was made anew: stored runs that used the earlier one of this name
        move to the trash. Returns sentences that say so, for the notes of a result."""
        # No page reads a folder that somebody named; else pages read what the command line fits.
        if self.store is None and self.state:
            return []
        return (self.store or RunStore()).forget(kind, name, model.name, partial(_by_default, kind, name)).sentences

    def state_dirs(self, model: "Model") -> list[Path]:
        """Where what was fitted on a model is looked for; new state is written to the first: the folder that was named,
        and no other; else this installation's own, then what came with the model (only read), last the folder of the
        weights, where fine-tuning leaves the router that it trained with them."""
        if self.state:
            return [self.state]
        root = self.store.root if self.store else state_root()
        weights = model.lm.config.name_or_path
        beside = [Path(weights)] if weights and Path(weights) != model.state_dir else []
        return [root / "fitted" / model.slug / model.revision, model.state_dir, *beside]

    def stored(self, model: "Model", pattern: str) -> list[Path]:
        """The files of a model's fitted state that a pattern names, such as `csa/*.json`, those read first in front."""
        return [path for folder in self.state_dirs(model) for path in sorted(folder.glob(pattern)) if path.is_file()]


@dataclass(frozen=True)
class Reading:
    """A text prepared for a model."""

    name: str
    text: str
    tokens: Tokens  # in windows
    notes: list[str]  # sentences about what was cut

    @property
    def windows(self) -> list[np.ndarray]:
        """Token ids of each window."""
        return [self.tokens.ids[a:b] for a, b in self.tokens.spans]

    def shuffled(self, seed: int) -> list[np.ndarray]:
        """The windows with their tokens in random order; a special token that begins them stays where it is."""
        random, keep = np.random.default_rng(seed), self.tokens.begin
        return [np.concatenate([ids[:keep], random.permutation(ids[keep:])]) for ids in self.windows]


def read(
    context: Context,
    model: "Model | Unloaded",
    key: str,
    long_text: str = "windows",
    passes: bool = True,
    windows: int | None = None,
) -> Reading:
    """Tokenise a stored text. `long_text`: `windows` cuts a long text, into the first so many of them where they are
    named, `first` keeps its first window only. `passes`: the model is to read it; TooLarge, which names what fits,
    where memory lacks for a window."""
    name, text = context.text(key)
    most = min(1 if long_text == "first" else MAX_WINDOWS, windows or MAX_WINDOWS)
    tokens = tokenize(model.tokenizer, text, model.max_positions, most)
    if passes:
        import torch

        from ..statistics.inputs import check_room

        longest = max(stop - start for start, stop in tokens.spans)
        check_room(model, torch.empty(1, longest, device="meta"))
    return Reading(name, text, tokens, notes(tokens, model.max_positions))


def _by_default(kind: str, name: str, verb: str, request: dict) -> bool:
    """Whether a study used the router, policy or method `name` because its request names none."""
    parameters = {field.name: field for field in fields_of(COMMANDS[verb])} if verb in COMMANDS else {}
    specs = [*(request.get("methods") or []), request.get("method")]
    if "methods" in parameters and request.get("methods") is None:
        # Of all methods there are.
        return kind == "method" or USUAL[kind] == name
    if USUAL.get(kind) != name:
        return False
    if kind in parameters and not named(kind, request) and (parameters[kind].default == name or kind == "policy"):
        return True
    from ..methods import METHODS

    # Of the methods, those that take this kind of fitted state.
    of_kind = [spec for spec in specs if isinstance(spec, dict) and spec["name"] in METHODS]
    return any(METHODS[spec["name"]].needs == kind and not named(kind, spec) for spec in of_kind)


def protocol(
    verb: str, model: "Model | Unloaded", text: str | None = None, tokens: int | None = None, **details: Any
) -> dict:
    """Where and how a number about a model was made, kept with every number; `more` adds and overrides. Without weights
    nothing was computed in a type or by a kernel."""
    lm = None if isinstance(model, Unloaded) else model
    about = {
        "model": model.name,
        "revision": model.revision,
        "text": text,
        "tokens": tokens,
        "window": model.max_positions,
        "seed": None,
        "dtype": lm and lm.precision,
        "device": str(lm.device) if lm else "cpu",
        "kernel": lm and lm.stock_attention,
    }
    return made_on(verb=verb, **about | details)


@cache
def _versions() -> dict[str, str]:
    """Of what computes here; looking them up takes longer than many an answer."""
    return {name: importlib.metadata.version(name) for name in VERSIONS}


def made_on(**details: Any) -> dict:
    """`what`, and the machine, versions and time it was made with."""
    # What needs none computes in one thread.
    torch = sys.modules.get("torch")
    return {
        **details,
        "threads": torch.get_num_threads() if torch else 1,
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": dict(_versions()),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
