"""The parts below the worker: leases, lines, errors that travel, the state a job keeps."""

import os
import random

import numpy as np
import pytest

from analysis import errors
from analysis.errors import AnalysisError, BadSetting, BadText, Cancelled
from analysis.jobs.lease import Lease, is_alive
from analysis.jobs.wire import describe_error, messages, rebuild_error


def test_a_served_request_leaves_the_job_its_random_state_and_gradients():
    torch = pytest.importorskip("torch")
    from analysis.jobs.worker import _untouched

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(1).item()
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    with torch.inference_mode():
        with _untouched():
            random.seed(2), np.random.seed(2), torch.manual_seed(2)
            weight = torch.ones(1, requires_grad=True)
            (weight * 2).sum().backward()
        assert torch.is_inference_mode_enabled() and weight.grad.item() == 2
    assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


def test_a_lease_ends_with_its_holder_and_not_before(tmp_path):
    lease, later = Lease(tmp_path), Lease(tmp_path)
    assert is_alive(tmp_path, lease.owner) and is_alive(tmp_path, later.owner)
    lease.release()
    lease.release()
    assert not is_alive(tmp_path, lease.owner) and is_alive(tmp_path, later.owner) and not is_alive(tmp_path, "unknown")
    os.close(later.fd)  # as the system does for a killed process: the file is still there
    assert not is_alive(tmp_path, later.owner)
    third = Lease(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{third.owner}.lock"]
    third.release()


def test_lines_that_mean_nothing_are_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.jobs.wire.MAX_LINE", 50)
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n\n[1]\nnot json\n\xff\xfe\n{"b": "' + b"x" * 200 + b'"}\n{"c": 3}\n{"cut')
    with path.open("rb") as stream:
        assert list(messages(stream)) == [{"a": 1}, {"c": 3}]


def test_errors_travel_by_class_and_sentence():
    class Inner(BadSetting):
        pass

    for error in (BadText("a"), Cancelled("b"), Inner("c")):
        again = rebuild_error(describe_error(error))
        assert str(again) == str(error) and isinstance(error, type(again)) and vars(errors)[type(again).__name__]
    for forged in ({"type": "SystemExit", "message": "x"}, {"type": "__name__"}, {}):
        assert type(rebuild_error(forged)) is AnalysisError
