"""Options: everything that can be typed, each field once. The command line, the keywords of LLM(...) and the docs are made from it.

None means "you choose": resolve() then decides and says why. A field's metadata holds its help, its group and how text becomes a value.
What vLLM has beside these is in awaited.txt.
"""

from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields
from typing import Any

from octavo.config import awaited
from octavo.config.cache_formats import TYPED
from octavo.config.numbers import parse_count, parse_length
from octavo.errors import ConfigError


def option(
    default: Any,
    help_text: str,
    group: str,
    *,
    kind: str = "str",
    parse: Callable[[str], Any] | None = None,
    choices: tuple[str, ...] | None = None,
    aliases: tuple[str, ...] = (),
    bare: Any = None,
) -> Any:
    """A field of Options. kind: str, int, float, switch, list, ints, json; parse: text -> value where kind does not say it.

    bare: what the flag without a value means, where that is allowed.
    """
    metadata = {"help": help_text, "group": group, "kind": kind, "parse": parse, "choices": choices, "aliases": aliases, "bare": bare}
    if isinstance(default, (dict, list)):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(kw_only=True)
class Options:
    """Engine options, with vLLM's names."""

    # --- model
    model: str = option("smollm2", "a folder, a .gguf file, a hub id (org/name) or a catalog name", "Model")
    tokenizer: str | None = option(None, "folder, .gguf file or hub id of the tokenizer; default: the model's own", "Model")
    revision: str | None = option(None, "branch, tag or commit of the hub repository", "Model")
    tokenizer_revision: str | None = option(None, "the same for --tokenizer", "Model")
    download_dir: str | None = option(None, "where hub files are kept; default: the Hugging Face cache", "Model")
    hf_token: str | bool | None = option(None, "hub token; default: HF_TOKEN or the saved login", "Model", bare=True)
    ignore_patterns: list[str] = option(["original/**/*"], "files of the hub repository that are not fetched", "Model", kind="list")
    use_tqdm_on_load: bool = option(True, "show the progress of reading weights", "Model", kind="switch")
    hf_config_path: str | None = option(None, "folder or hub id whose config.json is taken; default: the model's own", "Model")
    config_format: str = option("auto", "layout of the configuration", "Model", choices=("auto", "hf"))
    tokenizer_mode: str = option(
        "auto",
        "what makes prompts of conversations; auto = by architecture and files; hf, glm5_next = the chat template; "
        "mistral reads tekken.json, all others tokenizer.json",
        "Model",
        choices=("auto", "hf", "glm5_next", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k3", "harmony", "mistral"),
    )
    model_impl: str = option("auto", "whose model code runs; all mean octavo's", "Model", choices=("auto", "octavo", "vllm"))
    runner: str = option("auto", "what the model is for", "Model", choices=("auto", "generate"))
    convert: str = option("auto", "what the model is made into", "Model", choices=("auto", "none"))
    load_format: str = option(
        "auto",
        "how weights are stored; hf = auto; dummy = random weights, nothing is read",
        "Model",
        choices=("auto", "hf", "safetensors", "gguf", "dummy"),
    )
    dtype: str = option(
        "auto",
        "number format of weights and activations; auto = bfloat16 on a CPU",
        "Model",
        choices=("auto", "bfloat16", "float32", "float16", "half", "float"),
    )
    quantization: str | None = option(None, "number format of the weights, when it is not told by the checkpoint", "Model", aliases=("-q",))
    max_model_len: int | None = option(
        None, "largest context, prompt and output; 1k, 1K, 25.6k; auto or -1 = what fits", "Model", kind="int", parse=parse_length
    )
    quantization_config: dict[str, Any] = option(
        {}, "JSON: what quantizing while loading does by layer: linear, moe, targets, ignore, group_size", "Model", kind="json"
    )
    seed: int = option(0, "seed of requests that bring none", "Model", kind="int")
    hf_overrides: dict[str, Any] = option({}, "JSON merged over the model's config.json", "Model", kind="json")
    trust_remote_code: bool = option(False, "accepted; octavo runs no code from checkpoints", "Model", kind="switch")
    served_model_name: list[str] | None = option(None, "name(s) of the model in the API; default: as typed", "Model", kind="list")
    generation_config: str = option("auto", "auto = the model's generation_config.json; vllm = none; else a folder that holds one", "Model")
    override_generation_config: dict[str, Any] = option({}, "JSON merged over the generation config", "Model", kind="json")
    max_logprobs: int = option(20, "most log-probabilities a request may ask for; -1 = no limit", "Model", kind="int")
    logprobs_mode: str = option(
        "raw_logprobs",
        "what log-probabilities are: before (raw) or after (processed) sampling parameters apply",
        "Model",
        choices=("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"),
    )
    skip_tokenizer_init: bool = option(False, "no tokenizer: prompts are token ids, outputs have no text", "Model", kind="switch")
    chat_template: str | None = option(None, "file or text of the chat template; default: the model's", "Model")
    chat_template_content_format: str = option("auto", "how a template gets message content", "Model", choices=("auto", "string", "openai"))
    trust_special_tokens_in_content: bool = option(
        False, "let the text of special tokens in user content become special tokens", "Model", kind="switch"
    )
    disable_sliding_window: bool = option(False, "cap the context at the sliding window instead of using it", "Model", kind="switch")

    # --- memory and cache
    gpu_memory_utilization: float | None = option(
        None,
        "share of the device's memory for this instance, on a CPU too; default 0.92, on a CPU 0.5",
        "Cache",
        kind="float",
        aliases=("--device-memory-utilization",),
    )
    kv_cache_memory_bytes: int | None = option(None, "size of the cache, instead of what is left", "Cache", kind="int", parse=parse_count)
    block_size: int | None = option(None, "tokens in a cache block", "Cache", kind="int")
    kv_cache_dtype: str = option(
        "auto", "number format of the cache; auto = the checkpoint's, else the model's; fp8 = fp8_e4m3", "Cache", choices=TYPED
    )
    kv_cache_dtype_skip_layers: list[str] = option(
        [], "layers that keep the model's own numbers: numbers from 0, or sliding_window", "Cache", kind="list"
    )
    num_gpu_blocks_override: int | None = option(None, "number of cache blocks, for tests of preemption", "Cache", kind="int")
    enable_prefix_caching: bool | None = option(None, "keep and reuse the cache of common prefixes; default on", "Cache", kind="switch")
    prefix_caching_hash_algo: str = option("sha256", "hash of a block", "Cache", choices=("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"))

    # --- scheduler
    max_num_seqs: int | None = option(None, "most requests in one step", "Scheduler", kind="int", parse=parse_count)
    max_num_active_seqs: int | None = option(
        None, "most requests that run at a time; default: max_num_seqs, which sizes the worker", "Scheduler", kind="int", parse=parse_count
    )
    max_num_batched_tokens: int | None = option(None, "most tokens in one step", "Scheduler", kind="int", parse=parse_count)
    max_num_scheduled_tokens: int | None = option(
        None,
        "most tokens that a step is given; default: max_num_batched_tokens, which sizes the worker",
        "Scheduler",
        kind="int",
        parse=parse_count,
    )
    performance_mode: str = option(
        "balanced",
        "throughput doubles the defaults of max_num_seqs and max_num_batched_tokens; interactivity is the same as balanced on a CPU",
        "Scheduler",
        choices=("balanced", "interactivity", "throughput"),
    )
    enable_chunked_prefill: bool | None = option(None, "let a prompt be computed in parts; default on", "Scheduler", kind="switch")
    long_prefill_token_threshold: int = option(
        0, "most prompt tokens of one request in a step while others run; 0 = no such cap", "Scheduler", kind="int", parse=parse_count
    )
    long_prefill_token_threshold_adaptive: bool = option(
        False, "raise that cap to a fair share: max_num_batched_tokens / requests", "Scheduler", kind="switch"
    )
    prefill_schedule_interval: int = option(1, "compute prompts only in every n-th step", "Scheduler", kind="int")
    scheduling_policy: str = option("fcfs", "who goes first: arrival, or priority then arrival", "Scheduler", choices=("fcfs", "priority"))
    scheduler_reserve_full_isl: bool = option(True, "admit a request only when its whole prompt fits", "Scheduler", kind="switch")
    watermark: float = option(0.0, "share of the blocks kept free when requests are admitted", "Scheduler", kind="float")
    async_scheduling: bool | None = option(None, "plan the next step while one runs; default on", "Scheduler", kind="switch")
    max_num_queued_reqs: int | None = option(None, "most requests in flight; more are refused with 503", "Scheduler", kind="int")
    max_num_queued_tokens: int | None = option(
        None, "most prompt tokens that wait to be computed; more are refused with 503", "Scheduler", kind="int", parse=parse_count
    )
    stream_interval: int = option(1, "tokens between two outputs of a stream", "Scheduler", kind="int")

    # --- device
    device: str = option("auto", "where to run", "Device", choices=("auto", "cpu"))
    cpu_threads: int | None = option(None, "threads of the compute pool; default: the cores this process may use", "Device", kind="int")
    attention_backend: str | None = option(None, "attention back end: CPU_ATTN or TORCH_SDPA; default: the first that can", "Device")
    attention_config: dict[str, Any] = option(
        {}, "JSON; its backend is --attention-backend, its other keys are for GPUs", "Device", kind="json", aliases=("-ac",)
    )
    op_implementations: str = option(
        "fast", "reference = plain torch for every op, for comparison", "Device", choices=("fast", "reference")
    )
    enforce_eager: bool = option(False, "run every step kernel by kernel: no tape is recorded", "Device", kind="switch")
    optimization_level: int = option(
        2, "0 = no tapes; 1 = tapes of steps of few rows; 2, 3 = of all", "Device", kind="int", aliases=("-O",)
    )
    max_cudagraph_capture_size: int | None = option(
        None, "the most rows of a step that is recorded as a tape, the CPU's graph; 0 = none", "Device", kind="int"
    )
    cudagraph_capture_sizes: list[int] = option([], "the largest is --max-cudagraph-capture-size", "Device", kind="ints")
    compilation_config: dict[str, Any] = option(
        {},
        "JSON: cudagraph_mode (none = no tapes), max_cudagraph_capture_size, cudagraph_capture_sizes; its other keys change nothing",
        "Device",
        kind="json",
        aliases=("-cc",),
    )
    tensor_parallel_size: int = option(1, "ranks that share each layer", "Device", kind="int", aliases=("-tp",))
    distributed_executor_backend: str | None = option(
        None, "mp = a process per worker (default), uni = in the engine's process", "Device", choices=("mp", "uni")
    )

    # --- structured output
    structured_outputs_config: dict[str, Any] = option(
        {},
        "JSON: backend (auto, guidance), disable_any_whitespace, disable_additional_properties, enable_in_reasoning, "
        "close_at_max_tokens (near max_tokens a document is brought to its end), reasoning_parser, reasoning_parser_plugin",
        "Structured output",
        kind="json",
    )

    # --- log, metrics, traces
    disable_log_stats: bool = option(False, "no periodic line and no engine metrics", "Log", kind="switch")
    log_level: str | None = option(
        None,
        "least severe records that are logged; environment: OCTAVO_LOGGING_LEVEL",
        "Log",
        choices=("CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG", "NOTSET"),
    )
    log_format: str = option("text", "form of the log's lines", "Log", choices=("text", "json"))
    logging_config: dict[str, Any] = option(
        {}, "JSON: log_level, formatter (text or json), configure_logging, pylogging_config_file (for dictConfig)", "Log", kind="json"
    )
    metrics_prefix: str = option("vllm:", "what the names of the metrics begin with", "Log")
    custom_histogram_buckets: dict[str, list[float]] | None = option(
        None, "JSON: upper bounds of the histograms, by family", "Log", kind="json"
    )
    show_hidden_metrics_for_version: str | None = option(None, "show metrics that were hidden since this version; octavo hides none", "Log")
    kv_cache_metrics: bool = option(False, "measure how long cache blocks stay, lie idle and wait for their next use", "Log", kind="switch")
    kv_cache_metrics_sample: float = option(0.01, "share of the blocks that --kv-cache-metrics looks at", "Log", kind="float")
    otlp_traces_endpoint: str | None = option(None, "address that OpenTelemetry traces are sent to; needs the extra otel", "Log")
    enable_logging_iteration_details: bool = option(False, "log each step: requests, tokens, time", "Log", kind="switch")
    fail_on_environ_validation: bool = option(False, "unknown OCTAVO_ and VLLM_ variables are errors", "Log", kind="switch")
    collect_detailed_traces: list[str] | None = option(None, "more spans: model, worker, all", "Log", kind="list")

    # --- front end
    reasoning_parser: str | None = option(
        None,
        "how the model writes its reasoning, which then is no content; default (or auto): by its architecture and template; none: content",
        "Front end",
    )
    reasoning_parser_plugin: str = option("", "a file with a format of reasoning; its name is one for --reasoning-parser", "Front end")
    renderer_num_workers: int = option(2, "threads that render chat templates and tokenize long prompts", "Front end", kind="int")

    accepted: list[str] = field(default_factory=list)  # facts about options that were accepted and change nothing, for the log


@dataclass(kw_only=True)
class ServerOptions:
    """Options of `octavo serve` beside the engine's."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0 = all", "Server")
    port: int = option(8000, "port to listen on; 0 = any free one", "Server", kind="int")
    api_key: list[str] | None = option(
        None, "keys that clients must send (Authorization: Bearer); environment: OCTAVO_API_KEY", "Server", kind="list"
    )
    uds: str | None = option(None, "path of a Unix socket to listen on instead of host and port", "Server")
    uds_mode: str = option("660", "permissions of that socket, octal", "Server")
    root_path: str = option("", "path prefix when behind a proxy", "Server")
    guard_all_endpoints: bool = option(
        False,
        "the API key guards every path but /health, /ready and /version, not only /v1, /v2, /inference and /cohere",
        "Server",
        kind="switch",
    )
    ssl_keyfile: str | None = option(None, "file of the TLS key", "TLS")
    ssl_certfile: str | None = option(None, "file of the TLS certificate", "TLS")
    ssl_ca_certs: str | None = option(None, "file of the authorities that clients' certificates are checked with", "TLS")
    ssl_cert_reqs: int = option(0, "clients' certificates: 0 not asked for, 1 optional, 2 required", "TLS", kind="int")
    ssl_ciphers: str | None = option(None, "TLS 1.2 ciphers, in OpenSSL's words", "TLS")
    enable_ssl_refresh: bool = option(False, "read the TLS files again when they change", "TLS", kind="switch")
    allowed_origins: list[str] = option([], "origins whose pages may call the server; default: none", "CORS", kind="list")
    allowed_methods: list[str] = option(["*"], "the methods that they may use", "CORS", kind="list")
    allowed_headers: list[str] = option(["*"], "the headers that they may send", "CORS", kind="list")
    allow_credentials: bool = option(False, "they may send credentials", "CORS", kind="switch")
    middleware: list[str] = option([], "import paths of ASGI middleware, a class or a function", "Server", kind="list")
    shutdown_timeout: float = option(25.0, "seconds that running requests get to finish after SIGTERM or Ctrl-C", "Server", kind="float")
    h11_max_incomplete_event_size: int = option(65_536, "most bytes of a request's line and headers", "Server", kind="int")
    h11_max_header_count: int = option(256, "most headers of a request", "Server", kind="int")
    sse_keep_alive_interval: int = option(
        0, "seconds without an event after which a stream gets a comment line; 0 = never", "Server", kind="int"
    )
    disable_fastapi_docs: bool = option(False, "no /docs, /redoc and /openapi.json", "Server", kind="switch")
    enable_offline_docs: bool = option(False, "/docs without anything from other servers", "Server", kind="switch")
    enable_request_id_headers: bool = option(True, "answers bear X-Request-Id", "Server", kind="switch")
    enable_tokenizer_info_endpoint: bool = option(False, "GET /tokenizer_info", "Server", kind="switch")
    enable_server_load_tracking: bool = option(False, "count the requests for /load", "Server", kind="switch")
    response_role: str = option("assistant", "role of the messages that are generated", "Server")
    trust_request_chat_template: bool = option(False, "let requests bring a chat template", "Server", kind="switch")
    default_chat_template_kwargs: dict[str, Any] = option(
        {}, "JSON: variables of the chat template that a request may override", "Server", kind="json"
    )
    enable_auto_tool_choice: bool | None = option(
        None,
        "let the model choose whether it calls a tool; default: on, where it is known how the model writes calls",
        "Tools",
        kind="switch",
    )
    tool_call_parser: str | None = option(
        None, "how the model writes calls of tools; default (or auto): by its architecture and template; none: no tools", "Tools"
    )
    tool_parser_plugin: str = option("", "a file with a format of calls; its name is one for --tool-call-parser", "Tools")
    exclude_tools_when_tool_choice_none: bool = option(
        False, "with tool_choice none the model is not told of the tools", "Tools", kind="switch"
    )
    tool_strict_level: str = option(
        "auto",
        "what is forced of calls that the model chooses to make: auto = arguments of strict tools, function = form and name of each, "
        "parameter = arguments of each",
        "Tools",
        choices=("auto", "function", "parameter"),
    )
    reasoning_field: str = option(
        "reasoning",
        "the field that holds reasoning; reasoning_content is its older name",
        "Tools",
        choices=("reasoning", "reasoning_content", "both"),
    )
    reasoning_effort_map: dict[str, str] = option(
        {}, "JSON: what the template gets for a request's reasoning_effort, where it knows other words", "Tools", kind="json"
    )
    return_tokens_as_token_ids: bool = option(False, "log-probabilities name tokens as token_id:N", "Server", kind="switch")
    enable_prompt_tokens_details: bool = option(False, "usage tells the cached prompt tokens", "Server", kind="switch")
    enable_force_include_usage: bool = option(False, "every stream ends with usage, asked for or not", "Server", kind="switch")
    enable_per_request_metrics: bool = option(False, "answers tell the request's times", "Server", kind="switch")
    fingerprint_mode: str = option("full", "what system_fingerprint tells", "Server", choices=("full", "hash", "custom", "none"))
    fingerprint_value: str | None = option(None, "the system_fingerprint of mode custom", "Server")
    uvicorn_log_level: str = option(
        "info", "level of the HTTP server's own log", "Server log", choices=("critical", "error", "warning", "info", "debug", "trace")
    )
    disable_uvicorn_access_log: bool = option(False, "no line per request", "Server log", kind="switch")
    disable_access_log_for_endpoints: str | None = option(None, "paths, with commas between, that get no line", "Server log")
    enable_log_requests: bool = option(False, "log each request's parameters; at DEBUG its prompt too", "Server log", kind="switch")
    enable_log_outputs: bool = option(False, "log what was generated; needs --enable-log-requests", "Server log", kind="switch")
    enable_log_deltas: bool = option(True, "log the pieces of a stream too", "Server log", kind="switch")
    max_log_len: int | None = option(None, "most characters or ids of a prompt that are logged", "Server log", kind="int")
    log_error_stack: bool = option(False, "log where an error answer came from", "Server log", kind="switch")


@dataclass(kw_only=True)
class PlanOptions:
    """Options of `octavo plan` beside those of serve."""

    hardware: str = option("cpu", "devices to plan for, as h200x8; cpu = this machine", "Plan")
    workload: str | None = option(None, "what clients send, as in=8000,out=1000,rate=10,prefix=0.5", "Plan")
    json: bool = option(False, "print the plan as JSON", "Plan", kind="switch")
    explain: bool = option(False, "print each formula with its numbers", "Plan", kind="switch")
    scenario: str | None = option(
        None,
        "settings for a kind of use, with the reason for each",
        "Plan",
        choices=("chat-latency", "batch-throughput", "long-context", "agent", "mixed"),
    )
    recipes: bool = option(False, "the model's published variants, stated minimum beside the computed one", "Plan", kind="switch")
    calibrate: bool = option(False, "measure this machine, for predictions of octavo's speed here", "Plan", kind="switch")


@dataclass(kw_only=True)
class BatchOptions:
    """Options of `octavo run-batch` beside the engine's."""

    input_file: str | None = option(None, "the batch file, or its http(s) address", "Batch", aliases=("-i",))
    output_file: str | None = option(
        None, "where the answers go when all are there: a file, or an http(s) address (PUT)", "Batch", aliases=("-o",)
    )
    output_tmp_dir: str | None = option(
        None, "where answers are kept until all are there; default: beside the output, for an address octavo's cache", "Batch"
    )
    max_inflight: int | None = option(
        None, "most lines under way at once; default: twice --max-num-seqs", "Batch", kind="int", parse=parse_count
    )
    enable_metrics: bool = option(False, "serve /metrics at --host and --port meanwhile", "Batch", kind="switch")


def option_names(cls: type) -> set[str]:
    """The field names of Options or ServerOptions."""
    return {f.name for f in fields(cls)}


def typed_fields(cls: type) -> "list[Field[Any]]":
    """The fields of Options or ServerOptions that can be typed, in order."""
    return [f for f in fields(cls) if f.metadata]


def from_keywords(keywords: dict[str, Any]) -> Options:
    """Options from the keywords of LLM(...). Raises ConfigError for an unknown one, and for one that awaits its feature."""
    names = {f.name for f in typed_fields(Options)}
    kept, facts = awaited.take_accepted(keywords, names, "LLM()")
    for f in typed_fields(Options):
        if f.metadata["parse"] is not None and isinstance(kept.get(f.name), str):
            kept[f.name] = f.metadata["parse"](kept[f.name])
        elif f.metadata["kind"] == "list" and isinstance(kept.get(f.name), str):
            kept[f.name] = [kept[f.name]]
    return Options(**kept, accepted=facts)


def check(options: Options | ServerOptions) -> None:
    """Raise ConfigError for a value that no option can have, or that awaits its feature."""
    for f in typed_fields(type(options)):
        value = getattr(options, f.name)
        if (why := awaited.refusal(f.name, value)) is not None:
            raise ConfigError(f"{f.name} {value!r}: {why}", "leave it away")
        if value is not None and (wrong := misfit(f, value)) is not None:
            raise ConfigError(f"{f.name}: {wrong}")


def misfit(f: "Field[Any]", value: Any) -> str | None:
    """What is wrong with a value of the right type, or None."""
    choices = f.metadata["choices"]
    if choices and value not in choices:
        return awaited.unknown_word(str(value), tuple(choices))
    return awaited.unknown_key(f.name, value)
