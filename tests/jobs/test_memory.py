"""A worker that ran out of memory: one sentence for what failed, and another process for everything after it."""

import errno

import pytest

from analysis.declaration.undeclared import Undeclared
from analysis.errors import BadSetting, TooLarge
from analysis.jobs.worker import _out_of_memory
from tests.made.working import began, ended, open_gate, opened, warm

THREAD = "can't start new thread"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    yield from opened(tmp_path_factory.mktemp("memory"))


def after(error, first):
    """An error that follows another one, as a library raises it."""
    try:
        try:
            raise first
        except Exception:
            raise error  # noqa: B904 - libraries do so
    except Exception as raised:
        return raised


SHORT = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError(THREAD),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"),
    SystemError("<built-in function is_floating_point> returned NULL without setting an exception"),
    after(ValueError("the loader failed"), MemoryError()),
    after(SystemError("bad internal call"), RuntimeError(THREAD)),
]
OTHERS = [RuntimeError("shapes differ"), OSError(errno.ENOSPC, "full"), SystemError("bad call"), BadSetting(THREAD)]


@pytest.mark.parametrize("error", SHORT, ids=repr)
def test_every_library_says_in_its_own_way_that_memory_ran_out(error):
    assert _out_of_memory(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_another_error_costs_no_worker(error):
    assert not _out_of_memory(error)


@pytest.mark.slow
def test_a_worker_that_ran_out_of_memory_answers_no_more(jobs):
    first = warm(jobs)
    status = ended(jobs, jobs.submit(Undeclared("greedy", {"said": THREAD})))
    assert status.state == "failed" and status.error.startswith("The worker ran out of memory in greedy: choose a")
    second = jobs.request(Undeclared("echo", {"value": -3})).numbers["pid"]
    with pytest.raises(TooLarge, match="ran out of memory in greedy: choose a shorter text"):
        jobs.request(Undeclared("greedy", {}))
    assert len({first, second, jobs.request(Undeclared("echo", {"value": -2})).numbers["pid"]}) == 3


def test_a_request_without_memory_interrupts_the_job_it_was_served_in(jobs):
    job = jobs.submit(Undeclared("gate", {"name": "outer"}))
    began(jobs, "outer")
    with pytest.raises(TooLarge):
        jobs.request(Undeclared("greedy", {}))
    status = ended(jobs, job)
    assert status.state == "interrupted" and "(greedy ran out of memory in it): resume it" in status.error
    open_gate(jobs, "outer")
    assert ended(jobs, jobs.resume(job)).state == "done"
