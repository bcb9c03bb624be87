"""Changes of budgets by hand as one word of the URL, as plain data for the verb `budgets`, and in words.

`l3x0.5~c5.9s64~h2p`: layer 3 scaled by 0.5, then the heads 5 and 9 (layer * heads + head) set to 64 keys, then head 2
of every layer pinned. No place in front means every head.
"""

import re
from collections.abc import Sequence
from typing import Any

EDIT = re.compile(
    r"(?:(?P<axis>[lh])(?P<index>\d{1,4})|c(?P<cells>\d{1,6}(?:\.\d{1,6})*))?"
    r"(?:s(?P<set>\d{1,9})|x(?P<scale>\d{1,3}(?:\.\d{1,4})?)|(?P<pin>p))"
)
AXES = {"l": "layer", "h": "head"}
MOST = 1500  # characters of the word


def parse(word: str | None) -> list[dict]:
    """The changes that a word of the URL names, in their order. Errors: ValueError for what is none."""
    edits = []
    for part in word.split("~") if word else ():
        match = EDIT.fullmatch(part)
        if not match:
            raise ValueError(part)
        edit: dict[str, Any] = {"set": int(match["set"])} if match["set"] else {"pin": True}
        if match["scale"]:
            edit = {"scale": float(match["scale"])}
        if match["axis"]:
            edit[AXES[match["axis"]]] = int(match["index"])
        if match["cells"]:
            edit["cells"] = [int(cell) for cell in match["cells"].split(".")]
        edits.append(edit)
    return edits


def spell(edits: Sequence[dict]) -> str | None:
    """The word of the URL for changes; None without any."""
    return "~".join(map(_spelled, edits)) or None


def _spelled(edit: dict) -> str:
    where = next((f"{sign}{edit[name]}" for sign, name in AXES.items() if name in edit), "")
    if "cells" in edit:
        where = f"c{'.'.join(map(str, edit['cells']))}"
    return where + (f"s{edit['set']}" if "set" in edit else f"x{edit['scale']:g}" if "scale" in edit else "p")


def words(edit: dict, heads: int, layers: Sequence[int]) -> str:
    """A change as a reader says it; `heads` in a layer, `layers` the numbers of those that have heads."""
    if "layer" in edit:
        where = f"all heads of layer {layers[edit['layer']]}"
    elif "head" in edit:
        where = f"head {edit['head']} of every layer"
    elif "cells" in edit:
        named = [f"{layers[cell // heads]}.{cell % heads}" for cell in edit["cells"]]
        where = f"head{'s' * (len(named) > 1)} {', '.join(named[:6])}{' …' * (len(named) > 6)}"
    else:
        where = "every head"
    if "set" in edit:
        return f"{where} set to {edit['set']:,} key{'s' * (edit['set'] != 1)}"
    return f"{where} pinned" if "pin" in edit else f"{where} times {edit['scale']:g}"
