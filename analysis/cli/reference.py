"""`docs/commands.md`: every command and stored study with its options, generated from their declarations."""

import sys
from pathlib import Path

from ..answer import Answer, doc, record
from ..commands import COMMANDS
from ..commands.runs import Commands
from ..declaration import Field, in_words
from ..files import write_json, write_whole
from ..jobs.client import keep
from ..runs.run import no_model
from ..studies import describe
from ..studies.registry import STORED
from ..take.schema import schema
from .options import SHARED, fields, takes_methods

PLACE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
SCHEMA = PLACE.with_name("policy.schema.json")
REFUSED = "A shared demo refuses it."


@record
class Reference(Answer):
    """The reference of the command line."""

    path: str = doc("of the file that was written")
    verbs: list[str] = doc("in it")


def commands(request: Commands) -> Reference:
    """Write `docs/commands.md` and the schema of policy.json beside it, and keep what pages ask of methods; or `output`
    alone."""
    path = Path(request.output) if request.output else PLACE
    if not request.output:
        keep(describe())
        write_json(SCHEMA, schema())
    with write_whole(path) as place:
        place.write_text(document(), encoding="utf-8")
    return Reference(path=str(path), verbs=list(COMMANDS), protocol=no_model("commands"))


def document() -> str:
    """The page, Markdown: one section for each module of commands."""
    parts = [Path(__file__).with_name("commands.md").read_text(encoding="utf-8").rstrip()]
    heading = ""
    for verb, command in COMMANDS.items():
        room = (sys.modules[command.__module__].__doc__ or "").strip().removesuffix(".")
        parts += [f"## {room}"] if room != heading else []
        heading = room
        if verb != "study":
            parts += _section(verb, None, command.title, "" if command.in_a_demo() else REFUSED)
            continue
        parts += ["### study NAME", f"{command.title}. Each name has options of its own."]
        for name, study in STORED.items():
            parts += _section(verb, name, study.title, REFUSED)
    return "\n\n".join(parts) + "\n"


def _section(verb: str, study: str | None, title: str, note: str) -> list[str]:
    declared = fields(verb, study)
    words = [field.declared.word for field in declared.values() if field.declared.word]
    name = f"study {study}" if study else verb
    rows = [_row(field) for field in declared.values() if field.name not in SHARED and not field.declared.word]
    table = "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])
    methods = "It takes `--set`, `--router` and `--policy`." if takes_methods(declared) else ""
    usage = "```\n" + " ".join(["python -m analysis", name, *words]) + "\n```"
    parts = [f"{'####' if study else '###'} {name}", f"{title}.", usage, table if rows else ""]
    return [part for part in [*parts, " ".join(filter(None, [methods, note]))] if part]


def _row(field: Field) -> str:
    if field.declared.flags:
        return "\n".join(f"| `{flag}` |  | {meaning} |" for flag, meaning in field.declared.flags.values())
    if field.kind is bool:
        plain = field.name.replace("_", "-")
        option, default = f"--{plain}`, `--no-{plain}", f"--{'' if field.default else 'no-'}{plain}"
    else:
        option = f"{field.option} {field.metavar}"
        default = "" if field.needed or field.default in (None, "") else in_words(field.default)
    default_cell = "needed" if field.needed else f"`{default}`" if default else ""
    return f"| `{option}` | {default_cell} | {field.declared.help} |"
