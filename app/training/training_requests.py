"""What the training form asks for, its price, and less of it."""

import re

import streamlit as st

from analysis.commands.groups import TrainRouter
from analysis.declaration import fields_of
from analysis.runs import Price
from analysis.runs.machine import pace
from analysis.runs.price import predict
from app import cached
from app.ui.offers import Scope

NAME = re.compile(r"k(\d{1,3})-top(\d{1,2})(?:-([a-z0-9]{1,16}))?")
# Argument of the command -> control.
FIELDS = {item.name: item.declared.control for item in fields_of(TrainRouter) if item.declared.control}
# Of phase 2 these are those of the router that is there.
OF_ROUTER = (
    *("window", "n_sink", "gate", "gate_sharpness", "gate_offset", "temperature", "iterations", "d_s", "balance"),
    *("similarity", "grouped_layers", "per_head"),
)
# Operations a second and bytes held besides, until something was trained here.
WORK, MEMORY = 3e10, 128 << 20


def request() -> TrainRouter:
    """What the form asks for. Phase 2 goes on with the router in use, as it is."""
    chosen = st.session_state
    # What is learned from: the hashes of stored texts, at first the samples, or the name of a folder.
    args = {"model": chosen["model"], "corpus": chosen["train_corpus"] or cached.corpus()}
    args |= {name: chosen[control] for name, control in FIELDS.items()}
    args |= {"grouped_layers": layers()} if layers() else {}
    if chosen["train_phase"] == 1:
        return TrainRouter(**args, label=chosen["train_label"])
    match = NAME.fullmatch(chosen["router"])
    groups, top, label = (int(match[1]), int(match[2]), match[3] or "") if match else (8, 1, "")
    further = {name: value for name, value in args.items() if name not in OF_ROUTER}
    return TrainRouter(**further | {"groups": groups, "top": top}, label=label)


def layers() -> list[int]:
    """The layers with groups that were typed, each once; none where all have them."""
    numbers = re.findall(r"[0-9]{1,4}", st.session_state["train_layers"] or "")
    return list(dict.fromkeys(map(int, numbers)))


def smaller(training: TrainRouter) -> list[Scope]:
    """The training with less to do."""
    fewer = training.steps // 4
    return [Scope(f"{fewer:,} steps", {"train_steps": fewer}, 0.25)] if fewer >= 10 else []


def price(training: TrainRouter, card: dict) -> Price:
    """What a training costs: its steps, and measuring four ways of reading afterwards; corrected by past ones here."""
    needed = MEMORY + 4 * 40 * 1024 * card["layers"] * card["width"]
    needed += (20 if training.phase == 2 else 0) * card["parameters"]
    runs = [run for run in cached.store().list(training.verb, 20) if run.request.get("model") == training.model]
    past = [(run.seconds, _guess(run.request, card)) for run in runs if run.request.get("phase") == training.phase]
    return predict(past, _guess(training.spelled, card), needed, float)


def _guess(args: dict, card: dict) -> float:
    learned = args["steps"] * args["tokens_per_step"] * (8 if args["phase"] == 2 else 6)
    measured = 2 * (5 * 16 * 1024 + args["steps"] / 100 * 8 * 1024)
    return 5 + card["parameters"] * (learned + measured) / (WORK * pace(card["device"]))
