"""Texts that are held out: the domains of a corpus, one of them a file of web text."""

import pytest

from analysis.errors import BadSetting, BadText
from analysis.studies.context import Context
from analysis.studies.text.held_out import domains, texts_of


def test_a_file_of_web_text_is_a_domain_of_its_own(tmp_path):
    """Documents between blank lines; wrapped lines are joined, and one that comes again counts once."""
    (tmp_path / "books" / "train").mkdir(parents=True)
    (tmp_path / "books" / "valid").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "books" / split / "a.txt").write_text(f"A {split} novel.")
    pages = [f"Page {n}\ngoes on." for n in range(21)]
    (tmp_path / "web.txt").write_text("\n\n".join([*pages[:20], pages[0], "\n  \n" + pages[20]]))
    context = Context(browser=False)
    by_name = domains(str(tmp_path), None, context)
    assert list(by_name) == ["novels", "web"] and list(domains(str(tmp_path), "web", context)) == ["web"]
    train, held_out = by_name["web"]
    assert held_out == ["Page 9 goes on.", "Page 19 goes on."] and train[0] == "Page 0 goes on." and len(train) == 19
    with pytest.raises(BadSetting, match="no domain 'python': the domains are novels, web"):
        domains(str(tmp_path), "python", context)


def test_a_folder_of_domains_is_read_in_turns_and_each_is_split_on_its_own(tmp_path):
    for name, suffix, count in (("books", "txt", 1), ("python", "py", 3)):
        for split in ("train", "valid"):
            (tmp_path / name / split).mkdir(parents=True)
            for n in range(count):
                (tmp_path / name / split / f"{n}.{suffix}").write_text(f"{name} {split} {n}")
    context = Context(browser=False)
    train, held_out = texts_of(tmp_path, context)
    assert held_out == ["books valid 0", "python valid 0", "python valid 1", "python valid 2"]
    assert train == [text.replace("valid", "train") for text in held_out]
    plain = tmp_path / "python" / "train"  # no split inside: every tenth file, at least one, is held out
    assert [len(side) for side in texts_of(plain, context)] == [2, 1]


def test_without_blank_lines_each_line_is_a_document(tmp_path):
    file, read = tmp_path / "web.txt", (str(tmp_path), None, Context(browser=False))
    file.write_text("one page\nanother page\none page\n")
    assert domains(*read) == {"web": (["one page"], ["another page"])}
    file.write_text("a single page\n")
    with pytest.raises(BadText, match="fewer than two different documents"):
        domains(*read)
    file.write_bytes(b"caf\xe9\nx")
    with pytest.raises(BadText, match="is not UTF-8"):
        domains(*read)
