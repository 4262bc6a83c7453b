"""octavo cache ls | rm: what octavo keeps on disk, how large it is, when it was used, and an end to it."""

import json
import sys
import time

from octavo.cli.kept import Kept, find, remove
from octavo.cli.parser import Parser
from octavo.errors import ConfigError, OctavoError

FOLDERS = ("kernels", "batches", "downloads")


def parser() -> Parser:
    """The command line of `octavo cache`."""
    result = Parser(prog="octavo cache", description="Models, compiled kernels and unfinished batches that octavo keeps on disk.")
    actions = result.add_subparsers(dest="action", required=True, metavar="ls | rm", parser_class=Parser)
    listing = actions.add_parser("ls", help="list it", description="List what is kept.")
    listing.add_argument("--json", action="store_true", help="as JSON")
    removing = actions.add_parser(
        "rm", help="remove some of it", description="Remove what is kept under these names, never what is in use."
    )
    removing.add_argument(
        "names", nargs="+", metavar="NAME", help="as `octavo cache ls` has it; kernels = all kernels, batches = all batches"
    )
    removing.add_argument("-y", "--yes", action="store_true", help="do not ask")
    removing.add_argument("--dry-run", action="store_true", help="tell what would be removed, and remove nothing")
    return result


def run(argv: list[str]) -> int:
    args = parser().parse_args(argv)
    kept = find()
    if args.action == "ls":
        print(json.dumps([each.facts() for each in kept], indent=1) if args.json else table(kept))
        return 0
    chosen = choose(kept, args.names)
    for each in chosen:
        print(f"{each.name}  {size(each.size_bytes)}  {each.path}" + (f"  (in use: {each.busy})" if each.busy else ""))
    if args.dry_run:
        return 0
    if not args.yes and not _is_agreed(sum(each.size_bytes for each in chosen if each.busy is None)):
        return 1
    return remove_all(chosen)


def choose(kept: list[Kept], names: list[str]) -> list[Kept]:
    """What the names mean, each once. They are looked up among what there is: none is ever taken for a path."""
    chosen: dict[str, Kept] = {}
    for name in names:
        found = [
            each for each in kept if each.name == name or (each.name.startswith(f"{name}/") and name in ("kernels", "batches", "downloads"))
        ]
        if not found:
            raise ConfigError(f"nothing is kept under the name {name!r}", "`octavo cache ls` lists the names")
        chosen |= {each.name: each for each in found}
    return list(chosen.values())


def remove_all(chosen: list[Kept]) -> int:
    """1 if something could not be removed; the rest is."""
    freed, code = 0, 0
    for each in chosen:
        try:
            remove(each)
            freed += each.size_bytes
        except OctavoError as error:
            print(f"octavo cache rm: {error}", file=sys.stderr)
            code = 1
    print(f"{size(freed)} freed", file=sys.stderr)
    return code


def table(kept: list[Kept]) -> str:
    """For people."""
    rows = [("NAME", "KIND", "SIZE", "LAST USED", "PATH")]
    for each in kept:
        used = time.strftime("%Y-%m-%d", time.localtime(each.used_s)) if each.busy is None else "in use"
        rows.append((each.name, each.kind, size(each.size_bytes), used, str(each.path)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]) for row in rows]
    return "\n".join([*lines, f"{size(sum(each.size_bytes for each in kept))} in all"])


def size(count: int) -> str:
    """Bytes as disks are sold."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _is_agreed(freed: int) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError("nobody can be asked whether to remove this", "pass --yes")
    print(f"remove this ({size(freed)})? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
