"""What a command computed, stored as the run that pages, `runs` and `take` open by its id."""

import sys
from contextlib import closing
from pathlib import Path

from ..commands import COMMANDS
from ..errors import AnalysisError
from ..places import CACHE, locate, plain_name
from ..runs import Result, RunStore
from .asked import Asked


def request_of(asked: Asked) -> dict:
    """The request that a command's run answers. Folders are named whole, for another working directory; fitted state
    elsewhere is part of it, so that no page takes the run for one of the state that it reads itself."""
    request = dict(asked.arguments)
    for name in {"model", "other_model"} & request.keys():
        place = locate(request[name])
        if isinstance(place, Path) and CACHE not in place.resolve().parents:
            request[name] = request[name].replace(plain_name(request[name]), str(place.resolve()), 1)
    return request | ({"state": str(asked.state.resolve())} if asked.state else {})


def store(asked: Asked, result: Result, seconds: float) -> str | None:
    """Store the result of a command whose runs a page shows; the id of the run, None where there is none. Why it could
    not be stored is said on standard error: the result itself is sound."""
    command = COMMANDS[asked.verb]
    if not (command.of_worker() and command.page) or command.stored:
        return None
    protocol = result.numbers["protocol"]
    revision = None if "other_model" in asked.arguments else protocol.get("revision")
    try:
        request = request_of(asked)
        with closing(RunStore()) as runs:
            for name, text in asked.texts.values():
                runs.put_text(text, name)
            key = runs.key(asked.verb, request)
            if command.exclusive and runs.has(key) and not runs.open(key).marks.pinned:
                runs.discard(key)  # times differ from run to run, and the new ones are those that were printed
            return runs.put(asked.verb, request, result, protocol, seconds, revision).id
    except (AnalysisError, OSError) as error:
        print(f"This result is not stored: {error}", file=sys.stderr)
        return None
