"""What a run answers: a request, by one version of a verb, about certain weights; its id is made of all of them."""

from dataclasses import dataclass
from typing import Any

from analysis import places
from analysis.runs.keys import canonical, check_verb, request_key
from analysis.studies.registry import VERBS


@dataclass(frozen=True)
class Asked:
    """A request and what answers it: the `version` of its verb (0: of before versions were counted) and the `revision`
    of the weights, joined by "+" for two models; None where those of one lie not on this disk, so that nobody can say
    yet which they will be."""

    verb: str
    request: dict[str, Any]
    version: int
    revision: str | None = None

    @property
    def key(self) -> str:
        """The id of the run that answers."""
        return request_key(self.verb, self.request, self.version, self.revision)

    @property
    def question(self) -> str:
        """The id without the weights."""
        return request_key(self.verb, self.request, self.version)


def asked_now(verb: str, request: dict[str, Any]) -> Asked:
    """A request as it stands with this program and the weights on this disk. BadSetting for one that cannot be."""
    known, clean = VERBS.get(check_verb(verb)), canonical(request)
    model = clean.get("model") or "demo"
    names = dict.fromkeys(map(str, (model, clean.get("other_model") or model)))
    found = [places.revision(name, places.CACHE) for name in names]
    revision = None if None in found else "+".join(filter(None, found))
    return Asked(verb, clean, known.version if known else 1, revision)
