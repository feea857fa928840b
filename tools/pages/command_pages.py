"""docs/reference/commands.md: every command with its words, options and example, read from the
command line's own code."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

OPENING = """# Commands

Written by `make docs` from the commands' own code; a test keeps it current. `fulcrum COMMAND --help` prints the same in
a terminal.

- The result goes to stdout and progress to stderr. `--json` makes the last line of stdout one JSON object.
- Exit codes: 0 done, 1 failed, 2 input that was refused, 3 faults found by an audit or a rerun that proves nothing, 4
  another process of the run was lost, 75 stopped by SIGTERM, 130 stopped by Ctrl-C, 141 nobody read the output
  ([when to start again](../many-processes.md#exit-codes)). An error says what was expected, what was found and what to
  do; with `--json` it is an object with `error` and `hint`.
- `NO_COLOR=1` in the environment takes the colours from help and tables. `FULCRUM_TRACEBACK=1` shows where an error
  came from.
- Completion: `fulcrum --install-completion` writes it for your shell (bash, zsh, fish, PowerShell), `fulcrum
  --show-completion` prints it.

| command | what it does |
|---|---|
"""  # noqa: E501


def every_command(app: typer.Typer) -> dict[str, Any]:
    """'runs list' -> its click command; a group that does something by itself is a command too."""
    return dict(_below(typer.main.get_command(app)))


def _below(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    if not names or hasattr(command, "commands"):
        for name, below in command.commands.items():
            if not below.hidden:
                yield from _below(below, *names, name)
    if names and (not hasattr(command, "commands") or command.invoke_without_command):
        yield " ".join(names), command


def command_page(app: typer.Typer) -> str:
    found = dict(sorted(every_command(app).items()))
    rows = [
        f"| [{name}](#{_anchor(name)}) | {_cell(_paragraphs(command)[0])} |"
        for name, command in found.items()
    ]
    return (
        OPENING
        + "\n".join(rows)
        + "\n"
        + "".join(_section(name, command) for name, command in found.items())
    )


def _anchor(name: str) -> str:
    return f"fulcrum-{name}".replace(" ", "-")


def _section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one
        for one in command.params
        if one.param_type_name == "option" and not one.hidden and one.name != "help"
    ]
    usage = " ".join(
        ["fulcrum", name, *(_usage(one) for one in arguments), *(["[OPTIONS]"] if options else [])]
    )
    lines = ["", f"## fulcrum {name}", "", "```", usage, "```", "", *_spaced(_paragraphs(command))]
    if arguments:
        lines += ["| word | meaning |", "|---|---|"]
        lines += [f"| `{_usage(one)}` | {_cell(one.help or '')} |" for one in arguments] + [""]
    if options:
        lines += ["| option | meaning | default |", "|---|---|---|"]
        lines += [
            f"| {_option(one)} | {_cell(one.help or '')} | {_default(one)} |" for one in options
        ] + [""]
    example = (command.epilog or "").removeprefix("Example: ")
    return "\n".join([*lines, *(["Example:", "", "```", example, "```", ""] if example else [])])


def _paragraphs(command: Any) -> list[str]:
    """As a terminal shows them: there a bracket is the beginning of markup, unless a backslash
    stands before it."""
    text = (command.help or "").replace("\\[", "[")
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def _spaced(paragraphs: list[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in (paragraph, "")]


def _usage(argument: Any) -> str:
    word = argument.metavar or argument.name.upper()
    word = word.removesuffix("...") + ("..." if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def _option(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else " " + (option.metavar or _kind(option))
    words = ", ".join(f"`{name}{value}`" for name in names) + (
        " (repeatable)" if option.multiple else ""
    )
    return words.replace("|", "\\|")


def _kind(option: Any) -> str:
    """The word for a value, with its bounds."""
    kind, low, high = option.type_descriptor.annotation, option.min, option.max
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    word = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}[kind]
    return word + (
        "" if low is None else f" ≥ {low:g}" if high is None else f" {low:g} to {high:g}"
    )


def _default(option: Any) -> str:
    value = option.default
    if value is None or value == () or (option.is_flag and not option.secondary_opts):
        return ""
    return (
        f"`{option.opts[0] if value else option.secondary_opts[0]}`"
        if option.is_flag
        else f"`{value}`"
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
