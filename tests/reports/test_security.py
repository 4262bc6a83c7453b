"""Standing tests of the kinds of weakness that published advisories are about, beside those of reports F to Q."""

import ast
import importlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from starlette.routing import Route

from octavo.config.options import Options, ServerOptions
from octavo.kvcache.hashing import BlockHasher
from octavo.server.app import ENDPOINTS, create_app
from tests.reports.conftest import SPRUNG
from tests.reports.servers import BURNS, CHAT, COMPLETIONS, SMALL, Server, says
from tests.server.real_server import octavo

ROOT = Path(__file__).parents[2]

# --- nothing in the tree makes code or objects of data

FORBIDDEN_MODULES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "multiprocessing", "code"}
FORBIDDEN_NAMES = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load", "torch.jit.load", "torch.hub.load"}
FORBIDDEN_NAMES |= {"yaml.load", "yaml.unsafe_load", "yaml.full_load", "numpy.load", "np.load", "pandas.read_pickle", "torch.save"}


def dotted(node: ast.AST) -> str:
    """a.b.c of an expression that is a name; empty for any other."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def unsafe(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
                yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names if f"{node.module}.{alias.name}" in FORBIDDEN_NAMES)
        elif isinstance(node, ast.Call):
            if dotted(node.func) in FORBIDDEN_NAMES:
                yield dotted(node.func)
            for word in node.keywords:
                is_on = not (isinstance(word.value, ast.Constant) and not word.value.value)
                if word.arg in ("allow_pickle", "shell") and is_on:
                    yield f"{dotted(node.func)}({word.arg}=...)"


def test_nothing_in_the_tree_unpickles_or_evaluates() -> None:
    files = [path for room in ("octavo", "benchmarks", "docs", "tests") for path in sorted((ROOT / room).rglob("*.py"))]
    assert len(files) > 250
    found = {str(path.relative_to(ROOT)): names for path in files if (names := sorted(set(unsafe(ast.parse(path.read_text())))))}
    assert found == {}


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from pickle import loads", "eval('1')", "torch.load(x)", "np.load(x, allow_pickle=True)", "run('x', shell=True)"],
)
def test_what_the_tree_must_not_have_is_seen(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


# --- nothing of a checkpoint runs


def test_no_trap_of_a_trusted_checkpoint_is_sprung(numbers: Server, random_model: Path) -> None:
    assert json.loads((random_model / "config.json").read_text())["auto_map"]
    assert (random_model / "pytorch_model.bin").exists()
    assert numbers.ask(CHAT, messages=says("z"), max_tokens=2)["choices"]
    assert not (random_model / SPRUNG).exists()
    assert "trust_remote_code: accepted, and nothing is run" in numbers.log


def test_a_checkpoint_of_pickles_is_refused(random_model: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((random_model / name).read_text())
    (tmp_path / "pytorch_model.bin").write_bytes((random_model / "pytorch_model.bin").read_bytes())
    command = octavo("serve", str(tmp_path), "--port", "0", *SMALL)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode not in (0, 130)
    assert "which octavo never opens" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (random_model / SPRUNG).exists()


@pytest.mark.parametrize("what", BURNS)
def test_a_template_that_burns_or_reaches_out_is_ended(numbers: Server, what: str) -> None:
    server = psutil.Process(numbers.process.pid)
    before, began = server.memory_info().rss, time.monotonic()
    error = numbers.refusal(CHAT, messages=[{"role": "user", "content": f"burn {what}"}], max_tokens=1)
    assert error["param"] == "messages"
    assert "root:" not in error["message"]
    assert time.monotonic() - began < 30  # its own limit is a tenth of that
    assert server.memory_info().rss - before < 100e6
    assert numbers.lives()


# --- sockets


def test_nothing_listens_but_one_local_port_and_private_sockets(numbers: Server) -> None:
    processes = [psutil.Process(numbers.process.pid), *numbers.children]
    listening = {c.laddr for p in processes for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    assert [f"http://{address.ip}:{address.port}" for address in listening] == [numbers.url]
    assert numbers.url.startswith("http://127.0.0.1:")
    datagrams = [c for p in processes for c in p.net_connections("udp")]
    assert datagrams == []
    paths = {str(c.laddr) for p in processes for c in p.net_connections("unix") if c.laddr}
    paths = {path for path in paths if not path.startswith("@octavo-memory-")}  # names that tell other instances something, and no more
    assert paths
    for path in map(Path, paths):
        assert path.is_relative_to(numbers.folder)
        mode = path.parent.stat()
        assert (stat.S_IMODE(mode.st_mode), mode.st_uid) == (0o700, os.getuid())


# --- keys

# what answers without a key: by default, in the habit of clients and probes, and when everything is guarded
OPEN = {"/health", "/ready", "/version", "/metrics", "/ping", "/load", "/server_info", "/tokenize", "/detokenize", "/tokenizer_info"}
OPEN |= {"/invocations", "/reset_prefix_cache", "/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
OPEN_WHEN_GUARDED = {"/health", "/ready", "/version", "/ping"}  # the last is the first by another name
KEYS = [{}, {"authorization": "Bearer"}, {"authorization": "Bearer secre"}, {"authorization": "Basic secret"}]


@pytest.mark.parametrize(("guards_all", "open_paths"), [(False, OPEN), (True, OPEN_WHEN_GUARDED)])
async def test_every_route_needs_the_key_but_those_on_a_short_list(guards_all: bool, open_paths: set[str]) -> None:
    app = create_app(ServerOptions(api_key=["secret"], guard_all_endpoints=guards_all))
    routers = [app, *(importlib.import_module(f"octavo.server.{name}").router for name in ENDPOINTS)]
    found = [each for router in routers for each in router.routes if isinstance(each, Route)]
    routes = [(method, each.path) for each in found for method in each.methods or ()]
    assert {path for _, path in routes} >= {CHAT, COMPLETIONS, "/health"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        for method, path in routes:
            path = re.sub(r"\{[^}]*\}", "x", path)
            if path not in open_paths:
                for headers in KEYS:
                    assert (await http.request(method, path, headers=headers)).status_code == 401, (method, path)
            assert (await http.request(method, path, headers={"authorization": "Bearer secret"})).status_code != 401


# --- what errors tell

BAD: list[tuple[str, bytes]] = [
    (path, body)
    for path in (CHAT, COMPLETIONS)
    for body in (
        b"",
        b"{:",
        b"[]",
        b"\xff",
        b'{"messages": 5, "prompt": {"a": 1}}',
        b'{"messages": [5], "prompt": [null]}',
        b'{"messages": [{}], "prompt": [[1], 5]}',
        b'{"messages": [{"role": "user", "content": {"a": {}}}], "prompt": [1.5]}',
        b'{"messages": [{"role": "user", "content": [{"type": "x"}]}], "prompt": [99999999]}',
        b'{"messages": [{"role": 5, "content": "x"}], "prompt": "x", "temperature": "hot"}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "stop": [{}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "logit_bias": {"x": []}}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "stream_options": []}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "tools": [{}], "suffix": "x"}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "model": "../../etc/passwd"}',
        b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "n": -1}',
    )
]
REVEALS = re.compile(r"0x[0-9a-f]{6,}|<[\w.]+ object|\.py\b|Traceback|site-packages|/(?:tmp|root|home|usr|var)\b|\boctavo\.\w+\.")


def test_errors_tell_no_address_and_no_path(numbers: Server, random_model: Path) -> None:
    statuses = set()
    for path, body in BAD:
        response = numbers.raw(path, body)
        statuses.add(response.status_code)
        assert response.status_code in (400, 404), body
        assert not REVEALS.search(response.text), response.text
        assert str(random_model) not in response.text
    assert statuses == {400, 404}
    for name in ("/v1/nothing", "/v1/models/nothing", "/v1/models/..%2f..%2fetc"):
        response = numbers.get(name)
        assert response.status_code == 404
        assert not REVEALS.search(response.text)
    assert REVEALS.search("<octavo.server.X object at 0x7f0012345678>")
    assert numbers.lives()


# --- the prefix cache


def test_prefixes_are_told_apart_by_a_strong_hash_of_an_unknown_root() -> None:
    assert Options().prefix_caching_hash_algo == "sha256"
    first, second = BlockHasher(), BlockHasher()
    assert len(first.root) == 32
    assert first.root != second.root
    assert first.hash(first.root, b"\1\0\0\0") != second.hash(second.root, b"\1\0\0\0")


def test_a_tenant_s_salt_keeps_its_prefixes_to_itself(numbers: Server) -> None:
    def cached(**salt: Any) -> int:
        answer = numbers.ask(COMPLETIONS, prompt="a secret of more than a block of tokens " * 3, max_tokens=1, **salt)
        return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

    salts = [{}, {"cache_salt": "one"}, {"cache_salt": "two"}]
    assert [cached(**salt) for salt in salts] == [0, 0, 0]
    assert all(cached(**salt) > 64 for salt in salts)
