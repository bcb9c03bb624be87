"""Hand-made answers of `probe`: dense finds what is near, and another method nothing."""

from types import SimpleNamespace

import numpy as np
from pandas import DataFrame

from analysis.answer import plain
from analysis.errors import BadSetting
from analysis.probes.pieces import Cut, Item
from analysis.probes.tasks import TASKS, Ask
from analysis.runs import Result
from analysis.studies.probes.rows import AXES, Cell, rows_by, sentences, table_by, truncated
from tests.made.quality import DESCRIBED

UNABLE = ("labels", "json")  # tasks at chance
QUESTION = Item(np.arange(4), np.array([[1], [2]]), 0, None, 2)
HIDDEN = "a <b>code</b>"


def probe(args: dict, text: str) -> Result:
    methods = [SimpleNamespace(name="dense", label="Dense")]
    for method in args["methods"]:
        if method["name"] == "later":
            raise BadSetting("later needs calibration: calibrate it first.")
        changed = "".join(f", {name} {value}" for name, value in method["settings"].items())
        methods.append(SimpleNamespace(name=method["name"], label=DESCRIBED[method["name"]]["title"] + changed))
    cells = [cell for name in args["probes"] for cell in _cells(name, args, len(methods))]
    lines, able = sentences(cells, methods)
    numbers = {
        "rows": plain(rows_by(cells, methods, *AXES)),
        "sentences": lines,
        "sentence": " ".join(lines),
        "able": able,
        "truncated": plain(truncated(cells)),
        "labels": [method.label for method in methods],
        "limit": 2048,
        "notes": ["2 of 9 prompts were longer."] if args["rope"] != "as_trained" else [],
        "protocol": {"verb": "probe", "model": args["model"], "text": args["text"], "tokens": 1000},
    }
    parts = {"before": "then", "evidence": HIDDEN, "after": "went on", "question": "The code is", "answer": HIDDEN}
    question = [{"probe": args["probes"][0], "length": 512, "at": 77} | parts | {"others": "one · two"}]
    tables = {"rows": DataFrame(numbers["rows"]), "lengths": table_by(cells, methods, "length")}
    return Result(numbers, tables | {"summary": table_by(cells, methods), "shown": DataFrame(question)})


def _cells(name: str, args: dict, methods: int):
    axis, n = TASKS[name].axis, args["items"]
    along = {"depth": args["depths"], "examples": args["examples"], None: [None]}[axis]
    for length in args["lengths"]:
        for place in along:
            right = np.zeros((methods, n))
            right[0] = name not in UNABLE and (axis != "depth" or place >= 0.5)
            items = [Cut(QUESTION, 0, False)] * n
            yield Cell(
                name,
                Ask(length, args["choices"], **({axis: place} if axis else {})),
                items,
                right,
                right,
                right,
                right / 2 if args.get("write") else None,
            )
