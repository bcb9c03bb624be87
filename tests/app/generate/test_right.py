"""Whether an answer is right: what the text says, by hand; and the bundled model answers every example right."""

import pytest

from analysis.commands.quality import Generate
from analysis.corpus import sample_texts
from analysis.studies.context import Context
from analysis.studies.generate.generate import generate
from app.generate.answers import judged, stated
from app.generate.generate_form import EXAMPLES

TEXT = "The Owl lies at berth 4. The master of the Owl is Ann Lee. The master of the Elk is Bo. "
ASKS = "Who is the master of the Owl? The master of the Owl is"


@pytest.mark.parametrize(
    "text, question, answer",
    [
        (TEXT, ASKS, "Ann Lee"),
        (TEXT.replace("Owl is", "Owl\nis"), ASKS, "Ann Lee"),
        (TEXT + TEXT, ASKS, "Ann Lee"),
        (TEXT + "The master of the Owl is Cy. ", ASKS, None),
        (TEXT, "The master of the Gnu is", None),
        (TEXT, "Owl is", None),
        (TEXT, "", None),
    ],
)
def test_what_the_text_says_is_what_follows_the_last_words_of_the_question_there(text, question, answer):
    assert stated(text + question, question) == answer


@pytest.mark.parametrize(
    "dense, other, kind", [(" Ann\nLee. Then", " Ann Lee", "more"), (" Ann Lee", " Bo", "more"), (" Bo", " Bo", "note")]
)
def test_it_is_said_where_dense_attention_is_wrong_too(dense, other, kind):
    sentence, look = judged(TEXT + ASKS, ASKS, {"Dense": dense, "SnapKV": other})
    wrong = sentence.partition("Wrong: ")[2].partition(".")[0]
    assert look == kind and wrong == "; ".join([*["Dense"] * (dense == " Bo"), *["SnapKV"] * (other == " Bo")])
    assert ("dense attention is wrong, too" in sentence) == (kind == "note")


@pytest.mark.parametrize("title, question", EXAMPLES)
def test_the_bundled_model_answers_every_example_right(store, title, question):
    (text,) = (text for name, text in sample_texts().values() if name.startswith(title))
    request = Generate(text=store.put_text(text, title), methods=[], question=question, new_tokens=8)
    made = generate(request, context=Context(store))
    prompt = "".join(made.tables["tokens"]["piece"])
    assert made.numbers["rows"][0]["text"].strip().startswith(stated(prompt, question))
