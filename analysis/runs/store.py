"""The run store: equal requests are answered from it, and what is in it is whole or is said to be damaged."""

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from ..answer import Answer
from ..declaration.command import Command, check_verb
from ..declaration.undeclared import Undeclared
from ..errors import BadSetting
from ..files import clear, move, read_json, sweep, touch, write_bytes, write_json
from ..places import plain_name
from . import retention
from .bundle import Arrived, read_bundle, take_back, write_bundle
from .folder import read_run
from .keys import asked_now, check_id, look_again
from .run import Marks, Result, Run, checked_link, checked_words, read_marks
from .search import Forgotten, Row, named, surplus
from .shelf import Shelf, room
from .texts import TextStore

Request = dict[str, Any]
PROJECT = Path(__file__).resolve().parents[2]
# Pages make their controls of its runs: what somebody else computed is no answer.
CARD = "model"
# Of requests whose run was not stored yet.
KEPT_LINKS = 1_000


def state_root() -> Path:
    """The folder of what this installation computed: the one named by FOCUSCOPE_STATE, else models_cache/state."""
    return Path(os.environ.get("FOCUSCOPE_STATE") or PROJECT / "models_cache" / "state")


class RunStore(TextStore):
    """`root`/runs/<id>/ (one folder per run), `root`/texts/, `root`/deleted/ (runs that can come back),
    `root`/outdated/ (an empty file of its id for every run that answers nothing any more) and `root`/links/ (the page
    that asks for a run which is not stored yet).

    The id of a run is the key of its request, of the version of its verb and of the weights (`keys`): by another
    program or about other weights it is another run. A run is written in a draft folder and renamed, so nobody finds
    half of one. The folders are the truth: what lists show is read from them. `examples` is a second, read-only folder
    of run folders, asked when the own store has no answer. Several processes and threads may share one root. Without
    `root`: that of this installation (`state_root`), with the bundled examples.
    """

    def __init__(self, root: str | Path | None = None, examples: str | Path | None = None) -> None:
        if root is None:
            root = state_root()
            examples = examples or PROJECT / "models_cache" / "demo" / "examples"
        self.root = Path(root).resolve()
        self.examples = Path(examples).resolve() if examples else None
        self._own = Shelf(self.root / "runs")
        self._bundled = Shelf(self.examples or self.root / "examples", readonly=True)
        self._own.sweep()
        self._trash = Shelf(self.root / "deleted")
        super().__init__()
        self._outdated, self._links = self.root / "outdated", self.root / "links"
        take_back(self)
        # What a killed process left, a bundle that it unpacked among it.
        sweep(self.root, ".tmp-*", "*/.tmp-*", "*/.old-*")

    def find(self, request: Command) -> Run | None:
        """The stored Run that answers this request by today's program and weights, own ones before examples, or None.
        Where no weights of its model lie on this disk, the newest one answers, whatever its weights. A damaged one is
        set aside and counts as none, so that it is computed anew; `damaged()` tells. Who asks shares the run with
        others, so it is not to be changed."""
        asked = asked_now(request)
        ids = list(asked.keys)
        if asked.revision is None:
            rows = [*self._own.rows(), *self._bundled.rows()]
            ids += [row.id for row in rows if row.question in asked.questions]
        return next((run for run in map(self._answer, ids) if run is not None), None)

    def put(
        self,
        request: Command,
        result: Result | Answer,
        protocol: dict[str, Any],
        seconds: float,
        revision: str | None = None,
    ) -> Run:
        """Stores a result and returns its Run. `revision` of the weights that were read, by default of those that lie
        here now. When an equal request was stored meanwhile, that one stays and is returned: delete it first to
        replace it. AnalysisError on a full disk, with nothing left behind."""
        asked = asked_now(request)
        if revision and revision != asked.revision:
            asked = replace(asked, revision=revision)
        key, link = asked.key, self._links / f"{asked.question}.json"
        if self._answer(key) is None and self.has(key):
            # What stands there answers nothing any more.
            self.discard(key)
        self._own.place(asked, result, protocol, seconds, Marks(link=checked_link(read_json(link))))
        clear(self._outdated / key)
        if link.exists():
            clear(link)
        self.make_room({key})
        look_again()
        return replace(self.open(key), cached=False)

    def answers(self, run: Run) -> bool:
        """Whether this run is what its own request finds now."""
        answer = self.find(Undeclared(run.verb, run.request))
        return answer is not None and answer.id == run.id

    def make_room(self, kept: Container[str] = frozenset()) -> None:
        """Removes the oldest runs beyond what is kept here; those that are pinned or named in `kept` stay."""
        for run_id in surplus(self._own.rows(), *retention.limits(self.root)):
            # It may be pinned just now.
            if run_id not in kept and not read_marks(self._own.folder / run_id).pinned:
                self.delete(run_id)

    def open(self, run_id: str) -> Run:
        """The Run of this id, own or example; BadSetting when the id is malformed, unknown or its run damaged."""
        run = self._own.read(check_id(run_id)) or self._bundled.read(run_id)
        if run is None and run_id in self._own.newer:
            raise BadSetting(self._own.newer[run_id])
        if run is None:
            raise BadSetting(f"The run {run_id} is not stored here, or no longer whole: run it again.")
        return run

    def has(self, run_id: str) -> bool:
        """Whether there is an own whole run of this id."""
        return self._own.read(check_id(run_id)) is not None

    def list(self, verb: str | None = None, limit: int = 50) -> Sequence[Run]:
        """The newest own runs, of one verb or of all; shared between callers, so not to be changed."""
        wanted = verb if verb is None else check_verb(verb)
        ids = [row.id for row in self._own.rows() if wanted in (None, row.verb)]
        return [run for run in map(self._own.read, ids[:limit]) if run is not None]

    def search(
        self, words: str = "", verb: str | None = None, pinned: bool = False, examples: bool = True
    ) -> Sequence[Row]:
        """Rows of the stored runs in which every word stands, of one verb or of all, the newest first; after them the
        bundled examples, where they are wanted."""
        names = {key: name for key, name, _, _ in self.texts()}
        rows = self._own.rows()
        if examples:
            ids = {row.id for row in rows}
            rows += [row for row in reversed(self._bundled.rows()) if row.id not in ids]
        rows = [replace(row, text=names.get(str(row.text), row.text)) for row in rows]
        wanted = words.lower().split()
        return [row for row in rows if verb in (None, row.verb) and row.pinned >= pinned and row.matches(wanted)]

    def past(self, verb: str, model: str | None = None) -> Sequence[tuple[float, int, Request]]:
        """(seconds, tokens, request) of the runs of `verb` that were computed here, with a model or any, the newest
        first."""
        rows = (row for row in self._own.rows() if row.verb == verb and row.imported is None)
        return [(row.seconds, row.tokens, row.request) for row in rows if model is None or row.model == model]

    def delete(self, run_id: str) -> None:
        """Removes one own run; no error when it is gone already. Examples stay."""
        self._own.remove(check_id(run_id))

    def discard(self, run_id: str) -> None:
        """Deletes one own run so that `restore` can bring it back for `retention.KEPT_DAYS`; one of the same id that
        was deleted before goes for good."""
        folder = self._own.folder / check_id(run_id)
        for other, when in self._trash.dates().items():
            if when < time.time() - retention.KEPT_DAYS * 86400 or other == run_id and folder.is_dir():
                self._trash.remove(other)
        with room(self.root), suppress(FileNotFoundError):
            self._trash.folder.mkdir(parents=True, exist_ok=True)
            # Its week begins; a run that was moved without it could go at once.
            touch(folder)
            move(folder, self._trash.folder / run_id)

    def restore(self, run_id: str) -> None:
        """Brings a deleted run back, unless one stands there by now; BadSetting when it is gone for good."""
        if self._trash.read(check_id(run_id)) is None:
            raise BadSetting(f"The run {run_id} can no longer be brought back: run it again.")
        self._own.take(self._trash.folder / run_id)

    def deleted(self) -> Sequence[Run]:
        """The runs that `restore` can bring back, the one deleted last first."""
        dates = self._trash.dates()
        runs = map(self._trash.read, sorted(dates, key=dates.__getitem__, reverse=True))
        return [run for run in runs if run is not None]

    def empty(self) -> None:
        """Removes the deleted runs for good."""
        for run_id in self._trash.dates():
            self._trash.remove(run_id)

    def usage(self) -> retention.Usage:
        """What lies on the disk, and how much of it is kept."""
        rows, deleted, texts = self._own.rows(), self.deleted(), self._texts.entries()
        pinned = [row.bytes for row in rows if row.pinned]
        sizes = [sum(item.bytes for item in items) for items in (rows, deleted, texts)]
        runs_kept, bytes_kept = retention.limits(self.root)
        return retention.Usage(
            runs=len(rows),
            bytes=sizes[0],
            pinned=len(pinned),
            pinned_bytes=sum(pinned),
            deleted=len(deleted),
            deleted_bytes=sizes[1],
            texts=len(texts),
            text_bytes=sizes[2],
            kept_runs=runs_kept,
            kept_bytes=bytes_kept,
        )

    def keep(self, runs: int, size: int) -> None:
        """Keeps at most so many runs and bytes from now on, beside pinned ones; the oldest beyond them go at once."""
        retention.choose_limits(self.root, runs, size)
        self.make_room()

    def pin(self, run_id: str, pinned: bool = True) -> None:
        """Keeps a run from being removed to make room, or lets it go again."""
        self._own.mark(run_id, replace(self._marks(run_id), pinned=bool(pinned)))

    def describe(self, run_id: str, name: str, note: str, tags: str) -> None:
        """Keeps the reader's own words beside a run, `tags` with spaces between them; a bundle takes them along."""
        words = checked_words({"name": name, "note": note, "tags": [tags]})
        self._own.mark(run_id, replace(self._marks(run_id), **words))

    def _marks(self, run_id: str) -> Marks:
        run = self._own.read(check_id(run_id))
        if run is None:
            raise BadSetting(f"The run {run_id} is not stored here (any more): run it again.")
        return run.marks

    def remember(self, request: Command, link: dict[str, Any]) -> None:
        """Notes the page and controls that ask for a run now: {"page": address, "controls": name -> text}, with the
        "seconds" that were said."""
        if checked_link(link) is None:
            return
        with room(self._links):
            self._links.mkdir(parents=True, exist_ok=True)
            write_json(self._links / f"{asked_now(request).question}.json", link)
        # Another process may clear some of them meanwhile; the rest waits for the next time.
        with suppress(FileNotFoundError):
            for path in sorted(self._links.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-KEPT_LINKS]:
                clear(path)

    def forget(
        self, kind: str, name: str, model: str, by_default: Callable[[str, Request], bool] = lambda verb, request: False
    ) -> Forgotten:
        """A router, policy or method (`kind`) of a model was replaced: every own run of the model that names it, or
        uses it `by_default`, moves to the trash, pinned ones stay, and no example that used it answers any more."""
        if kind == "router":
            # The card lists the routers; also one that only an example answers.
            self._outdate(asked_now(Undeclared(CARD, {"model": model})).key)
        moved, pinned = [], 0
        for row in self.search():
            first = row.request.get("model") or "demo"
            # Of the same model in another precision, too.
            if model not in {plain_name(str(used)) for used in (first, row.request.get("other_model") or first)}:
                continue
            if kind == "router" and row.verb == CARD:
                self._outdate(row.id)
                self.delete(row.id)
            elif name in named(kind, row.request) or by_default(row.verb, row.request):
                if row.pinned:
                    pinned += 1
                elif not (self._outdated / row.id).exists():
                    self._outdate(row.id)
                    if not row.example:
                        self.discard(row.id)
                        moved.append(row.id)
        return Forgotten(f"the {kind} {name}", moved, pinned)

    def damaged(self) -> Sequence[str]:
        """One sentence for each run that was damaged and set aside, or that another version wrote."""
        self._own.rows()
        return [*self._own.newer.values(), *self._own.damaged()]

    def bundle(self, run_ids: Iterable[str], target: Path | IO[bytes]) -> dict[str, Any]:
        """Writes runs and their texts into one file (`bundle.write_bundle`)."""
        return write_bundle(self, run_ids, target)

    def unbundle(self, source: str | Path | IO[bytes], own: bool = False) -> Arrived:
        """Brings in what `bundle` wrote, here or elsewhere (`bundle.read_bundle`); `own`: by a worker of ours."""
        arrived = read_bundle(self, source, own)
        for run_id in arrived.new if own else ():
            clear(self._outdated / run_id)
        return arrived

    def take(self, folder: Path) -> None:
        """Moves a whole run folder of this disk into the store, unless a run of its id is there."""
        self._own.take(folder)

    def export_example(self, run_id: str, folder: str | Path) -> Path:
        """Copies a run folder to `folder`/<id>, where another store finds it as an example; returns that path."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        run = self.open(run_id)
        # A damaged file must not travel.
        run.prove()
        copied = Shelf(Path(folder)).copy_in(run)
        read_run(copied)
        return copied

    def _requests(self) -> Iterator[str]:
        """The requests of all runs, also of those that can be brought back, as JSON."""
        yield from (json.dumps(row.request) for row in self._own.rows())
        yield from (json.dumps(run.request) for run in self.deleted())

    def _answer(self, run_id: str) -> Run | None:
        """The run of this id when it may answer a request: what it used was not replaced, and what pages make their
        controls of was not computed by somebody else."""
        if (self._outdated / run_id).exists():
            return None
        run = self._own.read(run_id)
        if run is not None and not (run.marks.imported and run.verb == CARD):
            return run
        return self._bundled.read(run_id)

    def _outdate(self, run_id: str) -> None:
        with room(self._outdated):
            self._outdated.mkdir(parents=True, exist_ok=True)
            write_bytes(self._outdated / run_id, b"")
