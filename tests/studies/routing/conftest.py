"""A tiny model with a corpus, and what a run of the router lab with everything stores: made once for the room."""

import pytest

from tests.made.routed import everything, routed_home, routing_context


@pytest.fixture(scope="package")
def home(tmp_path_factory):
    """A folder with a tiny model and a corpus."""
    return routed_home(tmp_path_factory.mktemp("route"))


@pytest.fixture(scope="package")
def context(home):
    """One context for the room."""
    return routing_context(home)


@pytest.fixture(scope="package")
def stored(home, context):
    """The result of a run with everything, stored, and its curves."""
    result = everything(home, context)
    return result, context.kept["routing"][1].curves


@pytest.fixture
def ask(home, context):
    """`ask(study, **arguments)` -> Result on the tiny model."""

    def ask(study, **arguments):
        return study(**{"model": str(home / "tiny")} | arguments, context=context)

    return ask
