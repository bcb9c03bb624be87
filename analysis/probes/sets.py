"""The sets of texts that long-context tests read from local files, and how a record of each format becomes what is
asked (Focal Attention, figures 5 to 7; HELMET, Yen et al. 2025). The formats are told to users in docs/sets.md."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..benchmarks import FOLDER
from ..benchmarks.tasks import documents
from ..errors import BadSetting
from .written import stands

Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Labelled:
    """A text with its label."""

    text: str
    label: str


@dataclass(frozen=True)
class Passage:
    """A passage, and of a ranking how relevant it is."""

    text: str
    relevance: int = 0


@dataclass(frozen=True)
class WithPassages:
    """A question, the answers that are right, and passages of which some hold one."""

    question: str
    answers: tuple[str, ...]
    passages: tuple[Passage, ...]

    def holds(self, passage: Passage) -> bool:
        """Whether one of the answers stands in a passage."""
        return any(stands(answer, passage.text) for answer in self.answers)


@dataclass(frozen=True)
class Ranked:
    """A query and passages with their relevance."""

    query: str
    passages: tuple[Passage, ...]


@dataclass(frozen=True)
class LongText:
    """A long text, a question about it and the answers that are right."""

    question: str
    answers: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Documents(Generic[Kind]):
    """The records of a set: those that are asked about, and those that examples are drawn from."""

    title: str
    asked: Sequence[Kind]
    examples: Sequence[Kind]


@dataclass(frozen=True)
class TextSet:
    """A set of texts: `family` of HELMET, `kind` of its records (a function of `probes.from_files`), `axis` of its map
    beside the length, `ways`: what makes a record of one format, or raises KeyError for another one."""

    title: str
    family: str
    kind: str
    axis: str | None
    ways: tuple[Callable[[Any], Any], ...]


def first(record: Mapping[str, Any], *names: str) -> Any:
    """The first of these fields that a record has. Errors: KeyError."""
    return record[next((name for name in names if name in record), names[0])]


def _labelled(record: Mapping[str, Any]) -> Labelled:
    return Labelled(str(first(record, "text", "question")), str(first(record, "label", "category", "intent")))


def _pair(record: Sequence[str]) -> Labelled:
    """A list of text and label; a file that is a mapping gives its names alone, which are none."""
    if not isinstance(record, list):
        raise KeyError("label")
    return Labelled(str(record[0]), str(record[1]))


def _trec(fine: bool) -> Callable[[Mapping[str, Any]], Labelled]:
    """A line of TREC's own files: `DESC:manner How did ...`."""

    def read(record: Mapping[str, Any]) -> Labelled:
        label, _, text = str(record["line"]).partition(" ")
        if ":" not in label:
            raise KeyError("label")
        return Labelled(text.strip(), label if fine else label.partition(":")[0])

    return read


def _answers(record: Mapping[str, Any]) -> tuple[str, ...]:
    answers = first(record, "answers", "answer")
    listed = [answers] if isinstance(answers, str) else answers
    filled = tuple(str(answer) for answer in listed if str(answer).strip())
    if not filled:
        raise KeyError("answers")
    return filled


def _passages(record: Mapping[str, Any]) -> tuple[Passage, ...]:
    passages = []
    for passage in first(record, "ctxs", "passages", "docs"):
        title = f"{passage['title']}. " if passage.get("title") else ""
        passages.append(Passage(title + str(passage["text"]), int(passage.get("relevance", passage.get("label", 0)))))
    return tuple(passages)


def _with_passages(record: Mapping[str, Any]) -> WithPassages:
    return WithPassages(str(record["question"]), _answers(record), _passages(record))


def _ranked(record: Mapping[str, Any]) -> Ranked:
    return Ranked(str(first(record, "query", "question")), _passages(record))


def _long_text(record: Mapping[str, Any]) -> LongText:
    return LongText(str(record["question"]), _answers(record), str(first(record, "document", "context", "text")))


ICL, RAG = "in-context learning", "retrieval augmented"
SETS = {
    "banking77": TextSet("Banking77", ICL, "labelled", None, (_labelled, _pair)),
    "clinc150": TextSet("Clinc150", ICL, "labelled", None, (_labelled, _pair)),
    "nlu": TextSet("NLU", ICL, "labelled", None, (_labelled, _pair)),
    "trec_coarse": TextSet("TREC coarse", ICL, "labelled", None, (_trec(False), _labelled)),
    "trec_fine": TextSet("TREC fine", ICL, "labelled", None, (_trec(True), _labelled)),
    "nq": TextSet("Natural Questions", RAG, "with_passages", "depth", (_with_passages,)),
    "hotpotqa": TextSet("HotpotQA", RAG, "with_passages", "depth", (_with_passages,)),
    "popqa": TextSet("PopQA", RAG, "with_passages", "depth", (_with_passages,)),
    "triviaqa": TextSet("TriviaQA", RAG, "with_passages", "depth", (_with_passages,)),
    "msmarco": TextSet("MS MARCO", "reranking", "ranked", "depth", (_ranked,)),
    "narrativeqa": TextSet("NarrativeQA", "long questions", "long_text", None, (_long_text,)),
    "alce_asqa": TextSet("ALCE ASQA", "citations", "cited", "depth", (_with_passages,)),
}


def read_set(name: str, folder: Path | None = None) -> Documents:
    """The records of a set. Of questions with passages those are left out of which no passage holds an answer. Errors:
    BadSetting where the files are missing, of another format or damaged."""
    about = SETS[name]
    asked, examples, _ = documents(about, name, folder or FOLDER)
    if about.kind in ("with_passages", "cited"):
        asked = [question for question in asked if any(map(question.holds, question.passages))]
    if not asked:
        raise BadSetting(
            f"No question of {about.title} has a passage that holds its answer: put in files whose passages hold it."
        )
    return Documents(about.title, asked, examples)
