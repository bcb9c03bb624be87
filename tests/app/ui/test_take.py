"""Taking a setting along: the button packs what the page shows, offers the file, and says what cannot be taken."""

import numpy as np
import pytest

from analysis.errors import BadSetting
from analysis.runs import Result
from app import cached
from tests.made import results
from tests.made.in_process import HOSTILE, opened, put
from tests.made.results import protocol

README = f"# Focus\nMeasured: {HOSTILE}"


@pytest.fixture
def packed(client, monkeypatch):
    """A worker that packs; what it was asked with."""
    asked = []

    def take(args: dict, text: str | None) -> Result:
        asked.append(args)
        numbers = {"label": "Focus", "file": "focuscope-focus.zip", "bytes": 4100, "readme": README, "sentence": "."}
        return Result(numbers | {"protocol": protocol("take", args, 0)}, arrays={"zip": np.arange(4, dtype=np.uint8)})

    monkeypatch.setitem(results.STUDIES, "take", take)
    return asked


def test_the_zip_of_a_router_is_made_once_and_offered(client, packed):
    app = opened("groups", text=put(client, "a text of some length " * 4))
    (run,) = client.store.list("groups")
    app.button(key="groups_make").click().run()
    assert not app.exception
    router = run.request["router"]
    assert packed == [{"run": run.id, "method": {"name": "focus", "router": router}, "model": "demo"}]
    (download,) = [one.proto for one in app.get("download_button") if one.proto.label.startswith("focuscope-focus")]
    assert download.label == "focuscope-focus.zip, 4 kB" and README in [one.value for one in app.code]
    again = app.run()  # a stored zip needs no second click
    assert len(packed) == 1 and "groups_make" not in [one.key for one in again.button]
    (made,) = client.store.list("take")
    assert cached.array(made, "zip").tobytes() == bytes(range(4))


def test_what_cannot_be_taken_is_said_in_its_place(client):
    client.refusals["take"] = BadSetting("Quest cannot be taken along yet.")
    app = opened("groups", text=put(client, "a text of some length " * 4))
    app.button(key="groups_make").click().run()
    assert not app.exception
    (error,) = app.error
    assert error.value.startswith("Quest cannot be taken along yet")
