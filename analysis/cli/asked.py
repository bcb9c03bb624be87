"""What was asked for: the words of a command line as a request, computed, and stored as the run that pages, `runs` and
`take` open by its id."""

import gc
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..answer import Answer
from ..commands import COMMANDS
from ..corpus import MAX_BYTES, read_file, read_text, sample_texts, text_hash, texts_in
from ..declaration import Field
from ..declaration.command import Command
from ..declaration.undeclared import Undeclared
from ..declaration.written import TEXTS
from ..errors import AnalysisError, BadSetting, BadText
from ..places import CACHE, locate, plain_name
from ..runs import Result, RunStore
from ..runs.keys import asked_now
from .options import fields, takes_methods

Progress = Callable[[float, str], None]
# The key of a stored text.
KEY = re.compile("[0-9a-f]{12}")


@dataclass
class Asked:
    """A `request` with texts named by their hash; `texts`: hash -> (name, text). `said`: what was read of documents
    among them, a sentence each."""

    request: Command
    device: str = "auto"
    state: Path | None = None
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def study(self) -> str | None:
        """The named study, of the verb `study`."""
        return self.arguments["name"] if self.request.verb == "study" else None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that were named."""
        return self.request.named

    @property
    def usual(self) -> dict[str, Any]:
        """The arguments that have a default, at it."""
        declared: dict[str, Field] = fields(self.request.verb, self.study)
        return {name: entry.default for name, entry in declared.items() if not entry.needed}

    @property
    def resolved(self) -> dict[str, Any]:
        """Every argument, those that were not named at their default."""
        return self.usual | self.arguments

    @property
    def stored_under(self) -> Undeclared:
        """The request that a run is stored under. Folders are named whole, for another working directory; fitted
        state elsewhere is part of it, so that no page takes the run for one of the state that it reads itself."""
        arguments = dict(self.arguments)
        for name in {"model", "other_model"} & arguments.keys():
            place = locate(arguments[name])
            if isinstance(place, Path) and CACHE not in place.resolve().parents:
                arguments[name] = arguments[name].replace(plain_name(arguments[name]), str(place.resolve()), 1)
        state = {"state": str(self.state.resolve())} if self.state else {}
        return Undeclared(self.request.verb, arguments | state)

    def run(self, progress: Progress) -> Result | Answer:
        """Compute it. Errors: those of the study, all AnalysisError."""
        from ..studies.context import Context

        context = Context(progress=progress, device=self.device, state=self.state, browser=False)
        for name, text in self.texts.values():
            context.add_text(name, text)
        # None of the hundred thousand objects that imports make is garbage, which is looked for again and again.
        gc.disable()
        try:
            function = self.request.function()
        finally:
            gc.freeze()
            gc.enable()
        return self.request.compute(function, context=context, progress=progress)

    def run_and_store(self, progress: Progress) -> Result | Answer:
        """Compute it, and store what a page shows; the protocol names the run, None where there is none. Why it could
        not be stored is said on standard error: the result itself is sound."""
        began = time.monotonic()
        result = self.run(progress)
        protocol, run_id = result.numbers["protocol"], None
        try:
            run_id = self._store(result, protocol, time.monotonic() - began)
        except (AnalysisError, OSError) as error:
            print(f"This result is not stored: {error}", file=sys.stderr)
        protocol.setdefault("run", run_id)
        return result

    def _store(self, result: Result | Answer, protocol: dict[str, Any], seconds: float) -> str | None:
        command = type(self.request)
        if not (command.of_worker() and command.page) or command.stored:
            return None
        store, request = RunStore(), self.stored_under
        for name, text in self.texts.values():
            store.put_text(text, name)
        key = asked_now(request).key
        if command.exclusive and store.has(key) and not store.open(key).marks.pinned:
            # Times differ from run to run, and the new ones are those that were printed.
            store.discard(key)
        revision = None if "other_model" in request.spelled else protocol.get("revision")
        return store.put(request, result, protocol, seconds, revision).id


def asked(options: dict[str, Any]) -> Asked:
    """What the parser read, ready to run; files are read here. Errors: BadSetting, BadText."""
    verb, study = options["verb"], options.get("name") if options["verb"] == "study" else None
    known = fields(verb, study)
    arguments = {name: value for name, value in options.items() if name in known and value is not None}
    if study is not None:
        arguments["name"] = study
    if methods := takes_methods(known):
        arguments |= _methods(methods, arguments.pop(methods, None), options, known)
    elif options["set"]:
        raise BadSetting(f"This verb runs no method, so {options['set'][0]!r} sets nothing: leave --set out.")
    if verb == "worth" or (verb == "take" and "config" in arguments):
        from ..studies.worth.worth import config_of

        arguments = config_of(arguments.pop("config", None) or arguments.get("model", "demo")) | arguments
    texts, said = {}, []
    for name in TEXTS:
        places = arguments.get(name)
        if not places:
            continue
        listed = places if isinstance(places, list) else [places]
        keys = []
        for place in [text for entry in listed for text in (_inside(entry) if isinstance(places, list) else [entry])]:
            title, text, about = _text(place)
            keys.append(text_hash(text))
            texts[keys[-1]] = title, text
            said += [f"{title}, {about}"] * bool(about)
        arguments[name] = keys if isinstance(places, list) else keys[0]
    request = COMMANDS[verb].from_arguments(arguments) if study else COMMANDS[verb](**arguments)
    return Asked(request, options["device"], options["state"], texts, said)


def _methods(name: str, named: object, options: dict[str, Any], declared: dict[str, Field]) -> dict[str, Any]:
    """The argument that names methods, from names, --set, --router and --policy; nothing where none is given. Without
    names those that a setting is about are meant, beside dense."""
    router, policy = (options.get(option) if option not in declared else None for option in ("router", "policy"))
    if isinstance(named, (list, dict)):
        if options["set"] or router or policy:
            raise BadSetting("Methods given as JSON hold their settings: leave --set, --router and --policy out.")
        return {name: named}
    about = [words.partition(".")[0] for words in options["set"]] + ["focus"] * bool(router) + ["csa"] * bool(policy)
    if named is None and not about:
        return {}
    words = named if isinstance(named, str) else ",".join(about if name == "method" else ["dense", *about])
    from ..studies.ready.candidates import specs

    listed = specs(words if name == "methods" else words.partition(",")[0], options["set"], router, policy)
    return {name: listed if name == "methods" else listed[0]}


def _inside(place: str) -> list[str]:
    """A folder as the files of text in it; anything else as it is."""
    return [str(path) for path in texts_in(Path(place))] if Path(place).is_dir() else [place]


def _text(place: str) -> tuple[str, str, str]:
    """(name, text, what was read of a document) of a file, standard input, a bundled sample, or a stored text."""
    samples, path = sample_texts(), Path(place)
    if path.is_dir():
        raise BadText(f"{place[:80]!r} is a folder and one text is needed here: name a file in it.")
    if place == "-":
        return "standard input", read_text(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"), ""
    if path.is_file():
        document = read_file(path)
        return path.name, document.text, document.said
    if place in samples:
        return *samples[place], ""
    if KEY.fullmatch(place):
        # Pages name the texts that they read so.
        return *RunStore().text(place), ""
    names = ", ".join(samples)
    raise BadText(f"There is no file {place[:80]!r}: give a text file, - for standard input, or one of {names}.")
