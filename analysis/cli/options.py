"""The parser of the command line: the options of a command are its declared fields.

An option that was not given is not passed on, so that the declared default holds.
"""

import argparse
import contextlib
import io
import shlex
from pathlib import Path
from typing import Any, NoReturn

from ..commands import COMMANDS
from ..declaration import Field, fields_of, in_words, nested
from ..declaration.undeclared import parameters
from ..declaration.written import METHODS, TEXTS
from ..errors import AnalysisError, BadSetting
from ..package import PROGRAM, version
from ..studies import NAMED
from ..studies.registry import STORED

# Of every verb, used or not.
SHARED = ("model", "seed")


class _Parser(argparse.ArgumentParser):
    """Refuses nonsense in one sentence; learns its options when its verb, or its named study, is asked for: a study's
    are declared in the lab, whose modules load what they measure with."""

    asked: tuple[str, str | None] | None = None

    def error(self, message: str) -> NoReturn:
        """End with one sentence and status 2; the usage stands in --help."""
        short = message if len(message) < 400 else message.split(" (choose from")[0]
        self.exit(2, f"{self.prog}: {short}; see --help.\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As every parser, once the options are there."""
        if self.asked is not None:
            command, self.asked = self.asked, None
            try:
                _add_options(self, *command)
            except AnalysisError as error:
                self.exit(2, f"{self.prog}: {error}\n")
        return super().parse_known_args(args, namespace)


def parser(about: str) -> argparse.ArgumentParser:
    """The parser of every verb: `verb` and what was given to it, named as its fields."""
    program = _Parser(prog=PROGRAM, description=about)
    program.add_argument("--version", action="version", version=f"focuscope {version()}")
    verbs = program.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_Parser)
    for verb, command in COMMANDS.items():
        below = _below(verbs, verb, command.title)
        if verb != "study":
            below.asked = (verb, None)
            continue
        names = below.add_subparsers(dest="name", required=True, metavar="NAME", parser_class=_Parser)
        for name, study in STORED.items():
            _below(names, name, study.title).asked = (verb, name)
    return program


def _below(several: Any, name: str, title: str) -> _Parser:
    made: _Parser = several.add_parser(name, help=title, description=title, argument_default=argparse.SUPPRESS)
    return made


def parsed(line: str) -> dict[str, Any]:
    """What stands in a command line without its program, such as "pairs story --min-distance 512". Errors: BadSetting
    with the sentence that the command line says, or the help that was asked for."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return vars(parser("").parse_args(shlex.split(line)))
    except ValueError as error:
        raise BadSetting(f"{line[:80]!r} is no command line: {error}.") from None
    except SystemExit:
        raise BadSetting(output.getvalue().strip()) from None


def fields(verb: str, study: str | None = None) -> dict[str, Field]:
    """What can be asked of a verb, or of the study that `study NAME` runs, by name."""
    declared = {field.name: field for field in fields_of(COMMANDS[verb])}
    if study is None:
        return declared
    sizes = parameters(NAMED[study])
    return {field.name: field if field.declared.help else declared[field.name] for field in sizes}


def takes_methods(declared: dict[str, Field]) -> str | None:
    """The field that names methods with their settings, or None."""
    named = [name for name in METHODS if name in declared and dict in (declared[name].kind, declared[name].item)]
    return named[0] if named else None


def _add_options(sub: argparse.ArgumentParser, verb: str, study: str | None) -> None:
    """What a verb takes, named as its fields, and what every verb takes."""
    declared = fields(verb, study)
    for field in declared.values():
        if field.name not in SHARED:
            _add(sub, field)
    sub.add_argument("--model", metavar="MODEL", help=fields("inspect")["model"].declared.help)
    sub.add_argument("--seed", type=int, metavar="N", help=fields("groups")["seed"].declared.help)
    if takes_methods(declared):
        for name, elsewhere, read in (("router", "groups", str), ("policy", "budgets", nested)):
            if name not in declared:
                about = fields(elsewhere)[name].declared.help
                sub.add_argument(f"--{name}", type=read, metavar=name.upper(), help=about)
    sub.add_argument("--set", action="append", default=[], metavar="METHOD.FIELD=VALUE", help="a method's setting")
    about = "fitted state (default: models_cache/state, then what came with the model)"
    sub.add_argument("--state", type=Path, default=None, metavar="DIR", help=about)
    sub.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda, ... (default: auto)")
    about = "say what would run, its price and what is stored; run nothing"
    sub.add_argument("--plan", action="store_true", default=False, help=about)
    about = "one JSON object as the last line of standard output"
    sub.add_argument("--json", action="store_true", default=False, help=about)


def _add(sub: argparse.ArgumentParser, field: Field) -> None:
    # argparse fills in what a single % begins
    about, word = field.declared.help.replace("%", "%%"), field.declared.word
    if word:
        several = "*" if word.startswith("[") else "+"
        count = several if word.endswith(("...", "...]")) else "?" if word.startswith("[") else None
        repeated: dict[str, Any] = {} if count is None else {"nargs": count}
        sub.add_argument(field.name, metavar=word.strip("[.]"), type=field.item or field.read(), help=about, **repeated)
    elif field.declared.flags:
        for value, (flag, meaning) in field.declared.flags.items():
            sub.add_argument(flag, dest=field.name, action="store_const", const=value, help=meaning)
    elif field.kind is bool:
        option, default = f"--{field.name.replace('_', '-')}", "yes" if field.default else "no"
        action, about = argparse.BooleanOptionalAction, f"{about} (default: {default})"
        sub.add_argument(option, dest=field.name, action=action, help=about)
    elif field.name in TEXTS and field.kind is list:
        sub.add_argument(field.option, dest=field.name, nargs="+", metavar="TEXT", help=about)
    else:
        names = ["-o", "--output"] if field.name == "output" else [field.option]
        about += f" (default: {in_words(field.default)})" if field.shows_default else ""
        kind, needed = field.read(), field.needed
        sub.add_argument(*names, dest=field.name, type=kind, metavar=field.metavar, required=needed, help=about)
