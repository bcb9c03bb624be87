"""`docs/commands.md`: every command and stored study with its options, generated from their declarations."""

import sys
from pathlib import Path

from ..commands import COMMANDS
from ..declaration import Field, in_words
from ..files import write_json, write_whole
from ..jobs.client import keep
from ..runs.run import Result, without_model
from ..studies import describe
from ..studies.registry import STORED
from ..take.schema import schema
from .options import SHARED, fields, takes_methods

PLACE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
SCHEMA = PLACE.with_name("policy.schema.json")


def commands(output: str = "") -> Result:
    """Write `docs/commands.md` and the schema of policy.json beside it, and keep what pages ask of methods; or `output`
    alone. numbers: `path`, `verbs`."""
    path = Path(output) if output else PLACE
    if not output:
        keep(describe())
        write_json(SCHEMA, schema())
    with write_whole(path) as place:
        place.write_text(document(), encoding="utf-8")
    return without_model("commands", {"path": str(path), "verbs": list(COMMANDS)})


def document() -> str:
    """The page, Markdown: one section for each module of commands."""
    parts = [Path(__file__).with_name("commands.md").read_text(encoding="utf-8").rstrip()]
    heading = ""
    for verb, command in COMMANDS.items():
        room = (sys.modules[command.__module__].__doc__ or "").strip().removesuffix(".")
        parts += [f"## {room}"] if room != heading else []
        heading = room
        if verb != "study":
            note = "" if command.in_a_demo() else "A shared demo refuses it."
            parts += _section(verb, None, command.title, note)
            continue
        parts += ["### study NAME", f"{command.title}. Each name has options of its own."]
        for name, study in STORED.items():
            parts += _section(verb, name, study.title, "A shared demo refuses it.")
    return "\n\n".join(parts) + "\n"


def _section(verb: str, study: str | None, title: str, note: str) -> list[str]:
    declared = fields(verb, study)
    words = [field.declared.word for field in declared.values() if field.declared.word]
    name = f"study {study}" if study else verb
    usage = " ".join(["python -m analysis", name, *words])
    rows = [_row(field) for field in declared.values() if field.name not in SHARED and not field.declared.word]
    table = ["| option | default | meaning |", "|---|---|---|", *rows]
    notes = ["It takes `--set`, `--router` and `--policy`."] if takes_methods(declared) else []
    notes += [note] if note else []
    parts = [f"{'####' if study else '###'} {name}", f"{title}.", f"```\n{usage}\n```"]
    return [*parts, *(["\n".join(table)] if rows else []), *([" ".join(notes)] if notes else [])]


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
