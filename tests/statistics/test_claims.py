"""The one renderer of verdicts: which numbers allow which words, and what stands beside what is not significant."""

import pytest

from analysis.claims import UNITS, Claim, Comparison, Verdict, detectable, signed

SIZES = (
    "−0.0123 nats per token, 95% interval −0.0200 to −0.0050",
    "+0.0123 nats per token, 95% interval +0.0050 to +0.0200",
)
LOWER = Comparison(-0.0123, -0.02, -0.005, versus="random groups")
HIGHER = Comparison(0.0123, 0.005, 0.02, versus="random groups")


@pytest.mark.parametrize(
    ("comparison", "verdict", "direction", "text"),
    [
        (LOWER, Verdict.LOWER, -1, f"better than random groups ({SIZES[0]})"),
        (HIGHER, Verdict.HIGHER, 1, f"worse than random groups ({SIZES[1]})"),
        (
            Comparison(0.01, -0.03, 0.05, versus="random groups"),
            Verdict.NOT_SIGNIFICANT,
            0,
            "not significantly different from random groups (+0.0100 nats per token, 95% interval −0.0300 to +0.0500; "
            "the smallest effect this sample could detect is 0.057)",
        ),
        (
            Comparison(0.3, versus="random groups", points=(0.1, -0.4)),
            Verdict.NOT_JUDGED,
            0,
            "not judged against random groups (+0.3000 nats per token, in these 2 texts +0.1000, −0.4000)",
        ),
        (Comparison(0.3), Verdict.NOT_JUDGED, 0, "not judged (+0.3000 nats per token, no interval)"),
        (
            Comparison(0.3, unit="points", units=1),
            Verdict.NOT_JUDGED,
            0,
            "not judged (+30.0 points, 1 unit is too few for an interval)",
        ),
        (
            Comparison(0.0, 0.0, 0.0, versus="dense"),
            Verdict.SAME,
            0,
            "the same as dense (0.0000 nats per token, 95% interval 0.0000 to 0.0000)",
        ),
    ],
)
def test_a_verdict_follows_from_the_interval(comparison, verdict, direction, text):
    assert (comparison.verdict, comparison.direction) == (verdict, direction)
    assert Claim(comparison).text() == text and Claim(comparison, "Focus").text() == f"Focus: {text}"


def test_what_holds_alone_need_not_hold_in_a_family():
    """p = 0.03 alone; 0.09 beside others, where its interval leaves 0 out."""
    alone, among = (Comparison(-1.0, -1.9, -0.1, p_holm=p) for p in (0.03, 0.09))
    assert (alone.direction, among.direction) == (-1, 0) and among.verdict is Verdict.NOT_SIGNIFICANT
    assert among.minimum_detectable == alone.minimum_detectable == pytest.approx(2.8 * 1.8 / 2 / 1.96)
    assert "p = 0.09 after Holm's correction" in among.evidence
    assert Comparison(1.0, 0.0, 2.0).direction == 0, "an interval that ends at 0 holds it"


def test_words_name_the_side_that_is_good_and_a_row_is_read_with_its_stored_names():
    assert Claim(HIGHER, lower="worse", higher="better").text().startswith("better than random groups")
    assert Claim(LOWER, "Loss", "lower", "higher").text().startswith("Loss: lower than random groups")
    row = {"loss": 0.1, "loss_low": -0.1, "loss_high": 0.3, "loss_holm": 0.4, "loss_points": None}
    assert Comparison.of(row, "loss") == Comparison(0.1, -0.1, 0.3, p_holm=0.4)
    assert Comparison.of({"difference": 0.1, "low": 0.05, "high": 0.2}, "difference", "").direction == 1
    assert Comparison.of({"loss": 0.1}, "loss").verdict is Verdict.NOT_JUDGED, "a row of an older file"


def test_every_unit_is_spelled_as_it_is_read():
    spelled = {unit: Comparison(0.0123, 0.005, 0.02, unit).evidence for unit in UNITS}
    assert spelled == {
        "nats": "+0.0123 nats per token, 95% interval +0.0050 to +0.0200",
        "change": "+1.2%, 95% interval +0.5% to +2.0%",
        "fine change": "+1.23%, 95% interval +0.50% to +2.00%",
        "points": "+1.2 points, 95% interval +0.5 to +2.0",
    }
    ends = {"nats": "is 0.062", "change": "is 6.18%", "points": "is 6.2 points"}
    assert all(detectable(0.0618, unit).endswith(end) for unit, end in ends.items())
    assert signed(-0.00004) == "0.0000" and signed(-0.0001) == "−0.0001", "what is printed as 0 has no sign"
    assert signed(-0.0004, ".1%") == "0.0%" and signed(0.25, ".1%") == "+25.0%"
