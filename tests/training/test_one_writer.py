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
    request = {"corpus": str(tmp_path / "corpus"), "output": str(tmp_path / "out"), "context": Context(device="cpu")}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout.readline() == "locked\n"
        (tmp_path / "corpus").mkdir()
        with pytest.raises(BadSetting, match="Another training writes to .*out"):
            STUDIES["pretrain"](**request)
        with one_training(tmp_path / "another"):
            pass
        # The system frees its lock.
        holder.kill()
    with one_training(tmp_path / "out"), pytest.raises(BadSetting), one_training(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_two_studies_in_one_folder_make_an_arm_once(tmp_path):
    began, go_on, waited, calls, results = threading.Event(), threading.Event(), threading.Event(), [], []

    def make(doing):
        calls.append(doing)
        began.set()
        assert go_on.wait(60)
        return {"loss": 1.5}

    def stop(fraction, stage):
        raise Cancelled("enough")

    def ask():
        context = Context(progress=lambda fraction, stage: waited.set())
        results.append(context.part(tmp_path, "arm", ["decides"], make))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread, state in zip(threads, (began, waited), strict=True):
        thread.start()
        assert state.wait(60), "the first one makes it, and the second one waits"
    # Who waits can be stopped.
    with pytest.raises(Cancelled):
        Context(progress=stop).part(tmp_path, "arm", ["decides"], make)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert results == [{"loss": 1.5}] * 2 and len(calls) == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


class Ended(BaseException):
    """The program is over: nothing after it changes the disk."""


def test_fitted_numbers_are_of_one_fit_wherever_the_writing_ends(tmp_path, monkeypatch):
    def fit(value):
        return Fitted("csa", {"ranks": torch.full((2, 3), float(value))}, {"made": value}).save(tmp_path)

    steps, path = [], fit(0)
    monkeypatch.setattr(files, "watching", [lambda: steps.append(1)])
    fit(0)
    assert len(steps) > 8
    for last in range(len(steps)):
        left = iter(range(last))

        def end(left=left):
            if next(left, None) is None:
                raise Ended

        before = Fitted.load(path)
        monkeypatch.setattr(files, "watching", [end])
        with pytest.raises(Ended):
            fit(last + 1)
        monkeypatch.setattr(files, "watching", [])
        now = Fitted.load(path)
        assert now.about["made"] in (before.about["made"], last + 1), last
        assert (now["ranks"] == now.about["made"]).all()
    fit(99)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["csa.json", "csa.safetensors"]
    assert fitted.pair(path)[1]["about"] == {"made": 99}
