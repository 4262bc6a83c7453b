"""The ready block: what the operator reads when the server can be used."""

import shlex
import ssl

from octavo import __version__
from octavo.config.options import ServerOptions
from octavo.frontend.async_llm import AsyncLLM
from octavo.server.api_keys import api_keys
from octavo.server.listener import ALL_ADDRESSES, Listener


def ready_block(options: ServerOptions, listener: Listener, llm: AsyncLLM) -> str:
    """What the operator reads when the server can be used."""
    config, facts = llm.config, llm.facts
    url = f"{listener.address('https' if options.ssl_certfile else 'http')}/v1"
    name = config.model.served_names[0]
    key = " -H 'Authorization: Bearer '\"$OCTAVO_API_KEY\"" if api_keys(options) else ""
    body = f'{{"model": "{name}", "messages": [{{"role": "user", "content": "Say hello."}}]}}'
    together = f"{facts.max_concurrency:.2f}x requests of {facts.max_model_len:,} tokens, at most {config.scheduler.max_num_seqs} at once"
    lines = [
        "",
        f"octavo {__version__} is ready",
        f"  URL          {url}" + (f" at {listener.name}" if listener.path is not None else ""),
        f"  model        {name} ({config.model.model_type}, {config.model.dtype}) on {facts.device}",
        f"  context      {facts.max_model_len:,} tokens",
        f"  cache        {facts.cache_tokens:,} tokens, {facts.cache_bytes / 2**30:.2f} GiB",
        f"  concurrency  {together}",
        f"  try          curl {curl_options(options, listener)}{url}/chat/completions -H 'Content-Type: application/json'{key} -d '{body}'",
        "",
    ]
    if listener.path is None and options.host in ALL_ADDRESSES and not api_keys(options):
        lines.insert(-1, "  warning      everyone who reaches this machine can use the server: pass --api-key, or --host 127.0.0.1")
    return "\n".join(lines)


def curl_options(options: ServerOptions, listener: Listener) -> str:
    """What curl must be told beside the address. A certificate seldom names the address that a client on this machine uses: -k."""
    words = [] if listener.path is None else ["--unix-socket", shlex.quote(str(listener.path))]
    if options.ssl_certfile:
        words.append("-k")
        if options.ssl_cert_reqs == ssl.CERT_REQUIRED:
            words += ["--cert", "CLIENT_CERTIFICATE", "--key", "CLIENT_KEY"]
    return " ".join([*words, ""])
