"""How far all tests are, for somebody who waits: a line for every part that is done, and each failure as it comes.

`-p tests.progress`; in the place of pytest's dots.
"""

import time

import pytest

from tests.conftest import all_of_them

STEPS = 20  # lines
REASON = 4  # lines of a failure
HEAVY = {
    "tests/browser/": 60,
    "tests/stress/": 10,
    "tests/cluster/": 20,
    "tests/studies/": 4,
    "tests/lab/": 4,
    "tests/app/": 4,
}
MINUTES = {True: "5 to 11 minutes", False: "18 to 55 minutes"}  # without the long ones, and with them


def weight(test: str) -> int:
    """How long a test takes, the quickest ones being 1."""
    return next((times for folder, times in HEAVY.items() if test.startswith(folder)), 1)


def spoken(seconds: float) -> str:
    """Minutes and seconds: 7:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def reason(report: str) -> str:
    """The first words of what pytest says of a failure: whoever stops a run early never sees the whole."""
    said = [line[:300] for line in report.splitlines() if line.startswith("E ")]
    return "\n".join(said[:REASON] or report.splitlines()[-1:])


class Progress:
    """Counts what is done; asks nothing of the processes that run the tests."""

    def __init__(self, config: pytest.Config):
        self.config, self.began = config, time.monotonic()
        self.all: list[str] = []
        self.done = self.failed = self.shown = 0
        self.weight, self.whole = 0.0, 1

    def say(self, line: str) -> None:
        """One line, at once."""
        print(line, flush=True)

    def begin(self, tests: list[str]) -> None:
        """What will run; every process collects the same tests, the first one to say so counts."""
        if self.all:
            return
        self.all, self.whole, self.began = tests, sum(map(weight, tests)), time.monotonic()
        chromium = sum(test.startswith("tests/browser/") for test in tests)
        self.say(f"{len(tests):,} tests ({chromium} in Chromium) {self.where()}")

    def where(self) -> str:
        """How they run, and what that takes."""
        processes = self.config.getoption("numprocesses", None)
        if not processes:
            return "one by one."
        minutes = MINUTES[not all_of_them(self.config)]
        return f"in {processes} processes: {minutes} on 2 quiet cores."

    def pytest_xdist_node_collection_finished(self, node, ids: list[str]) -> None:
        """A process has found its tests."""
        self.begin(list(ids))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests of a run in one process."""
        if session.items:
            self.begin([item.nodeid for item in session.items])

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report, config):
        """Counted as always, but without a letter."""
        category, _, word = yield
        return category, "", word

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test has ended, or failed."""
        if report.failed:
            self.failed += 1
            self.say(f"FAILED {report.nodeid}")
            self.say(reason(report.longreprtext))
        if report.when != "teardown" or not self.all:
            return
        self.done += 1
        self.weight += weight(report.nodeid) / self.whole
        step = int(self.weight * STEPS + 1e-6)
        if step > self.shown:
            self.shown, spent = step, time.monotonic() - self.began
            left = f", about {spoken(spent / self.weight - spent)} to go" if step < STEPS else ""
            failed = f", {self.failed} failed" if self.failed else ""
            self.say(f"{step / STEPS:5.0%}  {spoken(spent)}  {self.done:,} of {len(self.all):,} tests{failed}{left}")


def pytest_configure(config: pytest.Config) -> None:
    """Only the process that somebody looks at shows anything."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "tests-progress")
