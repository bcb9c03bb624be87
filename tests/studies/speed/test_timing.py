"""Timing: rounds in turns, the opponent, the crossover, and what the verb `bench` prints and refuses; what the top-k
kernels cost (no time is held to a limit here); a method by its own kernels, what has one, what has none."""

import json

import pytest
import torch

import analysis
from analysis import timing
from analysis.commands.budgets import TopkCost
from analysis.commands.speed import Bench, TimeMethod
from analysis.errors import BadSetting, TooLarge
from analysis.kernels import packed
from analysis.kernels.topk import topk_attention
from analysis.methods import METHODS
from analysis.studies.context import Context
from analysis.studies.speed import bench as study
from analysis.studies.speed.method import PHASES, time_method
from analysis.studies.speed.topk_cost import masked_eager, topk_cost
from analysis.timing import AttentionTime, Timing, exponent, fastest_dense, memory, time_attention, time_parts
from tests.made.clock import Clock
from tests.made.evaluating import TEXT, watched_context

SMALL = {"heads": 2, "head_dim": 8, "window": 16, "repeats": 1}


def test_rounds_take_turns_and_the_first_one_warms_up():
    called, reports = [], []
    runs = {name: lambda name=name: called.append(name) for name in "ab"}
    timings = timing.clock(runs, 3, lambda *report: reports.append(report))
    assert called == list("baabbaab"), "every other round the order turns"
    assert [len(timings[name].seconds) for name in "ab"] == [3, 3]
    assert reports[0] == (0.0, "b") and len(reports) == 8 and all(0 <= fraction < 1 for fraction, _ in reports)
    built = Timing.of([3.0, 1.0, 2.0, 10.0])
    assert (built.median, built.low, built.high, built.seconds) == (2.5, 1.0, 10.0, [3.0, 1.0, 2.0, 10.0])
    with pytest.raises(BadSetting, match="0 rounds measure nothing"):
        timing.clock({}, 0)


def test_attention_is_timed_with_memberships_of_ours_and_at_the_door(monkeypatch):
    members = torch.zeros(300, 4, dtype=torch.bool)
    members[:, 1] = True
    timed = time_attention(300, 4, 8, 4, 16, members=members, kv_heads=2, batch=2, repeats=1, device="cpu")
    assert timed.kernel == "causal" and timed.retained == 1 and timed.batch == 2
    monkeypatch.setattr(timing, "peak_bytes", lambda run, device: run()[0].nbytes)
    timed = analysis.time_attention(600, 2, 8, 4, 16, dtype="float32", repeats=2, device="cpu", parts=True)
    assert isinstance(timed, AttentionTime) and timed.length == 600 and timed.dtype == "float32"
    assert timed.dense_kernel.startswith("torch") and "flash-attn 2 (needs an NVIDIA GPU)" in timed.missing
    assert timed.kernel in ("groups", "masked") and 0 < timed.retained < 0.5 and timed.bound == 1 / timed.retained
    ratios = [a / b for a, b in zip(timed.dense.seconds, timed.sparse.seconds, strict=True)]
    assert timed.speedup.seconds == ratios and len(ratios) == 2
    assert {"sort", "set_a", "set_b", "merge", "rest"} == set(timed.parts)
    assert timed.memory == 1, "q, k and v are held, and the call makes the output"


def test_parts_add_up_to_the_call():
    q, k, v = torch.randn(3, 1, 4, 800, 16)
    members = torch.nn.functional.one_hot(torch.arange(800) % 8).bool()
    for kind in (members, members | members.roll(1, -1)):
        parts = time_parts(lambda kind=kind: packed.grouped(q, k, v, kind[None], 8, 0.25))
        assert all(parts[name] > 0 for name in ("sort", "set_a", "set_b", "merge")) and parts["rest"] >= 0


def test_dense_opponents_compute_causal_attention_and_the_quickest_is_taken(monkeypatch):
    q, k, v = torch.randn(1, 4, 50, 8), *torch.randn(2, 1, 2, 50, 8)
    truth = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    kernels = timing._dense_kernels(q)
    assert list(kernels) == list(timing.ON_CPU)
    assert all((run(q, k, v) - truth).abs().max() < 1e-5 for run in kernels.values())

    def broken(q, k, v):
        raise RuntimeError("no kernel")

    def slow(q, k, v):
        clock.seconds += 1
        return q

    kernels, clock = {"slow": slow, "quick": lambda q, k, v: q, "broken": broken}, Clock()
    monkeypatch.setattr(timing, "now", clock)
    monkeypatch.setattr(timing, "_dense_kernels", lambda q: kernels)
    name, run, missing = fastest_dense(*torch.randn(3, 1, 2, 4, 8))
    assert name == "quick" and run is kernels["quick"] and "broken (does not run on this shape and type)" in missing


@pytest.mark.parametrize(
    "points, length",
    [
        ([(1024, 0.5), (4096, 2.0)], 2048),  # halfway in logarithms
        ([(1024, 1.5), (4096, 2.0)], 1024),
        ([(1024, 0.5), (4096, 0.9)], None),
        ([(1024, 1.5), (2048, 0.5), (8192, 2.0)], 4096),  # the last time it passes 1
        ([(1024, 1.5), (2048, 0.5)], None),
    ],
)
def test_crossover(points, length):
    assert timing.crossover(points) == length


def test_bench_takes_skewed_groups_and_those_of_a_router(state):
    shares = study.skewed_tokens(40_000, 8, 1, 0).float().mean(0)
    wanted = study.SKEW ** torch.arange(8.0)
    assert (shares - wanted / wanted.sum()).abs().max() < 0.01
    assert (study.skewed_tokens(100, 8, 3, 0).sum(-1) == 3).all()
    context, request = Context(device="cpu"), Bench(**SMALL, lengths=[400], router="k8-top1")
    about = study.bench(request, context=context).numbers["protocol"]
    assert about["model"] == "demo" and "repeated to the length" in about["memberships"] and about["groups"] == 8
    with pytest.raises(BadSetting, match="Layers run from 0 to"):
        study.bench(request.but(layer=99), context=context)


def test_bench_counts_what_it_did():
    reports = []
    context = Context(progress=lambda *report: reports.append(report), device="cpu")
    result = study.bench(Bench(**SMALL, lengths=[300, 150], groups=4), context=context)
    rows, merged, about = (result.numbers[name] for name in ("rows", "merges", "protocol"))
    assert [row["length"] for row in rows] == [150, 300] == result.tables["curve"]["length"].tolist()
    for row in rows:
        assert row["speedup_low"] <= row["speedup"] <= row["speedup_high"] and row["bound"] == 1 / row["retained"]
        assert {"kernel", "dense_kernel", "dense_ms", "sparse_ms", "memory", "sort_ms", "set_a_ms"} <= set(row)
    assert merged["disjoint"]["cosine"] > 0.999 > 0.95 > merged["subtraction"]["cosine"]
    assert about["memberships"] == "random, balanced" and about["repeats"] == 1 and about["processor"]
    assert all(0 <= fraction <= 1 for fraction, _ in reports)
    skewed = study.bench(Bench(**SMALL, lengths=[300], skew=True), context=context)
    assert "a fifth smaller" in skewed.numbers["protocol"]["memberships"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(lengths=[0]), "lengths must be 1 or more, and 0"),
        (dict(heads=8, kv_heads=3), "3 heads of keys and values do not divide 8"),
        (dict(groups=4, top=5), "cannot be in 5 of 4 groups"),
    ],
)
def test_bench_refuses(arguments, message):
    with pytest.raises(BadSetting, match=message):
        study.bench(Bench(**arguments), context=Context(device="cpu"))


def test_a_length_beyond_memory_is_refused_and_halves_take_half_on_a_gpu(monkeypatch):
    monkeypatch.setattr(timing, "time_attention", lambda *a, **k: pytest.fail("started"))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8e9)
    with pytest.raises(TooLarge, match=r"1,000,000,000 tokens .* need about .* GB and .* GB are free on cpu") as error:
        study.bench(Bench(lengths=[128, 1_000_000_000]), context=Context(device="cpu"))
    peak = int(str(error.value).split("at most ")[1].split()[0].replace(",", ""))
    memory.check_memory(peak // 2, 1, 8, 8, 64, "cpu", "bfloat16")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 80e9)
    memory.check_memory(1 << 20, 1, 32, 32, 128, "cuda", "bfloat16")
    for device, dtype, top in (("cuda", "float32", 1), ("cuda", "bfloat16", 2), ("cpu", "bfloat16", 1)):
        with pytest.raises(TooLarge):
            memory.check_memory(1 << 20, 1, 32, 32, 128, device, dtype, top)


def test_the_power_of_a_growth_and_the_masked_pass_that_is_the_same_attention():
    assert exponent([(2, 12.0), (4, 48.0), (16, 768.0)]) == pytest.approx(2)
    # slopes of 1 and 2 between lengths that lie evenly
    assert exponent([(1, 1.0), (2, 2.0), (4, 8.0)]) == pytest.approx(1.5)
    q, k, v = (torch.randn(1, heads, 50, 8, generator=torch.Generator().manual_seed(heads)) for heads in (4, 2, 2))
    assert (masked_eager(q, k, v, 7) - topk_attention(q, k, v, [7] * 4)[0]).abs().max() < 2e-6
    last = topk_attention(q[:, :, -1:], k, v, [7] * 4, past=49)[0]
    assert (masked_eager(q[:, :, -1:], k, v, 7) - last).abs().max() < 2e-6


SIZES = {"keys": 8, "heads": 4, "head_dim": 8, "kv_heads": 2, "repeats": 2}


def test_rows_of_passes_and_steps():
    reports = []
    context = Context(progress=lambda fraction, stage: reports.append(fraction))
    numbers = topk_cost(TopkCost(lengths=[64, 128], **SIZES), context=context).numbers
    json.dumps(numbers, allow_nan=False)
    rows = numbers["rows"]
    assert [(row["what"], row["length"]) for row in rows] == [(w, n) for n in (64, 128) for w in ("pass", "step")]
    for row in rows:
        assert row["times_dense_low"] <= row["times_dense"] <= row["times_dense_high"]
        assert min(row["dense_ms"], row["topk_ms"], row["masked_ms"], row["faster_than_masked"]) > 0
    assert rows[-1]["bytes_dense"] == 2 * 2 * 128 * 8 * 4 and rows[-1]["bytes_topk"] == 8 * 4 * (2 * 128 + 4 * 8)
    assert numbers["met"] is None and reports == sorted(reports) and reports[-1] <= 1


@pytest.mark.parametrize(
    "wrong", [{"lengths": [4]}, {"keys": 0}, {"kv_heads": 3}, {"kv_heads": 9}, {"repeats": 0}, {"seed": -1}], ids=str
)
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(BadSetting):
        topk_cost(TopkCost(**{"lengths": [32], **SIZES, **wrong}), context=Context())


KERNELS = {"focus": (True, True), "csa": (True, True), "quest": (False, True), "bucket_routing": (False, True)}
KERNELS |= {"focal": (True, True)}
SPECS = {"quest": {"settings": {"dense_layers": 0, "page": 4}}, "focus": {"router": "k4-top1"}}


@pytest.fixture(scope="module")
def ask(home):
    """`ask(name, **arguments)` -> MethodTimes."""
    context = watched_context(home)
    usual = {"model": str(home / "tiny"), "text": context.add_text("a text", TEXT), "repeats": 1, "new_tokens": 3}

    def timed_by(name, **options):
        request = TimeMethod(**usual | options, method={"name": name} | SPECS.get(name, {}))
        return time_method(request, context=context)

    return timed_by


@pytest.mark.slow
@pytest.mark.parametrize("name", ["focus", "csa", "quest", "bucket_routing", "focal", "streaming_llm", "magicpig"])
def test_only_a_kernel_is_timed(name, ask):
    numbers = ask(name).numbers
    expected = KERNELS.get(name, (False, False))
    assert METHODS[name].kernels == tuple(p for p, expects in zip(PHASES.values(), expected, strict=True) if expects)
    for (speedup, phase), expects in zip(PHASES.items(), expected, strict=True):
        ratio = numbers["speedup"][speedup]
        assert numbers["why"][phase] and (ratio is not None) == (numbers["kernels"][phase] is not None) == expects
        assert [length for length, _ in numbers["longer"][speedup]] == ([15, 30, 61] if expects else [])
        assert ratio is None or 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    assert len(numbers["rows"]) == (3 if any(expected) else 0)
    assert ("no kernel here" in numbers["sentence"]) == (expected != (True, True))


@pytest.mark.parametrize("arguments", [{"length": 4}, {"length": 62}, {"repeats": 0}, {"new_tokens": 1}], ids=str)
def test_bad_sizes_are_refused(ask, arguments):
    with pytest.raises(BadSetting):
        ask("quest", **arguments)
