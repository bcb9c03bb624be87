"""Columns that rows of several studies share: a paired change against dense attention, and what was read."""

from dataclasses import fields
from typing import Any

from ...answer import doc, record
from ...metrics.paired import Change


@record
class Difference:
    """Paired change of perplexity against dense attention, as a share of it: 0.02 is 2% worse."""

    difference: float = doc("paired change of perplexity against dense attention: 0.02 is 2% worse")
    low: float | None = doc("lower end of its 95% interval; null with too few units")
    high: float | None = doc("upper end of its 95% interval")
    units: int = doc("units of that interval")
    unit: str = doc("what such a unit is")


@record
class ReadShares:
    """What the queries read, over all layers and heads."""

    attended: float = doc("keys that a query reads on average")
    reads_causal: float = doc("share of the causal pairs that a query head reads")
    reads_kv: float = doc("share of the causal pairs that a key-value head reads")
    attended_kv: float = doc("keys that the queries of a key-value head read together on average")
    kv_read: float = doc("share of the key and value vectors that is fetched")
    sharing: float = doc("how many times more keys a key-value head reads than a query head")


def columns(kind: type, source: Any) -> dict[str, Any]:
    """The fields of a row's part `kind`, read off the attributes of what was measured."""
    change = {"difference": source.change} if isinstance(source, Change) else {}
    return change | {part.name: getattr(source, part.name) for part in fields(kind) if part.name not in change}
