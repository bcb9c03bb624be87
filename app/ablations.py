"""The tab on ablations: every stored study that says what is drawn of it, as small multiples with its rows."""

import streamlit as st

from app import ablation_charts, cached, state, stored, tables, widgets

COMMAND = "python -m analysis study NAME --corpus DIR"
TITLES = {  # study -> its question, and where the paper asks it
    "ablations": "One setting at a time (table 9)",
    "top": "Groups per token (table 7)",
    "lengths": "Longer texts (section 3.5)",
    "finetuning": "Against fine-tuning with full attention (table 5)",
    "pretraining": "Learning with groups from the start",
    "pruned": "Why less can be more (appendix A)",
}


def tab() -> None:
    """One stored study at a time: its sentence, its panels, its rows, the command."""
    found = cached.studies(st.session_state["model"])[0]
    grids = {name: numbers for name, numbers in found.items() if "panels" in numbers}
    if not grids:
        stored.missing("An ablation", COMMAND)
        st.caption("The names of the studies stand in: python -m analysis study --help")
        return
    names = list(grids)
    widgets.settled("ablation", [None, *names], None)
    chosen = st.session_state["ablation"] or names[0]
    st.session_state["ablation_pick"] = chosen
    st.selectbox("Study", names, key="ablation_pick", format_func=_titled, on_change=_picked, width=480)
    study = grids[chosen]
    widgets.prose(study["sentence"], "more")
    stored.badge(study)
    series = list(dict.fromkeys(one["name"] for panel in study["panels"] for one in panel["series"]))
    with st.grid(2, min_column_width=380, gap="large"):
        for place, panel in enumerate(study["panels"]):
            with st.container(), widgets.guarded():
                widgets.chart(
                    ablation_charts.panel(panel, series),
                    ablation_charts.values(panel),
                    title=panel["title"],
                    key=f"ablation_{place}",
                    alt=f"{panel['y_label']} against {panel['x_label']}",
                )
    if any(one["paper"] for panel in study["panels"] for one in panel["series"]):
        st.caption("Dashed with open marks: printed in the paper, on another model and other text; never one scale.")
    _rows(chosen, study)
    widgets.prose(study.get("notes", []), "quiet")
    stored.made(study)


def _rows(name: str, study: dict) -> None:
    st.subheader("All rows", anchor=False, help=cached.glossary("protocol"))
    labels = {column["name"]: column for column in study["columns"]}
    values = {key: [row.get(key) for row in study["rows"]] for key in labels}
    columns = {}
    for key, about in labels.items():
        made = widgets.guess(key, values[key])
        unit = f", {about['unit']}" if about.get("unit") else ""
        columns[key] = tables.Column(f"{about['label']}{unit}", made.kind, digits=3)
    tables.table(columns, values, key="ablation_rows", identity=name, label="Rows of the study")
    with st.container(horizontal=True, gap="small"):
        widgets.numbers(values, name, "ablation_numbers")


def _titled(name: str) -> str:
    kind, _, router = name.partition("-")
    return f"{TITLES.get(kind, kind)}{f', {router}' if router else ''}"


def _picked() -> None:
    state.choose(st.session_state, ablation=st.session_state["ablation_pick"])
