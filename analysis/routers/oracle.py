"""The oracle: the buckets that hold most of the attention, known after the fact."""

from torch import Tensor

from analysis.errors import BadSetting
from analysis.routers.base import Router


class Oracle(Router):
    """Scores a bucket by the mass it really has: no choice of l buckets of the same partition holds more."""

    kind = "oracle"
    reads = frozenset({"mass"})

    def scores(self, queries, positions=None, labels=None, mass=None, min_distance=0) -> Tensor:
        if mass is None:
            raise BadSetting("The oracle needs the mass of every bucket for every query.")
        return mass
