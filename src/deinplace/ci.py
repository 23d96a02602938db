"""A patch that an untrusted job made: refused unless it edits tracked Python files of the very commit, and no more.

The job that made it ran the code under review, so every byte of the patch may be chosen by whoever wrote that code. The
grammar that is accepted here is the narrowest one that holds what `fix` writes: hunks of files that exist, no modes, no
renames, no new or deleted files, no binary parts.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from deinplace.errors import DeinplaceError

MAX_BYTES = 1_000_000
SUFFIXES = (".py", ".ipynb")
TRAILER = "Deinplace-Rules"
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@.*")
_INDEX = re.compile(rb"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64} 100(644|755)")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_REGULAR = ("100644", "100755")


class RefusedError(DeinplaceError):
    """The patch is not one that this command applies."""


def read(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The bytes of a patch file.

    Raises:
        RefusedError: it is a link, no plain file, larger than `limit`, or cannot be read.
    """
    try:
        # the artifact was unpacked from an archive that anybody may have made: look before it is opened
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode):
            raise RefusedError(f"{path}: is not a plain file")
        with path.open("rb") as stream:
            data = stream.read(limit + 1)
    except OSError as error:
        raise RefusedError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > limit:
        raise RefusedError(f"{path}: is larger than {limit} bytes")
    return data


def files_of(patch: bytes) -> tuple[str, ...]:
    """Paths of the files that a patch edits, in order.

    Raises:
        RefusedError: anything in it is more than an edit of lines, or a path that must not be edited.
    """
    lines = patch.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    names: list[str] = []
    at = 0
    while at < len(lines):
        at, name = _file(lines, at)
        if name in names:
            raise RefusedError(f"{name}: stands in the patch twice")
        names.append(name)
    return tuple(names)


def check_path(name: str) -> None:
    """Raises RefusedError unless `name` is a plain path to a Python file or a notebook inside the repository."""
    path = PurePosixPath(name)
    if path.is_absolute() or "\\" in name or not name.isprintable() or ":" in name:
        raise RefusedError(f"{name!r}: is not a plain relative path")
    for part in name.split("/"):
        if part in ("", ".", "..") or part.endswith((".", " ")):
            raise RefusedError(f"{name!r}: leads out of the repository, or may on another system")
        if part.casefold() in (".git", ".github", "git~1"):
            raise RefusedError(f"{name!r}: nothing under {part}/ is ever changed")
    if path.suffix not in SUFFIXES:
        raise RefusedError(f"{name!r}: only {' and '.join(SUFFIXES)} files are changed")


def apply(patch: bytes, repository: Path, head: str) -> tuple[str, ...]:
    """Apply a patch to a clean checkout of the commit `head`, in the files and in the index; the paths changed.

    Raises:
        RefusedError: the patch is not acceptable, the checkout is not `head` or not clean, or it does not apply.
    """
    repository = Path(_git(repository, ["rev-parse", "--show-toplevel"]).decode().removesuffix("\n"))
    _check_head(repository, head)
    names = files_of(patch)
    if not names:
        return ()
    for name in names:
        _check_tracked(repository, name)
    _rehearse(patch, names, repository)
    _git(repository, ["apply", "--index", "--whitespace=nowarn", "-"], patch)
    return names


def is_own(repository: Path) -> bool:
    """True where the checked out commit was made by this command: answering it would never end."""
    trailers = _git(repository, ["log", "-1", f"--format=%(trailers:key={TRAILER})"])
    return bool(trailers.strip())


def commit(repository: Path, message: str) -> str:
    """Commit what is in the index, without anybody's hooks; the new commit's id."""
    _git(repository, ["commit", "--quiet", "--no-verify", "--no-gpg-sign", "--file=-"], message.encode())
    return _git(repository, ["rev-parse", "HEAD"]).decode().strip()


def message_of(names: Sequence[str], report: Mapping[str, object] | None) -> str:
    """A commit message with trailers that say which rules were applied and how far they were proved.

    `report` comes from the untrusted job as well: nothing but codes and known words is taken from it.
    """
    rules: set[str] = set()
    states: set[str] = set()
    findings = report.get("findings") if report else None
    for finding in findings if isinstance(findings, list) else ():
        if not isinstance(finding, dict) or finding.get("state") not in ("fixed", "fixable"):
            continue
        code, verdict = finding.get("code"), finding.get("verification")
        if isinstance(code, str) and re.fullmatch(r"DIP\d{3}", code):
            rules.add(code)
        status = verdict.get("status") if isinstance(verdict, dict) else None
        states.add(status if status in ("confirmed", "unconfirmed") else "unconfirmed")
    files = f"{len(names)} file{'' if len(names) == 1 else 's'}"
    verified = "confirmed" if states == {"confirmed"} else "unconfirmed"
    trailers = [f"{TRAILER}: {', '.join(sorted(rules)) or 'unknown'}"]
    trailers.append(f"Deinplace-Verification: {verified}, as the job that made it says")
    return "\n".join([f"Mend in-place writes that break backward in {files}", "", *trailers, ""])


def read_report(path: Path, limit: int = 20 * MAX_BYTES) -> Mapping[str, object]:
    """The JSON report beside the patch.

    Raises:
        RefusedError: it is no plain file, too large, or not a JSON object.
    """
    try:
        data = json.loads(read(path, limit))
    except (ValueError, RecursionError) as error:
        raise RefusedError(f"{path}: is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise RefusedError(f"{path}: is not a report")
    return data


def _file(lines: list[bytes], at: int) -> tuple[int, str]:
    """The index after the section of one file that starts at `at`, and that file's path."""
    start = at
    git_line = lines[at] if lines[at].startswith(b"diff --git ") else None
    if git_line:
        at += 1
        if at < len(lines) and _INDEX.fullmatch(lines[at]):
            at += 1
    if at + 2 >= len(lines) or not lines[at].startswith(b"--- a/") or not lines[at + 1].startswith(b"+++ b/"):
        raise RefusedError(f"line {at + 1} of the patch: only edits of lines in files that exist are accepted")
    old, new = (line[6:].removesuffix(b"\t") for line in lines[at : at + 2])
    if old != new or (git_line and git_line != b"diff --git a/" + old + b" b/" + new):
        raise RefusedError(f"line {start + 1} of the patch: the names of the file differ")
    try:
        name = new.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError(f"line {at + 1} of the patch: the name is not UTF-8") from None
    check_path(name)
    at += 2
    first = at
    while at < len(lines) and lines[at].startswith(b"@@ "):
        at = _hunk(lines, at)
    if at == first:
        raise RefusedError(f"{name}: the patch has no hunk for it")
    return at, name


def _hunk(lines: list[bytes], at: int) -> int:
    """The index after the hunk whose header is at `at`: it ends where its header says, whatever its lines hold."""
    header = _HUNK.fullmatch(lines[at])
    if header is None:
        raise RefusedError(f"line {at + 1} of the patch: is no header of a hunk")
    old, new = int(header[2] or 1), int(header[4] or 1)
    at += 1
    while old or new:
        sign = lines[at][:1] if at < len(lines) else b"end"
        if sign == b"\\":
            at += 1
            continue
        if sign not in (b" ", b"+", b"-"):
            raise RefusedError(f"line {at + 1} of the patch: the hunk ends too early")
        old -= sign != b"+"
        new -= sign != b"-"
        if old < 0 or new < 0:
            raise RefusedError(f"line {at + 1} of the patch: the hunk is longer than its header says")
        at += 1
    return at + 1 if at < len(lines) and lines[at].startswith(b"\\") else at


def _check_head(repository: Path, head: str) -> None:
    if not _COMMIT.fullmatch(head):
        raise RefusedError(f"{head!r}: give the whole id of the commit that the patch is for")
    if (now := _git(repository, ["rev-parse", "HEAD"]).decode().strip()) != head:
        raise RefusedError(f"the checkout is {now}, but the patch is for {head}")
    if _git(repository, ["status", "--porcelain", "--untracked-files=no"]):
        raise RefusedError(f"{repository}: the checkout has changes of its own")


def _check_tracked(repository: Path, name: str) -> None:
    listed = _git(repository, ["ls-tree", "-z", "HEAD", "--", name]).split(b"\0")
    mode = listed[0].split(b" ", 1)[0].decode() if listed[0] else ""
    if mode not in _REGULAR:
        kind = {"": "is not in the commit", "120000": "is a symbolic link"}.get(mode, "is not a plain file")
        raise RefusedError(f"{name}: {kind}")


def _rehearse(patch: bytes, names: Sequence[str], repository: Path) -> None:
    """Apply to an index of its own, and look at what comes out, before anything is changed."""
    with tempfile.TemporaryDirectory() as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        _git(repository, ["read-tree", "HEAD"], environment=index)
        _git(repository, ["apply", "--cached", "--whitespace=nowarn", "-"], patch, index)
        changed = _git(repository, ["diff-index", "--cached", "--raw", "-z", "--no-renames", "HEAD"], environment=index)
        entries = changed.decode("utf-8", "surrogateescape").split("\0")[:-1]
        for meta, name in zip(entries[::2], entries[1::2], strict=True):
            old, new, _, _, status = meta.removeprefix(":").split(" ")
            if status != "M" or old != new or name not in names:
                raise RefusedError(f"{name}: the patch does more than edit lines")
        for name in names:
            _check_content(name, _git(repository, ["cat-file", "blob", f":{name}"], environment=index))


def _check_content(name: str, data: bytes) -> None:
    try:
        if name.endswith(".ipynb"):
            json.loads(data)
        else:
            ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RefusedError(f"{name}: is broken once the patch is applied: {error}") from None


def _git(
    repository: Path, arguments: list[str], data: bytes = b"", environment: Mapping[str, str] | None = None
) -> bytes:
    """What git prints; the checkout is not trusted either, so no hook or monitor of anybody's is started."""
    command = ["git", "--literal-pathspecs", "-C", str(repository), "-c", f"core.hooksPath={os.devnull}"]
    command += ["-c", "core.fsmonitor=false", *arguments]
    try:
        result = subprocess.run(
            command, input=data, env={**os.environ, **(environment or {})}, capture_output=True, check=False
        )
    except OSError as error:
        raise DeinplaceError(f"git cannot be started: {error.strerror}") from None
    if result.returncode:
        said = " ".join(result.stderr.decode("utf-8", "replace").split())
        raise RefusedError(f"git {arguments[0]}: {said or f'exit {result.returncode}'}")
    return result.stdout
