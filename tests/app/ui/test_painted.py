"""What is painted: characters that several tokens spell are whole, their bytes only named."""

from app.ui import painted


def table(rows) -> dict:
    """Tokens from (window, start, end, piece)."""
    columns = zip(*rows, strict=True)
    values = dict(zip(("window", "start", "end", "piece"), map(list, columns), strict=True))
    return values | {"word": [""] * len(rows)}


BYTES = table(
    [
        (0, 0, 1, "a"),
        *[(0, 1, 2, piece) for piece in ("⟨E6⟩", "⟨9E⟩⟨97⟩")],  # 林 in two tokens
        *[(0, 2, 3, piece) for piece in ("⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩")],  # 😀 in four
        (0, 3, 3, "<s>"),  # no text
        *[(0, 3, 4, "⟨E9⟩"), (1, 3, 4, "⟨BB⟩"), (1, 3, 4, "⟨9B⟩")],  # 黛, cut by a window's end
        (1, 4, 5, " b"),
    ]
)


def test_characters_of_several_tokens_are_spelled_from_their_bytes():
    assert painted.characters(BYTES) == [(1, 3, "林"), (3, 7, "😀")]
    assert painted.characters(table([(0, 0, 1, "x"), (0, 1, 2, "⟨E6⟩")])) == [], "one token alone is no character"


def test_both_places_of_a_pair_show_whole_characters(monkeypatch):
    sent = {}
    monkeypatch.setattr(painted, "beside", lambda panels, **_: sent.update(panels=panels))
    painted.contexts(BYTES, 5, 2, notes=("", ""))
    key, query = sent["panels"]
    assert key["pieces"][:7] == ["a", "林", "", "😀", "", "", ""] and (key["hit"], query["hit"]) == (1, 3)
