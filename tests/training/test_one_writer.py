"""One writer at a time: a second training into the same output is refused, a second study waits for the arm and takes
what the first one made, and fitted numbers are of one fit whatever happens."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from analysis import files, fitted
from analysis.errors import BadSetting, Cancelled
from analysis.fitted import Fitted
from analysis.studies import STUDIES
from analysis.studies.context import Context
from analysis.training.checkpoints import one_training

ROOT = Path(__file__).resolve().parents[2]


HOLD = """
import sys
from pathlib import Path
from analysis.files import locked

with locked(Path(sys.argv[1]), sys.exit):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_second_training_in_the_same_output_is_refused_until_the_first_ends(tmp_path):
    # Another process holds the lock that a training holds, without the seconds that it takes to import torch.
    command = [sys.executable, "-c", HOLD, str(tmp_path / ".out.training")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as other:
        assert other.stdout.readline() == "locked\n"
        (tmp_path / "corpus").mkdir()
        with pytest.raises(BadSetting, match="Another training writes to .*out"):
            STUDIES["pretrain"](
                corpus=str(tmp_path / "corpus"), output=str(tmp_path / "out"), context=Context(device="cpu")
            )
        with one_training(tmp_path / "another"):
            pass
        other.kill()  # the system frees its lock
    with one_training(tmp_path / "out"), pytest.raises(BadSetting), one_training(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_two_studies_in_one_folder_make_an_arm_once(tmp_path):
    began, go_on, waited, made, found = threading.Event(), threading.Event(), threading.Event(), [], []

    def make(doing):
        made.append(doing)
        began.set()
        assert go_on.wait(60)
        return {"loss": 1.5}

    def told(fraction, stage):
        waited.set()

    def ask():
        found.append(Context(progress=told).part(tmp_path, "arm", ["decides"], make))

    first = threading.Thread(target=ask)
    first.start()
    assert began.wait(60)
    second = threading.Thread(target=ask)
    second.start()
    assert waited.wait(60), "the second one does not wait"

    def stop(fraction, stage):
        raise Cancelled("enough")

    with pytest.raises(Cancelled):  # who waits can be stopped
        Context(progress=stop).part(tmp_path, "arm", ["decides"], make)
    go_on.set()
    first.join(60), second.join(60)
    assert found == [{"loss": 1.5}] * 2 and len(made) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


class Ended(BaseException):
    """The program is over: nothing after it changes the disk."""


def test_fitted_numbers_are_of_one_fit_wherever_the_writing_ends(tmp_path, monkeypatch):
    def fit(value):
        return Fitted("csa", {"ranks": torch.full((2, 3), float(value))}, {"made": value})

    steps, path = [], fit(0).save(tmp_path)
    monkeypatch.setattr(files, "watching", [lambda: steps.append(1)])
    fit(0).save(tmp_path)
    for last in range(len(steps)):
        left = [last]

        def end(left=left):
            if left[0] <= 0:
                raise Ended
            left[0] -= 1

        before = Fitted.load(path)
        monkeypatch.setattr(files, "watching", [end])
        with pytest.raises(Ended):
            fit(last + 1).save(tmp_path)
        monkeypatch.setattr(files, "watching", [])
        now = Fitted.load(path)
        assert now.about["made"] in (before.about["made"], last + 1), last
        assert (now["ranks"] == now.about["made"]).all()
    fit(99).save(tmp_path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["csa.json", "csa.safetensors"]
    assert fitted.pair(path)[1]["about"] == {"made": 99} and len(steps) > 8
