"""resolve(): from what was typed to what is done, with the reason of each decision. Only `resolve_model` reads files."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from octavo import environment, plugins
from octavo.checkpoint import catalog
from octavo.checkpoint import hf_config as hf_config_files
from octavo.checkpoint import source as sources
from octavo.checkpoint.source import Source
from octavo.config import awaited, cache_formats, tapes, variables
from octavo.config.config import CacheConfig, Config, DeviceConfig, GrammarConfig, ModelConfig, ParallelConfig, SchedulerConfig
from octavo.config.generation import default_sampling, end_tokens
from octavo.config.lengths import decide_max_model_len, derived_max_model_len
from octavo.config.machine import MachineFacts, affinity, look, parse_cores
from octavo.config.observability import decide_log, decide_observability
from octavo.config.options import Options, check
from octavo.config.overlay import overlay
from octavo.config.prompt_format import decide_renderer
from octavo.config.quantization import decide_quantization, stored_settings
from octavo.errors import ConfigError, UnsupportedModelError

Usage = Literal["llm", "server"]

CPU_UTILIZATION = 0.5
GPU_UTILIZATION = 0.92
CPU_BLOCK_SIZE = 32
GPU_BLOCK_SIZE = 16


def resolve(options: Options, usage: Usage = "llm", machine: MachineFacts | None = None, found: Source | None = None) -> Config:
    """The whole configuration. Finds the model (fetching it if need be) and reads its headers; loads nothing.

    machine: None: this one. found: the model's files, where they have been looked for already; there may be a config.json alone.
    Raises ConfigError, ModelNotFoundError or UnsupportedModelError.
    """
    check(options)
    reasons = [*options.accepted, *variables.check(strict=options.fail_on_environ_validation)]
    options = spread(options)
    machine = machine or look()
    device = decide_device(options, machine, reasons)
    parallel = decide_parallel(options, reasons)
    log_level, log = decide_log(options)
    observability = decide_observability(options, reasons)
    model = resolve_model(options, reasons, machine, found)
    return Config(
        model=model,
        cache=decide_cache(options, model, machine, reasons),
        scheduler=decide_scheduler(options, model, usage, reasons, machine),
        device=device,
        parallel=parallel,
        observability=observability,
        grammar=decide_grammar(options),
        log_level=log_level,
        log=log,
        log_stats=not options.disable_log_stats,
        log_iterations=options.enable_logging_iteration_details,
        load_progress=options.use_tqdm_on_load,
        renderer_threads=decide_renderer_threads(options),
        reasoning_parser=options.reasoning_parser,
        reasoning_parser_plugin=options.reasoning_parser_plugin,
        reasons=reasons,
    )


def resolve_model(options: Options, reasons: list[str], machine: MachineFacts | None = None, found: Source | None = None) -> ModelConfig:
    """Find the model's files and decide everything that follows from them."""
    found = found or sources.resolve(
        options.model,
        revision=options.revision,
        download_dir=options.download_dir,
        token=options.hf_token,
        ignore=tuple(options.ignore_patterns),
    )
    if options.tokenizer is None:
        tokenizer_path = found.path
    else:
        tokenizer_path = sources.resolve(
            options.tokenizer, revision=options.tokenizer_revision, download_dir=options.download_dir, token=options.hf_token
        ).path
    stored, own_generation = hf_config_files.read(found)
    if options.hf_config_path is not None:
        stored = read_other_config(options, reasons)
    hf_config = override(stored, options.hf_overrides)
    model_type = decide_model_type(hf_config)
    if (listed := catalog.find(options.model)) is not None and not Path(options.model).exists():
        own_generation = listed.generation | own_generation
    generation = _generation_config(options, own_generation)
    defaults = default_sampling(generation)
    if defaults:
        reasons.append(f"default sampling parameters {defaults}: from the generation config; --generation-config vllm turns them off")
    length, is_auto, why = decide_max_model_len(
        _window_cap(options, hf_config), derived_max_model_len(hf_config), environment.allow_long_max_model_len()
    )
    reasons.append(why)
    dtype = decide_dtype(options, hf_config, reasons, "cpu" if machine is None else machine.device)
    if options.trust_remote_code:
        reasons.append("trust_remote_code: accepted, and nothing is run; octavo has the mathematics of the models it knows")
    return ModelConfig(
        name=options.model,
        served_names=list(options.served_model_name or [options.model]),
        path=str(found.path),
        revision=options.revision,
        tokenizer_path=str(tokenizer_path),
        model_type=model_type,
        hf_config=hf_config,
        generation_config=generation,
        default_sampling=defaults,
        dtype=dtype,
        max_model_len=length,
        is_max_model_len_auto=is_auto,
        vocab_size=_vocabulary(hf_config),
        eos_token_ids=end_tokens(hf_config, own_generation, generation),
        bos_token_id=hf_config.get("bos_token_id"),
        load_format=decide_load_format(options, found),
        quantization=decide_quantization(options, hf_config, reasons, found.kind == "gguf"),
        quantization_config=options.quantization_config,
        seed=options.seed,
        max_logprobs=options.max_logprobs,
        logprobs_mode=options.logprobs_mode,
        skip_tokenizer_init=options.skip_tokenizer_init,
        renderer=decide_renderer(options, hf_config, Path(tokenizer_path), reasons),
        chat_template=_template_text(options.chat_template),
        chat_template_content_format=options.chat_template_content_format,
        trust_special_tokens_in_content=options.trust_special_tokens_in_content,
        disable_sliding_window=options.disable_sliding_window,
    )


def spread(options: Options) -> Options:
    """The JSON options whose keys are options too, as those; a flag is over the JSON."""
    changes: dict[str, Any] = {}
    for (name, key), option in awaited.NESTED.items():
        value = tapes.nested(getattr(options, name)).get(key)
        if value is not None and getattr(options, option) in (None, "", []):
            changes[option] = value
    result = dataclasses.replace(options, **changes)
    if (result.attention_backend or "").lower() == "auto":
        result.attention_backend = None
    return result


def decide_grammar(options: Options) -> GrammarConfig:
    """--structured-outputs-config; what it says of reasoning parsers is those options' affair."""
    given = {key: value for key, value in options.structured_outputs_config.items() if not key.startswith("reasoning_parser")}
    backend = given.pop("backend", None) or "auto"
    if backend in ("outlines", "lm-format-enforcer"):
        raise ConfigError(f"structured_outputs_config: octavo has no back end {backend}", "use auto or guidance")
    if backend not in ("auto", "guidance", "xgrammar"):
        raise ConfigError(f"structured_outputs_config: unknown back end {backend!r}", "use auto or guidance")
    if backend == "xgrammar":
        raise ConfigError("structured_outputs_config: this version of octavo has no back end xgrammar", "use auto or guidance")
    for key, value in given.items():
        if not isinstance(value, bool):
            raise ConfigError(f"structured_outputs_config: {key} must be true or false, not {value!r}")
    return GrammarConfig(backend="guidance" if backend == "auto" else backend, **given)


def decide_renderer_threads(options: Options) -> int:
    if not 1 <= options.renderer_num_workers <= 64:
        raise ConfigError(f"renderer_num_workers must be between 1 and 64, not {options.renderer_num_workers}")
    return options.renderer_num_workers


def read_other_config(options: Options, reasons: list[str]) -> dict[str, Any]:
    """The config.json of --hf-config-path."""
    assert options.hf_config_path is not None
    found = sources.resolve_config(options.hf_config_path, download_dir=options.download_dir, token=options.hf_token)
    reasons.append(f"config.json of {options.hf_config_path}, not the model's own: --hf-config-path")
    return hf_config_files.read(found)[0]


def override(stored: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """--hf-overrides over config.json, key by key; but a way of rotating that is named replaces the stored one, under either key.

    The base and the share of a head that is rotated stay, unless they are given too.
    """
    result = overlay(stored, over)
    given = over.get("rope_parameters") or over.get("rope_scaling")
    if not isinstance(given, dict) or not (given.get("rope_type") or given.get("type")):
        return result
    kept = {
        key: old[key]
        for old in (stored.get("rope_scaling"), stored.get("rope_parameters"))
        for key in ("rope_theta", "partial_rotary_factor")
        if isinstance(old, dict) and key in old
    }
    result.pop("rope_scaling", None)
    result["rope_parameters"] = kept | given
    return result


def decide_model_type(hf_config: dict[str, Any]) -> str:
    """The model's file in octavo/models. Raises UnsupportedModelError, which lists the known ones."""
    model_type = hf_config.get("model_type")
    known = plugins.names("models") if model_type else []
    if model_type in known:
        return str(model_type)
    architectures = ", ".join(hf_config.get("architectures") or []) or "none named"
    raise UnsupportedModelError(
        f"model type {model_type!r} (architectures: {architectures}) is not one that octavo knows",
        f"known: {', '.join(known or plugins.names('models'))}",
    )


def decide_dtype(options: Options, hf_config: dict[str, Any], reasons: list[str], device: str = "cpu") -> str:
    names = {"half": "float16", "float": "float32"}
    if options.dtype != "auto":
        return names.get(options.dtype, options.dtype)
    stored = str(hf_config.get("dtype") or hf_config.get("torch_dtype") or "bfloat16").removeprefix("torch.")
    if device != "cpu" and stored in ("bfloat16", "float16"):
        reasons.append(f"dtype = {stored}: the checkpoint's")
        return stored
    reasons.append(f"dtype = bfloat16: best on a {device.upper()} (the checkpoint says {stored})")
    return "bfloat16"


def decide_load_format(options: Options, found: Source) -> str:
    stored = "gguf" if found.kind == "gguf" else "safetensors"
    if options.load_format in ("auto", "hf", stored, "dummy"):
        return stored if options.load_format in ("auto", "hf") else options.load_format
    raise ConfigError(f"--load-format {options.load_format}: {found.path} holds {stored} weights", "leave --load-format at auto")


def decide_device(options: Options, machine: MachineFacts, reasons: list[str]) -> DeviceConfig:
    threads = options.cpu_threads
    cores = decide_cores(machine, reasons)
    if threads is None:
        threads = machine.cores if cores is None else len(cores)
        if machine.device == "cpu":
            reasons.append(f"cpu_threads = {threads}: the cores that this process may use")
    if not 1 <= threads <= 1024:
        raise ConfigError(f"cpu_threads must be between 1 and 1024, not {threads}")
    return DeviceConfig(
        device=machine.device if options.device == "auto" else options.device,
        threads=threads,
        cores=cores,
        attention_backend=options.attention_backend,
        op_implementations=options.op_implementations,
        tape_rows=tapes.decide_tape_rows(options, reasons),
    )


def decide_cores(machine: MachineFacts, reasons: list[str]) -> list[int] | None:
    """The cores that OCTAVO_CPU_OMP_THREADS_BIND names, without those that are reserved; None: wherever the system puts the threads."""
    bound, reserved = environment.cpu_threads_bind(), environment.cpu_num_reserved()
    named = bound not in ("auto", "nobind", "all")
    if not named and not reserved:
        return None
    allowed = affinity()
    cores = parse_cores(bound) if named else allowed
    if not allowed:
        raise ConfigError("this system does not let octavo choose cores", "unset OCTAVO_CPU_OMP_THREADS_BIND")
    if missing := sorted(set(cores) - set(allowed)):
        raise ConfigError(
            f"OCTAVO_CPU_OMP_THREADS_BIND={bound}: this process may not use core {missing[0]}", f"it may use {', '.join(map(str, allowed))}"
        )
    if len(cores) <= reserved:
        raise ConfigError(f"OCTAVO_CPU_NUM_OF_RESERVED_CPU={reserved} leaves none of {len(cores)} cores")
    cores = cores[: len(cores) - reserved]
    reasons.append(f"compute threads run on cores {', '.join(map(str, cores))}: the environment names or reserves cores")
    return cores


def decide_parallel(options: Options, reasons: list[str]) -> ParallelConfig:
    alone = environment.in_one_process()
    if alone:
        reasons.append("one process: OCTAVO_ENABLE_V1_MULTIPROCESSING=0")
    backend = "uni" if alone else options.distributed_executor_backend or "mp"
    return ParallelConfig(tensor_parallel_size=1, executor="processes" if backend == "mp" else "in_process", core_in_process=alone)


def decide_cache(options: Options, model: ModelConfig, machine: MachineFacts, reasons: list[str]) -> CacheConfig:
    utilization = options.gpu_memory_utilization
    if utilization is None:
        utilization = default_utilization(machine, reasons)
    if not 0.0 < utilization <= 1.0:
        raise ConfigError(f"gpu_memory_utilization must be in (0, 1], not {utilization}")
    block_size = options.block_size or (CPU_BLOCK_SIZE if machine.device == "cpu" else GPU_BLOCK_SIZE)
    if options.block_size is not None and options.block_size < 1:
        raise ConfigError(f"block_size must be at least 1, not {options.block_size}")
    kept = cache_formats.decide(options.kv_cache_dtype, model.dtype, stored_settings(model.hf_config), reasons)
    cache_formats.check_skipped(options.kv_cache_dtype_skip_layers, model.hf_config.get("num_hidden_layers"))
    memory_bytes = options.kv_cache_memory_bytes
    if memory_bytes is None and (space := environment.cpu_kvcache_space_gib()) > 0:
        memory_bytes = int(space * 2**30)
        reasons.append(f"kv_cache_memory_bytes = {memory_bytes}: OCTAVO_CPU_KVCACHE_SPACE is {space:g} GiB")
    if options.kv_cache_memory_bytes is not None and options.kv_cache_memory_bytes < 1:
        raise ConfigError(f"kv_cache_memory_bytes must be at least 1, not {options.kv_cache_memory_bytes}")
    if options.num_gpu_blocks_override is not None and options.num_gpu_blocks_override < 2:
        raise ConfigError("num_gpu_blocks_override must be at least 2: block 0 is reserved")
    return CacheConfig(
        block_size=block_size,
        memory_utilization=utilization,
        memory_bytes=memory_bytes,
        num_blocks_override=options.num_gpu_blocks_override,
        dtype=kept.name,
        skipped_layers=list(options.kv_cache_dtype_skip_layers),
        prefix_caching=options.enable_prefix_caching is not False,
        hash_algorithm=options.prefix_caching_hash_algo,
    )


def default_utilization(machine: MachineFacts, reasons: list[str]) -> float:
    """A CPU's memory is shared with the rest of the machine: half of it, or most of what is free where that is less."""
    if machine.device != "cpu":
        reasons.append(f"gpu_memory_utilization = {GPU_UTILIZATION}: a GPU is octavo's own")
        return GPU_UTILIZATION
    free = int(90 * machine.available_bytes / machine.total_bytes) / 100
    if free < CPU_UTILIZATION:
        utilization = max(free, 0.01)
        reasons.append(f"gpu_memory_utilization = {utilization}: most of what is free; the rest of the machine uses the other memory")
        return utilization
    reasons.append(f"gpu_memory_utilization = {CPU_UTILIZATION}: a CPU's memory is shared with the rest of the machine")
    return CPU_UTILIZATION


def default_steps(usage: Usage, machine: MachineFacts | None) -> tuple[int, int]:
    """(tokens of a step, rows of a step): larger on larger devices."""
    if machine is None or machine.device == "cpu":
        return (4096, 256) if usage == "llm" else (2048, 128)
    memory = machine.total_bytes / 2**30
    if memory >= 160:
        return 16384, 1024
    if memory >= 70 and not machine.is_a100:
        return (16384 if usage == "llm" else 8192), 1024
    return (8192 if usage == "llm" else 2048), 256


def decide_scheduler(
    options: Options, model: ModelConfig, usage: Usage, reasons: list[str], machine: MachineFacts | None = None
) -> SchedulerConfig:
    device = "CPU" if machine is None else machine.device.upper()
    who = f"the default of {'LLM' if usage == 'llm' else 'serve'} on a {device}"
    default_tokens, default_seqs = default_steps(usage, machine)
    times = 2 if options.performance_mode == "throughput" else 1
    if times == 2:
        who += ", doubled by performance_mode throughput"
    elif options.performance_mode == "interactivity":
        reasons.append("performance_mode = interactivity: the same as balanced on a CPU, which has no graphs to choose")
    seqs = options.max_num_seqs
    if seqs is None:
        seqs = default_seqs * times
        reasons.append(f"max_num_seqs = {seqs}: {who}")
    chunked = options.enable_chunked_prefill is not False
    tokens = options.max_num_batched_tokens
    if tokens is None:
        tokens = default_tokens * times
        if not chunked:
            tokens = max(tokens, model.max_model_len)
        tokens = min(tokens, seqs * model.max_model_len)
        seqs = min(seqs, tokens)
        reasons.append(f"max_num_batched_tokens = {tokens}: {who}")
    if seqs < 1 or tokens < 1:
        raise ConfigError(f"max_num_seqs ({seqs}) and max_num_batched_tokens ({tokens}) must be at least 1")
    if seqs > tokens:
        raise ConfigError(f"max_num_batched_tokens ({tokens}) is smaller than max_num_seqs ({seqs})", "raise the one or lower the other")
    if not chunked and tokens < model.max_model_len and not model.is_max_model_len_auto:
        raise ConfigError(
            f"without chunked prefill max_num_batched_tokens ({tokens}) must hold a whole prompt of {model.max_model_len} tokens",
            "raise --max-num-batched-tokens, lower --max-model-len, or leave chunked prefill on",
        )
    for name, least in (("prefill_schedule_interval", 1), ("long_prefill_token_threshold", 0), ("stream_interval", 1)):
        if getattr(options, name) < least:
            raise ConfigError(f"{name} must be at least {least}, not {getattr(options, name)}")
    if not 0.0 <= options.watermark < 1.0:
        raise ConfigError(f"watermark must be in [0, 1), not {options.watermark}")
    for name, most in (("max_num_active_seqs", seqs), ("max_num_scheduled_tokens", tokens)):
        value, sizes = getattr(options, name), name.replace("active_", "").replace("scheduled", "batched")
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"{name} must be between 1 and {sizes} ({most}), not {value}")
    return SchedulerConfig(
        max_num_seqs=seqs,
        max_num_active_seqs=options.max_num_active_seqs or seqs,
        max_num_scheduled_tokens=options.max_num_scheduled_tokens or tokens,
        long_prefill_token_threshold_adaptive=options.long_prefill_token_threshold_adaptive,
        max_num_batched_tokens=tokens,
        chunked_prefill=chunked,
        long_prefill_token_threshold=options.long_prefill_token_threshold,
        prefill_schedule_interval=options.prefill_schedule_interval,
        policy=options.scheduling_policy,
        reserve_full_prompt=options.scheduler_reserve_full_isl,
        watermark=options.watermark,
        overlapped=options.async_scheduling is not False,
        max_num_queued_requests=options.max_num_queued_reqs,
        max_num_queued_tokens=options.max_num_queued_tokens,
        stream_interval=options.stream_interval,
    )


def _window_cap(options: Options, hf_config: dict[str, Any]) -> int | None:
    window = hf_config.get("sliding_window")
    if not options.disable_sliding_window or not window:
        return options.max_model_len
    if options.max_model_len is not None and options.max_model_len > window:
        raise ConfigError(
            f"without its sliding window the model takes {window} tokens, not {options.max_model_len}", "lower --max-model-len"
        )
    return options.max_model_len or int(window)


def _vocabulary(hf_config: dict[str, Any]) -> int:
    size = hf_config.get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise UnsupportedModelError(f"vocab_size in the model's configuration is {size!r}, not a positive number")
    return size


def _generation_config(options: Options, own: dict[str, Any]) -> dict[str, Any]:
    if options.generation_config == "auto":
        base = own
    elif options.generation_config in ("vllm", "octavo"):
        base = {}
    else:
        path = Path(options.generation_config)
        path = path / "generation_config.json" if path.is_dir() else path
        if not path.is_file():
            raise ConfigError(
                f"--generation-config: there is no {path}", "pass auto, vllm, or a folder that holds a generation_config.json"
            )
        base = json.loads(path.read_text())
    return overlay(base, options.override_generation_config)


def _template_text(given: str | None) -> str | None:
    """A template given as a file's name or as its text."""
    if given is None:
        return None
    path = Path(given)
    try:
        if path.is_file():
            return path.read_text()
    except OSError:  # a text too long to be a name
        return given
    if "{" not in given:
        raise ConfigError(f"--chat-template: there is no file {given}", "pass an existing file, or the template's text")
    return given
