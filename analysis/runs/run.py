"""What a study returns, the same thing read back from the store, and what is noted beside it."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from ..answer import Answer, restored, returned
from ..commands import COMMANDS, commandline
from ..corpus import sample_texts, text_hash
from ..declaration.canonical import LARGEST, parsed
from ..declaration.written import TEXTS
from ..errors import AnalysisError, BadSetting
from ..files import write_text
from .catalogue import Stamp, stamp
from .keys import Asked

TABLES, ARRAYS = "tables", "arrays.safetensors"
MARKS = "marks.json"
MAX_MARKS = 100_000  # bytes
# Of a link, and characters of one value.
MOST_CONTROLS, LONGEST = 200, 2_000
# Of `Marks`: the reader's own words, and their sizes in characters.
WORDS = ("name", "note", "tags")
NAME_LENGTH, TAG_LENGTH, MOST_TAGS = 80, 24, 10
_PAGE, _CONTROL = re.compile(r"[a-z][a-z-]{0,39}|"), re.compile(r"[a-z][a-z_]{0,39}")
# Is called with the id of a run and what is damaged.
Report = Callable[[str, str], None]


@dataclass(frozen=True)
class Marks:
    """`pinned`: kept whatever happens; `imported`: when it came in a bundle (ISO 8601), else None; `link`: the page
    that asked for it, as {"page": its address, "controls": name -> text in the URL}, else None; `name`, `note` and
    `tags` are the reader's own words."""

    pinned: bool = False
    imported: str | None = None
    link: dict[str, Any] | None = None
    name: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()

    @property
    def words(self) -> dict[str, Any]:
        """The reader's own words, as they stand in a file; empty where there are none."""
        return {key: value for key in WORDS if (value := getattr(self, key))}


@dataclass(frozen=True)
class Result:
    """What a study returns that has no `Answer` of its own. `numbers`: JSON values, with the run's "protocol";
    `tables`: name -> pandas.DataFrame (stored without its index); `arrays`: name -> numpy.ndarray of bool, integers or
    floats of up to 64 bits."""

    numbers: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)


def no_model(verb: str) -> dict[str, Any]:
    """The protocol of a verb that reads no model."""
    names = "model revision text window seed dtype device kernel".split()
    return dict.fromkeys(names) | {"verb": verb, "versions": {}}


class Damaged(BadSetting):
    """A run folder that is not what was written."""


class Newer(BadSetting):
    """A run folder of a schema that this program does not know."""


@dataclass(frozen=True, kw_only=True)
class Run(Asked):
    """A stored result, opened lazily: the numbers come with it, a table or an array is read when asked for.

    `created` is local time in ISO 8601 with offset, `seconds` what computing took, `example` whether it came with the
    program, `cached` whether it was found rather than computed for this very request, `marks` what is noted beside it.
    Reading a damaged file raises BadSetting and sets the run aside, so that the same request computes it anew.
    """

    id: str
    created: str
    seconds: float
    protocol: dict[str, Any]
    numbers: dict[str, Any]
    example: bool = False
    cached: bool = field(default=True, compare=False)
    folder: Path = field(default=Path(), repr=False)
    marks: Marks = field(default=Marks(), repr=False, compare=False)
    _files: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    _report: Report | None = field(default=None, repr=False, compare=False)
    _verified: dict[str, Stamp] = field(default_factory=dict, repr=False, compare=False)

    @property
    def computed(self) -> str:
        """When, for "from cache, computed 12:03": the time today, with the date on any other day."""
        then = datetime.fromisoformat(self.created)
        return f"{then:%H:%M}" if then.date() == datetime.now(then.tzinfo).date() else f"{then:%Y-%m-%d %H:%M}"

    @property
    def files(self) -> list[str]:
        """Names of its files below its folder, without the manifest."""
        return list(self._files)

    @cached_property
    def tables(self) -> list[str]:
        """Names of the stored tables."""
        return [Path(file).stem for file in self._files if file.startswith(TABLES)]

    @cached_property
    def arrays(self) -> list[str]:
        """Names of the stored arrays."""
        return self._read_arrays(lambda file: list(file.keys())) if ARRAYS in self._files else []

    @property
    def bytes(self) -> int:
        """Size on disk, without the manifest."""
        return sum(entry["bytes"] for entry in self._files.values())

    @property
    def has_its_files(self) -> bool:
        """Whether each of its files is there with its size."""
        try:
            return all((self.folder / name).stat().st_size == entry["bytes"] for name, entry in self._files.items())
        except OSError:
            return False

    def table(self, name: str) -> Any:
        """The pandas.DataFrame `name`, columns and types as they were stored, a fresh index."""
        import pandas
        import pyarrow

        try:
            return pandas.read_parquet(self._table_file(name), engine="pyarrow")
        except (pyarrow.ArrowException, OSError) as error:
            raise self._damaged(f"table {name} cannot be read: {error}") from error

    def columns(self, name: str) -> dict[str, list[Any]]:
        """The table `name` as {column: list}, with None where there is no number.

        Read through arro3, a parquet reader of 10 MB: pyarrow would cost the app's small process 60 MB more.
        """
        file = self._table_file(name)
        from arro3.io import read_parquet

        try:
            table = read_parquet(str(file)).read_all()
        except (KeyboardInterrupt, SystemExit):
            raise
        # A damaged footer is a Rust panic, which is no Exception.
        except BaseException as error:
            raise self._damaged(f"table {name} cannot be read: {error}") from None
        return {
            column: [None if value != value else value for value in table.column(column).to_pylist()]
            for column in table.column_names
        }

    def array(self, name: str) -> Any:
        """The numpy.ndarray `name`; only this array is read from the file."""
        self._check_name(name, self.arrays, "array")
        return self._read_arrays(lambda file: file.get_tensor(name))

    @cached_property
    def answer(self) -> Answer:
        """The record that its command returned, also of a run from before. BadSetting where a command has none."""
        kind = returned(COMMANDS[self.verb].function()) if self.verb in COMMANDS else None
        if kind is None:
            raise BadSetting(f"What {self.verb} returned is no record: read its numbers.")
        tables, arrays = set(self.tables), set(self.arrays)
        return restored(
            kind,
            self.numbers | {"protocol": self.numbers.get("protocol", self.protocol)},
            lambda name: self.table(name) if name in tables else None,
            lambda name: self.array(name) if name in arrays else None,
        )

    def prove(self) -> None:
        """Compare every file with its checksum; Damaged when one is not what was written."""
        for name in self._files:
            self._checked(name)

    def _table_file(self, name: str) -> Path:
        self._check_name(name, self.tables, "table")
        return self._checked(f"{TABLES}/{name}.parquet")

    def _read_arrays(self, read: Callable[[Any], Any]) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._checked(ARRAYS), framework="numpy") as file:
                return read(file)
        except SafetensorError as error:
            raise self._damaged(f"the arrays cannot be read: {error}") from error

    def _check_name(self, name: str, names: list[str], what: str) -> None:
        if name not in names:
            offered = ", ".join(names) or "none"
            raise BadSetting(f"The run {self.id} ({self.verb}) has no {what} {str(name)[:40]!r}; it has: {offered}.")

    def _checked(self, name: str) -> Path:
        """Path of one file of this run after its checksum was compared, again whenever the file changed."""
        path = self.folder / name
        if self._verified.get(name) != (written := stamp(path)):
            try:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except FileNotFoundError:
                if not self.folder.exists():
                    raise BadSetting(f"The run {self.id} was deleted meanwhile: run it again.") from None
                raise self._damaged(f"{name} is missing") from None
            except OSError as error:
                raise AnalysisError(f"The run {self.id} cannot be read ({error.strerror}): try again.") from error
            if digest != self._files[name]["sha256"]:
                raise self._damaged(f"{name} is not what was written")
            self._verified[name] = written
        return path

    def _damaged(self, why: str) -> Damaged:
        if self._report is not None:
            self._report(self.id, why)
        return Damaged(f"The stored run {self.id} ({self.verb}) is damaged ({why}): run it again to compute it anew.")


def now() -> str:
    """The time, local with its offset, in ISO 8601."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def command_of(run: Run, elsewhere: bool = False) -> str:
    """The command that makes a stored run, as `command` writes it."""
    return command(run.verb, {name: value for name, value in run.request.items() if name != "made"}, elsewhere)


def command(verb: str, arguments: Mapping[str, Any], elsewhere: bool = False) -> str:
    """The command that asks for `arguments`: a bundled text goes by its name, another one by its key in the store; a
    corpus is DIR, a folder to fill in. `elsewhere`: to be read on another machine, where a text is TEXT."""
    names = {text_hash(words): name for name, (_, words) in sample_texts().items()}
    args = dict(arguments)
    for name in TEXTS:
        if isinstance(value := args.get(name), list):
            args[name] = [names.get(key, "TEXT" if elsewhere else key) for key in value]
        elif value:
            args[name] = names.get(value, "TEXT" if elsewhere else value)
    return commandline(verb, args | ({"corpus": "DIR"} if args.get("corpus") else {}))


def checked_link(link: Any) -> dict[str, Any] | None:
    """`link` when it is the address of a page with controls, all of them short text, perhaps with the price that stood
    there in "seconds"; else None."""
    if not isinstance(link, dict) or set(link) - {"seconds"} != {"page", "controls"}:
        return None
    page, controls, seconds = link["page"], link["controls"], link.get("seconds", 0.0)
    sound = (
        isinstance(page, str)
        and _PAGE.fullmatch(page)
        and isinstance(seconds, int | float)
        and abs(seconds) < LARGEST
        and isinstance(controls, dict)
        and len(controls) <= MOST_CONTROLS
        and all(
            _CONTROL.fullmatch(key) and isinstance(raw, str) and len(raw) <= LONGEST for key, raw in controls.items()
        )
    )
    return link if sound else None


def checked_words(noted: object) -> dict[str, Any]:
    """What of a note of `Marks.words` can be used: one line as a name, a text, and tags without spaces or commas."""
    noted = noted if isinstance(noted, dict) else {}
    name, note = (str(noted[key]) if isinstance(noted.get(key), str) else "" for key in WORDS[:2])
    tags = noted.get("tags")
    tags = [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, (list, tuple)) else []
    words = [word for tag in tags for word in tag.replace(",", " ").split()]
    return {
        "name": " ".join(name.split())[:NAME_LENGTH],
        "note": note.strip()[:LONGEST],
        "tags": tuple(dict.fromkeys(word[:TAG_LENGTH] for word in words))[:MOST_TAGS],
    }


def read_marks(folder: Path) -> Marks:
    """The Marks of a run folder; a damaged note counts as none."""
    try:
        if (folder / MARKS).stat().st_size > MAX_MARKS:
            return Marks()
        noted = parsed((folder / MARKS).read_text(encoding="utf-8"))
        pinned, imported = noted.get("pinned") is True, noted.get("imported")
        when = imported if isinstance(imported, str) else None
        return Marks(pinned, when, checked_link(noted.get("link")), **checked_words(noted))
    except (OSError, ValueError, AttributeError, RecursionError):
        return Marks()


def write_marks(folder: Path, marks: Marks) -> None:
    """Note `marks` beside the run in `folder`, whole or not at all."""
    write_text(folder / MARKS, json.dumps(asdict(marks)))
