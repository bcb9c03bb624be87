"""`docs/commands.md`: every verb and named study with its options, generated from the registry and the signatures."""

from inspect import Parameter
from pathlib import Path

from analysis.cli import words
from analysis.cli.options import SHARED, takes_methods
from analysis.cli.signatures import explained, parameters
from analysis.commandline import FLAGS, option, word
from analysis.files import write_json, write_whole
from analysis.jobs.client import keep
from analysis.runs.run import Result, without_model
from analysis.studies import STUDIES, describe
from analysis.studies.registry import STORED, VERBS, Verb
from analysis.take.schema import schema

PLACE = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
SCHEMA = PLACE.with_name("policy.schema.json")


def commands(output: str = "") -> Result:
    """Write `docs/commands.md` and the schema of policy.json beside it, and keep what pages ask of methods; or `output`
    alone. numbers: `path`, `verbs`."""
    path = Path(output) if output else PLACE
    if not output:
        keep({"verbs": list(STUDIES), "methods": describe()})
        write_json(SCHEMA, schema())
    with write_whole(path) as place:
        place.write_text(document(), encoding="utf-8")
    return without_model("commands", {"path": str(path), "verbs": list(VERBS)})


def document() -> str:
    """The page, Markdown."""
    parts = [Path(__file__).with_name("commands.md").read_text(encoding="utf-8").rstrip()]
    for verb, known in VERBS.items():
        if verb != "study":
            parts += _section("##", verb, None, known)
            continue
        parts += ["## study NAME", f"{known.title}. Each name has options of its own."]
        for name, one in STORED.items():
            parts += _section("###", verb, name, one)
    return "\n\n".join(parts) + "\n"


def _section(mark: str, verb: str, study: str | None, known: Verb) -> list[str]:
    parts = parameters(verb, study)
    usages = [usage for name in parts if name != "name" or not study if (usage := word(verb, name))]
    line = " ".join(["python -m analysis", verb, *([study] if study else []), *usages])
    said = [f"{mark} {f'study {study}' if study else verb}", f"{known.title}.", f"```\n{line}\n```"]
    rows = [_row(verb, study, one) for name, one in parts.items() if name not in SHARED and not word(verb, name)]
    table = ["| option | default | meaning |", "|---|---|---|", *rows]
    notes = ["It takes `--set`, `--router` and `--policy`."] if takes_methods(parts) else []
    notes += ["A shared demo refuses it."] if known.changes or known.exclusive else []
    return [*said, *(["\n".join(table)] if rows else []), *([" ".join(notes)] if notes else [])]


def _row(verb: str, study: str | None, parameter: Parameter) -> str:
    name, default = parameter.name, parameter.default
    kind, item = words.kind(parameter.annotation, default)
    if name in FLAGS:
        return "\n".join(f"| `{flag}` |  | {words.HELP[flag]} |" for flag in FLAGS[name].values())
    if kind is bool:
        plain = name.replace("_", "-")
        shown, usual = f"--{plain}`, `--no-{plain}", f"--{'' if default else 'no-'}{plain}"
    else:
        shown = f"{option(verb, name)} {words.shown(kind, item, name)}"
        usual = "needed" if default is Parameter.empty else "" if default in (None, "") else str(default)
    return f"| `{shown}` | {f'`{usual}`' if usual not in ('', 'needed') else usual} | {explained(verb, study, name)} |"
