"""What a command is: a frozen dataclass whose fields are what can be asked for. An instance is a request.

A request is checked when it is made, hashed once, and passed from a page or a command line through the store and the
jobs to the worker. Only at the border between processes it is plain arguments (`spelled`, `from_arguments`).
"""

import hashlib
import importlib
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self, dataclass_transform

from ..errors import BadSetting
from . import check_names, field, fields_of
from .canonical import canonical
from .written import written

# Of the identity of a request; 1 knew neither version nor revision.
SCHEMA = 2
_VERB = re.compile(r"[a-z][a-z0-9-]{0,39}")


# Heads of the bundled model, on which was measured what a command takes beside its readings.
HEADS = 48


class Shape(NamedTuple):
    """Of a model: its layers, the heads of each, and how many times as long as one of the bundled model's a reading of
    a token takes: what is trained beside a model does not grow with all of its weights."""

    layers: int
    heads: int
    pace: float = 1.0

    @property
    def beside(self) -> float:
        """Readings of this model that training all its heads takes, where that of the bundled model's takes one."""
        return self.layers * self.heads / HEADS / self.pace


# Where nothing is known of a model.
SMALLEST = Shape(1, 1)


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(frozen=True, eq=False, kw_only=True)
class Command:
    """A request. A subclass in a module of `analysis.commands` is a command; its docstring is what a reader sees.

    `place`: module and function that compute it, below `analysis.studies` or with a full name. `page`: address of the
    page that shows its runs, with the control of its tab (`/` is Start, empty: no page shows them). `version`: raise it
    when equal arguments give other numbers than before, or when a default changes; older runs are then no longer
    found. `changes`: it leaves something that every reader of an installation sees. `exclusive`: it takes the machine
    for itself, to time or to train. `stored`: it leaves a stored study. `unasked`: pages need its answer before they
    can say what anything costs.

    Its price: `readings` and `passes` say what it does with a token (`runs.price`); every entry of the fields
    `repeated_by` reads the text once more; `made_tokens` are those of texts that it makes itself; with the arguments
    `served` it finds what Start's reading of the text left. Its memory: `looks` keeps queries and keys, `scores`
    compares logits, `gradient` takes a loss backwards (`runs.price`).
    """

    verb: ClassVar[str] = ""
    place: ClassVar[str] = ""
    page: ClassVar[str] = ""
    version: ClassVar[int] = 1
    changes: ClassVar[bool] = False
    exclusive: ClassVar[bool] = False
    stored: ClassVar[bool] = False
    unasked: ClassVar[bool] = False
    readings: ClassVar[float | None] = None
    passes: ClassVar[float] = 0.0
    repeated_by: ClassVar[tuple[str, ...]] = ()
    made_tokens: ClassVar[int | None] = None
    served: ClassVar[Mapping[str, Any] | None] = None
    looks: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    gradient: ClassVar[bool] = False

    title: ClassVar[str] = ""
    defaults: ClassVar[dict[str, Any]] = {}
    # Those of `defaults` that had another value in an earlier version.
    renewed: ClassVar[dict[str, Any]] = {}
    brief: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True)(cls)
        cls.verb = hyphened(cls)
        cls.title = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split()).removesuffix(".")
        cls.defaults = {entry.name: entry.default for entry in fields_of(cls) if not entry.needed}
        cls.renewed = {entry.name: entry.default for entry in fields_of(cls) if entry.declared.former is not None}
        cls.brief = re.split(r"[,:;(]", cls.title)[0].strip()

    def __new__(cls, **given: Any) -> Self:
        """Notes which fields were named: those are what older runs of the same request were stored under."""
        request = super().__new__(cls)
        object.__setattr__(request, "_named", tuple(given))
        return request

    def __post_init__(self) -> None:
        for entry in fields_of(type(self)):
            if entry.name in self._named:
                object.__setattr__(self, entry.name, entry.check(getattr(self, entry.name), self.verb))

    _named: ClassVar[tuple[str, ...]]

    @classmethod
    def from_arguments(cls, arguments: object) -> Self:
        """The request of plain arguments that came from elsewhere. Errors: BadSetting."""
        given = canonical(arguments)
        check_names(cls.verb, fields_of(cls), given)
        request = cls(**given)
        # Already in its one spelling: not worked out a second time.
        request.__dict__["spelled"] = given
        return request

    @cached_property
    def spelled(self) -> dict[str, Any]:
        """The arguments that were named, as plain data."""
        return canonical(self.named)

    @property
    def named(self) -> dict[str, Any]:
        """The arguments that were named."""
        return {name: getattr(self, name) for name in self._named}

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments."""
        return {entry.name: getattr(self, entry.name) for entry in fields_of(type(self))}

    @cached_property
    def changed(self) -> dict[str, Any]:
        """The arguments that differ from their defaults."""
        usual = at_default(type(self), self.spelled)
        return {name: value for name, value in self.spelled.items() if name not in usual}

    @cached_property
    def key(self) -> str:
        """12 hexadecimal digits: the identity of the request about any weights."""
        return hashed([SCHEMA, self.verb, self.changed, self.version, None])

    def but(self, **changes: Any) -> Self:
        """The same request with other arguments."""
        return type(self)(**self.named | changes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def command_line(self) -> str:
        """The command that asks the same."""
        return written(self.verb, fields_of(type(self)), self.spelled)

    @classmethod
    def in_a_demo(cls) -> bool:
        """Whether strangers who share an installation may ask for it."""
        return not (cls.changes or cls.exclusive)

    @classmethod
    def full_place(cls) -> str:
        """Module and function that compute it, with the module's full name."""
        return full_place(cls.place)

    @classmethod
    def of_worker(cls) -> bool:
        """Whether the worker offers it; other commands only read and write files or start processes."""
        return not cls.place.startswith(("analysis.", *OUTSIDE))

    @classmethod
    def function(cls) -> Callable[..., Any]:
        """What computes it, imported. Errors: BadSetting where the lab or the tests are not installed."""
        return imported(*cls.full_place().split(":"))

    def compute(self, function: Callable[..., Any] | None = None, **brought: Any) -> Any:
        """Its result, an `Answer` or a `runs.Result`, by its own function or the `function` in its place. `brought`:
        the context and progress of the caller, as far as they are wanted."""
        function = function or self.function()
        wanted = inspect.signature(function).parameters
        brought = {name: value for name, value in brought.items() if name in wanted}
        return function(self, **brought) if "request" in wanted else function(**self.arguments, **brought)

    @classmethod
    def workload(cls, arguments: Mapping[str, Any], tokens: int, shape: Shape = SMALLEST) -> int:
        """How much a request reads with a model of this shape: `tokens`, and once more for every entry of the fields
        that repeat it."""
        lists = (arguments.get(name) for name in cls.repeated_by)
        return max(int(tokens), 1) * (1 + sum(len(entries) for entries in lists if isinstance(entries, list)))


def hyphened(kind: type) -> str:
    """The name of a class as the command line spells it: `add-up` of `AddUp`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def check_verb(value: object) -> str:
    """`value` when it can be the name of a study (lower-case letters, digits, hyphens); else BadSetting."""
    if not isinstance(value, str) or not _VERB.fullmatch(value):
        raise BadSetting(f"{str(value)[:40]!r} is not the name of a study: use lower-case letters, digits and hyphens.")
    return value


# Beside the analysis in a checkout.
OUTSIDE = ("lab.", "tests.")
# A wheel holds it as focuscope.analysis.
ANALYSIS = __name__.removesuffix(".declaration.command")


def full_place(place: str) -> str:
    """Module and function with the module's full name: `heads.head:head` lies below `analysis.studies`."""
    if place.startswith(OUTSIDE):
        return place
    return f"{ANALYSIS}.{place.removeprefix('analysis.') if place.startswith('analysis.') else f'studies.{place}'}"


def imported(module: str, name: str) -> Callable[..., Any]:
    """A function of a module, or of a class in it such as `Top.run`, imported. Errors: BadSetting where the lab or the
    tests are not installed."""
    try:
        return attrgetter(name)(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise BadSetting(f"{module} is not installed: run it in a checkout of Focuscope's repository.") from None


def at_default(command: type[Command], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Of arguments those that have their default, whatever else they hold."""
    defaults = command.defaults
    return {name: value for name, value in arguments.items() if name in defaults and value == defaults[name]}


def hashed(identity: list[Any]) -> str:
    """12 hexadecimal digits of plain data."""
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class OfModel(Command):
    """Asked about a model."""

    model: str = field(
        "demo",
        "demo, a Hugging Face id, or a local folder; precision and device may follow, as in NAME@bfloat16@cuda:1",
        control="model",
    )


class OfText(OfModel):
    """Asked about one text, named by its hash."""

    text: str = field("", "a text file, - for standard input, or story, essay, program", control="text", word="TEXT")


class OfTexts(OfModel):
    """Asked about several texts, named by their hashes."""

    texts: list[str] | None = field(None, "text files, or story, essay, program", word="[TEXT...]")


def seed(control: str = "") -> Any:
    """The field of what everything random starts from: a seed that numpy, torch and UMAP all take."""
    return field(0, "seed of everything random", low=0, high=(1 << 32) - 1, control=control)


def long_text(default: str = "windows") -> Any:
    """The field of how much of a long text is read."""
    every = ("--all-windows", "read every window of a text longer than the context")
    first = ("--first", "read only the first window of a text longer than the context")
    about = "all windows of a long text, or the first"
    return field(default, about, options=("windows", "first"), flags={"first": first, "windows": every})


def window() -> Any:
    """The field of how many tokens are read at once."""
    return field(None, "tokens read at once (default: as many as the model takes)")


def router() -> Any:
    """The field that names a router of Focus."""
    about = "router of Focus, named by its groups and memberships, such as k8-top1"
    return field("k8-top1", about, control="router")


def methods() -> Any:
    """The field that names methods with their settings."""
    return field(None, "methods such as dense,focus,streaming_llm (default: all)")


def layer() -> Any:
    """The field that chooses a layer."""
    return field(0, "number of the layer")


def head() -> Any:
    """The field that chooses a head of a layer."""
    return field(0, "number of the head")


def part() -> Any:
    """The field that chooses a window of a text longer than the context."""
    return field(0, "number of the window of the text")


def without_first() -> Any:
    """The field that leaves the attention sink out."""
    return field(False, "leave the first token out and renormalise")
