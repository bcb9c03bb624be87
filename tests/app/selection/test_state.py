"""The selection in the URL: a link restores it, a damaged one loses only what is damaged."""

import pytest
from hypothesis import given, strategies as st

from analysis.cli.options import fields
from analysis.commands import COMMANDS
from analysis.declaration import fields_of
from app.selection import state
from app.ui.tables import Column
from app.ui.widgets import plain


def visit(session: dict, params: dict) -> list[str]:
    """One run of the script with an address; the address follows the session as in the app."""
    dropped = state.read(session, params)
    wanted = state.write(session, params)
    if wanted is not None:
        params.clear()
        params.update(wanted)
    return dropped


def test_a_link_restores_every_control_and_comes_out_as_it_went_in():
    link = {
        "text": "0123456789ab",
        "layer": "3",
        "group": "0",
        "pair": "3.5.812.131",
        "distance": "64",
        "content": "no",
    }
    session, params = {}, dict(link)
    assert visit(session, params) == []
    assert (session["layer"], session["group"], session["distance"], session["content"]) == (3, 0, 64, False)
    assert params == link


def test_defaults_do_not_crowd_the_url():
    session, params = {}, {}
    visit(session, params)
    assert params == {} and session["model"] == "demo" and session["layer"] is None


def test_the_key_that_is_asked_about_goes_with_its_head_and_query():
    session, params = {}, {"layer": "2", "head": "1", "query": "9", "why_key": "4"}
    visit(session, params)
    state.choose(session, tile="0.0")
    assert session["why_key"] == 4
    state.choose(session, query=10)
    assert session["why_key"] is None and "why_key" not in state.address(session)
    state.choose(session, layer=1, why_key=3)
    params = {"layer": "2", "head": "0"}
    visit(session, params)
    assert session["why_key"] is None and "why_key" not in params and params["query"] == "10"


def test_a_selection_survives_a_page_that_does_not_show_its_widget():
    session, params = {}, {"layer": "2"}
    visit(session, params)
    del session["layer"]  # what Streamlit does with a widget that the next page lacks
    params.clear()  # and a click on another page empties the address
    visit(session, params)
    assert session["layer"] == 2 and params == {"layer": "2"}


def test_a_widget_wins_over_the_address_and_the_back_button_over_the_widget():
    session, params = {}, {"layer": "2"}
    visit(session, params)
    session["layer"] = 4
    visit(session, params)
    assert params == {"layer": "4"}
    params["layer"] = "2"  # Back
    visit(session, params)
    assert session["layer"] == 2


@pytest.mark.parametrize(
    "name, raw",
    [
        ("text", "../../etc/passwd"),
        ("text", "0123456789AB"),
        ("model", "../secret"),
        ("model", "/etc"),
        ("model", "a/b/c"),
        ("router", "k8;rm"),
        ("layer", "-1"),
        ("layer", "1e9"),
        ("layer", "٣"),
        ("pair", "1.2.3"),
        ("distance", "77"),
        ("content", "True"),
        ("job", "<script>"),
        ("view", "tsne"),
    ],
)
def test_damaged_values_are_dropped_with_one_sentence_each(name, raw):
    session, params = {}, {name: raw, "head": "1"}
    dropped = visit(session, params)
    assert len(dropped) == 1 and dropped[0].endswith("dropped.")
    assert session[name] == state.CONTROLS[name].default and session["head"] == 1
    assert params == {"head": "1"}


def test_an_unknown_entry_is_dropped_and_named_in_short():
    session, params = {}, {"z" * 500: "1"}
    (sentence,) = visit(session, params)
    assert "…" in sentence and len(sentence) < 150 and params == {}


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(sorted(state.CONTROLS)), st.text(max_size=30)))
def test_no_link_can_break_the_page(params):
    session = {}
    visit(session, params)
    for name, value in session[state.CHOSEN].items():
        if value is not None:
            assert state.CONTROLS[name].from_address(state.to_url(value)) == value


def test_settle_keeps_what_is_offered_and_tells_what_is_not():
    session = {}
    state.read(session, {"layer": "9"})
    assert state.settle(session, "layer", [None, 0, 1], None) == state.unusable("layer", "9")
    assert session["layer"] is None
    assert state.settle(session, "layer", [None, 0, 1], None) is None


def test_what_nobody_chose_follows_the_page_and_what_was_chosen_stays():
    session, params, texts = {}, {}, ["a" * 12, "b" * 12, "c" * 12]

    def page(usual: str) -> str:
        visit(session, params)
        state.follow(session, "text", texts, usual)
        state.write(session, params)
        return session["text"]

    assert [page(usual) for usual in (texts[0], texts[1], texts[0])] == [texts[0], texts[1], texts[0]]
    session["text"] = texts[2]  # a widget
    assert page(texts[1]) == page(texts[0]) == texts[2]
    session["text"] = texts[0]  # chosen, though it is what the page opens with
    assert page(texts[0]) == page(texts[1]) == texts[0]
    linked = {}
    assert not visit(linked, {"text": texts[0]})
    state.follow(linked, "text", texts, texts[1])
    assert linked["text"] == texts[0]


def test_a_fragment_gives_back_what_it_did_not_draw_and_writes_what_was_chosen_in_it():
    session = {}
    state.read(session, {"layer": "1"})
    assert session[state.LINKED] == {"layer"}
    del session["layer"]  # what Streamlit does when a fragment runs without the widget
    session["head"] = 2
    state.keep(session)
    assert (session["layer"], session["head"]) == (1, 2)
    assert state.address(session) == {"layer": "1", "head": "2"}
    assert session[state.LINKED] == set(), "the URL has brought nothing into this run: a drawer may be folded away"
    session["layer"] = 3
    assert state.write(session, {}) == {"layer": "3", "head": "2"}


def test_study_args_name_the_text_and_what_was_asked_for():
    session = {}
    state.read(session, {"text": "0123456789ab", "router": "k8-top1"})
    wanted = {"model": "demo", "text": "0123456789ab", "long_text": "windows", "router": "k8-top1", "layer": 2}
    assert state.study_args(session, "router", layer=2) == wanted


@pytest.mark.parametrize("text", ["**bold** [x](y) $a$ `c` :red[z] <b> # h", "a\\b|c~d_e^f{g}"])
def test_plain_text_has_no_markdown_left(text):
    assert all(plain(text)[i - 1] == "\\" for i, c in enumerate(plain(text)) if c in "*[]()$`:<>#_~|{}" and i)


def test_cells_show_numbers_as_a_reader_expects():
    assert [Column("a", "share").show(v) for v in (0.1234, None)] == ["12.3%", "–"]
    assert [Column("a", "share", digits=4).show(0.00123), Column("a", "whole").show(12345.0)] == ["0.12%", "12,345"]


ALIASES = [(command, field) for command in COMMANDS.values() for field in fields_of(command) if field.declared.control]


@pytest.mark.parametrize(("command", "field"), ALIASES, ids=lambda value: getattr(value, "verb", "") or value.name)
def test_page_command_line_schema_and_declaration_agree(command, field):
    control = state.CONTROLS[field.declared.control]
    schema = field.json_schema()
    option = fields(command.verb)[field.name]
    chosen_later = control.default is None  # such as the text in use
    assert control.default == field.default == option.default or chosen_later
    assert schema.get("default") == (None if field.default is None else field.default)
    limits = (field.declared.low, field.declared.high)
    assert (schema.get("minimum"), schema.get("maximum")) == limits == (option.declared.low, option.declared.high)
    if control.declared.control:  # else the page offers a choice of its own of what the command takes
        assert (control.declared.low, control.declared.high) == limits
    offered = control.declared.options or (() if control.default is None else (control.default,))
    for value in offered:
        assert value is None or field.check(value) == value, "what a page offers, the command takes"


@pytest.mark.parametrize(
    "link",
    [
        {"quality": "focus~window-64~top-2~~streaming_llm", "quality_read": "1024w", "quality_equal": "25"},
        {"tab": "speed", "speed_lengths": "1024, 16K", "speed_dtype": "float32", "speed_on": "shapes"},
        {"budgets": "cap", "budget_caps": "32, 64", "budget_by": "reads", "budget_where": "all", "budget_keep": "no"},
        {"route_tab": "heads", "route_measure": "gap_closure", "route_l": "12.5", "route_sinks": "yes"},
        {"evidence": "collapse", "collapse_rows": "all", "train_phase": "2", "train_reading": "hard"},
        {"softmax": "1.25", "sharpness": "entropy", "trained_with": "limits", "by_layer": "0.5~1"},
        {"probe": "json", "probe_items": "16", "probe_rope": "dynamic_ntk", "benchmark_shots": "4"},
        {"shape": "loaded-8b", "context": "131072", "keep": "0.25", "counted": "ffn", "statistic": "induction"},
        {"pair": "3.5.812.131", "distance": "64", "view": "UMAP", "measure": "confidence", "runs_pinned": "yes"},
    ],
)
def test_a_link_of_every_room_comes_out_as_it_went_in(link):
    session, params = {}, dict(link)
    assert visit(session, params) == [] and params == link
