"""The groups of a page beside their controls and beside another router, in-process with hand-made results."""

from analysis.errors import BadSetting
from app.training import train
from app.ui import asking
from tests.made.in_process import figures, markup, opened, part

GROUPS = "groups"


def test_groups_stand_beside_another_router(client, monkeypatch):
    monkeypatch.setattr(asking, "routers", lambda model: ["k4-top1", "k8-top2"])
    app = opened(GROUPS, other="k8-top2", layer=1)
    assert "They put 70% of the tokens into matching groups." in markup(app) and client.asked.count("compare") == 1
    agreement, confusion = figures(app)[-2:]
    assert [trace["name"] for trace in agreement["data"]] == ["both routers", "chance"]
    assert confusion["data"][0]["x"] == ["1", "2", "3", "0"] and confusion["data"][0]["z"][0][0] == 0.7
    app = opened(GROUPS, other="gone")
    assert any("second router “gone”" in caption.value.replace("\\", "") for caption in app.caption)
    assert client.asked.count("compare") == 1, "nothing is compared unasked"


def test_section_five_stands_beside_its_controls_when_it_is_opened(client):
    app = opened(GROUPS, groups_controls="yes")
    assert "group is 60% of one kind." in markup(app)
    table_columns = next(
        part(app, "table", n)["columns"] for n in range(3) if part(app, "table", n)["columns"][0]["label"] == "layer"
    )
    cells = {n: column["shown"] for n, column in enumerate(table_columns)}
    assert cells[0] == ["paper", "0", "1", "2"] and cells[1] == ["16.0%", *["30.0%"] * 3]
    assert cells[4][0] == "0.89" and "Punctuation (96% pure)" in cells[10][0]
    assert "group-controls" in client.asked


def test_a_router_of_a_fine_tuned_model_is_held_against_the_one_before(client, monkeypatch):
    earlier = {"model": "demo", "router": "k4-top1"}
    monkeypatch.setattr(train, "facts_of", lambda name: {"name": name, "before": earlier})
    app = opened(GROUPS, other="before")
    (request,) = [run.request for run in client.store.list("compare")]
    assert (request["other"], request["other_model"]) == ("k4-top1", "demo") and not app.error


def test_a_refused_comparison_stays_in_its_corner(client, monkeypatch):
    monkeypatch.setattr(asking, "routers", lambda model: ["k4-top1", "k8-top2"])
    monkeypatch.setitem(client.refusals, "compare", BadSetting("demo has no router 'k8-top2' here."))
    app = opened(GROUPS, other="k8-top2")
    assert len(app.error) == 1 and "no router" in app.error[0].value and part(app, "read")
