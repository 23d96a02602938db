"""Kills `fix` at random moments, many times, and prints what it left: run as a program, so that forking is cheap."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from deinplace import cli

OLD = (
    "import torch\n\n\ndef f():\n    a = torch.ones(3, requires_grad=True)\n    x = torch.exp(a)\n    x += a\n"
    "    return x\n"
)
FILES = 12
WORDS = ["fix", ".", "--all", "--verify", "off"]


def fixing(folder: Path) -> int:
    """Start `fix` in a child; its process id."""
    child = os.fork()
    if child:
        return child
    os.chdir(folder)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os._exit(cli._guarded(WORDS))


def fresh(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for number in range(FILES):
        (folder / f"m{number}.py").write_text(OLD)


def main() -> None:
    folder, times = Path(sys.argv[1]), int(sys.argv[2])
    fresh(folder)
    os.chdir(folder)
    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
        cli._guarded(WORDS)  # loads all that a child needs
    fresh(folder)
    start = time.monotonic()
    os.waitpid(fixing(folder), 0)
    whole = time.monotonic() - start
    new = (folder / "m0.py").read_text()
    chance = random.Random(int(sys.argv[3]))
    seen = {"whole": 0, "none": 0, "some": 0, "all": 0, "torn": 0, "left": 0}
    for number in range(times):
        fresh(folder)
        child = fixing(folder)
        if number % 2:  # half of them once the first file is written, where it matters most
            while all((folder / f"m{n}.py").read_text() == OLD for n in range(FILES)) and not ended(child):
                time.sleep(0.0002)
            time.sleep(chance.uniform(0, 0.02))
        else:
            time.sleep(chance.uniform(0, 1.1 * whole))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        texts = [(folder / f"m{n}.py").read_text() for n in range(FILES)]
        done = texts.count(new)
        seen["torn"] += sum(text not in (OLD, new) for text in texts)
        seen["none" if done == 0 else "all" if done == FILES else "some"] += 1
        seen["left"] += sum(p.suffix == ".py" for p in folder.iterdir()) - FILES
    print(json.dumps({**seen, "whole": new != OLD}))


def ended(child: int) -> bool:
    """True once a child is a zombie; it stays to be waited for."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


if __name__ == "__main__":
    main()
