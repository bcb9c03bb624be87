"""The findings: each has its panel, its numbers are those that are stored, and README prints the same."""

import re

import pytest

from analysis.papers import findings as findings_room
from analysis.papers.findings import collisions, differing, findings
from analysis.papers.ours import readings
from app.papers.found import LIVE
from lab.harness.documented import question
from tests.papers.test_papers_beside import ROOT, ROWS, STORED, from_studies


def test_all_findings_have_a_panel():
    assert [finding.number for finding in findings()] == list(range(1, 12))
    numbered = {one.finding for one in ROWS.values() if one.finding}
    assert numbered <= set(range(1, 12)) and all(finding.beside.panel.label for finding in findings())
    measured = [finding.number for finding in findings() if readings(finding.beside, from_studies)]
    assert {2, 3, 4, 5, 8, 9, 11} <= set(measured)
    live = {finding.number for finding in findings() if finding.beside.job.verb in LIVE}
    assert live == {6, 7}, "these are measured on this machine's torch when the page is opened"


def test_the_numbers_that_findings_compute():
    """MagicPIG: definitions 2.6 gives 0.136 and 0.0097 at cosine 0, 0.990 and 0.943 at 0.6."""
    for cosine, one, two in ((0.0, 0.136, 0.0097), (0.6, 0.990, 0.943)):
        assert collisions(cosine, 10, 150, 1) == pytest.approx(one, abs=6e-4)
        assert collisions(cosine, 10, 150, 2) == pytest.approx(two, abs=6e-4)
    assert collisions(1.0, 10, 150, 2) == 1.0 and differing() == 24
    one, two = (collisions(0.0, 10, 150, least) for least in (1, 2))
    assert f"two collisions find {two:.1%} of the keys, one finds {one:.1%}" in (ROOT / "README.md").read_text("utf-8")
    assert findings_room.find("focal_summary_zh")


def test_the_findings_about_gwr_say_what_was_measured():
    """A static prior closes less than nothing; the loss moves a linear router farther than layers move squared errors,
    at every number of buckets. README prints the same numbers."""
    closures = {(row["router"], row["l"]): row for row in STORED["routing"]["closures"]}
    told = {finding.number: readings(finding.beside, from_studies) for finding in findings()}
    prior, linear = (one.value for one in told[8])
    assert prior == closures["static_prior", 2]["ratio_of_means"] < 0 < linear
    *crossed, squared, linear = (one.value for one in told[11])
    assert crossed == [closures["linear_cross_entropy", visited]["mean_of_ratios"] for visited in (1, 2, 4, 8)]
    assert min(crossed) > squared == closures["mlp_squared", 2]["mean_of_ratios"] > linear
    for by in ("mean_of_ratios", "ratio_of_means"):
        for visited in (1, 2, 4, 8):
            assert closures["linear_cross_entropy", visited][by] > closures["mlp_squared", visited][by]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"a static prior closes {prior:.0%} of the way" in readme
    assert f"cross-entropy closes {100 * min(crossed):.0f} to {max(crossed):.0%} of that way" in readme


SECTIONS = {  # of Focal Attention -> what it discusses
    "4.1.1": {"figure 2"},
    "4.1.2": {"figure 3", "table 1"},
    "4.1.3": {"figure 4"},
    "4.3": {"figure 5"},
    "5.1": {"figure 8a"},
    "5.2": {"figure 8b"},
    "5.3": {"table 2"},
}


@pytest.mark.parametrize("name", ["focal-temperatures", "focal-limits", "focal-scaling", "focal-tasks"])
def test_the_studies_cite_the_paper_as_it_is(name):
    """Each figure and table that a study names is one of the paper, in the sections that it names."""
    cited = question(name).partition("(Focal Attention, ")[2].replace(" to ", "-").replace(" and ", ",")
    parts = {kind: numbers_of(listed) for kind, listed in re.findall(r"(section|table|figure)s? ([\d.,ab-]+)", cited)}
    sections = parts.pop("section", [])
    assert set(sections) <= set(SECTIONS), "a section that there is not"
    shown = {f"{kind} {one}" for kind, listed in parts.items() for one in listed}
    assert shown and shown <= {"figure 6", "figure 7"}.union(*SECTIONS.values())
    assert not sections or shown <= set().union(*(SECTIONS[one] for one in sections))


def numbers_of(listed):
    """`4.1.1-4.1.3` as all that it spans, `1,2` as these."""
    found = re.findall(r"[\d.]*\d[ab]?", listed)
    if "-" not in listed:
        return found
    (head, low), (_, high) = (one.rpartition(".")[::2] for one in found)
    return [f"{head}.{n}".lstrip(".") for n in range(int(low), int(high) + 1)]
