"""What does one GPU say? Every test marked `gpu`, attention by length beside Focus table 6, decoding, every method."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from ...commands import speed as command
from ...errors import BadSetting
from ...files import write_text
from ...kernels import plan
from ...kernels.parts import now
from ...kernels.pool import accelerated
from ...models import Model, load_model
from ...shapes import shaped
from ...timing import exponent, processor
from ..ready.candidates import FAMILIES, candidates
from ..stored.panels import chart, paper_lines, presented
from ..stored.runner import TIMES, Setting, Study, declared_option
from .gpu_tables import COLUMNS, WINDOW, attention_rows, decode_rows, method_rows, untrained

ROOT = Path(__file__).resolve().parents[3]
GROUPS = (4, 8)
CACHES = (8192, 32768, 131072)
SHAPE = "Qwen/Qwen2.5-0.5B"
# Tokens of the prompt in a model of a real shape, and in the model with all that was fitted on it.
PROMPT, FITTED_PROMPT = 4096, 1500
# Longest lengths that growth is fitted to: of shorter texts, launching takes most of the time.
LONG = 4
# Seconds that one test may take, and all of them.
ONE_TEST, ALL_TESTS = 120, 150
MARK, PRINTED = "mark.gpu", "gpu-tests.txt"
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|error)")


class GpuCheck(Study):
    """Runs where there is an NVIDIA GPU, in minutes. `rows`: `what` is attention, decode or model; times in
    milliseconds, `speedup` dense by sparse with the lowest and highest round, `paper` what Focus table 6 prints,
    `said_bytes` the memory that pages say before a run beside `peak_bytes`, which was taken. Errors: BadSetting where
    there is no GPU."""

    whole = TIMES

    longest: int = declared_option(command.GpuCheck, "longest")
    repeats: int = declared_option(command.GpuCheck, "repeats")
    tests: bool = declared_option(command.GpuCheck, "tests")

    def check(self, lm: Model) -> None:
        if not accelerated(lm.device):
            raise BadSetting(
                f"This measures a GPU, and the model lies on {lm.device}: run it on a machine with an NVIDIA GPU and a "
                "torch built for CUDA (TORCH=cuda python run.py)."
            )

    def measure(self, run: Setting) -> dict:
        lm, began = run.lm, now()
        tested = self._tests(run) if self.tests else {"refused": "not asked for"}
        rows = self.timed(run)
        about: dict[str, Any] = {"text": None, "tokens": self.longest, "window": WINDOW, "repeats": self.repeats}
        about |= {"kernel": "see the rows", "dtype": "bfloat16", "processor": processor(str(lm.device))}
        about |= {"cuda": torch.version.cuda, "taken": round(now() - began)}
        return {"rows": rows, "tests": tested, "protocol": about}

    def timed(self, run: Setting) -> list[dict]:
        """All rows, on the device of the model."""
        lm, context = run.lm, run.context
        device = torch.device(lm.device)
        lengths = [length for length in COLUMNS if length <= self.longest]
        caches = [length for length in CACHES if length <= self.longest]
        steps = 4 * self.repeats
        rows = attention_rows(lengths, GROUPS, device, self.repeats, self.seed, context.within(0.3, 0.3).progress)
        rows += decode_rows(caches, GROUPS[-1], device, steps, context.within(0.6, 0.1).progress)
        fitted = [(one.name, one.method) for one in candidates(context, lm, None, tuple(FAMILIES))]
        length = min(FITTED_PROMPT, lm.max_positions // 2, self.longest)
        rows += method_rows(lm, fitted, length, context.within(0.7, 0.1).progress, self.seed)
        large = load_model(shaped(SHAPE, device, layers=None if accelerated(device) else 2))
        return rows + method_rows(
            large, untrained(large), min(PROMPT, self.longest), context.within(0.8, 0.2).progress, self.seed
        )

    def _tests(self, run: Setting) -> dict[str, Any]:
        """How the tests marked gpu ended, or why they did not run; what they printed lies in the folder of the work."""
        # Only these: the tests of the pages need what a machine for computing does not have.
        marked = [str(path) for path in sorted((ROOT / "tests").rglob("test_*.py")) if MARK in path.read_text("utf-8")]
        if not marked or importlib.util.find_spec("pytest") is None:
            return {"refused": "the tests lie in the checkout, and need pytest"}
        run.context.progress(0.0, "the tests marked gpu")
        side_by_side = (
            ["-n", str(max(1, min(8, (os.cpu_count() or 2) // 2)))] if importlib.util.find_spec("xdist") else []
        )
        one = ["--timeout", str(ONE_TEST)] if importlib.util.find_spec("pytest_timeout") else []
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider", *side_by_side, *one]
        began = now()
        try:
            done = subprocess.run(
                [*command, *marked], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=ALL_TESTS
            )
        except subprocess.TimeoutExpired:
            return {"refused": f"the tests took more than {ALL_TESTS} s"}
        write_text(run.folder / PRINTED, done.stdout)
        counted = {kind: int(count) for count, kind in COUNTED.findall(done.stdout.strip().rpartition("\n")[2])}
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        return counted | {"seconds": round(now() - began, 1), "failures": failed}

    def sample(self, run: Setting, numbers: dict) -> dict:
        from ...groups.controls import random_tokens

        shortest = min(row["length"] for row in numbers["rows"] if row["what"] == "attention")
        chosen = plan(random_tokens(shortest, GROUPS[-1], 1, self.seed), WINDOW, 8, 128, torch.float32, "cpu")
        return {"bound": 1 / chosen.retained}

    @staticmethod
    def shown(numbers: dict) -> dict:
        rows, tested = numbers["rows"], numbers["tests"]
        bare = [row for row in rows if row["what"] == "attention" and "refused" not in row]
        best = max(bare, key=lambda row: (row["length"], row["groups"]))
        failed = tested.get("failed", 0) + tested.get("error", 0)
        said = f"{tested.get('passed', 0)} tests marked gpu passed, {failed} failed."
        if "refused" in tested:
            said = f"The tests marked gpu did not run: {tested['refused']}."
        sentence = (
            f"Bare attention over {best['length']:,} tokens with {best['groups']} groups is {best['speedup']:.1f} "
            f"times as fast as torch's fastest dense kernel ({best['dense_kernel']})"
        )
        if best["paper"] is not None:
            sentence += f"; Focus, table 6 prints {best['paper']:g} on an H100"
        sentence += f". {said}"
        panels = []
        for groups in sorted({row["groups"] for row in bare}):
            of_groups = [row for row in bare if row["groups"] == groups]
            more = paper_lines({"Focus, table 6 (H100)": [row["paper"] for row in of_groups]})
            lines = {"measured": "speedup", "what the pairs read allow": "bound"}
            panels.append(
                chart(f"K = {groups}: speed beside dense", of_groups, "length", "tokens", "times dense", lines, more)
            )
            shown = {"dense": "dense_ms", "groups": "sparse_ms"}
            panels.append(chart(f"K = {groups}: time", of_groups, "length", "tokens", "ms", shown))
        long = [row for row in bare if row["groups"] == best["groups"]][-LONG:]
        refused = [f"{row['method']} ({row['refused']})" for row in rows if row["what"] == "model" and "refused" in row]
        notes = []
        if len(long) > 1:
            powers = [exponent([(row["length"], row[key]) for row in long]) for key in ("dense_ms", "sparse_ms")]
            notes.append(
                f"Fitted power of the length with which time grows, {long[0]['length']:,} to {best['length']:,} "
                f"tokens: dense {powers[0]:.2f}, {best['groups']} groups {powers[1]:.2f}. 1 is linear, 2 quadratic."
            )
        notes += [numbers["caution"]] if "caution" in numbers else []
        notes += [f"Methods that did not run: {'; '.join(refused)}."] if refused else []
        return presented("gpu-check", sentence, panels, *notes)
