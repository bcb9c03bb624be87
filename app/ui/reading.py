"""What pages say of what is read: how much of a long text, the rows of a table, the card of the model."""

import streamlit as st

from analysis.commands.text import Model
from app import cached
from app.ui import asking, jobs, widgets

LONG = {"windows": "all windows", "first": "first window only"}


def rows_of(table: dict, **wanted: object) -> dict:
    """The rows of a table whose columns have the wanted values."""
    size = len(next(iter(table.values()), ()))
    rows = [i for i in range(size) if all(table[name][i] == value for name, value in wanted.items())]
    return {name: [column[i] for i in rows] for name, column in table.items()}


def sizes(card: dict) -> str:
    """What a model is, from its card, in a sentence."""
    return (
        f"{card['name']} ({card['family']}, revision {card['revision']}): {card['parameters']:,} parameters, "
        f"{card['layers']} layers of {card['heads']} heads ({card['kv_heads']} key-value heads of {card['head_dim']}), "
        f"reads {card['max_positions']:,} tokens at once; {card['weight_bytes'] / 1e6:,.0f} MB in {card['dtype']} on "
        f"{card['device']}."
    )


def model_card(model: str) -> None:
    """The parity badge, sizes, and the card that came with a model."""
    card = asking.card(model)
    parity = card["parity"]
    st.badge(
        f"{'same as' if parity['same'] else 'differs from'} the stock model: "
        f"largest difference {parity['max_abs_difference']:.1e}",
        icon=":material/check:" if parity["same"] else ":material/warning:",
        color="green" if parity["same"] else "red",
        help=cached.glossary("parity badge"),
    )
    widgets.prose(
        f"Largest difference of any logit on a sample (tolerance {parity['tolerance']:.0e}). Changing later tokens "
        f"moves earlier logits by at most {parity['causal_difference']:.1e}, so nothing leaks from the future.",
        "quiet",
    )
    # Cards of an earlier version have none.
    if small := card.get("small"):
        widgets.prose(f"On loading, a small copy with random weights: {_differences(small)}", "quiet")
    request = Model(model=model, full=True)
    run = cached.store().find(request)
    if run is None:
        jobs.run_button("Compare at full length", request, "parity_full", tokens=card["max_positions"])
    else:
        full = run.numbers["full"]
        verdict = "the same" if full["same"] else "not the same"
        widgets.prose(f"At full length, these weights are {verdict}: {_differences(full)}", "quiet")
    widgets.prose(sizes(card), "more")
    if card["card"]:
        # Only the bundled card may be Markdown: another one is a stranger's.
        (st.markdown if model == "demo" else st.text)(card["card"])


def _differences(parity: dict) -> str:
    return (
        f"logits differ by at most {parity['one_pass']:.1e} in one pass over {parity['tokens']:,} tokens, and by "
        f"{parity['decoded']:.1e} when the last ones are decoded with the KV cache."
    )
