"""Whole libraries, rewritten by `fix --all --verify off`: do their models still compute the same, to the last bit?

    python benchmarks/libraries.py timm --python VENV/bin/python [--models 200] [--only NAME ...] [--work DIR]
    python benchmarks/libraries.py einops --suite UNPACKED [--tests PATH ...]     its own tests, before and after

Copies the sources of an installed pure-Python library, rewrites the copy from the source alone (nothing of it runs),
and then builds each small model in the original and in the copy, each in a child process with one seed: outputs,
gradients of all parameters and inputs, buffers and inputs after one step in train mode are compared.

    equal      bit for bit             close      within 1e-6 of the original's largest value
    different  the exit code is 1      unstable   the original differs from itself
    mended     breaks backward in the original, and runs when rewritten
    failed     in the original: it can't be built small, or doesn't run here; with reasons

Rewritten copies and what the original's models gave are kept in `--work`, by the contents of the library and of
deinplace.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import library_suite

import deinplace
from deinplace.files import Selection, discover, load
from deinplace.rewrite.apply import patched
from deinplace.verify.everywhere import surveyed
from deinplace.verify.static import choices

CHILD = Path(__file__).with_name("library_models.py")
CHUNK = 25
"""Models that share a process: what a crash costs, beside its own model, is the import."""
CLOSE = 1e-6
WORDS = ("equal", "close", "different", "unstable", "mended", "failed", "large")
Answer = dict[str, Any]


@dataclass
class Rewritten:
    """A copy of a library, and what was done to it."""

    folder: str
    files: int
    changed: int
    bytes_before: int
    bytes_after: int
    rules: dict[str, int]
    reasons: dict[str, int]
    faults: dict[str, int]
    cpu_seconds: float


@dataclass
class Tally:
    """What became of each model."""

    states: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    gradients: int = 0

    def count(self, state: str) -> int:
        return sum(s == state for s in self.states.values())


def main() -> int:
    """Print what was rewritten and how many models are equal; 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", metavar="LIBRARY", help="module name of the library")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that can import it")
    parser.add_argument("--models", type=int, default=0, metavar="N", help="stop after N models ran; 0 means all")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models")
    parser.add_argument(
        "--largest", type=int, default=16_000_000, metavar="N", help="parameters of a model that is run"
    )
    parser.add_argument("--work", default=str(Path(tempfile.gettempdir(), "deinplace-libraries")))
    parser.add_argument("--json", metavar="FILE", help="write every model's state to a file")
    parser.add_argument("--rewrite-only", action="store_true", help="run no model")
    parser.add_argument("--original-only", action="store_true", help="only record what the original's models give")
    parser.add_argument("--suite", type=Path, metavar="DIR", help="run the tests of an unpacked source distribution")
    parser.add_argument("--tests", nargs="+", default=["tests"], metavar="PATH", help="its tests, from DIR")
    options = parser.parse_args()
    if options.suite:
        return suite(options)
    before = copied(found(options.python, options.package), Path(options.work))
    after = before
    if not options.original_only:
        copies = rewritten(before / options.package)
        after = Path(copies.folder)
        show_rewrites(options.package, copies)
    if options.rewrite_only:
        return 0
    tally = Tally()
    wanted = options.only or listed(options.python, before, options.package)
    runner = Runner(options.python, options.package, options.largest)
    for start in range(0, len(wanted), CHUNK):
        left = options.models - sum(tally.count(s) for s in WORDS[:4]) if options.models else CHUNK
        if left <= 0:
            break
        chunk = wanted[start : start + min(CHUNK, left)]
        if options.original_only:
            states = originals(runner, before, chunk)
            tally.states |= {n: "failed" if "error" in a else "equal" for n, a in states.items()}
        else:
            compare(runner, before, after, chunk, tally)
        print(f"{start}: {dict(Counter(tally.states.values()))}", file=sys.stderr, flush=True)
        if options.json:
            Path(options.json).write_text(json.dumps({"states": tally.states, "details": tally.details}, indent=1))
    if not options.original_only:
        show_models(tally)
    return int(tally.count("different") > 0)


def suite(options: argparse.Namespace) -> int:
    """A library's own tests on a copy of it and on a rewritten one."""
    work = Path(options.work)
    work.mkdir(parents=True, exist_ok=True)

    def change(package: Path) -> None:
        show_rewrites(options.package, rewrite(package, str(package)))

    return library_suite.compared(options.package, options.suite.resolve(), options.python, options.tests, change, work)


def found(python: str, library: str) -> Path:
    """Where an interpreter finds a library, without importing it."""
    code = f"import importlib.util as u; print(u.find_spec({library!r}).submodule_search_locations[0])"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"libraries.py: {python} does not find a package named {library}")
    return Path(result.stdout.strip())


def copied(original: Path, work: Path) -> Path:
    """A copy of a library as it is, made once for each state of it."""
    folder = work / f"{original.name}-{digest(sorted(original.rglob('*.py')))}" / "before"
    if not folder.exists():
        shutil.copytree(original, folder / original.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def rewritten(original: Path) -> Rewritten:
    """A copy of it that is rewritten, made once for each state of deinplace."""
    key = digest(sorted(Path(deinplace.__file__).parent.rglob("*.py")))
    folder = original.parent.with_name(f"after-{key}")
    record = folder / "rewritten.json"
    if record.exists():
        return Rewritten(**json.loads(record.read_text()))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder / original.name)
    result = rewrite(folder / original.name, str(folder))
    record.write_text(json.dumps(vars(result)))
    return result


def digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(str(path).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:12]


def rewrite(top: Path, folder: str) -> Rewritten:
    """What `fix --all --verify off` does, with the rule of every rewrite and the reason for what stays."""
    gc.set_threshold(200_000, 50, 50)
    begun = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    paths, _ = discover([str(top)], Selection(str(top), exclude=()))
    sources, unread = load(paths)
    for problem in unread:
        print(f"{problem.path}: {problem.message}", file=sys.stderr)
    made = choices(sources)
    taken = [c.rewrite for c in made if c.rewrite is not None]
    freed, reasons = surveyed(sources, taken)
    taken += [each for _, each, _ in freed]
    after = patched(sources, taken)
    changed = {path: source for path, source in after.items() if source is not sources[path]}
    for path, source in changed.items():
        Path(path).write_bytes(sources[path].written(source.text))
    return Rewritten(
        folder,
        len(sources),
        len(changed),
        sum(len(s.data) for s in sources.values()),
        sum(len(changed.get(p, s).data) for p, s in sources.items()),
        dict(Counter(each.rule for each in taken).most_common()),
        dict(reasons.most_common()),
        dict(Counter(c.safety.reason_code for c in made if c.rewrite is None).most_common()),
        resource.getrusage(resource.RUSAGE_SELF).ru_utime - begun,
    )


def listed(python: str, folder: Path, library: str) -> list[str]:
    """Names of a library's models."""
    result = subprocess.run(
        [python, str(CHILD), str(folder), library, "--list"], stdout=subprocess.PIPE, text=True, env=environment()
    )
    if result.returncode:
        raise SystemExit(f"libraries.py: the models of {library} can't be listed")
    return list(json.loads(result.stdout))


def environment() -> dict[str, str]:
    """No network, no accelerator, one thread."""
    return {
        **os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1",
        "PYTHONDONTWRITEBYTECODE": "1", "TORCH_HOME": os.devnull,
    }  # fmt: skip


@dataclass(frozen=True)
class Runner:
    """Runs models in children of one interpreter."""

    python: str
    package: str
    largest: int

    def answers(self, folder: Path, requests: Sequence[Answer]) -> Iterator[Answer]:
        """An answer for each request; a child that dies costs the model it was at."""
        left = list(requests)
        while left:
            text = "".join(json.dumps(r) + "\n" for r in left)
            command = [self.python, str(CHILD), str(folder), self.package, str(self.largest)]
            result = subprocess.run(
                command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
            )
            lines = [json.loads(line) for line in result.stdout.splitlines()]
            done = [line for line in lines if "begin" not in line]
            yield from done
            left = left[len(done) :]
            if left:
                yield {"name": left[0]["name"], "error": f"the process ended with {result.returncode}"}
                left = left[1:]


def request(name: str, way: int | None = None, dump: Path | None = None) -> Answer:
    return {"name": name, "way": way, "dump": None if dump is None else str(dump)}


def compare(runner: Runner, before: Path, after: Path, names: Sequence[str], tally: Tally) -> None:
    """Run some models in the original, those that ran in the copy, and those that differ once more in both."""
    old = originals(runner, before, names)
    for name, answer in old.items():
        if "error" in answer:
            tally.states[name] = "large" if answer.get("large") else "failed"
            tally.details[name] = answer["error"]
    ran = [request(a["name"], a["way"]) for a in old.values() if "error" not in a]
    broken = [request(a["name"], a["way"]) for a in old.values() if "broken" in a]
    for new in runner.answers(after, ran + broken):
        name = new["name"]
        if tally.states.get(name) == "failed":
            tally.states[name] = "failed" if "error" in new else "mended"
        elif new.get("digest") == old[name]["digest"]:
            tally.states[name] = "equal"
            tally.gradients += new["gradients"]
        else:
            tally.states[name], tally.details[name] = judged(runner, before, after, old[name], new)


def originals(runner: Runner, before: Path, names: Sequence[str]) -> dict[str, Answer]:
    """What the original's models give, from the record where they are in it."""
    record = before.with_name(f"models-{runner.largest}-{digest([CHILD])}.json")
    known = json.loads(record.read_text()) if record.exists() else {}
    known |= {a["name"]: a for a in runner.answers(before, [request(n) for n in names if n not in known])}
    record.write_text(json.dumps(known))
    return {name: known[name] for name in names}


def judged(runner: Runner, before: Path, after: Path, old: Answer, new: Answer) -> tuple[str, str]:
    """What a model is that is not equal bit for bit, and where it differs."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "before"), Path(folder, "after")]
        again, _ = (
            next(runner.answers(tree, [request(old["name"], old["way"], file)]))
            for tree, file in zip((before, after), files, strict=True)
        )
        if again.get("digest") != old["digest"]:
            return "unstable", "the original differs from itself"
        if "error" in new:
            return "different", f"fails only when rewritten: {new['error']}"
        code = (
            "import sys, torch\na, b = (torch.load(f) for f in sys.argv[1:])\n"
            "off = {k: float((a[k].double() - b[k].double()).abs().max() / a[k].double().abs().max().clamp_min(1e-30))"
            " if k in b and a[k].shape == b[k].shape and a[k].dtype == b[k].dtype else float('inf')"
            " for k in a if not (k in b and torch.equal(a[k], b[k]))}\n"
            "off.update({k: float('inf') for k in b.keys() - a.keys()})\n"
            "print(max(off.values(), default=0.0), len(off), next(iter(off), 'the bits of NaN'))"
        )
        result = subprocess.run([runner.python, "-c", code, *map(str, files)], capture_output=True, text=True)
    if result.returncode:
        return "different", f"values can't be compared: {result.stderr.strip().splitlines()[-1]}"
    worst, count, first = result.stdout.split(maxsplit=2)
    state = "close" if float(worst) <= CLOSE else "different"
    return state, f"{count} values differ by {float(worst):.1e} at most, first {first.strip()}"


def show_rewrites(library: str, done: Rewritten) -> None:
    """What was changed, and what was not."""
    print(
        f"{library}: {sum(done.rules.values())} rewrites in {done.changed} of {done.files} files, "
        f"{done.bytes_before} bytes before, {done.bytes_after} after, {done.cpu_seconds:.0f} CPU seconds"
    )
    print("rewrites by rule: " + ", ".join(f"{k} {v}" for k, v in done.rules.items()))
    print("other sites stay: " + ", ".join(f"{k} {v}" for k, v in done.reasons.items()))
    if done.faults:
        print("faults, certain or possible, that stay: " + ", ".join(f"{k} {v}" for k, v in done.faults.items()))


def show_models(tally: Tally) -> None:
    """How many models are what, and why those that failed did."""
    total = sum(tally.count(s) for s in WORDS[:4])
    print(
        f"models equal bit for bit: {tally.count('equal')} / {total} ({tally.gradients} gradients compared); "
        + "; ".join(f"{s} {tally.count(s)}" for s in WORDS[1:5])
        + f"; not counted: {tally.count('failed')} failed in the original, {tally.count('large')} too large"
    )
    why = Counter(re.sub(r"\d+", "N", tally.details[n])[:90] for n, state in tally.states.items() if state == "failed")
    for reason, count in why.most_common(12):
        print(f"  failed {count}: {reason}")
    for name, state in tally.states.items():
        if state in WORDS[1:5]:
            print(f"  {state}: {name}: {tally.details[name]}")


if __name__ == "__main__":
    sys.exit(main())
