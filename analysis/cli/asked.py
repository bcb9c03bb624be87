"""What was asked for: the words of a command line as the arguments of a function, and the function called with them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..commands import COMMANDS
from ..corpus import MAX_BYTES, read_file, read_text, sample_texts, text_hash, texts_in
from ..declaration import Field
from ..declaration.written import TEXTS
from ..errors import BadSetting, BadText
from ..runs import Result
from ..studies import NAMED
from .options import fields, takes_methods


@dataclass
class Asked:
    """A verb (and named study) with the given `arguments`, a text by its hash; `texts`: hash -> (name, text). `said`:
    what was read of documents among them, a sentence each."""

    verb: str
    study: str | None
    arguments: dict
    device: str = "auto"
    state: Path | None = None
    texts: dict[str, tuple[str, str]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    @property
    def known(self) -> dict[str, Field]:
        """The fields of what was asked for."""
        return fields(self.verb, self.study)

    @property
    def usual(self) -> dict[str, Any]:
        """The arguments that have a default, at it."""
        return {name: field.default for name, field in self.known.items() if not field.needed}

    @property
    def resolved(self) -> dict[str, Any]:
        """Every argument, those that were not given at their default."""
        return self.usual | self.arguments

    def run(self, progress: Callable[[float, str], None]) -> Result:
        """Compute it. Errors: those of the study, all AnalysisError."""
        from ..studies.context import Context

        context = Context(progress=progress, device=self.device, state=self.state, browser=False)
        for name, text in self.texts.values():
            context.add_text(name, text)
        if self.study is not None:
            return NAMED[self.study](**self.arguments, context=context)
        return COMMANDS[self.verb](**self.arguments).compute(context=context, progress=progress)


def asked(options: dict) -> Asked:
    """What the parser read, ready to run; files are read here. Errors: BadSetting, BadText."""
    verb, study = options["verb"], options.get("name") if options["verb"] == "study" else None
    resolved = Asked(verb, study, {}, options["device"], options["state"])
    arguments = {name: value for name, value in options.items() if name in resolved.known and value is not None}
    methods = takes_methods(resolved.known)
    if methods:
        arguments |= _methods(methods, arguments.pop(methods, None), options, resolved.known)
    elif options["set"]:
        raise BadSetting(f"This verb runs no method, so {options['set'][0]!r} sets nothing: leave --set out.")
    if verb == "worth":
        from ..studies.worth.worth import config_of

        arguments |= config_of(arguments.pop("config", None) or arguments.get("model", "demo"))
    for name in TEXTS:
        if isinstance(places := arguments.get(name), list):
            arguments[name] = [_text(resolved, text) for place in places for text in _inside(place)]
        elif places:
            arguments[name] = _text(resolved, places)
    resolved.arguments = arguments
    return resolved


def _methods(name: str, named: object, options: dict, declared: dict) -> dict:
    """The argument that names methods, from names, --set, --router and --policy; nothing where none is given. Without
    names those that a setting is about are meant, beside dense."""
    router, policy = (options.get(option) if option not in declared else None for option in ("router", "policy"))
    if isinstance(named, (list, dict)):
        if options["set"] or router or policy:
            raise BadSetting("Methods given as JSON hold their settings: leave --set, --router and --policy out.")
        return {name: named}
    if named is None:
        about = (
            [words.partition(".")[0] for words in options["set"]] + ["focus"] * bool(router) + ["csa"] * bool(policy)
        )
        if not about:
            return {}
        named = ",".join(about if name == "method" else ["dense", *about])
    from ..studies.ready.candidates import specs

    listed = specs(named if name == "methods" else named.partition(",")[0], options["set"], router, policy)
    return {name: listed if name == "methods" else listed[0]}


def _inside(place: str) -> list[str]:
    """A folder as the files of text in it; anything else as it is."""
    return [str(path) for path in texts_in(Path(place))] if Path(place).is_dir() else [place]


def _text(resolved: Asked, place: str) -> str:
    """The hash of a file, standard input, or a bundled sample, which is kept in `made.texts`."""
    samples = sample_texts()
    if Path(place).is_dir():
        raise BadText(f"{place[:80]!r} is a folder and one text is needed here: name a file in it.")
    if place == "-":
        content = "standard input", read_text(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
    elif Path(place).is_file():
        document = read_file(Path(place))
        content = Path(place).name, document.text
        resolved.said += [f"{content[0]}, {document.said}"] * bool(document.said)
    elif place in samples:
        content = samples[place]
    else:
        names = ", ".join(samples)
        raise BadText(f"There is no file {place[:80]!r}: give a text file, - for standard input, or one of {names}.")
    key = text_hash(content[1])
    resolved.texts[key] = content
    return key
