"""An MCP server over standard input and output: agents ask verbs that read local texts, each for its price first."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..answer import Answer, doc, record
from ..commands import COMMANDS
from ..corpus import sample_texts
from ..declaration import fields_of
from ..declaration.written import TEXTS
from ..errors import AnalysisError, BadSetting, Cancelled
from ..package import installs, version
from ..places import CACHE, locate
from ..runs.run import no_model
from .asked import Asked, asked
from .options import parsed
from .plan import plan
from .shown import answer, dumped, schema_of

# Of a price, or the run is refused.
MOST_SECONDS = 600
# Of one text, and texts at once.
MOST_BYTES, MOST_TEXTS = 1_000_000, 20
MOST_ANSWER = 400_000  # characters of an answer
# Options that name other files and folders.
FILES = ("state", "output", "work", "corpus", "data", "runs")
ABOUT = (
    "Focuscope measures what long-context attention reads. Nothing is downloaded, trained or timed here, and only text "
    "files of one folder are read. Ask `price` with the same verb and words before `run`; `help` explains a verb."
)


@record
class Served(Answer):
    """A server that has ended."""

    folder: str = doc("of the texts")


def reading() -> dict[str, str]:
    """The verbs that are offered, with what they say: they read texts, change nothing that others see and do not take
    the machine for themselves."""
    return {
        verb: command.title
        for verb, command in COMMANDS.items()
        if command.of_worker()
        and command.in_a_demo()
        and {"text", "texts"} & {part.name for part in fields_of(command)}
    }


class Desk:
    """What the server answers. `root`: the folder of the texts."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.priced: set[tuple[str, str]] = set()

    def help(self, verb: str) -> str:
        """How the words of a verb are written, and the JSON Schema of what it answers. Errors: BadSetting."""
        self._offered(verb)
        try:
            parsed(f"{verb} --help")
        except BadSetting as told:
            return f"{told}\n\nIts answer: {dumped(schema_of(verb))}"
        raise AssertionError("--help ends the parser")

    def price(self, verb: str, words: str) -> dict[str, Any]:
        """What `run` with the same verb and words would do and cost, as `plan` says it. A study refuses what it refuses
        before it computes, so it is begun, and left at the first pass. Errors: AnalysisError."""
        wanted = self._asked(verb, words)
        planned = plan(wanted)
        if planned["price"]["seconds"] > MOST_SECONDS:
            raise BadSetting(f"{planned['price']['said']}, and at most {MOST_SECONDS} s are run here: ask for less.")
        from ..models.loading import try_seam

        for name in {"model", "other_model"} & wanted.arguments.keys():
            # Loading does it else, and its passes are not those of the study.
            try_seam(wanted.arguments[name])
        with contextlib.redirect_stdout(sys.stderr), _left_at_the_first_pass():
            wanted.run(lambda fraction, stage: None)
        self.priced.add((verb, words))
        return planned

    def run(self, verb: str, words: str) -> dict[str, Any]:
        """What the verb answers, as `--json` prints it. Errors: AnalysisError; BadSetting before `price` was asked."""
        wanted = self._asked(verb, words)
        if (verb, words) not in self.priced:
            raise BadSetting("Ask `price` with the same verb and words first.")
        # Standard output belongs to the protocol.
        with contextlib.redirect_stdout(sys.stderr):
            reply = answer(verb, wanted.run(lambda fraction, stage: None))
        if (size := len(dumped(reply))) > MOST_ANSWER:
            raise BadSetting(
                f"The answer has {size:,} characters and {MOST_ANSWER:,} are sent: ask about a shorter text."
            )
        return reply

    def _offered(self, verb: str) -> None:
        if verb not in reading():
            raise BadSetting(f"{verb[:40]!r} is not offered here; there are: {', '.join(reading())}.")

    def _asked(self, verb: str, words: str) -> Asked:
        self._offered(verb)
        options = parsed(f"{verb} {words}")
        if named := [name for name in FILES if options.get(name)]:
            raise BadSetting(f"--{named[0]} names files, and only texts are read here: leave it out.")
        for name in ("model", "other_model"):
            place = locate(options[name]) if options.get(name) else None
            if isinstance(place, Path) and not self._inside(place) and CACHE.resolve() not in place.resolve().parents:
                raise BadSetting(f"{options[name][:80]!r} lies outside {self.root}: name a model by its id.")
        values = [options[name] for name in TEXTS if options.get(name)]
        places = [text for value in values for text in (value if isinstance(value, list) else [value])]
        if len(places) > MOST_TEXTS:
            raise BadSetting(f"{len(places)} texts were named and {MOST_TEXTS} are read at once.")
        for text in places:
            self._check_text(text)
        return asked(options)

    def _check_text(self, place: str) -> None:
        path = Path(place)
        if place in sample_texts() and not path.exists():
            return
        if not self._inside(path) or not path.is_file():
            raise BadSetting(
                f"{place[:80]!r} is no text file in {self.root}: name one, or {', '.join(sample_texts())}."
            )
        if (size := path.stat().st_size) > MOST_BYTES:
            raise BadSetting(f"{place[:80]!r} has {size:,} bytes and {MOST_BYTES:,} are read here: take a part of it.")

    def _inside(self, path: Path) -> bool:
        return self.root in path.resolve().parents


class _Begun(Cancelled):
    """A study came to its first pass."""


@contextlib.contextmanager
def _left_at_the_first_pass() -> Iterator[None]:
    """Leave the block without an error where its thread, of several that serve, first calls a module of a model."""
    from torch.nn.modules.module import register_module_forward_pre_hook

    thread = threading.get_ident()

    def leave(module: Any, args: Any) -> None:
        if threading.get_ident() == thread:
            raise _Begun

    hook = register_module_forward_pre_hook(leave)
    try:
        yield
    except _Begun:
        pass
    finally:
        hook.remove()


def server(root: Path) -> Any:
    """The server, with the tools `help`, `price` and `run`. Errors: BadSetting where the package `mcp` is missing."""
    try:
        from mcp.server import MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
    except ImportError:
        raise BadSetting(f"The package mcp 2 is missing: {installs('mcp')}.") from None
    desk, mcp = Desk(root), MCPServer("focuscope", instructions=ABOUT, version=version())
    verbs = "; ".join(f"{verb}: {title}" for verb, title in reading().items())

    def told(call: Callable[..., Any], *arguments: str) -> Any:
        try:
            return call(*arguments)
        except AnalysisError as error:
            raise ToolError(str(error)) from None
        except OSError as error:
            raise ToolError(f"A file cannot be used: {error.strerror}.") from None

    @mcp.tool(name="help", description=f"How a verb is asked, and what it answers. Verbs: {verbs}.")
    def help_(verb: str) -> str:
        return told(desk.help, verb)

    @mcp.tool(description="What a run would do and cost. Words: as after the verb on the command line, text first.")
    def price(verb: str, words: str) -> str:
        return dumped(told(desk.price, verb, words))

    @mcp.tool(description="The answer as JSON, after `price` was asked with the same verb and words.")
    def run(verb: str, words: str) -> str:
        return dumped(told(desk.run, verb, words))

    return mcp


def mcp() -> Served:
    """Serve agents over standard input and output until they close it; texts are those of the folder that it is
    started in. Errors: BadSetting where the package `mcp` is missing."""
    # Before anything asks the Hub.
    os.environ["HF_HUB_OFFLINE"] = "1"
    server(Path.cwd()).run("stdio")
    return Served(folder=str(Path.cwd()), protocol=no_model("mcp"))
