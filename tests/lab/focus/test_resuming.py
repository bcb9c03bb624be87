"""A study that is stopped goes on inside the piece it was at, and ends as one that was never stopped."""

import numpy as np
import pytest

from analysis.errors import Cancelled
from analysis.studies.stored.measured import READINGS
from analysis.training import run
from tests.lab.cases import quiet


def stopping(begins: str):
    """Progress that stops a study at a stage."""

    def stop(fraction: float, stage: str) -> None:
        if stage.startswith(begins):
            raise Cancelled("enough")

    return stop


@pytest.mark.parametrize(
    ("name", "rows", "stop_stage", "first", "done"),
    [
        ("ablations", "temperature=0.5", "temperature=0.5, phase 2, model, step 2", "step 2 of 2", "phase 1"),
        ("dominance", "stop-gradient on inputs, sinkhorn", "sinkhorn, model, step 2", "step 2 of 3", "router, step"),
    ],
)
def test_a_training_goes_on_inside_its_phase(name, rows, stop_stage, first, done, ask, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "KEEP_EVERY", 1)
    straight = ask(name, rows=rows, work=str(tmp_path / "a")).numbers["rows"]
    with pytest.raises(Cancelled):
        ask(name, stopping(stop_stage), rows=rows, work=str(tmp_path / "b"))
    stages: list[str] = []
    again = ask(name, lambda _, stage: stages.append(stage), rows=rows, work=str(tmp_path / "b")).numbers["rows"]
    assert again == straight and not any(done in stage for stage in stages)
    assert first in next(stage for stage in stages if ", step " in stage)


def test_a_study_goes_on_at_its_arm_and_what_is_damaged_is_measured_anew(ask, tmp_path):
    straight = ask("groups", work=str(tmp_path / "a")).numbers
    with pytest.raises(Cancelled):
        ask("groups", stopping("random tokens 0, window 9 of 9"), work=str(tmp_path / "b"))
    stages: list[str] = []
    resumed = ask("groups", lambda _, stage: stages.append(stage), work=str(tmp_path / "b")).numbers
    assert next(stage for stage in stages if " of 9" in stage) == "random tokens 0, window 1 of 9", "arms before stay"
    assert {**resumed, "protocol": 0, "path": 0} == {**straight, "protocol": 0, "path": 0}
    part_file = next((tmp_path / "b").glob("dense-*.safetensors"))
    part_file.write_bytes(part_file.read_bytes()[:50])
    stages.clear()
    again = ask("groups", lambda _, stage: stages.append(stage), work=str(tmp_path / "b")).numbers
    assert again["rows"] == straight["rows"]
    assert [stage for stage in stages if " of 9" in stage] == [f"dense, window {n} of 9" for n in range(1, 10)]
    assert not list(tmp_path.rglob("*.part"))


def test_other_settings_do_not_find_these_numbers_and_shared_arms_are_found(ask, tmp_path):
    work, stages = str(tmp_path / "w"), []

    def measured() -> set[str]:
        return {stage.split(", window ")[0] for stage in stages if " of 9" in stage}

    ask("groups", quiet, work=work)
    ask("groups", lambda _, stage: stages.append(stage), work=work, window=9)
    assert measured() >= {"window 9", *READINGS} and not measured() & {"dense", "window 8"}
    stages.clear()
    ask("groups", lambda _, stage: stages.append(stage), work=work, n_sink=0)
    assert "dense" in measured(), "other sinks, other arms"


def test_three_trainings_of_a_cell_are_told_together(ask):
    stages: list[str] = []
    arguments = {"rows": "groups=8,temperature=0.5", "seeds": 3, "others": 2}
    study = ask("ablations", lambda _, stage: stages.append(stage), **arguments).numbers
    row, second = study["rows"]
    assert (row["seeds"], second["seeds"]) == (3, 2) and "these routers, 2 trainings" in study["sentence"]
    for key in ("centroid_against_random", "centroid_against_same", "tuned_against_random", "tuned_against_full"):
        assert row[f"{key}_lowest"] < row[key] < row[f"{key}_highest"] and row[f"{key}_low"] < row[f"{key}_high"]
    of_full = [(point["seed"], point["step"]) for point in study["curves"] if point["training"] == "full attention"]
    assert len(of_full) == len(set(of_full)) and {seed for seed, _ in of_full} == {0, 1, 2}, "once for every seed"
    # Of as many seeds each, in logarithms: the mean loss of three trainings of full attention is not that of two.
    for cell in (row, second):
        above = np.log(cell["perplexity_tuned"] / cell["full_tuned"])
        assert cell["tuned_against_full"] == pytest.approx(above, abs=1e-6)
    assert row["full_tuned"] != second["full_tuned"]
    assert study["protocol"]["seeds"] == 3
    assert {stage.split(", router")[0] for stage in stages} >= {f"default, phase 1, seed {n}" for n in range(3)}
    assert "temperature=0.5, phase 2, seed 2" not in " ".join(stages)
