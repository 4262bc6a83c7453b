"""octavo completion SHELL: prints a script that completes commands, flags and their values. bash, zsh and fish."""

import argparse
import importlib

from octavo.cli.actions import OptionAction, commands_of
from octavo.cli.main import COMMANDS
from octavo.cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")
_PATHS = ("FILE", "PATH", "DIR", "FOLDER", "TEMPLATE", "KEYFILE", "CERTFILE", "CERTS", "UDS")  # values that are files
_INSTALL = {
    "bash": 'eval "$(octavo completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(octavo completion zsh)" in ~/.zshrc, after compinit',
    "fish": "octavo completion fish > ~/.config/fish/completions/octavo.fish",
}


def parser() -> Parser:
    """The command line of `octavo completion`."""
    install = "\n".join(f"  {shell:<5} {line}" for shell, line in _INSTALL.items())
    result = Parser(prog="octavo completion", description="Print the completion script of a shell.", epilog=f"To install:\n{install}")
    result.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return result


def run(argv: list[str]) -> int:
    shell = parser().parse_args(argv).shell
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](command_parsers()))
    return 0


def command_parsers() -> dict[str, Parser]:
    """The parser of each command, by its words: "serve", "bench serve"."""
    found: dict[str, Parser] = {}
    for command in COMMANDS:
        module = importlib.import_module(f"octavo.cli.{command.replace('-', '_')}")
        if hasattr(module, "parsers"):
            found |= {f"{command} {name}".rstrip(): each for name, each in module.parsers().items()}
        elif hasattr(module, "parser"):
            found |= _expanded(command, module.parser())
    return found


def _expanded(path: str, parser: Parser) -> dict[str, Parser]:
    """The parser, or those of the commands below it."""
    below = commands_of(parser)
    return {name: each for word, inner in below.items() for name, each in _expanded(f"{path} {word}", inner).items()} or {path: parser}


def flags(parser: Parser) -> list[argparse.Action]:
    """What is offered: octavo's own options; what it refuses is not."""
    return [
        a
        for a in parser._actions
        if a.option_strings and a.help is not argparse.SUPPRESS and not (isinstance(a, OptionAction) and a.line is not None)
    ]


def spelled(action: argparse.Action) -> list[str]:
    """The long flags of an option; of a switch also the one that turns it off."""
    long = [s for s in action.option_strings if s.startswith("--")]
    if not isinstance(action, OptionAction):
        return long or list(action.option_strings)
    plain = "--" + action.dest.replace("_", "-")
    return [s for s in (plain, "--no-" + plain[2:]) if s in long]


def words(action: argparse.Action) -> tuple[str, ...]:
    """The values of an option that are words."""
    return action.words if isinstance(action, OptionAction) else tuple(map(str, action.choices or ()))


def _takes_path(action: argparse.Action) -> bool:
    return str(action.metavar or action.dest).upper().rsplit("_", 1)[-1] in _PATHS


def bash(parsers: dict[str, Parser]) -> str:
    """A function for bash's complete; what bash lacks of it is nothing that the package bash-completion must bring."""
    lines = [
        "_octavo() {",
        '    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" path="" word i',
        '    if [[ $cur == "=" ]]; then cur=""; elif [[ $prev == "=" ]]; then prev="${COMP_WORDS[COMP_CWORD-2]}"; fi',
        "    for ((i = 1; i < COMP_CWORD; i++)); do",
        '        word="${COMP_WORDS[i]}"',
        '        [[ $word == -* || $word == "=" ]] && break',
        '        case "$path $word" in',
        *(f'            {_pattern(f" {p}")}) path="$path $word" ;;' for p in prefixes(parsers)),
        "            *) break ;;",
        "        esac",
        "    done",
        '    case "$path $prev" in',
    ]
    for path, parser in parsers.items():
        lines += [f"        {case}) {reply}; return ;;" for case, reply in _bash_values(path, parser)]
    lines += ["    esac", '    case "$path" in']
    for path, parser in parsers.items():
        offered = " ".join(s for a in flags(parser) for s in spelled(a))
        positional = " ".join(w for a in parser._actions if not a.option_strings for w in map(str, a.choices or ()))
        files = "" if positional else '; [[ $cur != -* ]] && COMPREPLY+=($(compgen -f -- "$cur"))'
        lines.append(f'        {_pattern(f" {path}")}) COMPREPLY=($(compgen -W "{positional} {offered}" -- "$cur")){files} ;;')
    for path in ("", *prefixes(parsers)):
        if path not in parsers:
            lines.append(
                f'        "{" " * bool(path)}{path}") COMPREPLY=($(compgen -W "{" ".join(following(parsers, path))}" -- "$cur")) ;;'
            )
    return "\n".join([*lines, "    esac", "}", "complete -o filenames -F _octavo octavo"])


def _bash_values(path: str, parser: Parser) -> list[tuple[str, str]]:
    found = []
    for action in flags(parser):
        cases = "|".join(_pattern(f" {path} {s}") for s in action.option_strings if s.startswith("-"))
        if values := words(action):
            found.append((cases, f'COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$cur"))'))
        elif _takes_path(action) and action.nargs != 0:
            found.append((cases, 'COMPREPLY=($(compgen -f -- "$cur"))'))
    return found


def _pattern(text: str) -> str:
    return f'"{text}"'


def prefixes(parsers: dict[str, Parser]) -> list[str]:
    """Every path of commands, the incomplete ones too."""
    found: dict[str, None] = {}
    for path in (*parsers, *COMMANDS):
        parts = path.split()
        for end in range(1, len(parts) + 1):
            found[" ".join(parts[:end])] = None
    return list(found)


def following(parsers: dict[str, Parser], path: str) -> list[str]:
    """The commands that can come after a path."""
    start = f"{path} " if path else ""
    return list(dict.fromkeys(p.removeprefix(start).split()[0] for p in prefixes(parsers) if p.startswith(start) and p != path))


def zsh(parsers: dict[str, Parser]) -> str:
    """The script for bash through zsh's own bashcompinit."""
    return "\n".join(["autoload -U +X bashcompinit && bashcompinit", bash(parsers)])


def fish(parsers: dict[str, Parser]) -> str:
    lines = ["complete -c octavo -f"]
    for path in prefixes(parsers):
        *before, last = path.split()
        seen = " ".join(f"; and __fish_seen_subcommand_from {word}" for word in before)
        siblings = " ".join(following(parsers, " ".join(before)))
        condition = f"not __fish_seen_subcommand_from {siblings}{seen}" if before else "__fish_use_subcommand"
        lines.append(f"complete -c octavo -n '{condition}' -a {last} -d {_quoted(COMMANDS.get(path, ''))}")
    for path, parser in parsers.items():
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path.split())
        for action in flags(parser):
            value = f" -x -a {_quoted(' '.join(words(action)))}" if words(action) else " -r -F" if _takes_path(action) else ""
            for flag in spelled(action):
                if flag.startswith("--"):
                    lines.append(f"complete -c octavo -n '{condition}' -l {flag[2:]}{value} -d {_quoted(str(action.help or ''))}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").splitlines()[0] + "'" if text else "''"
