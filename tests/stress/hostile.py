"""Input that somebody could send to break, mislead or take over the app: texts, bytes, JSON and run bundles, all from
one seed."""

import json
import random
import struct
import tempfile
import warnings
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

from analysis.declaration.undeclared import Undeclared
from analysis.runs import Result, RunStore

MARKUP = (
    "<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "<svg/onload=window.pwned=1>",
    "<iframe src=javascript:parent.pwned=1>", "javascript:window.pwned=1", "</textarea><script>pwned=1</script>",
    "<style>*{display:none}</style>", "[a](javascript:pwned=1)", "![x](http://example.invalid/x.png)",
    "<a href=//example.invalid>x</a>", "**bold** :red[x] $x^2$ `c`", "{{7*7}}${7*7}%{7*7}#{7*7}", "&lt;b&gt;&#60;",
    "' onmouseover='pwned=1", '"><base href=//example.invalid>', "\u2028\u2029<!--",
)  # fmt: skip
PATHS = (
    "../../secret.txt", "..%2f..%2fsecret.txt", "/etc/passwd", "....//....//secret.txt", "file:///etc/passwd",
    "~/.ssh", "C:\\Windows\\win.ini", "\\\\host\\share", "demo/../../secret", "models_cache/../secret",
    "a/../../b", "./demo", ".", "..", "/", "//", "demo\0.txt", "/dev/zero", "/proc/self/environ", "demo/",
    "-rf", "--config", "owner/name/../x",
)  # fmt: skip
WORDS = (
    "", " ", "\t\n", "\0", "0", "-1", "1e999", "NaN", "Infinity", "-0", "٣٤", "1_000", "0x10", "1,5", "true", "None",
    "null", "[]", "{}", "[[[[", "__class__", "__import__('os').system('x')", "$(touch pwned)", "`touch pwned`",
    "; rm -rf x",
    "' OR 1=1 --", "'; DROP TABLE runs; --", "%s%s%n", "=1+1", "@SUM(1)", "CON", "ﬁ", "İ", "ß", "\ud800", "\uffff",
    "‮abc",
    "e\u0301" * 40, "👩‍👩‍👧" * 9, "a" * 5000, "(" * 2000, "9" * 400, "0" * 12, "f" * 12, "F" * 12, "demo", "k8-top1",
)  # fmt: skip
BYTES = (
    b"", b"\0", b"\xff\xfe\x00", b"\xef\xbb\xbf", b"\x80abc", b"PK\x03\x04" + b"\0" * 40, b"\x1f\x8b\x08" + b"\0" * 20,
    b"\x89PNG\r\n\x1a\n", b"\x80\x04\x95cos\nsystem\n(S'touch pwned'\ntR.", struct.pack("<Q", 1 << 60) + b"{}",
    b"%PDF-1.7", b"GIF89a", b"\x7fELF", b"SQLite format 3\0", b"[" * 100_000, b'{"a":' * 50_000, b"\r" * 3000,
)  # fmt: skip

SOUND = 24  # bundles that the others are made from: each takes a store
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2}
CONFIG |= {"num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}
POLICY = {"layers": 2, "heads": 2, "policy": [4, 4, 4, 4, 64], "ranks": [[1, 1], [1, 1]]}


def hostile_text(dice: random.Random) -> str:
    """A word or a few of them, as they are, repeated, or with a sign changed."""
    pieces = [dice.choice(dice.choice((MARKUP, PATHS, WORDS))) for _ in range(dice.choice((1, 1, 1, 2, 4)))]
    text = dice.choice(("", " ", "~", "/", ".", "+", "\n")).join(pieces)
    if text and dice.random() < 0.4:
        place = dice.randrange(len(text))
        text = text[:place] + chr(dice.choice((0, 10, 34, 37, 39, 46, 47, 60, 92, 127, 0x202E, 0x1F600))) + text[place:]
    return text * dice.choice((1, 1, 1, 1, 3))


def hostile_bytes(dice: random.Random) -> bytes:
    """A file: another format, a damaged one, random bytes, or a hostile text in some encoding."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.choice(BYTES)
    if kind == 1:
        return dice.randbytes(dice.choice((1, 10, 1000)))
    text = hostile_text(dice) + " and some words to read after it" * dice.randrange(3)
    data = text.encode(dice.choice(("utf-8", "utf-16", "utf-32")), "surrogatepass")
    return data if kind == 2 else data + dice.choice(BYTES)[:50]


def hostile_value(dice: random.Random, depth: int = 0) -> object:
    """Something JSON can say, or almost: nested, huge, of the wrong type."""
    kind = dice.randrange(9 if depth < 4 else 6)
    plain = (None, dice.random() < 0.5, dice.choice((0, -1, 1 << 70, 3)), dice.choice((1e308, -0.5, float("nan"))))
    if kind < 4:
        return plain[kind]
    if kind < 6:
        return hostile_text(dice)
    inner = [hostile_value(dice, depth + 1) for _ in range(dice.randrange(4))]
    return inner if kind < 8 else {hostile_text(dice): value for value in inner}


def hostile_json(dice: random.Random, good: dict) -> str:
    """The JSON of `good` with something in it replaced, added or left out, or of something else."""
    if dice.random() < 0.2:
        return dice.choice((json.dumps(hostile_value(dice)), hostile_text(dice), "[" * 5000, '{"a":1e9999}'))
    damaged = dict(good)
    for _ in range(dice.randrange(1, 4)):
        name = dice.choice(sorted(damaged) or ["x"])
        if dice.random() < 0.2:
            damaged.pop(name, None)
        else:
            damaged[name if dice.random() < 0.9 else hostile_text(dice)] = hostile_value(dice)
    text = json.dumps(damaged)
    return text if dice.random() < 0.9 else text[: dice.randrange(len(text))]


def hostile_bundle(dice: random.Random) -> bytes:
    """A file that is none, or a real bundle: as it is, with a bit changed or its end cut off, or with one more file."""
    if dice.random() < 0.2:
        return hostile_bytes(dice)
    data, kind = _made(dice.randrange(SOUND)), dice.randrange(3)
    if kind == 0:
        return data
    if kind == 1:
        changed = bytearray(data)
        changed[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        return bytes(changed[: dice.choice((len(data), dice.randrange(len(data))))])
    file = BytesIO(data)
    with zipfile.ZipFile(file, "a") as added, warnings.catch_warnings(action="ignore"):
        name = dice.choice((dice.choice(PATHS), "runs/0123456789ab/../../x", "runs/x/manifest.json", "bundle.json"))
        added.writestr(name.replace("\0", "") or "x", hostile_bytes(dice))
    return file.getvalue()


@cache
def _made(seed: int) -> bytes:
    """A sound bundle of one run with a text, whose name, words and numbers are hostile."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="focuscope-bundle-") as folder:
        store = RunStore(Path(folder))
        text = store.put_text(f"Some words. {_plain(dice)}", _plain(dice))
        arguments = {"model": _plain(dice), "text": text, _plain(dice): _plain(dice)}
        value = dice.choice((1e308, -1, None, [_plain(dice)], {_plain(dice): _plain(dice)}))
        numbers = {"sentence": _plain(dice), _plain(dice): value}
        run = store.put(Undeclared("groups", arguments), Result(numbers), {"model": _plain(dice)}, 1.0)
        out = BytesIO()
        store.bundle([run.id], out)
        return out.getvalue()


def _plain(dice: random.Random) -> str:
    return hostile_text(dice).encode("utf-8", "replace").decode().replace("\0", "")[:200]
