"""Methods as the long-context probes ask them: those that decide at the end of a prompt more than once."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.methods.base import Method
from analysis.probes.scoring import KNOWN
from analysis.studies.ready.candidates import Candidate

ROOM = 64  # tokens for another question and its answer


@dataclass(frozen=True)
class Way:
    """A method and the `turn` at which it sees the question (`probes.scoring.TURNS`)."""

    name: str
    label: str
    method: Method
    turn: str = KNOWN


def ways(methods: Sequence[Candidate], turns: Sequence[str]) -> list[Way]:
    """Each method, once for every turn where it decides at the end of a prompt."""
    listed = []
    for candidate in methods:
        late = candidate.method.saves != "reads"
        turns_of_method = (
            [(f"{candidate.label}, {turn}", turn) for turn in turns] if late else [(candidate.label, KNOWN)]
        )
        listed += [Way(candidate.name, label, candidate.method, turn) for label, turn in turns_of_method]
    return listed
