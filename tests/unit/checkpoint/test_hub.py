"""The hub, over a real socket: a small server in its place, asked by a process of its own, since its client reads variables once."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SHA = "b" * 40
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"no",
    "onnx/model.safetensors": b"no",
    "consolidated.safetensors": b"no",
}
GGUF = {"README.md": b"", "m-Q4_K_M.gguf": b"GGUFq4", "m-Q8_0.gguf": b"GGUFq8"}
REPOSITORIES = {"org/good": FILES, "org/gguf": GGUF, "org/gated": FILES, "org/pickle": {"config.json": b"{}", "pytorch_model.bin": b""}}


class Hub(BaseHTTPRequestHandler):
    """What of the hub's interface a download needs."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/").split("/")
        if path[:2] == ["api", "models"]:
            self._answer_api("/".join(path[2:4]), path[4:])
        else:
            self._answer_file("/".join(path[:2]), "/".join(path[4:]))

    do_HEAD = do_GET

    def _answer_api(self, repo: str, rest: list[str]) -> None:
        if repo == "org/broken":
            return self._send(500, b"{}")
        if repo == "org/forbidden":
            return self._send(403, b'{"error": "no"}')
        if repo not in REPOSITORIES:
            return self._send(401, b'{"error": "Repository not found"}', {"X-Error-Code": "RepoNotFound"})
        if rest[:1] == ["revision"] and rest[1] not in ("main", SHA):
            return self._send(404, b'{"error": "no revision"}', {"X-Error-Code": "RevisionNotFound"})
        files = REPOSITORIES[repo]
        if rest[:1] == ["tree"]:
            return self._send(200, json.dumps([{"type": "file", "path": n, "size": len(b), "oid": n} for n, b in files.items()]).encode())
        return self._send(200, json.dumps({"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files]}).encode())

    def _answer_file(self, repo: str, name: str) -> None:
        if repo == "org/gated":
            return self._send(403, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to it is restricted"})
        if name not in REPOSITORIES.get(repo, {}):
            return self._send(404, b"")
        return self._send(200, REPOSITORIES[repo][name], {"ETag": f'"{name}"', "X-Repo-Commit": SHA})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


SCRIPT = """
import json, sys
from octavo.checkpoint.source import resolve
from octavo.errors import OctavoError
for model, revision in json.loads(sys.argv[1]):
    try:
        source = resolve(model, revision=revision)
        folder = source.path.parent if source.kind == "gguf" else source.path
        print(json.dumps([source.kind, str(source.path), sorted(file.name for file in folder.iterdir())]))
    except OctavoError as error:
        print(json.dumps([type(error).__name__, error.fact, error.hint]))
"""


def ask(endpoint: str, folder: Path, *models: str | tuple[str, str], **variables: str) -> list[list[str]]:
    """What resolve says to each of `models` in a fresh process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "OCTAVO_"))}
    asked = [model if isinstance(model, tuple) else (model, None) for model in models]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(asked)],
        env={**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "xdg"), **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_downloads_then_works_offline_and_without_the_hub(endpoint: str, tmp_path: Path) -> None:
    good, quantized, named = ask(endpoint, tmp_path, "org/good", "org/gguf:q8_0", "org/gguf/m-Q4_K_M.gguf")
    folder = tmp_path / "hub" / "models--org--good" / "snapshots" / SHA
    assert good == ["folder", str(folder), ["config.json", "model.safetensors", "tokenizer.json"]]
    assert (folder / "model.safetensors").read_bytes() == b"weights"
    assert quantized[0] == named[0] == "gguf"
    assert Path(quantized[1]).read_bytes() == b"GGUFq8"
    assert Path(named[1]).read_bytes() == b"GGUFq4"
    assert ask(endpoint, tmp_path, "org/good", "org/gguf:Q8_0", HF_HUB_OFFLINE="1") == [good, [*quantized[:2], named[2]]]
    # nothing listens there: what is in the cache is enough, and what is not is told with the endpoint
    again, other = ask("http://127.0.0.1:9", tmp_path, "org/good", "org/other")
    assert again == good
    assert other[0] == "ModelNotFoundError"
    assert "http://127.0.0.1:9 does not give org/other" in other[1]


def test_each_refusal_has_its_remedy(endpoint: str, tmp_path: Path) -> None:
    models = ("org/gated", "org/nowhere", ("org/good", "v9"), "org/gguf", "org/gguf:Q2_K", "org/pickle", "org/broken", "org/forbidden")
    gated, nowhere, revision, many, quantization, pickled, broken, forbidden = ask(endpoint, tmp_path, *models)
    assert gated == [
        "ModelNotFoundError",
        gated[1],
        f"accept the licence at {endpoint}/org/gated, then set HF_TOKEN (or run `hf auth login`)",
    ]
    assert "org/gated is gated" in gated[1]
    assert "no model org/nowhere" in nowhere[1]
    assert "HF_TOKEN" in nowhere[2]
    assert "no revision 'v9'" in revision[1]
    assert "org/gguf:Q4_K_M" in many[2]
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in many[2]
    assert "m-Q4_K_M.gguf, m-Q8_0.gguf" in quantization[2]
    assert pickled[0] == "CheckpointError"
    assert "pickles" in pickled[1]
    assert "HTTP 500" in broken[1]
    assert "set HF_TOKEN" in forbidden[2]


def test_with_a_token_the_remedies_change(endpoint: str, tmp_path: Path) -> None:
    gated, nowhere, forbidden = ask(endpoint, tmp_path, "org/gated", "org/nowhere", "org/forbidden", HF_TOKEN="hf_test")
    assert "log in as an account that was granted access" in gated[2]
    assert "HF_TOKEN" not in nowhere[2]
    assert "make a new one" in forbidden[2]


TOKENIZERS = """
import json, sys
from octavo.checkpoint.hub import fetch_tokenizer
from octavo.errors import OctavoError
for repo, offline in (("org/good", False), ("org/good", True), ("org/gguf", False), ("org/gated", False), ("org/none", True)):
    try:
        print(json.dumps(sorted(file.name for file in fetch_tokenizer(repo, offline=offline).iterdir())))
    except OctavoError as error:
        print(json.dumps(error.fact))
"""


def test_a_tokenizer_comes_without_its_weights(endpoint: str, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "OCTAVO_"))}
    variables = {**kept, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run([sys.executable, "-c", TOKENIZERS], env=variables, capture_output=True, text=True, timeout=120, check=True)
    online, offline, without, gated, unknown = map(json.loads, done.stdout.splitlines())
    assert online == offline == ["tokenizer.json"]
    assert "org/gguf has no tokenizer.json" in without
    assert "org/gated is gated" in gated
    assert "org/none has no tokenizer.json" in unknown
