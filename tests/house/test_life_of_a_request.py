"""The life of a request, as ARCHITECTURE.md tells it, is what a chat request does: each file is entered, and in that order."""

import asyncio
import re
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from octavo.config.options import Options
from octavo.config.resolve import resolve
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.app import create_app
from tests.script_model import write
from tests.server.serving import parse_events

ROOT = Path(__file__).parents[2]
MOST_FILES = 12
# an idle core looks after its worker and for work four times a second, which is no part of any request
IDLE = {("octavo/engine/executors/in_process.py", "check"), ("octavo/scheduler/scheduler.py", "has_work")}


def told() -> list[str]:
    """The paths of the numbered list in ARCHITECTURE.md."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## The life of a request")[2].partition("\n## ")[0]
    return re.findall(r"^\d+\. `(octavo/[\w/.]+)` ", section, re.MULTILINE)


class Trace:
    """Files of octavo in the order in which a function of theirs first ran, other than to make an object: that is no step of a life."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.is_on = False
        self._package = str(ROOT / "octavo") + "/"

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        if self.is_on and event == "call" and path.startswith(self._package):
            name = path.removeprefix(str(ROOT) + "/")
            if name not in self.files and (name, frame.f_code.co_name) not in IDLE and not self._is_construction(frame):
                self.files.append(name)

    def _is_construction(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code.co_filename.startswith(self._package):
            if frame.f_code.co_name in ("__init__", "__post_init__"):
                return True
            frame = frame.f_back
        return False


async def answer(app: Any, trace: Trace) -> str:
    body = {"messages": [{"role": "user", "content": "say p"}], "stream": True, "temperature": 0}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        trace.is_on = True
        response = await http.post("/v1/chat/completions", json=body)
        trace.is_on = False
    return "".join(e["choices"][0]["delta"].get("content", "") for e in parse_events(response.text)[:-1])


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that one request entered, in a server whose engine is threads of this process."""
    write(tmp_path, {"p": ["plain", " words"]})
    monkeypatch.setenv("OCTAVO_ENABLE_V1_MULTIPROCESSING", "0")
    options = Options(model=str(tmp_path), max_num_seqs=4, max_num_batched_tokens=64, kv_cache_memory_bytes=1 << 20, cpu_threads=1)
    trace = Trace()

    async def live() -> str:
        async with AsyncLLM(resolve(options, "server")) as llm:
            return await answer(create_app(llm=llm), trace)

    before = sys.getprofile()
    threading.setprofile(trace)  # for the threads that start now: the core's, the worker's
    sys.setprofile(trace)
    try:
        assert asyncio.run(live()) == "plain words"
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    return trace.files


def test_a_chat_request_passes_through_the_files_that_are_told(traced: list[str]) -> None:
    places = []
    for path in told():
        found = [place for place, name in enumerate(traced) if (name.startswith(path) if path.endswith("/") else name == path)]
        assert found, f"{path} is not entered; these are: {', '.join(traced)}"
        places.append(found[0])
    assert places == sorted(places), [f"{place}: {traced[place]}" for place in places]


def test_a_life_is_short() -> None:
    assert 8 <= len(told()) <= MOST_FILES
    assert len(set(told())) == len(told())
    assert all((ROOT / path).exists() for path in told())
