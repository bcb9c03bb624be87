"""What an action will cost: a fixed part and seconds per token, by the medians of what it cost before."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.commands import COMMANDS
from analysis.commands.temperature import TEMPERATURES
from analysis.declaration.command import Shape
from analysis.probes.named import LENGTH
from analysis.runs.price import FIRST_SECONDS, held, predict, predicted, spell, together
from analysis.studies.heads.names import TEXTS
from analysis.studies.temperature.curve import ALL_LAYERS
from tests.made.stored_runs import ASK, PROTOCOL, result


def card():
    """The card of a small model on a processor."""
    sizes = {"layers": 6, "width": 256, "heads": 8, "kv_heads": 2, "head_dim": 32, "max_positions": 2048}
    return SimpleNamespace(numbers=sizes | {"device": "cpu", "dtype": "float32", "parameters": 6_000_000})


def qwen(layers: int) -> dict:
    """The card's sizes of Qwen2.5-0.5B, or of its first layers."""
    sizes = {"layers": layers, "width": 896, "inner": 4864, "heads": 14, "kv_heads": 2, "head_dim": 64}
    return sizes | {"vocabulary": 151_936, "max_positions": 32_768, "dtype": "float32"}


def runs(*sizes, fixed=2.0, rate=0.001):
    """(seconds, tokens) of runs that take a fixed part and so much per token."""
    return [(fixed + rate * size, size) for size in sizes]


def test_a_fixed_part_and_seconds_per_token_are_told_apart():
    price = predict(runs(100, 200, 400, 800), 10_000)
    assert price.seconds == pytest.approx(12.0) and price.fixed == pytest.approx(2.0)
    assert price.low == pytest.approx(12.0) == price.high and price.error < 0.5
    assert predict(runs(8000, 4000, 2000), 100).seconds == pytest.approx(2.1)
    assert price.part(0.25) == pytest.approx(4.5)


def test_medians_bear_noise_and_runs_that_also_loaded_the_model():
    noise = random.Random(0)
    past = [(took * noise.uniform(0.8, 1.25), size) for took, size in runs(*[100 * n for n in range(1, 19)])]
    past[3], past[11] = (60.0, past[3][1]), (90.0, past[11][1])
    price = predict(past, 5000)
    assert price.seconds == pytest.approx(7.0, rel=0.25) and price.low < price.seconds < price.high and price.n == 18
    price = predict([(1.0, 1000)] * 9 + [(60.0, 1000)], 1000)
    assert price.seconds == 1.0 == price.low and price.high < 60.0 and price.n == 10


def test_runs_of_one_size_scale_the_guess():
    assert predict([(7.0, 1000)] * 3, 2000).seconds == pytest.approx(9.0), "5 s and 0.002 s a token, as guessed"
    assert predict([(14.0, 1000)], 2000).seconds == pytest.approx(18.0)
    assert predict([(14.0, 1000)], 10).seconds == pytest.approx(0.14), "the less of both"
    assert predict([(30.0, 10.0)], 20.0, guess=float).seconds == pytest.approx(60.0), "a guess without a fixed part"
    assert predict([(1.0, 1000), (1.1, 1001)], 10_000).seconds < 10, "nearly equal sizes have no slope"


def test_nothing_is_ever_dear_because_short_texts_cost_a_start():
    sentence, story, page = (1.13, 55), (0.52, 534), 2700  # seconds and tokens of "start" on two cores
    for past in ([sentence], [story, sentence], [story, sentence, (0.9, 60), (1.0, 50)]):
        price = predict(past, page)
        assert 0.5 < price.seconds < 5 and not price.slow
    assert predict([(100.0, 2000), sentence], page).slow and predict([(30.0, 1000)] * 3, page).slow
    assert predict([(1.0, 1000), (60.0, 1000)], 1000).slow, "30 s are predicted, and it may take 1 s"
    assert predict([(25.0, 1000), (60.0, 1000)], 1000).slow


def test_one_after_the_other_loads_the_model_once():
    """Two runs of 2 s to load and 4 s to read, and of 6 s to read: 12 s, not 14."""
    short, long = predict(runs(8000, 4000, 2000), 4000), predict(runs(8000, 4000, 2000), 6000, bytes=7)
    both = together([short, long])
    assert both.seconds == pytest.approx(12.0) and both.fixed == pytest.approx(2.0) and both.bytes == 7
    assert both.low == pytest.approx(12.0) == both.high and both.n == 3
    assert together([predict([], 1000)] * 4).slow is False, "5 s and four times 2 s"
    assert together([short]).seconds == short.seconds


def test_no_price_is_below_nothing():
    quadratic = [(1e-6 * size**2, size) for size in (500, 1000, 2000, 4000)]
    assert predict(quadratic, 10).seconds > 0 and predict(quadratic, 8000).high > 16
    assert predict([(0.0, 10), (-1.0, 10), (2.0, 0)], 10).n == 0


def test_a_first_price_says_that_it_is_a_guess():
    price = predict([], 1000)
    assert price.n == 0 and price.seconds == FIRST_SECONDS + 2.0 and price.low < price.seconds < price.high
    assert price.sentence.startswith("First time on this machine: perhaps 7.0 s") and price.error is None
    assert predict([], 10, guess=lambda work: 200.0).slow and not price.slow


def test_a_price_says_how_far_it_was_off_and_what_memory_it_takes():
    price = predict([(27.0, 2700), (18.0, 1800), (12.0, 900)], 1800, bytes=2_000_000)
    assert price.sentence.startswith("About ") and "from 3 runs on this machine, so far off by" in price.sentence
    assert price.sentence.endswith(", 2 MB of memory")
    assert "from 1 run on this machine" in predict([(27.0, 2700)], 1800).sentence


def test_a_price_says_when_it_is_too_much():
    long, large = predict([(700.0, 10)] * 3, 10), predict([(1.0, 10)] * 3, 10, bytes=8_000_000_000)
    assert "longer than 10 min" in long.over(None) and long.slow and not large.slow
    assert large.over(2_000_000_000) == "It needs about 8.0 GB of memory and 2.0 GB are free"
    assert large.over(None) is None and large.over(9_000_000_000) is None


def test_the_store_prices_a_verb_and_a_model_by_their_own_runs(store):
    for seed, tokens in enumerate((900, 1800, 2700)):
        store.put("groups", {**ASK, "seed": seed}, result(), {"tokens": tokens}, 2.0 + tokens / 100)
    price = store.price("groups", "demo", 5400)
    assert price.seconds == pytest.approx(56.0) and price.n == 3
    assert store.price("groups", "other", 1800).n == 0 and store.price("pairs", "demo", 1800).n == 0


@pytest.mark.parametrize(
    "verb, args, tokens",
    [
        ("evaluate", {"methods": [{}]}, 1024),
        ("temperature", {}, 2245),
        ("generate", {"new_tokens": 48}, 7300),
        ("pitfalls", {}, 1000),
    ],
)
def test_what_a_page_begins_by_itself_is_quick_with_the_bundled_model_and_waits_with_a_large_one(
    store, verb, args, tokens
):
    large = SimpleNamespace(numbers=card().numbers | {"parameters": 494_000_000})
    small, big = (predicted(store, verb, {"model": "demo"} | args, tokens, one) for one in (card(), large))
    assert not small.slow and big.slow and small.n == big.n == 0


def test_the_first_price_of_a_verb_follows_what_another_one_took(store):
    first = {verb: predicted(store, verb, {"model": "demo"}, 2000, card()) for verb in ("pairs", "groups", "head")}
    assert first["pairs"].seconds > first["head"].seconds > first["groups"].seconds, "each has a price of its own"
    took = 3 * first["groups"].seconds
    store.put("groups", ASK, result(), {"tokens": 2000}, took)
    later = predicted(store, "pairs", {"model": "demo"}, 2000, card())
    assert later.seconds == pytest.approx(3 * first["pairs"].seconds) and later.n == 0


def test_the_first_price_follows_the_pass_that_compared_the_model(store):
    """0.3 s for 256 tokens: 2,000 of them are read for the price of that, not of a processor of common speed."""
    big = {"parameters": 494_000_000, "layers": 24, "heads": 14, "kv_heads": 2}
    known, unknown = card(), card()
    for one in (known, unknown):
        one.numbers.update(big)
    known.numbers["parity"] = {"same": True, "tokens": 256, "seconds": 0.3}
    unknown.numbers["parity"] = {"same": True, "tokens": 256}
    quick, slow = (predicted(store, "start", {"model": "demo"}, 2000, one).seconds for one in (known, unknown))
    assert quick == pytest.approx(5 + 2000 * 1.1 * (0.002 + 3 * 0.3 / 256)) and slow > 5 * quick


def test_plain_passes_cost_by_the_size_of_the_model_and_made_texts_their_own_length(store):
    """Of a model of 6 million parameters a token costs 0.24 ms in a pass, at 5e10 operations a second, and 2.72 ms in a
    reading of its heads; what the reader's text holds does not matter to names."""
    price = {verb: predicted(store, verb, {"model": "demo"}, 2000, card()).seconds for verb in ("names", "ablate")}
    assert COMMANDS["names"].made_tokens == 2 * TEXTS * LENGTH
    assert price["names"] == pytest.approx(FIRST_SECONDS + 3072 * (0.00272 + 15 * 0.00024))
    assert price["ablate"] == pytest.approx(FIRST_SECONDS + 2000 * (4 + 8) * 0.00024)


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({}, 8),
        ({"heads": "top", "exact": 20}, 20),
        ({"heads": "all", "exact": 20}, 48),
        ({"heads": "1.2,0.1"}, 2),
        ({"heads": "1.2,0.1", "together": True}, 1),
        ({"heads": "1.2,0.1", "together": True, "others": True}, 2),
    ],
)
def test_ablation_costs_by_the_passes_that_were_asked_for(asked, passes):
    """Four more: the estimate with its gradient is worth three, and one is of all heads."""
    assert COMMANDS["ablate"].workload(asked, 100, Shape(6, 8)) == 100 * (4 + passes)


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ({"t": [1.0]}, 1),
        ({"t": [1.0], "by_layer": [1.0, 1.0, 0.6, 1.0, 1.0, 1.0]}, 2),
        ({"t": [0.5, 1.0, 2.0], "layers": [0.6, 0.8]}, 15),
        ({}, 11),
        ({"t": None, "layers": None, "by_layer": None}, 11),
    ],
)
def test_temperatures_cost_by_the_passes_that_the_study_makes(asked, passes):
    """One set for all layers is one pass however many layers, one temperature of one layer is a pass in each of them,
    and a temperature of 1 is the dense pass. With none named, all but 1 are read."""
    assert COMMANDS["temperature-curve"].workload(asked, 100, Shape(6, 8)) == 100 * passes
    assert sum(t != 1 for t in ALL_LAYERS) == TEMPERATURES


def test_a_page_that_finds_the_reading_of_start_has_a_price_of_its_own(store):
    text = {"model": "demo", "text": "a" * 16}
    asked = {**text, "shuffled": False}
    price = {name: predicted(store, "groups", args, 2000, card()) for name, args in (("part", asked), ("whole", text))}
    assert price["part"].seconds == price["whole"].seconds, "nobody has read the text"
    store.put("start", text, result(), {"tokens": 2000}, 20.0)
    whole = predicted(store, "groups", text, 2000, card())
    assert predicted(store, "groups", asked, 2000, card()).seconds == pytest.approx(whole.seconds / 10)
    store.put("groups", asked, result(), {"tokens": 2000}, 0.2)
    assert predicted(store, "groups", asked, 2000, card()).seconds == pytest.approx(0.2)
    assert predicted(store, "groups", text, 2000, card()) == whole, "a quick one tells nothing of those that read"
    other = predicted(store, "groups", {**asked, "router": "k4-top1"}, 2000, card())
    assert other.seconds == whole.seconds, "Start read it with another router"


def test_the_price_counts_how_often_a_text_is_read_and_what_reads_none(store):
    for seed, methods in enumerate((["dense"], ["dense", "focus", "csa"])):
        ask = {**ASK, "seed": seed, "methods": methods}
        store.put("evaluate", ask, result(), PROTOCOL, 2.0 * (1 + len(methods)))
    asked = {"methods": ["dense"] * 9}
    assert store.price("evaluate", "demo", 900, request=asked).seconds == pytest.approx(20.0)
    for seed, seconds in enumerate((3.0, 5.0)):
        store.put("worth", {**ASK, "seed": seed}, result(), {"model": "demo"}, seconds)
    price = store.price("worth", "demo", 1_000_000)
    assert (price.seconds, price.n, price.error) == (4.0, 2, pytest.approx(0.4))


def test_after_three_runs_nine_of_ten_predictions_are_within_a_factor_of_one_and_a_half():
    """Made-up machines and verbs: a fixed part, seconds per token and noise of 10 %, texts of 300 to 8,000 tokens."""
    draw, within = np.random.default_rng(0), []
    for _ in range(200):
        fixed, rate = draw.uniform(0.5, 8), draw.uniform(0.001, 0.02)
        sizes = np.exp(draw.uniform(np.log(300), np.log(8000), 6))
        took = (fixed + rate * sizes) * np.exp(draw.normal(0, 0.1, 6))
        for known in range(3, 6):
            price = predict(list(zip(took[:known][::-1], sizes[:known][::-1], strict=True)), sizes[known])
            within.append(1 / 1.5 < price.seconds / took[known] < 1.5)
    assert np.mean(within) >= 0.9


@pytest.mark.parametrize(
    ("verb", "tokens", "taken"),  # megabytes beside the weights, measured on 2 layers of the 0.5B shape
    [
        ("statistics", 2218, 307),
        ("start", 2218, 261),
        ("head", 2218, 290),
        ("temperature", 2218, 318),
        ("groups", 2218, 257),
        ("pairs", 2218, 274),
        ("fit-router", 2218, 160),
        ("fit-router", 8872, 186),
        ("statistics", 8872, 1096),
    ],
)
def test_the_memory_of_a_request_is_predicted_within_a_quarter(verb, tokens, taken):
    assert held(COMMANDS[verb], {}, tokens, qwen(2)) == pytest.approx(taken * 1e6, rel=0.25)


def test_long_texts_keep_no_queries_and_keys_and_halves_take_half():
    whole = qwen(24)
    assert held(COMMANDS["statistics"], {}, 32_768, whole) < 10e9, "32k tokens on the 0.5B shape"
    assert held(COMMANDS["statistics"], {}, 65_536, whole) - held(COMMANDS["statistics"], {}, 32_768, whole) < 1e9, (
        "windows one by one"
    )
    half = held(COMMANDS["head"], {}, 8000, whole | {"dtype": "bfloat16"})
    assert half < held(COMMANDS["head"], {}, 8000, whole) < 2.1 * half
    assert held(COMMANDS["groups"], {}, 2218, whole, found=True) < held(COMMANDS["groups"], {}, 2218, whole) / 4
    compared = held(COMMANDS["evaluate"], {"window": 512}, 2218, whole) - held(
        COMMANDS["evaluate"], {"window": 256}, 2218, whole
    )
    assert compared > 2 * 4 * 256 * 151_936, "the logits of both passes"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "under 0.1 s"),
        (2.34, "2.3 s"),
        (89.4, "89 s"),
        (106, "1 min 50 s"),
        (118, "2 min"),
        (391, "6 min 30 s"),
        (601, "10 min"),
        (9000, "2.5 h"),
    ],
)
def test_seconds_are_told_as_a_person_tells_them(seconds, words):
    assert spell(seconds) == words
