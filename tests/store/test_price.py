"""What an action will cost: a fixed part and seconds per token, by the medians of what it cost before."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.commands import COMMANDS, request
from analysis.commands.routing import LOOKED_AT
from analysis.commands.temperature import TEMPERATURES
from analysis.declaration.command import Shape
from analysis.declaration.undeclared import Undeclared
from analysis.files import read_json
from analysis.places import CACHE
from analysis.probes.named import LENGTH
from analysis.runs import Result
from analysis.runs.price import FIRST_SECONDS, RECENT, SERVED, Price, predict, predicted, spell, together
from analysis.studies.heads.names import TEXTS
from analysis.studies.temperature.curve import ALL_LAYERS
from tests.made.stored_runs import ASK, PROTOCOL, result
from tests.prices import BOUNDS, LAST, ratios


def card(**changes) -> SimpleNamespace:
    """The card of a small model on a processor."""
    sizes = {"layers": 6, "width": 256, "heads": 8, "kv_heads": 2, "head_dim": 32, "max_positions": 2048}
    sizes |= {"device": "cpu", "dtype": "float32", "parameters": 6_000_000}
    return SimpleNamespace(numbers=sizes | changes)


def runs(*sizes, fixed=2.0, rate=0.001) -> list:
    """(seconds, tokens) of runs that take a fixed part and so much per token."""
    return [(fixed + rate * size, size) for size in sizes]


def price(store, verb: str, about=None, tokens: int = 2000, **arguments) -> Price:
    """The price of a request about the small model, or another card."""
    return predicted(store, request(verb, {"model": "demo"} | arguments), tokens, about or card())


def test_a_fixed_part_and_seconds_per_token_are_told_apart():
    line = predict(runs(100, 200, 400, 800), 10_000)
    assert (line.seconds, line.fixed, line.low, line.high) == pytest.approx((12.0, 2.0, 12.0, 12.0))
    assert line.error < 0.5 and line.part(0.25).seconds == pytest.approx(4.5)
    assert predict(runs(8000, 4000, 2000), 100).seconds == pytest.approx(2.1)


def test_medians_bear_noise_and_runs_that_also_loaded_the_model():
    noise = random.Random(0)
    past = [(took * noise.uniform(0.8, 1.25), size) for took, size in runs(*[100 * n for n in range(1, 19)])]
    past[3], past[11] = (60.0, past[3][1]), (90.0, past[11][1])
    noisy = predict(past, 5000)
    assert noisy.seconds == pytest.approx(7.0, rel=0.25) and noisy.low < noisy.seconds < noisy.high
    assert noisy.n == RECENT
    loaded = predict([(1.0, 1000)] * 9 + [(60.0, 1000)], 1000)
    assert loaded.seconds == 1.0 == loaded.low and loaded.high < 60.0 and loaded.n == 10


@pytest.mark.parametrize(
    ("past", "work", "seconds"),
    [
        # 5 s and 0.002 s a token, as guessed.
        ([(7.0, 1000)] * 3, 2000, 9.0),
        ([(14.0, 1000)], 2000, 18.0),
        # The less of both.
        ([(14.0, 1000)], 10, 0.14),
        # Nearly equal sizes have no slope.
        ([(1.0, 1000), (1.1, 1001)], 10_000, 3.75),
        # Seconds that grow with the square of the tokens: no price is below nothing.
        ([(1e-6 * size**2, size) for size in (500, 1000, 2000, 4000)], 10, 0.015),
    ],
)
def test_runs_of_one_size_scale_the_guess(past, work, seconds):
    assert predict(past, work).seconds == pytest.approx(seconds, rel=0.05)


def test_a_guess_may_have_no_fixed_part_and_runs_of_no_time_or_work_do_not_count():
    assert predict([(30.0, 10.0)], 20.0, guess=float).seconds == pytest.approx(60.0)
    assert predict([(0.0, 10), (-1.0, 10), (2.0, 0)], 10).n == 0


def test_nothing_is_ever_dear_because_short_texts_cost_a_start():
    """Seconds and tokens of `start` on two cores."""
    sentence, story, page = (1.13, 55), (0.52, 534), 2700
    for past in ([sentence], [story, sentence], [story, sentence, (0.9, 60), (1.0, 50)]):
        assert 0.5 < predict(past, page).seconds < 5
    assert predict([(100.0, 2000), sentence], page).slow and predict([(30.0, 1000)] * 3, page).slow
    assert predict([(1.0, 1000), (60.0, 1000)], 1000).slow, "30 s are predicted, and it may take 1 s"


def test_one_after_the_other_loads_the_model_once():
    """Two runs of 2 s to load and 4 s to read, and of 6 s to read: 12 s, not 14."""
    short, long = predict(runs(8000, 4000, 2000), 4000), predict(runs(8000, 4000, 2000), 6000, bytes=7)
    both = together([short, long])
    assert (both.seconds, both.fixed, both.low, both.high) == pytest.approx((12.0, 2.0, 12.0, 12.0))
    assert (both.bytes, both.n) == (7, 3) and together([short]).seconds == short.seconds
    assert not together([predict([], 1000)] * 4).slow, "5 s and four times 2 s"


def test_a_price_says_what_it_rests_on_and_when_it_is_too_much():
    first = predict([], 1000)
    assert (first.n, first.error) == (0, None) and first.seconds == FIRST_SECONDS + 2.0
    assert first.low < first.seconds < first.high and first.sentence.startswith("First time on this machine")
    priced = predict([(27.0, 2700), (18.0, 1800), (12.0, 900)], 1800, bytes=2_000_000)
    assert "from 3 runs" in priced.sentence and priced.sentence.endswith(", 2 MB of memory")
    long, large = predict([(700.0, 10)] * 3, 10), predict([(1.0, 10)] * 3, 10, bytes=8_000_000_000)
    assert "longer than 10 min" in long.over(None) and long.slow and not large.slow
    assert large.over(2_000_000_000) == "It needs about 8.0 GB of memory and 2.0 GB are free"
    assert large.over(None) is None and large.over(9_000_000_000) is None


def test_a_verb_and_a_model_are_priced_by_their_own_runs(store):
    for seed, tokens in enumerate((900, 1800, 2700)):
        store.put(Undeclared("groups", {**ASK, "seed": seed}), result(), {"tokens": tokens}, 2.0 + tokens / 100)
    line = predicted(store, request("groups", {}), 5400)
    assert line.seconds == pytest.approx(56.0) and line.n == 3
    unlike = request("groups", {"model": "other"}), request("pairs", {})
    assert [predicted(store, wanted, 1800).n for wanted in unlike] == [0, 0]


@pytest.mark.parametrize(
    ("verb", "arguments", "tokens"),
    [
        ("evaluate", {"methods": [{}]}, 1024),
        ("temperature", {}, 2245),
        ("generate", {"new_tokens": 48}, 7300),
        ("pitfalls", {}, 1000),
    ],
)
def test_what_a_page_begins_by_itself_is_quick_with_the_bundled_model_and_waits_with_a_large_one(
    store, verb, arguments, tokens
):
    small, big = (price(store, verb, card(parameters=size), tokens, **arguments) for size in (6_000_000, 494_000_000))
    assert not small.slow and big.slow and small.n == big.n == 0


def test_the_first_price_of_a_verb_follows_what_another_one_took(store):
    first = {verb: price(store, verb) for verb in ("pairs", "groups", "head")}
    assert first["pairs"].seconds > first["head"].seconds > first["groups"].seconds, "each has a price of its own"
    store.put(Undeclared("groups", ASK), result(), {"tokens": 2000}, 3 * first["groups"].seconds)
    later = price(store, "pairs")
    assert later.seconds == pytest.approx(3 * first["pairs"].seconds) and later.n == 0


def test_the_first_price_follows_the_pass_that_compared_the_model(store):
    """0.3 s for 256 tokens: 2,000 of them are read for the price of that, not of a processor of common speed."""
    big = {"parameters": 494_000_000, "layers": 24, "heads": 14, "kv_heads": 2}
    parity = {"same": True, "tokens": 256}
    quick, slow = (price(store, "start", card(**big, parity=parity | took)).seconds for took in ({"seconds": 0.3}, {}))
    assert quick == pytest.approx(5 + 2000 * 1.1 * (0.002 + 3 * 0.3 / 256)) and slow > 5 * quick


def test_plain_passes_cost_by_the_size_of_the_model_and_made_texts_their_own_length(store):
    """Of a model of 6 million parameters a token costs 0.24 ms in a pass, at 5e10 operations a second, and 2.72 ms in a
    reading of its heads; what the reader's text holds does not matter to names."""
    assert COMMANDS["names"].made_tokens == 2 * TEXTS * LENGTH
    assert price(store, "names").seconds == pytest.approx(FIRST_SECONDS + 3072 * (0.00272 + 15 * 0.00024))
    assert price(store, "ablate").seconds == pytest.approx(FIRST_SECONDS + 2000 * (4 + 8) * 0.00024)


@pytest.mark.parametrize(
    ("verb", "arguments", "passes"),
    [
        # The estimate of `ablate` with its gradient is worth three passes, and one more is of all heads.
        ("ablate", {}, 4 + 8),
        ("ablate", {"heads": "top", "exact": 20}, 4 + 20),
        ("ablate", {"heads": "all", "exact": 20}, 4 + 48),
        ("ablate", {"heads": "1.2,0.1"}, 4 + 2),
        # One set for all layers is one pass, one temperature of one layer a pass in each of them, and a temperature of
        # 1 is the dense pass. With none named, all but 1 are read.
        ("temperature-curve", {"t": [1.0]}, 1),
        ("temperature-curve", {"t": [1.0], "by_layer": [1.0, 1.0, 0.6, 1.0, 1.0, 1.0]}, 2),
        ("temperature-curve", {"t": [0.5, 1.0, 2.0], "layers": [0.6, 0.8]}, 15),
        ("temperature-curve", {}, 1 + sum(t != 1 for t in ALL_LAYERS)),
        ("temperature-curve", {"t": None, "layers": None, "by_layer": None}, 1 + TEMPERATURES),
    ],
)
def test_work_is_counted_in_the_passes_that_were_asked_for(verb, arguments, passes):
    assert COMMANDS[verb].workload(arguments, 100, Shape(6, 8)) == 100 * passes


def test_what_is_trained_beside_a_model_does_not_grow_with_all_of_its_weights():
    def trained(shape: Shape) -> int:
        route, kinds = COMMANDS["route"], {"mlp": False, "kinds": ["dsa", "m3"]}
        return route.workload(kinds, 100, shape) - route.workload(kinds | {"kinds": None}, 100, shape)

    looked_at = 100 * 2 * LOOKED_AT
    assert trained(Shape(6, 8, 10.0)) - looked_at == pytest.approx((trained(Shape(6, 8)) - looked_at) / 10, abs=1)
    assert trained(Shape(24, 8)) - looked_at == pytest.approx(4 * (trained(Shape(6, 8)) - looked_at), abs=1)


def test_a_page_that_finds_the_reading_of_start_has_a_price_of_its_own(store):
    text = {"model": "demo", "text": "a" * 16}
    assert price(store, "groups", **text, shuffled=False) == price(store, "groups", **text), "nobody has read the text"
    store.put(Undeclared("start", text), result(), {"tokens": 2000}, 20.0)
    full = price(store, "groups", **text)
    assert price(store, "groups", **text, shuffled=False).seconds == pytest.approx(SERVED * full.seconds)
    store.put(Undeclared("groups", text | {"shuffled": False}), result(), {"tokens": 2000}, 0.2)
    assert price(store, "groups", **text, shuffled=False).seconds == pytest.approx(0.2)
    assert price(store, "groups", **text) == full, "a quick one tells nothing of those that read"
    routed = price(store, "groups", **text, shuffled=False, router="k4-top1")
    assert routed.seconds == full.seconds, "Start read it with another router"


def test_the_price_counts_how_often_a_text_is_read_and_what_reads_none(store):
    for seed, methods in enumerate(([{}], [{}] * 3)):
        arguments = {**ASK, "seed": seed, "methods": methods}
        store.put(Undeclared("evaluate", arguments), result(), PROTOCOL, 2.0 * (1 + len(methods)))
    nine = predicted(store, request("evaluate", {"methods": [{}] * 9}), 900)
    assert nine.seconds == pytest.approx(20.0)
    for keep, seconds in ((0.1, 3.0), (0.2, 5.0)):
        store.put(Undeclared("worth", {"model": "demo", "keep": keep}), result(), {"model": "demo"}, seconds)
    no_text = predicted(store, request("worth", {}), 1_000_000)
    assert (no_text.seconds, no_text.n, no_text.error) == (4.0, 2, pytest.approx(0.4))


def test_after_three_runs_nine_of_ten_predictions_are_within_a_factor_of_one_and_a_half():
    """Made-up machines and verbs: a fixed part, seconds per token and noise of 10%, texts of 300 to 8,000 tokens."""
    draw, within = np.random.default_rng(0), []
    for _ in range(200):
        fixed, rate = draw.uniform(0.5, 8), draw.uniform(0.001, 0.02)
        sizes = np.exp(draw.uniform(np.log(300), np.log(8000), 6))
        took = (fixed + rate * sizes) * np.exp(draw.normal(0, 0.1, 6))
        for n in range(3, 6):
            line = predict(list(zip(took[:n][::-1], sizes[:n][::-1], strict=True)), sizes[n])
            within.append(1 / 1.5 < line.seconds / took[n] < 1.5)
    assert np.mean(within) >= 0.9


RATES = {"start": 0.002, "pairs": 0.0012, "statistics": 1e-5, "ablate": 0.01, "evaluate": 0.003}


@pytest.mark.slow
def test_what_is_said_of_the_last_ten_runs_is_about_what_they_take(store):
    """A machine half as fast and one four times as fast as guessed: texts of 300 to 8,000 tokens, noise of a quarter, a
    first reading that takes eight times as long as it also compiles, one method twice as slow as another."""
    draw = np.random.default_rng(1)
    for speed, model in ((2.0, "demo"), (0.25, "quick")):
        store.put(Undeclared("model", {"model": model}), Result(card(revision="x").numbers), {"model": model}, 1.0)
        for text in range(14):
            tokens = int(np.exp(draw.uniform(np.log(300), np.log(8000))))
            for verb, rate in RATES.items():
                arguments = {"model": model, "text": f"{text:016x}"}
                slow = text % 2 and verb == "evaluate"
                arguments |= {"methods": [{"name": "quest" if slow else "dense"}]} if verb == "evaluate" else {}
                seconds = speed * (0.05 + rate * tokens) * np.exp(draw.normal(0, 0.25)) * (1 + slow)
                store.put(Undeclared(verb, arguments), result(), {"tokens": tokens}, seconds * (1 if text else 8))
    by_group = ratios([store])
    assert len(by_group) == 2 * len(RATES)
    middles = {
        group: float(np.median([predicted / took for predicted, took in pairs[:LAST]]))
        for group, pairs in by_group.items()
    }
    assert all(BOUNDS[0] <= middle <= BOUNDS[1] for middle in middles.values()), middles


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


def test_the_operations_of_a_token_count_as_the_card_says_them(store):
    # as many operations as two for each of 6 million weights, then ten times as many
    unchanged, dear = (price(store, "start", card(token_flops=flops)).seconds for flops in (1.2e7, 1.2e8))
    assert unchanged == price(store, "start", card()).seconds < dear


def test_the_bundled_card_was_made_on_a_machine_with_nothing_else_to_do():
    """What a plain pass took stands in it, and the first price of a text of one's own begins there."""
    manifests = (read_json(path) for path in (CACHE / "demo" / "examples").glob("*/manifest.json"))
    (stored,) = (manifest["numbers"] for manifest in manifests if manifest["verb"] == "model")
    assert 0 < stored["parity"]["seconds"] / stored["parity"]["tokens"] < 0.003, "seconds a token"
