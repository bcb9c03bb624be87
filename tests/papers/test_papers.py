"""The papers' numbers: cells everybody quotes, arithmetic that holds inside a table, doubts where they belong."""

import pytest

from analysis import papers

GWR, CSA, FOCAL, SUMMARY = "gwr_linear_routing", "calibrated_sparse_attention", "focal_attention", "focal_summary_zh"
UNITS = ["", "%", "x", "ppl", "points", "fraction", "K", "M", "B", "ms", "s"]
UNITS += ["tokens", "K tokens", "M tokens", "B tokens", "keys", "integers"]


def value(paper, table, row, column):
    (cell,) = papers.find(paper, table, row, column)
    return cell.value


def rows(paper, table) -> dict[str, dict]:
    """Row -> column -> value of one table, in the paper's order."""
    values = {}
    for cell in papers.find(paper, table):
        values.setdefault(cell.row, {})[cell.column] = cell.value
    return values


def noted(paper, kind) -> set[tuple[str, str, str]]:
    """(table, row, column) of the cells with a note of this kind."""
    cells = papers.find(paper)
    return {
        (cell.table, cell.row, cell.column)
        for cell in cells
        if any(part.startswith(f"{kind}: ") for part in cell.note.split("; "))
    }


@pytest.mark.parametrize(
    "paper, count, names",
    [
        ("focus", 372, [f"table {n}" for n in range(1, 11)] + [f"section {n}" for n in (2, 3.2, 3.4, 3.5, 4, 5)]),
        (
            FOCAL,
            116,
            [*(f"table {n}" for n in range(1, 5)), *(f"figure {n}" for n in (2, 3, 4, 5, 6, 7, "8a", "8b", 9))],
        ),
        (CSA, 59, ["table 1", "table 2", "section per-position", "section routing"]),
        (GWR, 79, ["table 1", "table 2", "figure 2", "figure 3"]),
        (SUMMARY, 24, ["table 1"]),
    ],
)
def test_every_table_is_there(paper, count, names):
    assert len(papers.find(paper)) == count and set(names) <= set(papers.tables(paper))


def test_the_tables_are_whole():
    """Every row of a numbered table has every column of it."""
    for paper in papers.PAPERS:
        for table in papers.tables(paper):
            if table.startswith("table"):
                columns = [list(row) for row in rows(paper, table).values()]
                assert all(names == columns[0] for names in columns), (paper, table)


def test_no_cell_stands_twice_and_each_says_how_it_was_measured():
    cells = papers.find()
    assert {cell.paper for cell in cells} == set(papers.PAPERS)
    assert len({(cell.paper, cell.table, cell.row, cell.column) for cell in cells}) == len(cells)
    assert all(cell.protocol.strip() and cell.unit in UNITS for cell in cells)


def test_words_stay_words_and_numbers_become_numbers():
    texts = {cell.value for cell in papers.find() if isinstance(cell.value, str)}
    assert {"±1.2", "10-16", "150+", "✓", "Periodic"} <= texts
    assert value(CSA, "table 1", "Pythia 410M, 1024, WikiText", "Per-position max Δ") == 0.13


def test_focus_speed_ups_by_length():
    assert rows("focus", "table 6") == {
        "K=4 speedup": {"1K": 0.2, "4K": 0.5, "16K": 1.5, "32K": 2.2, "65K": 3.0, "262K": 4.0, "1M": 4.1},
        "K=8 speedup": {"1K": 0.2, "4K": 0.6, "16K": 1.8, "32K": 3.1, "65K": 4.7, "262K": 7.6, "1M": 8.6},
    }
    assert all("H100-80GB" in cell.protocol and cell.unit == "x" for cell in papers.find("focus", "table 6"))


def test_csa_loses_the_last_bin_first():
    table = rows(CSA, "section per-position")
    last = {row["% of dense reads"]: row["Last bin (positions 945-1008) Δ"] for row in list(table.values())[:3]}
    assert last == {5.7: "±1.2", 3.5: 19, 2.0: 99}


@pytest.mark.parametrize(
    "paper, table, wrong",
    [(FOCAL, "table 1", []), (FOCAL, "table 2", []), (SUMMARY, "table 1", ["Focal Attn (Constant)"])],
)
def test_an_average_is_the_mean_of_its_row(paper, table, wrong):
    for row, cells in rows(paper, table).items():
        *scores, average = cells.values()
        assert len(scores) == 7
        assert (abs(sum(scores) / 7 - average) < 0.0051) == (row not in wrong), row


def test_the_speed_up_of_the_speed_quality_table_is_a_formula():
    for row, cells in rows("focus", "table 7").items():
        k, model = int(row.split("top-k=")[1][0]), row.split(",")[0]
        assert cells["Speedup"] == pytest.approx(4 / k, abs=0.05)
        pretrained = {"GPT-2 124M": 42.8, "Mistral 7B": 10.8}[model]
        assert cells["PPL"] - pretrained == pytest.approx(cells["Δ vs Pretrained"], abs=0.11)  # all three are rounded
        assert cells["Pairs retained"] == 100 or k < 3, "two tokens in three of four groups share one"


def test_differences_of_the_data_sets_are_differences():
    for row in list(rows("focus", "section 3.4").values())[:3]:
        assert row["Focus FT"] - row["Full FT"] == pytest.approx(row["Δ"])


@pytest.mark.parametrize("d_s, params", [(16, 148e3), (32, 296e3), (128, 1.2e6), (768, 7.1e6)])
def test_centroid_parameters_follow_from_the_shape(d_s, params):
    row = rows("focus", "section 2")[f"d_s={d_s}" + " (full)" * (d_s == 768)]
    count = 12 * (768 * d_s + 4 * d_s)
    assert count == pytest.approx(params, rel=0.02)
    assert row["Centroid params"] == pytest.approx(params / (1e3 if params < 1e6 else 1e6))
    assert 100 * count / (124e6 + count) == pytest.approx(row["% of model"], abs=0.05)


def test_gap_closure_is_the_share_of_the_gap():
    """As far as three digits of recall can say; exact for the headline's head: 0.636."""
    table = rows(GWR, "table 1")
    low, high = (table[name]["Recall@32"] for name in ("Symmetric K-Means", "Saap-MLP"))
    assert round((table["GWR Linear (Ours)"]["Recall@32"] - low) / (high - low), 3) == 0.636
    closures = [(row["Recall@32"], low, high, row["Gap Closure"]) for row in table.values()]
    heads = [tuple(row.values()) for name, row in rows(GWR, "table 2").items() if name != "Mean"]
    closures += [(ours, low, high, printed) for low, ours, high, printed in heads]
    for ours, low, high, printed in closures:
        share = (ours - low) / (high - low)
        assert abs(share - printed / 100) <= 0.001 * (1 + abs(share)) / (high - low) + 0.0005
    for i, printed in enumerate(rows(GWR, "table 2")["Mean"].values()):
        assert sum(head[i] for head in heads) / 6 == pytest.approx(printed, abs=0.05 if i == 3 else 0.00051)
    means = rows(GWR, "table 2")["Mean"]
    ratio = (means["GWR Linear"] - means["Symmetric K-Means"]) / (means["Saap-MLP"] - means["Symmetric K-Means"])
    assert round(100 * ratio, 1) == 74.9
    drawn = {name: row["Gap Closure"] for name, row in rows(GWR, "table 2").items()}
    assert {name: row["Gap Closure"] for name, row in rows(GWR, "figure 3").items()} == drawn


def test_csa_speed_up_is_amdahls():
    for row in rows(CSA, "table 2").values():
        share = row["Attention fraction (decode)"] / 100
        ends = [1 / (1 - f + f / 10) for f in (share - 0.005, share + 0.005)]
        assert ends[0] - 0.005 <= row["Speedup at 10× attention reduction"] <= ends[1] + 0.005
    assert value(CSA, "section procedure", "GPT-2 small", "Policy size") == 12 * 12 + 1


def test_damaged_and_duplicated_cells_are_noted_where_they_stand():
    """A dominance below 1/K cannot be; two printed averages of different things are one number."""
    assert noted("focus", "damaged") == {("table 9", "Sinkhorn iters=5", "Dominance (full FT)")}
    assert value("focus", "table 9", "Sinkhorn iters=5", "Dominance (full FT)") < 100 / 8
    duplicated = noted(FOCAL, "duplicated")
    values = {table: {value(FOCAL, *cell) for cell in duplicated if cell[0] == table} for table, _, _ in duplicated}
    assert len(duplicated) == 4 and [len(values[table]) for table in ("table 1", "table 2")] == [1, 1]


def test_a_perplexity_with_a_note_that_it_is_not_reconciled_is_printed_with_another_value():
    """GPT-2 with Focus is 36.2, 34.2, 34.5 and 41.3 in different tables."""
    unclear = noted("focus", "not reconciled")
    focus = {value("focus", *cell) for cell in unclear if cell[2] in ("PPL", "PG-19 PPL Focus")}
    assert {36.2, 34.2, 34.5, 41.3} <= focus and len(unclear) == 21
    assert not any(noted(paper, "not reconciled") for paper in papers.PAPERS if paper != "focus")


def test_what_contradicts_other_pages_of_the_paper():
    """30.3 is of two settings; four groups of a quarter and a window cannot be a quarter; +75.6 is not against the
    pretrained model; three of five architectures are not those of table 2."""
    pairs = {("table 7", f"{model}, top-k=1 (argmax)", "Pairs retained") for model in ("GPT-2 124M", "Mistral 7B")}
    listed = {("table 2", row, "PG-19 PPL pretrained") for row in ("OLMo-2 7B", "LLaMA-2 13B", "LLaMA-2 70B")}
    doubtful = {("table 5", "GPT-2 124M, Focus FT", "PPL"), ("table 1", "Performer", "PPL")}
    new = pairs | listed | doubtful
    assert new <= noted("focus", "contradicts")
    performer, tuned = (value("focus", "table 1", row, "PPL") for row in ("Performer", "Full attention FT"))
    against = value("focus", "table 1", "Pretrained (full attn)", "PPL")
    assert (round(performer - tuned, 1), round(performer - against, 1)) == (75.6, 69.2)
    causal, window = 1024 * 1025 / 2, 128 * 1024 - 128 * 127 / 2
    assert round((window + (causal - window) / 4) / causal, 2) == 0.43
    notes = {(cell.table, cell.row, cell.column): cell.note for cell in papers.find("focus")}
    assert all("43%" in notes[key] for key in pairs) and "+69.2" in notes["table 1", "Performer", "PPL"]
    assert "K=8" in notes["table 5", "GPT-2 124M, Focus FT", "PPL"]
    assert sum("GQA" in notes[key] for key in listed) == 2 and sum("softcap" in notes[key] for key in listed) == 1


def test_every_cell_of_the_summary_contradicts_its_paper():
    for cell in papers.find(SUMMARY):
        printed = value(FOCAL, "table 1", cell.row, cell.column)
        assert cell.note.startswith(f"contradicts its paper: table 1 prints {printed:g}") and cell.value != printed
    assert noted(SUMMARY, "impossible") == {("table 1", "Focal Attn (Constant)", "Average")}
    assert not any(noted(paper, "contradicts its paper") for paper in papers.PAPERS if paper != SUMMARY)


def test_the_formula_is_called_one():
    rows_of_seven = {("table 7", row, "Speedup") for row in rows("focus", "table 7")}
    assert noted("focus", "formula") == rows_of_seven and len(rows_of_seven) == 8
    assert noted(CSA, "caution") == {(cell.table, cell.row, "Pearson") for cell in papers.find(CSA, column="Pearson")}
