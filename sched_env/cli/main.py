"""Entry point of ``sched-env``: find the verb, parse its arguments, turn faults into one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from sched_env.errors import SchedEnvError, did_you_mean

if TYPE_CHECKING:
    from sched_env.config import ConfigModel

EXIT_OK = 0
EXIT_FAULT = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE

VERBS = {
    "train": "train an agent and export its policy",
    "evaluate": "compare policies on the same requests",
    "arena": "compare policies under every condition, and map who wins where",
    "simulate": "run one policy over a whole trace",
    "tune": "search the weights of a linear score",
    "export": "write the policy folder of a training run",
    "trace": "inspect, convert or make request traces",
    "profile": "step times: measure them here, fit a model, check one",
    "replay": "simulate a real server's run and compare request by request",
    "report": "show what came out of a training run or an evaluation",
    "bench": "measure the speed on this machine",
    "doctor": "show versions and extras, and check that the package works",
}

_PROGRAM = "sched-env"
_USAGE = "usage: sched-env VERB ...   (sched-env VERB --help explains one verb)"


@dataclass(frozen=True)
class Command:
    """One verb, or one part of a verb such as ``trace inspect``.

    Attributes:
        arguments: a dataclass whose fields are the command's arguments.
        run: does the work; returns an exit code, or None for 0.
        shown_config: returns the configuration that ``--help`` shows the values of, given the
            positional arguments and the options by name.
    """

    arguments: type
    run: Callable[..., int | None]
    shown_config: Callable[[Sequence[str], dict[str, str]], ConfigModel] | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: what stands behind ``sched-env``; by default that of this process.

    Returns:
        0, 2 for a fault of the user's, or what the command returns.
    """
    texts = list(sys.argv[1:] if arguments is None else arguments)
    return _told(lambda: _run(texts), _PROGRAM)


def run_script(command: Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a script of one command as ``sched-env`` runs a verb.

    Args:
        command: what the script does.
        program: the script's name, for help and messages.
        arguments: what stands behind it; by default that of this process.

    Returns:
        0, 2 for a fault of the user's, or what the command returns.
    """
    texts = list(sys.argv[1:] if arguments is None else arguments)
    return _told(lambda: _execute(command, program, texts), program)


def _told(work: Callable[[], int], program: str) -> int:
    """Do the work; tell what goes wrong with it in one line."""
    try:
        with _current_folder_searched():
            code = work()
        sys.stdout.flush()
        return code
    except SchedEnvError as error:
        return _fail(str(error), program)
    except BrokenPipeError:
        # The reader has gone; without this Python would complain once more when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{(error.strerror or str(error)).lower()}", program)
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted\n")
        return EXIT_INTERRUPTED


@contextmanager
def _current_folder_searched() -> Iterator[None]:
    """Let MODULE:NAME stand for a policy in a module of the current folder, as ``python -m`` does.

    The folder comes last, so that no file in it takes the place of a library.
    """
    before = list(sys.path)
    if "" not in before:
        sys.path.append("")  # whatever is current then
    try:
        yield
    finally:
        sys.path[:] = before


def _run(texts: list[str]) -> int:
    if not texts:
        sys.stderr.write(_overview())
        return EXIT_FAULT
    verb, rest = texts[0], texts[1:]
    if verb in ("-h", "--help"):
        sys.stdout.write(_overview())
        return EXIT_OK
    if verb == "--version":
        from sched_env import __version__

        sys.stdout.write(f"sched-env {__version__}\n")
        return EXIT_OK
    if verb not in VERBS:
        return _fail(f"no verb {verb!r}.{did_you_mean(verb, VERBS)} Known: {', '.join(VERBS)}")
    module = importlib.import_module(f"sched_env.cli.{verb}")
    parts: dict[str, tuple[str, Command]] | None = getattr(module, "PARTS", None)
    if parts is None:
        return _execute(module.COMMAND, f"sched-env {verb}", rest)
    return _run_part(module, verb, parts, rest)


def _run_part(
    module: ModuleType, verb: str, parts: dict[str, tuple[str, Command]], rest: list[str]
) -> int:
    """Run a verb that has parts, such as ``trace inspect``."""
    if not rest or rest[0] in ("-h", "--help"):
        lines = [f"usage: sched-env {verb} PART ...", "", str(module.__doc__).strip(), ""]
        lines += [f"  {name:<10} {summary}" for name, (summary, _) in parts.items()]
        (sys.stdout if rest else sys.stderr).write("\n".join(lines) + "\n")
        return EXIT_OK if rest else EXIT_FAULT
    name = rest[0]
    if name not in parts:
        known = ", ".join(parts)
        return _fail(f"{verb}: no part {name!r}.{did_you_mean(name, parts)} Known: {known}")
    return _execute(parts[name][1], f"sched-env {verb} {name}", rest[1:])


def _execute(command: Command, program: str, texts: list[str]) -> int:
    import tyro

    from sched_env.cli.argument_order import arrange
    from sched_env.cli.option_check import check_options

    arranged = arrange(texts, command.arguments)
    # What is given already would be missing from the help.
    given = ["--help"] if {"-h", "--help"} & set(texts) else arranged.texts
    if given is arranged.texts:
        check_options(arranged, command.arguments, program)
    try:
        parsed = tyro.cli(command.arguments, prog=program, args=given)
    except SystemExit as stop:
        if not stop.code and command.shown_config is not None:
            from sched_env.cli.config_help import print_values

            print_values(command.shown_config(arranged.positionals, arranged.options))
        return stop.code if isinstance(stop.code, int) else EXIT_OK
    return command.run(parsed) or EXIT_OK


def _overview() -> str:
    lines = [_USAGE, ""]
    lines += [f"  {verb:<10} {summary}" for verb, summary in VERBS.items()]
    lines += ["", "  --version  show the version", "  --help     show this text"]
    return "\n".join(lines) + "\n"


def _fail(message: str, program: str = _PROGRAM) -> int:
    sys.stderr.write(f"{program}: error: {' '.join(message.split())}\n")
    return EXIT_FAULT


if __name__ == "__main__":
    sys.exit(main())
