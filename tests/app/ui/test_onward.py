"""Next: every page leads on, to pages that exist, with what it found."""

import json
from urllib.parse import parse_qs

from app.selection import state
from app.selection.menu import PAGES
from app.ui import charts
from tests.conftest import ROOT
from tests.made.in_process import markup, opened, part, put

VIEWS = {path.stem for path in (ROOT / "app" / "views").glob("*.py")}


def test_every_page_leads_on_to_others_with_controls_that_there_are():
    assert {page.view for page in PAGES.values()} == VIEWS
    for page in PAGES.values():
        assert page.leads and all(view in VIEWS and view != page.view for view, *_ in page.leads)
        assert {name for _, _, *names in page.leads for name in names} <= set(state.CONTROLS)


def test_a_pair_that_nobody_chose_leads_to_its_head(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)))
    app = opened(text=text)
    arc = part(app, "painted")["arcs"][0]
    links = {link.proto.label: parse_qs(link.proto.query_string) for link in app.get("page_link")}
    wanted = {"model": "demo", "text": text, "router": "k4-top1", "layer": "0", "head": "0", "query": str(arc["query"])}
    assert links["The head that reads this pair"] == {name: [said] for name, said in wanted.items()}
    assert links["All far pairs of this text"]["pair"] == [f"0.0.{arc['query']}.{arc['key']}"]
    assert "layer" not in app.query_params, "a link is no choice"


def test_classroom_mode_has_large_charts_and_no_tables_and_every_link_keeps_it(client):
    text = put(client, " ".join(f"word{i}" for i in range(40)))
    plain = opened("pairs", text=text, distance=16)
    large = opened("pairs", text=text, distance=16, classroom="yes")
    for app, size, kept in ((plain, None, None), (large, {"size": charts.PROJECTED}, ["yes"])):
        fonts = [json.loads(chart.proto.spec)["layout"].get("font") for chart in app.get("plotly_chart")]
        assert fonts and all(letters == size for letters in fonts) and not app.error
        names = [one.proto.component_name for one in app.get("bidi_component")]
        assert ("focuscope_table" in names) == (kept is None) == ("scroll-snap-type" not in markup(app))
        links = [parse_qs(link.proto.query_string) for link in app.get("page_link")]
        assert links and all(link.get("classroom") == kept for link in links)
        assert ("classroom" in app.query_params) == (kept is not None)
    assert any("left out in classroom mode" in caption.value for caption in large.caption)
