"""Long-context tests: how far back can the model find something and use it, and what remains when it reads less?"""

import streamlit as st

from app import cached
from app.benchmarks import page
from app.probes import asked as probes, shown, words
from app.ui import asking, jobs, widgets

widgets.header(
    "How far back can it find something and use it?",
    "Needles, key-value pairs, passages and examples, after Focal Attention (section 4.3, appendix D): the model "
    "chooses between given answers, beside chance and dense attention",
)
chosen = st.session_state
asking.settle_router()
answer = st.container()
asked = probes.controls(cached.catalogue())
if said := words.changed(asked):
    widgets.prose(f"Settings as on the page Quality vs speed. {said}.", "quiet")
args = probes.chosen_map(asked)
run = cached.store().find("probe", args)
if run is None:
    jobs.run_button(
        "Run this test",
        "probe",
        args,
        "probe_run",
        probes.tokens(args),
        smaller=lambda: probes.smaller(args),
        type="primary",
    )
else:
    with answer:
        shown.answer(run)
    shown.maps(run, chosen["probe"])
    shown.lengths(run)
    with widgets.guarded():
        shown.prompt(run)
with widgets.guarded():
    st.header("What this model can do at all", anchor=False, help=cached.glossary("needle"))
    wanted = probes.every_task()
    tried = cached.store().find("probe", wanted)
    if tried is None:
        jobs.run_button("Try every task", "probe", wanted, "probe_every", probes.tokens(wanted))
    else:
        shown.every_task(tried)
widgets.each(shown.beyond, lambda: page.show(args["methods"]))
with st.expander("The same from the command line", icon=":material/terminal:"):
    st.code(words.command(args, asked), language=None, wrap_lines=True)
