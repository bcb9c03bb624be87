"""The parser of the command line: the options of a verb are the parameters of its function, read when it is asked for.

An option that was not given is not passed on, so that the function's own default holds.
"""

import argparse
import contextlib
import io
import shlex
from inspect import Parameter
from pathlib import Path

from analysis.cli import words
from analysis.cli.signatures import explained, parameters
from analysis.commandline import FLAGS, METHODS, PROGRAM, option, word
from analysis.errors import AnalysisError, BadSetting
from analysis.package import version
from analysis.studies.registry import STORED, VERBS

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
            asked, self.asked = self.asked, None
            try:
                _options(self, *asked)
            except AnalysisError as error:
                self.exit(2, f"{self.prog}: {error}\n")
        return super().parse_known_args(args, namespace)


def parser(about: str) -> argparse.ArgumentParser:
    """The parser of every verb: `verb` and what was given to it, named as the parameters of its function."""
    made = _Parser(prog=PROGRAM, description=about)
    made.add_argument("--version", action="version", version=f"focuscope {version()}")
    verbs = made.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=_VerbParser)
    for verb, known in VERBS.items():
        own = verbs.add_parser(verb, help=known.help, description=known.help, argument_default=argparse.SUPPRESS)
        if verb != "study":
            own.asked = (verb, None)
            continue
        names = own.add_subparsers(dest="name", required=True, metavar="NAME", parser_class=_VerbParser)
        for name, study in STORED.items():
            one = names.add_parser(name, help=study.help, description=study.help, argument_default=argparse.SUPPRESS)
            one.asked = (verb, name)
    return made


def parsed(line: str) -> dict:
    """What stands in a command line without its program, such as "pairs story --min-distance 512". Errors: BadSetting
    with the sentence that the command line says, or the help that was asked for."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            return vars(parser("").parse_args(shlex.split(line)))
    except ValueError as error:
        raise BadSetting(f"{line[:80]!r} is no command line: {error}.") from None
    except SystemExit:
        raise BadSetting(said.getvalue().strip()) from None


def _options(sub: argparse.ArgumentParser, verb: str, study: str | None) -> None:
    """What a verb takes, named as its parameters, and what every verb takes."""
    known = parameters(verb, study)
    for name, parameter in known.items():
        if name not in SHARED and not (study is not None and name == "name"):
            _add(sub, verb, parameter, explained(verb, study, name))
    sub.add_argument("--model", metavar="MODEL", help=words.explained(verb, "model"))
    sub.add_argument("--seed", type=int, metavar="N", help=words.explained(verb, "seed"))
    if takes_methods(known):
        for name, read in (("router", str), ("policy", words.nested)):
            if name not in known:
                sub.add_argument(f"--{name}", type=read, metavar=name.upper(), help=words.explained(verb, name))
    about = "a method's setting"
    sub.add_argument("--set", action="append", default=[], metavar="METHOD.FIELD=VALUE", help=about)
    about = "fitted state (default: models_cache/state, then what came with the model)"
    sub.add_argument("--state", type=Path, default=None, metavar="DIR", help=about)
    sub.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda, ... (default: auto)")
    about = "say what would run, its price and what is stored; run nothing"
    sub.add_argument("--plan", action="store_true", default=False, help=about)
    about = "one JSON object as the last line of standard output"
    sub.add_argument("--json", action="store_true", default=False, help=about)


def takes_methods(known: dict[str, Parameter]) -> str | None:
    """The parameter that names methods with their settings, or None."""
    found = [name for name in METHODS if name in known]
    kinds = [words.kind(known[name].annotation, known[name].default) for name in found]
    return next((name for name, kind in zip(found, kinds, strict=True) if dict in kind), None)


def _add(sub: argparse.ArgumentParser, verb: str, parameter: Parameter, about: str) -> None:
    name, default = parameter.name, parameter.default
    kind, item = words.kind(parameter.annotation, default)
    read = words.reader(kind, item)
    if (usage := word(verb, name)) is not None:
        listed = "*" if usage.startswith("[") else "+"
        count = listed if usage.endswith(("...", "...]")) else "?" if usage.startswith("[") else None
        kept = {} if count is None else {"nargs": count}
        sub.add_argument(name, metavar=usage.strip("[.]"), type=item or read, help=about, **kept)
    elif name in FLAGS:
        for value, flag in FLAGS[name].items():
            sub.add_argument(flag, dest=name, action="store_const", const=value, help=words.HELP[flag])
    elif kind is bool:
        flag = {"dest": name, "action": argparse.BooleanOptionalAction}
        sub.add_argument(f"--{name.replace('_', '-')}", help=f"{about} (default: {'yes' if default else 'no'})", **flag)
    elif name == "against":
        sub.add_argument(option(verb, name), dest=name, nargs="+", metavar="TEXT", help=about)
    else:
        plain = default is not Parameter.empty and default not in (None, "") and "(default:" not in about
        about = f"{about} (default: {default})" if plain else about
        names = ["-o", "--output"] if name == "output" else [option(verb, name)]
        required = default is Parameter.empty
        shown = words.shown(kind, item, name)
        sub.add_argument(*names, dest=name, type=read, metavar=shown, required=required, help=about)
