"""What every test shares: no network, one thread, a throw-away state folder, and the fixtures of the browser tests."""

import contextlib
import gc
import os
import shutil
import tempfile
from pathlib import Path

import filelock
import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = tempfile.mkdtemp(prefix="focuscope-tests-")

# Set before torch, transformers or the app are imported: they read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["FOCUSCOPE_STATE"] = str(Path(SCRATCH) / "state")
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Every throw-away state folder would have the compiler at work for 4 s.
os.environ.setdefault("FOCUSCOPE_KERNELS", str(ROOT / ".pytest_cache" / "kernels"))
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):  # numba sets what it has for torch too
    os.environ.setdefault(name, "1")

hypothesis.settings.register_profile("shared", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("shared")  # a machine that others use draws examples slowly, which is no failure

LONG = (
    "tests/lab/",
    "tests/app/generate/test_generate.py::test_the_bundled_model_answers_every_example_right",
)
WAIT = 30_000  # milliseconds an action or an expectation of a browser test waits where it names no time itself


def pytest_unconfigure(config):
    """Remove the state folder that the tests wrote into."""
    shutil.rmtree(SCRATCH, ignore_errors=True)


def pytest_runtest_setup(item):
    """Skip `gpu` tests where there is no CUDA device."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


def all_of_them(config) -> bool:
    """Whether the long tests run too, so that a test with a short and a long form takes the long one."""
    return "not slow" not in config.getoption("markexpr")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items):
    """The long ones: LONG, of which the lab is beside the product, and all walks in a browser.

    What the app's own process answers comes first: those tests wait, and what others compute meanwhile is gained. Side
    by side they are one process's, so there is one server and one Chromium. The walk over all pages comes before them:
    it is held against the memory that the app takes by then.

    Of the others those with a time limit of their own take longest: they stand where the second process begins, so that
    none of them is left when the rest has ended.
    """

    for item in items:
        if item.nodeid.startswith(LONG) or item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.slow)

    def is_served(item) -> bool:
        return bool(item.get_closest_marker("browser")) or "app_server" in item.fixturenames

    longest = [item for item in items if item.get_closest_marker("timeout") and not is_served(item)]
    rest_of = [item for item in items if item not in longest]
    rest_of.sort(key=lambda item: (not is_served(item), "walked" not in item.fixturenames))
    # `--dist worksteal` cuts the list into pieces of one length.
    second = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = rest_of[:second] + longest + rest_of[second:]


def pytest_collection_finish():
    """Keep what is imported and collected out of the garbage collector's rounds: all of it stays to the end."""
    gc.freeze()


def missing(reason: str):
    """A tool that a test needs is absent: a skip on somebody's machine, a failure under CI=true."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{reason}, and under CI that is a failure", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def root() -> Path:
    """The folder of the project."""
    return ROOT


@pytest.fixture(scope="session")
def once(tmp_path_factory, pytestconfig):
    """`once(name, make)` -> the folder of this name that `make(folder)` has filled, once for all processes of a run."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if hasattr(pytestconfig, "workerinput") else place

    def made(name, make):
        folder, done = place / name, place / f"{name}.done"
        with filelock.FileLock(place / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)  # somebody failed here
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with the tiny models of `tests.evaluating`; a module may have a home of its own."""
    from tests.made.evaluating import tiny_models

    return tiny_models(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def context(home):
    """One study context for the module, on its home."""
    from tests.made.evaluating import watched_context

    return watched_context(home)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The development folder: texts and models that are no part of the project (FOCUSCOPE_SHARED, or beside it)."""
    folder = Path(os.environ.get("FOCUSCOPE_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip("the development folder is not here (FOCUSCOPE_SHARED names it)")
    return folder


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    """An empty state folder for one test; FOCUSCOPE_STATE names it."""
    monkeypatch.setenv("FOCUSCOPE_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def store(tmp_path):
    """An empty store with an empty folder of examples."""
    from analysis.runs import RunStore

    store = RunStore(tmp_path / "state", tmp_path / "examples")
    yield store


@pytest.fixture
def client(tmp_path, monkeypatch):
    """The app's store and client replaced: a real store in an empty folder, a worker that answers by hand."""
    import streamlit as st

    from analysis.runs import RunStore
    from app import cached
    from tests.made.results import FakeJobs

    st.cache_data.clear()
    st.cache_resource.clear()
    store = RunStore(tmp_path / "state")
    fake = FakeJobs(store)
    monkeypatch.setattr(cached, "store", lambda: store)
    monkeypatch.setattr(cached, "jobs", lambda: fake)
    yield fake


@pytest.fixture(scope="session")
def app_server(tmp_path_factory):
    """The real app in a process of its own, with an empty state folder; yields its address."""
    from tests.stress.server import served

    with served(tmp_path_factory.mktemp("app")) as server:
        yield f"http://{server.address}"


@pytest.fixture(scope="module")
def browser():
    """A headless chromium. One per module: Playwright's event loop must not stay around for other modules."""
    from analysis.errors import AnalysisError
    from tests.stress.chromium import launched

    with contextlib.ExitStack() as stack:
        try:
            chromium = stack.enter_context(launched())
        except AnalysisError as error:
            missing(str(error))
        from playwright.sync_api import expect

        expect.set_options(timeout=WAIT)
        yield chromium


@pytest.fixture(scope="module")
def visitor(browser):
    """One reader for all tests of a module: the second page comes from the browser's cache, in half the time."""
    visitor = browser.new_context(viewport={"width": 1400, "height": 1000}, accept_downloads=True)
    yield visitor
    visitor.close()


@contextlib.contextmanager
def watched(visitor):
    """A fresh page; a request to another machine, or a script that throws, fails its test."""
    tab, outside, thrown = visitor.new_page(), [], []
    tab.on("request", lambda request: is_outside(request.url) and outside.append(request.url))
    tab.on("pageerror", lambda error: thrown.append(str(error)))
    tab.set_default_timeout(WAIT)
    yield tab
    tab.close()
    assert not outside, f"the page asked the network: {outside[:3]}"
    assert not thrown, thrown


@pytest.fixture
def page(visitor):
    """A page of one test."""
    with watched(visitor) as tab:
        yield tab


def is_outside(url: str) -> bool:
    """Whether a request left this machine."""
    scheme, _, remainder = url.partition("://")
    host = remainder.split("/")[0].rsplit(":", 1)[0]
    return scheme in ("http", "https", "ws", "wss") and host not in ("127.0.0.1", "localhost")
