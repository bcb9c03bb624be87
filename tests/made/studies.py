"""Studies as their own code leaves them, from made trainings, and whether a number of the papers' mapping is there."""

import numpy as np

from analysis.papers.ours import Number, reading
from analysis.studies.training.finetune import RATES, about
from analysis.studies.training.finetune_rows import row_of
from analysis.studies.training.finetune_tasks import PRINTED
from analysis.studies.training.finetune_ways import READERS, Way
from lab.focal.limits import FocalLimits
from lab.focal.scaling import FocalScaling
from lab.focal.temperatures import FocalTemperatures
from tests.made.focal import concluded, pooled


def there(number: Number, stored: dict) -> bool:
    """Whether the path of a number leads to a place of the study. What stands there may be None: a share that was never
    passed, a gain that was not seen."""
    if reading(number, stored) is not None:
        return True
    place = stored
    for step in number.path[:-1]:
        rows = place if isinstance(step, dict) else ()
        match = next((row for row in rows if all(row.get(k) == v for k, v in step.items())), None)
        place = match if isinstance(step, dict) else place.get(step)
        if place is None:
            return False
    return isinstance(place, dict) and number.path[-1] in place and place[number.path[-1]] is None


def studies() -> dict[str, dict]:
    """Name -> numbers of the studies that train, with the default arms of each."""
    numbers = {"baselines": {"rows": baselines()}}
    for study in (FocalTemperatures(), FocalLimits(), FocalScaling()):
        numbers[study.name] = concluded(study, {arm: pooled(arm, 3.0) for arm in study.arms()})
    return numbers


def baselines() -> list[dict]:
    """The base, and every training at every rate, the largest that the stored study adds among them."""
    base = {"means": {"python": [1.0] * 16, "novels": [2.0] * 16}, "tasks": {"json": [1.0] * 8}}
    base["benchmarks"] = {task: [1.0] * 8 for task in PRINTED}
    units = dict.fromkeys(base["means"], np.arange(16) // 2)
    rows = [row_of(about("base", "dense", None, 0), [base], base, "python", units) | {"rate": None}]
    rows += [
        row_of(about(f"{name}, as pretrained", name, None, 0), [base], base, "python", units) | {"rate": None}
        for name in READERS.values()
    ]
    lines = [Way("lora", 4, 0).line, Way("lora", 16, 0).line, Way("full", None, 0).line]
    lines += [Way(kind, None, 0).line for kind in READERS]
    lines += [f"{Way('focus', groups, 0).line}, hard groups" for groups in (8, 2)]
    return rows + [
        row_of(about(line, "dense", rate, 1), [base], base, "python", units)
        for line in lines
        for rate in (*RATES, 3e-3)
    ]
