"""The verbs about stored runs and texts: `runs`, `bundle-out`, `bundle-in`, `read`. No model, no torch.

The request's `runs` is the folder of the app's state (None: the usual one).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from ..answer import Answer, doc, frame, record
from ..commands.runs import BundleIn, BundleOut, Runs
from ..commands.text import Read
from ..corpus import read_file, text_hash, texts_in
from ..errors import BadSetting, BadText
from ..files import write_text, write_whole
from . import texts
from .run import no_model
from .store import RunStore

if TYPE_CHECKING:
    from pandas import DataFrame


@record
class ListedRun:
    """A stored run."""

    id: str = doc("its 12 digits")
    verb: str = doc("what was asked")
    model: str | None = doc("of which model")
    text: str | None = doc("the name of its text, else its hash")
    created: str = doc("ISO 8601")
    seconds: float = doc("that computing it took")
    bytes: int = doc("on disk")
    pinned: bool = doc("whether it is kept whatever happens")
    imported: str | None = doc("when it came in a bundle")
    example: bool = doc("whether it came with the program")
    about: str = doc("its other arguments")


@record
class ListedRuns(Answer):
    """The stored runs in which all words stand."""

    rows: list[ListedRun] = doc("the newest first", row=ListedRun)


@record
class WrittenBundle(Answer):
    """A bundle that was written."""

    path: str = doc("of the file")
    runs: list[str] = doc("ids of the runs in it")
    texts: list[str] = doc("hashes of the texts in it")
    bytes: int = doc("of the file")


@record
class ReadBundle(Answer):
    """A bundle that was brought in."""

    new: list[str] = doc("ids of runs that came in")
    known: list[str] = doc("ids of runs that were here already")
    texts: list[str] = doc("hashes of the texts in it")


@record
class ReadFile:
    """A file that was read, or was not."""

    name: str = doc("of the file")
    said: str | None = doc("what was read of it")
    words: int | None = doc("in its text")
    characters: int | None = doc("of its text")
    text: str | None = doc("12-digit name of the stored text")
    refused: str | None = doc("why it was not read or is not kept")


@record
class ReadFiles(Answer):
    """Files as texts that the pages offer from then on."""

    table: "DataFrame" = doc("the files that were read", name="rows")
    rows: list[ReadFile] = doc("each file")
    notes: list[str] | None = doc("why files were refused", default=None)


def runs(request: Runs) -> ListedRuns:
    """The stored runs in which all words stand."""
    listed = RunStore(request.runs).search(" ".join(request.words or []), examples=request.examples)
    rows = [ListedRun(**{name: getattr(row, name) for name in ListedRun.__annotations__}) for row in listed]
    return ListedRuns(rows=rows, protocol=no_model("runs"))


def bundle_out(request: BundleOut) -> WrittenBundle:
    """Write runs and their texts into one file."""
    path = Path(request.output)
    if path.exists():
        raise BadSetting(f"{path} is there already: give -o another name.")
    with write_whole(path) as draft:
        about = RunStore(request.runs).bundle(request.ids, draft)
    size = path.stat().st_size
    return WrittenBundle(str(path), about["runs"], about["texts"], size, protocol=no_model("bundle-out"))


def bundle_in(request: BundleIn) -> ReadBundle:
    """Bring in a bundle."""
    arrived = RunStore(request.runs).unbundle(request.bundle)
    return ReadBundle(arrived.new, arrived.known, arrived.texts, protocol=no_model("bundle-in"))


def read(request: Read) -> ReadFiles:
    """Read files, and those in folders, as texts that the pages offer; `output`: a folder that gets each as plain text
    too. Errors: BadText where none could be read."""
    store, rows, refusals, stored = RunStore(request.runs), list[ReadFile](), list[BadText](), set[str]()
    for path in _files(request.files):
        said = words = characters = key = None
        try:
            document = read_file(path)
            said, words = document.said or "plain text", len(document.text.split())
            if len(stored) == texts.KEPT and text_hash(document.text) not in stored:
                raise BadText(
                    f"{path.name} was left out: {texts.KEPT:,} texts that no run names are kept; use some of them in "
                    "runs, then read it again."
                )
            key, characters = store.put_text(document.text, path.name, document.said, beside=stored), len(document.text)
            stored.add(key)
            if request.output:
                _write(Path(request.output), path, document.text)
            refusal = None
        except BadText as error:
            refusals.append(error)
            refusal = str(error)
        rows.append(ReadFile(path.name, said, words, characters, key, refusal))
    if len(refusals) == len(rows):
        raise refusals[0]
    table = frame(ReadFile, [row for row in rows if row.refused is None]).drop(columns="refused")
    notes = list(map(str, refusals)) or None
    return ReadFiles(table=table, rows=rows, notes=notes, protocol=no_model("read"))


def _files(named: list[str]) -> list[Path]:
    paths: list[Path] = []
    for path in map(Path, named):
        if not path.exists():
            raise BadSetting(f"There is no file or folder {str(path)[:80]!r}: correct its name.")
        paths += texts_in(path) if path.is_dir() else [path]
    return list(dict.fromkeys(paths))


def _write(folder: Path, path: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / f"{path.name}.txt"
    if place.exists():
        raise BadSetting(f"{place} is there already: give -o another folder.")
    write_text(place, text)
