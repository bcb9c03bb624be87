"""What serving stacks are documented to run of the deployability ladder: every line is whole and names a rung."""

from analysis.papers.stacks import NOWHERE, READ, documented, runs_on
from lab.equal.rungs import RUNGS


def test_every_line_names_a_rung_a_source_and_a_date():
    lines = documented()
    stacks = {says.stack for says in lines}
    assert stacks == {"transformers", "vLLM", "SGLang", "TensorRT-LLM", "OpenVINO", "llama.cpp"}
    for says in lines:
        assert says.rung in (*RUNGS, "bits") and says.source.startswith("https://") and says.sentence and says.dated
    assert {says.stack for says in lines if says.rung == "bits"} == stacks, "each says whether it stores fewer bits"


def test_a_rung_lists_the_stacks_that_run_it_or_says_that_none_does():
    assert "TensorRT-LLM" in runs_on("prompt protected") and "vLLM" not in runs_on("group of heads")
    assert runs_on("append-only") == NOWHERE and READ in NOWHERE
