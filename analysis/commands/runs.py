"""Stored runs, and what serves this program."""

from ..declaration import field
from ..declaration.command import Command, seed


class Runs(Command):
    """The stored runs of the app, found by words."""

    place = "analysis.runs.commands:runs"

    words: list[str] | None = field(None, "list only runs that contain all of these words", word="[WORD...]")
    examples: bool = field(False, "list the bundled examples too")
    runs: str | None = field(None, "state folder of the app (default: FOCUSCOPE_STATE, else the app's own)")


class BundleOut(Command):
    """Export of stored runs and their texts as one file, for another machine."""

    place = "analysis.runs.commands:bundle_out"
    changes = True

    ids: list[str] = field(help="the 12-digit numbers listed by `runs`", word="RUN...")
    output: str = field(help="file or folder to write")
    runs: str | None = field(None, "state folder of the app (default: FOCUSCOPE_STATE, else the app's own)")


class BundleIn(Command):
    """Import of such a file: names, sizes, schema and checksums are checked before anything is kept."""

    place = "analysis.runs.commands:bundle_in"
    changes = True

    bundle: str = field(help="a file written by `bundle-out`", word="FILE.zip")
    runs: str | None = field(None, "state folder of the app (default: FOCUSCOPE_STATE, else the app's own)")


class Schema(Command):
    """The JSON Schema of what a verb answers with --json."""

    place = "analysis.cli.shown:schema"

    of: str = field(help="the verb", word="VERB")
    name: str = field("", "of `study`: which one", word="[NAME]")


class Mcp(Command):
    """An MCP server over standard input and output: the verbs that read texts, each with its price."""

    place = "analysis.cli.server:mcp"


class Commands(Command):
    """Docs/commands.md, from the registry of verbs."""

    place = "analysis.cli.reference:commands"
    changes = True

    output: str = field("", "file or folder to write")


class Spread(Command):
    """One study in many parts, over the values of an argument, on several workers or a Ray cluster."""

    place = "analysis.cluster.spread:spread_command"
    changes = True
    exclusive = True

    study: str = field(help="a verb, or the name of a study", word="STUDY")
    over: str = field(
        "",
        "the argument to vary and its values, as NAME=A,B,C; without it, a study that hands out parts of its own: "
        "search",
    )
    given: str = field("{}", "the other arguments, as a JSON object")
    engine: str = field("local", "where parts run: local, ray, or ray://HOST:10001")
    workers: int = field(2, "number of parts that run at the same time; each loads its own model", low=1, high=256)
    gpus: float = field(0.0, "GPUs for each worker on Ray")


class Stress(Command):
    """Load, faults and hostile input on the real app, bounded and on loopback."""

    place = "tests.stress.parts:stress"
    changes = True
    exclusive = True

    parts: list[str] | None = field(
        None,
        "what to run: load, faults, kills, validators, pages, chromium (default: all)",
        options=("load", "faults", "kills", "validators", "pages", "chromium"),
    )
    sessions: int = field(60, "number of readers at the same time", low=1, high=200)
    arrive: float = field(120.0, "seconds within which the readers come", low=0, high=3600)
    seconds: float = field(600.0, "seconds of load", low=1, high=3600)
    every: float = field(20.0, "seconds between two interactions of one reader", low=0.1, high=600)
    after: float = field(
        300.0, "seconds after the load, until the memory is read again (0: it is not)", low=0, high=3600
    )
    validators: int = field(9000, "number of hostile inputs into the checks of input", low=1, high=1_000_000)
    pages: int = field(900, "number of hostile inputs into pages", low=1, high=100_000)
    chromium: int = field(100, "number of hostile inputs in a browser", low=1, high=10_000)
    seed: int = seed()
    output: str | None = field(None, "file or folder to write")
