"""The page Speed: sparse inference of the loaded model, or bare attention shapes, timed against dense in turns."""

import streamlit as st

from app import cached
from app.selection.decide import DTYPES, SPEED_MEMBERS, SPEED_ON, SPEED_WHAT
from app.speed import charts, curve as speed_curve, inherited, requests, shown
from app.ui import asking, fields, jobs, repeat, widgets

SHAPE = ("groups", "top", "window")
LAUNCH = "Launch sparse inference"
NO_MORE = {
    "attention": "no exact kernel can pass {times:.2f} times dense at {most:,} tokens",
    "decode": "no exact step can pass {times:.2f} times dense at {most:,} tokens in the KV cache",
    "inference": "attention can gain at most {times:.2f} times at {most:,} tokens, the whole model less",
}


def timed() -> None:
    """The answer, measured or estimated, the controls, the price, the button, and whatever was measured for exactly
    these settings."""
    answer = st.container()
    st.segmented_control(
        "What is timed",
        list(SPEED_ON),
        format_func=SPEED_ON.get,
        key="speed_on",
        required=True,
        label_visibility="collapsed",
    )
    with widgets.guarded():
        (_shapes if st.session_state["speed_on"] == "shapes" else _model)(answer)


def _model(answer) -> None:
    chosen = st.session_state
    card = asking.card(chosen["model"])
    asking.settle_router()
    inspected = asking.inspected()
    router = next((usual for usual in card["routers"] if usual["name"] == chosen["router"]), {})
    context = card["max_positions"]
    usual = router | inherited.settings()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        if "groups" in router:
            _top(router["groups"], str(usual["top"]))
        _window(context, str(usual.get("window", "as made")))
        sinks = str(usual.get("n_sink", "as made"))
        fields.number("Sinks", "speed_sinks", 0, 64, "attention sink", placeholder=sinks, width=100)
        fields.number("Prompt, tokens", "speed_prompt", 2, context, placeholder="all that fit", width=150)
        fields.number("New tokens", "speed_new", 2, 1024, width=120)
        _rounds()
    request = requests.launch()
    stored = cached.store().find("launch", request)
    tokens = chosen["speed_prompt"] or min(inspected["tokens"], context - chosen["speed_new"])
    with widgets.guarded():
        _button(LAUNCH, "launch", request, stored, requests.launch_price(request, card, tokens))
        if stored is None:
            inherited.latest()
        else:
            shown.launched(stored)
    commands = [requests.command("launch", request)]
    if "groups" in router:
        with widgets.guarded():
            if stored is not None:
                st.subheader("At other lengths", anchor=False, help=cached.glossary("crossover"))
            commands.append(_curve(answer, "Measure these lengths", card, router, stored))
    if stored is None:
        widgets.prose(
            f"“{LAUNCH}” runs dense and sparse inference in turns, {chosen['speed_rounds']} rounds, on a prompt of "
            f"{tokens:,} tokens: first token, time of each of {chosen['speed_new']:,} tokens after it, memory.",
            "quiet",
        )
    repeat.drawer(*commands)


def _shapes(answer) -> None:
    chosen = st.session_state
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        fields.number("Heads", "speed_heads", 1, 256, "attention head", width=100)
        fields.number("Head size", "speed_size", 8, 256, width=110)
        fields.number("Groups (K)", "speed_groups", 1, 64, "learned group", width=110)
        _top(chosen["speed_groups"], "1")
        _window(1 << 20, "128")
        if chosen["speed_what"] != "decode":
            fields.number("Batch", "speed_batch", 1, 64, width=100)
        st.selectbox("Precision", list(DTYPES), key="speed_dtype", width=130)
        st.selectbox("Groups are", list(SPEED_MEMBERS), format_func=SPEED_MEMBERS.get, key="speed_members", width=210)
        _rounds()
    repeat.drawer(_curve(answer, LAUNCH, None, None, None))


def _curve(answer, label: str, card: dict | None, router: dict | None, launch) -> str:
    """Draws it; returns the command that measures it."""
    chosen, offered = st.session_state, [choice for choice in SPEED_WHAT if card or choice != "inference"]
    widgets.settled("speed_what", offered, "attention")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.selectbox("Measure by length", offered, format_func=SPEED_WHAT.get, key="speed_what", width=240)
        is_inference = chosen["speed_what"] == "inference"
        if not is_inference:
            st.text_input("Lengths, tokens", key="speed_lengths", max_chars=80, width=320, help="16K means 16,384.")
    request = requests.bench(card, router)
    fits = card["max_positions"] - chosen["speed_new"] if is_inference else 0
    lengths = [max(2, fits // part) for part in (4, 2, 1)] if is_inference else request["lengths"]
    if is_inference and chosen["speed_top"] not in (None, router["top"]):
        st.caption(
            f"The whole model is timed with its own router: each token in {router['top']} of {router['groups']} groups."
        )
    stored = cached.store().find("bench", request)
    shape = (router["groups"], router["top"], request["window"]) if is_inference else [request[n] for n in SHAPE]
    bound = [(length, requests.even_bound(length, *shape, request["what"])) for length in lengths]
    price = requests.bench_price(request, card, lengths)
    estimated = stored is None and card is not None
    if not estimated:
        _button(label, "bench", request, stored, price)
    if stored is None and launch is None:
        last_length, times = bound[-1]
        with answer:
            widgets.prose(
                f"Estimated, not timed yet: {NO_MORE[request['what']].format(times=times, most=last_length)}."
            )
    speed_curve.curve(stored, request["what"], bound, launch)
    if estimated:  # below the picture of what it would measure
        _button(label, "bench", request, stored, price)
    if stored is None:
        lengths_words = ", ".join(map(charts.short, lengths))
        widgets.prose(
            f"This times {SPEED_WHAT[request['what']]} at {lengths_words} tokens, dense and sparse in turns. "
            "Hollow marks: the bound with equally full groups.",
            "quiet",
        )
    return requests.command("bench", request)


def _button(label: str, verb: str, request: dict, stored, price) -> None:
    again = stored is not None and not stored.example
    jobs.run_button(
        f"{label} again" if again else label,
        verb,
        request,
        f"speed_{verb}",
        price=price,
        instead_of=stored.id if again else None,
        smaller=lambda: requests.smaller(request),
        type="primary" if label == LAUNCH and stored is None else "secondary",
    )


def _top(groups: int, usual: str) -> None:
    fields.number("Groups per token", "speed_top", 1, groups, "membership (top-k)", placeholder=usual, width=150)


def _window(context: int, usual: str) -> None:
    fields.number("Window, tokens", "speed_window", 1, context, "sliding window", placeholder=usual, width=150)


def _rounds() -> None:
    fields.number("Rounds", "speed_rounds", 1, 50, "round (of a measurement)", width=100)
