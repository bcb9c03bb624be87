"""Which program and which weights answer a request now: what a run's id is made of, beside the request itself."""

from analysis import places
from analysis.runs.keys import canonical, check_verb, request_key
from analysis.studies.registry import VERBS


def made_by(verb: object, request: object) -> tuple[int, str | None]:
    """(version, revision) that answer `verb` with the arguments `request` now: the version of the verb as the registry
    has it, and the revision of the model that is named, of two models both. None where weights of one are not on this
    disk, so that nobody can say yet which they will be. BadSetting for a request that cannot be."""
    known = VERBS.get(check_verb(verb))
    asked = canonical(request)
    model = asked.get("model") or "demo"
    names = dict.fromkeys(map(str, (model, asked.get("other_model") or model)))
    found = [places.revision(name, places.CACHE) for name in names]
    return known.version if known else 1, None if None in found else "+".join(filter(None, found))


def key(verb: object, request: object) -> str:
    """The id of the run that answers `verb` with the arguments `request` by today's program and weights."""
    return request_key(verb, request, *made_by(verb, request))
