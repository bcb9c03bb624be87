"""The parser of the command line: the options of a command are its declared fields.

An option that was not given is not passed on, so that the declared default holds.
"""

import argparse
import contextlib
import io
import shlex
from pathlib import Path

from ..commands import COMMANDS
from ..declaration import Field, fields_of, in_words, nested
from ..declaration.written import METHODS, TEXTS
from ..errors import AnalysisError, BadSetting
from ..package import PROGRAM, version
from ..runs.arguments import parameters
from ..studies import NAMED
from ..studies.registry import STORED

SHARED = ("model", "seed")  # of every verb, used or not


class _Parser(argparse.ArgumentParser):
    """Refuses nonsense in one sentence; the usage stands in --help."""

    def error(self, message: str):
        """End with one sentence and status 2."""
        short = message if len(message) < 400 else message.split(" (choose from")[0]
        self.exit(2, f"{self.prog}: {short}; see --help.\n")


class _VerbParser(_Parser):
    """Learns its options when its verb, or its named study, is asked for."""

    asked: tuple[str, str | None] | None = None

    def parse_known_args(self, args=None, namespace=None):
        """As every parser, once the options are there."""
        if self.asked is not None:
            command, self.asked = self.asked, None
            try:
                _options(self, *command)
            except AnalysisError as error:
                self.exit(2, f"{self.prog}: {error}\n")
        return super().parse_known_args(args, namespace)


def parser(about: str) -> argparse.ArgumentParser:
    """The parser of every verb: `verb` and what was given to it, named as its fields."""
    program = _Parser(prog=PROGRAM, description=about)
    program.add_argument("--version", action="version", version=f"focuscope {version()}")
    verbs = program.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_VerbParser)
    for verb, command in COMMANDS.items():
        verb_parser = verbs.add_parser(
            verb, help=command.title, description=command.title, argument_default=argparse.SUPPRESS
        )
        if verb != "study":
            verb_parser.asked = (verb, None)
            continue
        names = verb_parser.add_subparsers(dest="name", required=True, metavar="NAME", parser_class=_VerbParser)
        for name, study in STORED.items():
            study_parser = names.add_parser(
                name, help=study.title, description=study.title, argument_default=argparse.SUPPRESS
            )
            study_parser.asked = (verb, name)
    return program


def parsed(line: str) -> dict:
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
    if study is None:
        return {field.name: field for field in fields_of(COMMANDS[verb])}
    of_study = {field.name: field for field in fields_of(COMMANDS["study"])}
    return {field.name: field if field.declared.help else of_study[field.name] for field in parameters(NAMED[study])}


def _options(sub: argparse.ArgumentParser, verb: str, study: str | None) -> None:
    """What a verb takes, named as its fields, and what every verb takes."""
    declared = fields(verb, study)
    for field in declared.values():
        if field.name not in SHARED:
            _add(sub, field)
    sub.add_argument("--model", metavar="MODEL", help=fields("inspect")["model"].declared.help)
    sub.add_argument("--seed", type=int, metavar="N", help=fields("groups")["seed"].declared.help)
    if takes_methods(declared):
        for name, read in (("router", str), ("policy", nested)):
            if name not in declared:
                about = fields("groups" if name == "router" else "budgets")[name].declared.help
                sub.add_argument(f"--{name}", type=read, metavar=name.upper(), help=about)
    about = "a method's setting"
    sub.add_argument("--set", action="append", default=[], metavar="METHOD.FIELD=VALUE", help=about)
    about = "fitted state (default: models_cache/state, then what came with the model)"
    sub.add_argument("--state", type=Path, default=None, metavar="DIR", help=about)
    sub.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda, ... (default: auto)")
    about = "say what would run, its price and what is stored; run nothing"
    sub.add_argument("--plan", action="store_true", default=False, help=about)
    about = "one JSON object as the last line of standard output"
    sub.add_argument("--json", action="store_true", default=False, help=about)


def takes_methods(declared: dict[str, Field]) -> str | None:
    """The field that names methods with their settings, or None."""
    return next(
        (name for name in METHODS if name in declared and dict in (declared[name].kind, declared[name].item)), None
    )


def _add(sub: argparse.ArgumentParser, field: Field) -> None:
    declared, about, word = field.declared, field.declared.help, field.declared.word
    if word:
        several = "*" if word.startswith("[") else "+"
        count = several if word.endswith(("...", "...]")) else "?" if word.startswith("[") else None
        repeated = {} if count is None else {"nargs": count}
        sub.add_argument(field.name, metavar=word.strip("[.]"), type=field.item or field.read(), help=about, **repeated)
    elif declared.flags:
        for value, (flag, meaning) in declared.flags.items():
            sub.add_argument(flag, dest=field.name, action="store_const", const=value, help=meaning)
    elif field.kind is bool:
        flag = {"dest": field.name, "action": argparse.BooleanOptionalAction}
        help_text = f"{about} (default: {'yes' if field.default else 'no'})"
        sub.add_argument(f"--{field.name.replace('_', '-')}", help=help_text, **flag)
    elif field.name in TEXTS and field.kind is list:
        sub.add_argument(field.option, dest=field.name, nargs="+", metavar="TEXT", help=about)
    else:
        names = ["-o", "--output"] if field.name == "output" else [field.option]
        help_text = f"{about} (default: {in_words(field.default)})" if field.shows_default else about
        required = field.needed
        sub.add_argument(
            *names, dest=field.name, type=field.read(), metavar=field.metavar, required=required, help=help_text
        )
