"""Whether an answer is right: a question whose last words stand in the text is answered by what follows them there."""

import re

FEWEST = 3  # words of the question's end that the text must have, else it may be chance


def stated(prompt: str, question: str) -> str | None:
    """What the text of a prompt writes behind the last words of the question, up to the end of that sentence; None
    where it has not these words, or goes on in several ways."""
    end = re.split(r"[?!.:]\s", question.strip())[-1].strip()
    if len(end.split()) < FEWEST or question not in prompt:
        return None
    text = " ".join(prompt[: prompt.rindex(question)].split())
    answers = {part.strip() for part in re.findall(rf"{re.escape(end)} ([^.!?;]+)[.!?;]", text)}
    return answers.pop() if len(answers) == 1 else None


def said(prompt: str, question: str, written: dict[str, str]) -> tuple[str, str]:
    """(a sentence, its kind) about the answers, label -> text, dense attention first."""
    answer = stated(prompt, question)
    if answer is None:
        return "Nobody checks these answers: dense attention can be wrong, too.", "quiet"
    right = {label: " ".join(text.split()).startswith(answer) for label, text in written.items()}
    sentence = f"The text says “{answer}”."
    for name, way in (("Right", True), ("Wrong", False)):
        labels = [label for label, good in right.items() if good == way]
        sentence += f" {name}: {'; '.join(labels)}." if labels else ""
    if next(iter(right.values())):
        return sentence, "more"
    return (
        f"{sentence} Where dense attention is wrong, too, nothing is told about the others: ask another question.",
        "note",
    )
