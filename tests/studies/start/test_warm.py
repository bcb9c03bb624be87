"""What a reader's first text waits for, once the worker is warm: the reading of its first window, and nothing else."""

import json
import subprocess
import sys

import pytest

FIRST = """
import json, sys
from analysis.commands.text import Inspect, Start
from analysis.corpus import sample_texts
from analysis.runs import RunStore
from analysis.studies import STUDIES, warm
from analysis.studies.context import Context
from analysis.kernels import far, rows
from analysis.kernels.jit import Compiled

store = RunStore(sys.argv[1])
context = Context(store=store)
warm(context, "demo")
kept = [dict(context.kept), context.model("demo") is context.model("demo"), (store.root / "readings").exists()]
dispatchers = [f.dispatcher for m in (far, rows) for f in list(vars(m).values()) if isinstance(f, Compiled)]
compiled = lambda: {f.py_func.__name__: len(f.signatures) for f in dispatchers}
modules, kernels = set(sys.modules), compiled()
text = store.put_bytes(" ".join(text for _, text in sample_texts().values()).encode(), "mine.txt")
inspected = Inspect(text=text).compute(STUDIES["inspect"], context=context)
look = Start(text=text, long_text="first").compute(STUDIES["start"], context=context)
print(json.dumps({
    "kept": kept,
    "imported": sorted(name for name in set(sys.modules) - modules if name.startswith(("analysis", "numba", "torch"))),
    "compiled": [name for name, count in compiled().items() if count != kernels[name]],
    "statistics": "scipy.stats" in sys.modules,
    "windows": [inspected.windows, int(look.tokens["window"].max()) + 1],
}))
"""


@pytest.mark.slow
def test_the_first_text_of_a_warm_worker_imports_and_compiles_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", FIRST, str(tmp_path)], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["kept"] == [{}, True, False], "what warms a worker is not kept"
    assert report["windows"][0] > 1 and report["windows"][1] == 1
    assert report["imported"] == [] and report["compiled"] == []
    assert not report["statistics"], "half a second of every start"
