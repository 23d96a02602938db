"""The command line: `main` is the outermost frame, where errors become one line and an exit code."""

from __future__ import annotations

import os
import signal
import sys

import deinplace
from deinplace.errors import DeinplaceError

_INTERRUPTED = "interrupted; no file was left half-written"


def main() -> None:
    """Run the command that `sys.argv` asks for, and exit: 0 clean, 1 findings left, 2 errors, 130 interrupted."""
    if sys.argv[1:] == ["--version"]:  # asked for by every editor and hook at start: no need to load anything
        print(f"deinplace {deinplace.__version__}")
        sys.exit(0)
    _end_as_on_ctrl_c()
    sys.exit(_guarded(sys.argv[1:]))


def _end_as_on_ctrl_c() -> None:
    """`timeout`, a cancelled CI job or a closed terminal must not leave the program running, nor temporary files."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _guarded(arguments: list[str]) -> int:
    import typer

    from deinplace.cli.app import command

    click_error, usage_error = typer.BadParameter.__mro__[2], typer.BadParameter.__mro__[1]
    try:
        code = int(command().main(arguments, prog_name="deinplace", standalone_mode=False) or 0)
        # typer turns an interrupt into this exit code or into Abort, by its version
        return _fail(_INTERRUPTED, code) if code == 130 else code
    except (KeyboardInterrupt, typer.Abort):
        return _fail(_INTERRUPTED, 130)
    except DeinplaceError as error:
        if error.detail:
            print(error.detail.rstrip("\n"), file=sys.stderr)
        return _fail(error.message)
    except Exception as error:  # noqa: BLE001  the last frame there is: what arrives here is a bug, and is reported as one
        if isinstance(error, click_error):
            hint = f" (see deinplace {_named(error)}--help)" if isinstance(error, usage_error) else ""
            text = getattr(error, "format_message", error.__str__)()
            return _fail(" ".join(text.split()).replace("Value error, ", "") + hint)
        title = f"internal error in deinplace {deinplace.__version__}: {error!r}"
        return _fail(f"{title}; {_log(error)}; no file was left half-written")


def _named(error: Exception) -> str:
    """The name of the command that a usage error speaks of, with a space after it."""
    context = getattr(error, "ctx", None)
    return f"{context.info_name} " if context is not None and context.parent is not None else ""


def _fail(message: str, code: int = 2) -> int:
    print(f"deinplace: {message}", file=sys.stderr)
    return code


def _log(error: Exception) -> str:
    """Write the traceback of a bug to a file, and say where."""
    import traceback

    import platformdirs

    lines = [f"deinplace {deinplace.__version__}, Python {sys.version}\n", f"{sys.argv!r}\n"]
    text = "".join([*lines, *traceback.format_exception(error)])
    try:
        path = platformdirs.user_log_path("deinplace", ensure_exists=True) / "internal-error.log"
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # paths and code are nobody else's business
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        return f"no log could be written, so here it is:\n{text}"
    return f"its traceback is in {path}"
