"""The house rules that a tool can check: no cycle, no torch in the control plane, each room says what belongs in it."""

import subprocess
import sys
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2] / "octavo"


def test_no_module_is_in_an_import_cycle() -> None:
    graph = grimp.build_graph("octavo", cache_dir=None)
    state: dict[str, int] = {}
    cycles: list[list[str]] = []

    def visit(module: str, path: list[str]) -> None:
        state[module] = 1
        for imported in sorted(graph.find_modules_directly_imported_by(module)):
            if state.get(imported) == 1:
                cycles.append([*path[path.index(imported) :], imported] if imported in path else [module, imported])
            elif imported not in state:
                visit(imported, [*path, imported])
        state[module] = 2

    for module in sorted(graph.modules):
        if module not in state:
            visit(module, [module])
    assert not cycles


def test_commands_do_not_load_torch() -> None:
    code = (
        "import sys, octavo, octavo.cli.main, octavo.cli.serve, octavo.cli.chat, octavo.cli.complete, octavo.cli.run_batch\n"
        "import octavo.cli.cache, octavo.cli.collect_env, octavo.cli.download_kernels\n"
        "octavo.cli.serve.parser().format_help()\n"
        "print([m for m in ('torch', 'numba', 'transformers', 'fastapi', 'zmq') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_front_end_and_engine_core_do_not_load_torch() -> None:
    code = (
        "import sys, octavo.frontend.llm, octavo.frontend.async_llm, octavo.server.run, octavo.engine.process\n"
        "print([m for m in ('torch', 'numba') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_room_says_what_belongs_in_it() -> None:
    rooms = [p for p in ROOT.rglob("__init__.py") if p.parent != ROOT]
    assert len(rooms) >= 15
    for room in rooms:
        text = room.read_text()
        assert text.startswith('"""'), room
        assert "May import" in text, room
        assert text.rstrip().endswith('"""'), f"{room} holds more than its docstring"


def test_every_file_opens_with_what_is_true_in_it() -> None:
    silent = [p for p in ROOT.rglob("*.py") if not p.read_text().startswith(('"""', "# "))]
    assert not silent


def test_room_names() -> None:
    forbidden = {"utils", "common", "helpers", "core", "misc"}
    assert not [p for p in ROOT.rglob("*") if p.is_dir() and p.name in forbidden]
