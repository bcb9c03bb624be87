"""The tab on balance by hand: what temperature and Sinkhorn iterations do to the groups of this text, live."""

import streamlit as st

from analysis.runs import Run
from app import cached
from app.selection import state
from app.selection.evidence import ROUTER_TEMPERATURES
from app.training import balance_charts
from app.ui import asking, fields, widgets

TRAP = 3  # iterations at which groups look nearly balanced and are not


def tab() -> None:
    """Two sliders and what they do, redrawn alone."""
    fields.alone(_live)


def _live() -> None:
    chosen = st.session_state
    widgets.prose(
        "The router's scores on the first tokens of your text are balanced again here; nothing is trained.",
        "more",
    )
    if not 0 <= chosen["balance_iterations"] <= 20:
        state.choose(chosen, balance_iterations=10)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        help = cached.glossary("temperature (router)")
        st.select_slider(
            "Temperature",
            ROUTER_TEMPERATURES,
            key="balance_temperature",
            format_func="{:g}".format,
            help=help,
            width=330,
        )
        help = cached.glossary("Sinkhorn iterations")
        st.slider("Sinkhorn iterations", 0, 20, key="balance_iterations", help=help, width=330)
    _shown(_ask(chosen["balance_temperature"], chosen["balance_iterations"]))


def _ask(temperature: float, iterations: int) -> Run:
    args = {name: st.session_state[name] for name in ("model", "text", "router")}
    args |= {"temperature": temperature, "iterations": iterations}
    return asking.ask("balance", args, "Balancing the groups")


def _shown(run: Run) -> None:
    numbers, layers, curve = run.numbers, cached.columns(run, "layers"), cached.columns(run, "iterations")
    widgets.prose(numbers["sentence"])
    with st.grid(2, min_column_width=420, gap="large"):
        widgets.chart(
            balance_charts.layers(layers, numbers["even"], numbers["chance"]),
            layers,
            title="Largest group by layer",
            key="balance_layers",
            alt="Largest group's share in each layer, with the lines of even groups and balanced chance",
            help=cached.glossary("largest group's share (dominance)"),
        )
        iterations = run.request["iterations"]
        widgets.chart(
            balance_charts.iterations(curve, numbers["even"], numbers["chance"], iterations, TRAP),
            curve,
            title="By number of iterations",
            key="balance_curve",
            alt="Largest group's share after 0 to 20 iterations at this temperature",
            help=cached.glossary("Sinkhorn iterations"),
        )
    widgets.prose([_trap(curve), *numbers["notes"]], "quiet")


def _trap(curve: dict) -> str:
    few, last = curve["iterations"].index(TRAP), len(curve["iterations"]) - 1
    return (
        f"The trap of {TRAP} iterations: in the worst layer one group still holds {curve['mass'][few]:.1%} of the "
        f"assignment, after {curve['iterations'][last]} iterations {curve['mass'][last]:.1%}. Groups are equally full "
        "only once the iterations have converged."
    )
