"""Help: the main options, all of them, a group or one option, from a parser's actions. Awaited options are told apart."""

import argparse
import difflib
import sys
import textwrap

from octavo.cli import terminal
from octavo.cli.actions import EVERY, OptionAction, find, known_flags

# what most people set, in the order in which they ask
MAIN = (
    "model", "host", "port", "api_key", "served_model_name", "max_model_len", "gpu_memory_utilization", "kv_cache_memory_bytes", "dtype",
    "load_format", "quantization", "max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching", "tensor_parallel_size", "cpu_threads",
    "chat_template", "generation_config", "hf_overrides", "seed", "log_level",
)  # fmt: skip
MANY = 40  # a command with more of the engine's options than this shows the main ones of them only
# vLLM's name of a group -> ours; awaited options keep vLLM's
GROUPS = {
    "ModelConfig": ("Model",),
    "LoadConfig": ("Model",),
    "CacheConfig": ("Cache",),
    "SchedulerConfig": ("Scheduler",),
    "ParallelConfig": ("Device",),
    "DeviceConfig": ("Device",),
    "AttentionConfig": ("Device",),
    "KernelConfig": ("Device",),
    "LoggingConfig": ("Log",),
    "ObservabilityConfig": ("Log",),
    "Frontend": ("Server", "TLS", "CORS", "Server log", "Front end"),
}
WIDTH = 100
COLUMN = 34


def show(parser: argparse.ArgumentParser, topic: str) -> int:
    """Print the help that is asked for; the exit code, 2 for a topic that there is not."""
    if topic in ("", "all", "page"):
        text = _short(parser) if not topic and sum(map(_is_shared, _options(parser))) > MANY else _whole(parser)
    else:
        found = _group(parser, topic) or _option(parser, topic)
        if found is None:
            print(_unknown(parser, topic), file=sys.stderr)
            return 2
        text = found
    if topic == "page":
        import pydoc

        pydoc.pager(text)
    else:
        print(text)
    return 0


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    names = [_placeholder(a) for a in _positionals(parser)]
    lines = [" ".join(["usage:", parser.prog, *names, "[options]"]), ""]
    if parser.description:
        lines += [parser.description, ""]
    for action in _positionals(parser):
        if isinstance(action, argparse._SubParsersAction):
            lines += [f"  {choice.dest:<{COLUMN - 2}}{choice.help or ''}" for choice in action._choices_actions]
        else:
            lines.append(_entry(action))
    return [*lines, ""] if lines[-1] else lines


def _placeholder(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "COMMAND"
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _short(parser: argparse.ArgumentParser) -> str:
    by_name = {a.dest: a for a in _options(parser)}
    lines = _usage(parser)
    for group in _groups(parser):
        if own := [a for a in _shown(group) if not _is_shared(a)]:
            lines += [_title(str(group.title)), *map(_entry, own), ""]
    lines += [_title("Main options")]
    lines += [_entry(by_name[name]) for name in MAIN if name in by_name and _is_shared(by_name[name])]
    ours, awaited = _titles(parser)
    lines += ["", *_wrapped(f"{len(ours)} groups, each shown by --help=GROUP: {', '.join(ours)}")]
    if awaited:
        lines += _wrapped(f"Options of vLLM that octavo refuses or ignores, with the reason: {', '.join(awaited)}")
    lines += ["--help=all shows everything, --help=page a page at a time, --help=max-num-seqs one option"]
    return "\n".join(lines)


def _whole(parser: argparse.ArgumentParser) -> str:
    lines = _usage(parser)
    for awaited in (False, True):
        for group in _groups(parser):
            shown = [a for a in _shown(group) if _is_awaited(a) == awaited]
            if shown:
                lines += [_title(f"{group.title} (of vLLM, not of octavo)" if awaited else str(group.title)), *map(_entry, shown), ""]
    return "\n".join(lines).rstrip() + (f"\n\n{parser.epilog}" if parser.epilog else "")


def _group(parser: argparse.ArgumentParser, topic: str) -> str | None:
    names: dict[str, tuple[str, ...]] = {t.lower(): (t,) for ts in _titles(parser) for t in ts}
    names |= {vllm.lower(): (*ours, vllm) for vllm, ours in GROUPS.items()}
    wanted = names.get(topic.lower())
    if wanted is None:
        return None
    lines: list[str] = []
    for group in parser._action_groups:
        if group.title in wanted and (shown := _shown(group)):
            lines += [_title(str(group.title)), *map(_entry, shown), ""]
    return "\n".join(lines).rstrip() or None


def _option(parser: argparse.ArgumentParser, topic: str) -> str | None:
    action = find(parser, "--" + topic.lstrip("-").replace("_", "-"))
    if action is None and len(topic.lstrip("-")) <= 4:
        action = find(parser, "-" + topic.lstrip("-"))
    if action is None:
        return None
    lines = [_entry(action)]
    if isinstance(action, OptionAction):
        if action.words:
            lines += _wrapped(f"values: {', '.join(action.words)}", " " * COLUMN)
        lines += _wrapped(f"all spellings: {' '.join(action.option_strings)}", " " * COLUMN)
    return "\n".join(lines)


def _unknown(parser: argparse.ArgumentParser, topic: str) -> str:
    ours, awaited = _titles(parser)
    names = [*ours, *awaited, *GROUPS, "all", "page", *(f.removeprefix("--") for f in known_flags(parser))]
    near = difflib.get_close_matches(topic.lstrip("-"), names, n=1)
    return (
        f"{parser.prog}: no help on {topic!r}"
        + (f"; did you mean {near[0]}?" if near else "")
        + f"\nhint: the groups are {', '.join(ours)}; --help=all shows everything"
    )


def _groups(parser: argparse.ArgumentParser) -> list[argparse._ArgumentGroup]:
    """What every command has comes last."""
    return sorted(parser._action_groups, key=lambda group: group.title == EVERY)


def _titles(parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The groups that have options of ours, and those that have only others."""
    ours = [str(g.title) for g in _groups(parser) if any(not _is_awaited(a) for a in _shown(g))]
    awaited = [str(g.title) for g in parser._action_groups if _shown(g) and str(g.title) not in ours]
    return [title for title in ours if title != "positional arguments"], awaited


def _is_awaited(action: argparse.Action) -> bool:
    return isinstance(action, OptionAction) and action.line is not None


def _positionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in parser._actions if not a.option_strings and a.help is not argparse.SUPPRESS]


def _options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in parser._actions if a.option_strings and a.help is not argparse.SUPPRESS]


def _shown(group: argparse._ArgumentGroup) -> list[argparse.Action]:
    return [a for a in group._group_actions if a.option_strings and a.help is not argparse.SUPPRESS]


def _is_shared(action: argparse.Action) -> bool:
    return isinstance(action, OptionAction) and action.is_shared


def _entry(action: argparse.Action) -> str:
    """The flags and what they do, in two columns."""
    flags = [s for s in action.option_strings if not s.startswith(("--no-", "--disable-", "--enable-"))] or action.option_strings[:]
    if isinstance(action, OptionAction):
        plain = "--" + action.dest.replace("_", "-")
        flags = [s for s in action.option_strings if s == plain or not s.startswith("--no-")]
        flags = flags if action.kind != "switch" else [s for s in flags if s == plain or not s.startswith("--")]
    left = ", ".join(flags) if flags else _placeholder(action)
    if flags and action.nargs != 0 and not isinstance(action, (argparse._StoreTrueAction, argparse._StoreFalseAction)):
        left += f" {_value(action)}"
    text = str(action.help or "").replace("%(default)s", str(action.default))
    lines = textwrap.wrap(text, WIDTH - COLUMN) or [""]
    head = "  " + left
    shown = terminal.colored(head, sys.stdout)
    if len(head) < COLUMN - 1:
        lines[0] = shown + " " * (COLUMN - len(head)) + lines[0]
    else:
        lines = [shown, " " * COLUMN + lines[0], *lines[1:]]
        return "\n".join([*lines[:2], *(" " * COLUMN + line for line in lines[2:])])
    return "\n".join([lines[0], *(" " * COLUMN + line for line in lines[1:])])


def _value(action: argparse.Action) -> str:
    words = action.words if isinstance(action, OptionAction) else tuple(map(str, action.choices or ()))
    if words and len(", ".join(words)) <= 60:
        return "{" + ",".join(words) + "}"
    return action.metavar if isinstance(action.metavar, str) else action.dest.upper()


def _title(text: str) -> str:
    return terminal.bold(f"{text}:", sys.stdout)


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
