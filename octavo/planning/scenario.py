"""Scenarios: settings of `octavo serve` for kinds of use, each with its reason, put into a plan where the user has not chosen otherwise."""

import dataclasses
import shlex
from typing import Any

import msgspec

from octavo.config.config import Config
from octavo.config.options import Options

LONGEST = 1_000_000
_NO_SPECULATION = "octavo has no speculative decoding yet"
_NO_OFFLOADING = "octavo keeps no cache in the host's memory yet"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One flag. field: of Options, or of the layout. why_not: it is not put into the plan; None: it is."""

    flag: str
    value: str | int | float | bool
    reason: str
    field: str | None = None
    is_layout: bool = False
    why_not: str | None = None

    @property
    def words(self) -> str:
        """As it is typed."""
        return self.flag if self.value is True else f"{self.flag} {shlex.quote(str(self.value))}"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for a kind of use."""

    name: str
    use: str
    settings: list[Setting]

    def command(self, model: str, layout: dict[str, Any]) -> str:
        """What to type. layout: as it was typed, beside the settings."""
        words = [setting.words for setting in self.settings if setting.why_not is None]
        return " ".join(["octavo serve", shlex.quote(model), *_typed(layout), *words])


def apply(name: str, options: Options, layout: dict[str, Any], config: Config) -> tuple[Scenario, Options, dict[str, Any]]:
    """The scenario, and the options and the layout with its settings. config: what the options come to without them."""
    use, settings = _settings(name, config, layout)
    settings = [_unless_typed(setting, options, layout) for setting in settings]
    kept = [setting for setting in settings if setting.why_not is None and setting.field is not None]
    fields: dict[str, Any] = {each.field: each.value for each in kept if each.field and not each.is_layout}
    changed = dataclasses.replace(options, **fields)
    placed = layout | {each.field: each.value for each in kept if each.field and each.is_layout}
    return Scenario(name=name, use=use, settings=settings), changed, placed


def page(scenario: Scenario, model: str, layout: dict[str, Any]) -> str:
    """The settings with their reasons, and a command to copy."""
    width = max(len(setting.words) for setting in scenario.settings)
    lines = [f"Scenario {scenario.name}: {scenario.use}"]
    for setting in scenario.settings:
        lines.append(f"  {setting.words:<{width}}  {setting.reason}")
        if setting.why_not is not None:
            lines.append(f"  {'':<{width}}  not in this plan: {setting.why_not}")
    return "\n".join([*lines, f"  {scenario.command(model, layout)}", ""])


def _settings(name: str, config: Config, layout: dict[str, Any]) -> tuple[str, list[Setting]]:
    def chosen(field: str, value: str | int | float | bool, reason: str) -> Setting:
        return Setting(flag="--" + field.replace("_", "-"), field=field, value=value, reason=reason)

    if name == "chat-latency":
        return "few users, short answers, each token soon", [
            chosen("max_num_batched_tokens", 2048, "prompts are computed in small pieces, so that tokens of others do not wait long"),
            chosen("max_num_seqs", 8, "small steps take the least time a token"),
            Setting(
                flag="--speculative-config",
                value='{"method":"mtp","num_speculative_tokens":1}',
                reason="one token guessed ahead is the one most often right; for models that come with such a layer",
                why_not=_NO_SPECULATION,
            ),
        ]
    if name == "batch-throughput":
        return "much to do, nobody waits", [
            chosen("max_num_batched_tokens", 16384, "large steps keep the products busy while prompts are computed"),
            chosen("max_num_seqs", 512, "the weights are read once for more rows"),
            chosen("gpu_memory_utilization", 0.95, "what is left over is cache, and the cache is how many run at a time"),
        ]
    if name == "long-context":
        own = config.model.max_model_len
        return "long documents, retrieval", [
            chosen("max_model_len", min(LONGEST, own), f"as long as the model takes, up to {LONGEST:,} tokens"),
            chosen("kv_cache_dtype", "fp8", "a token takes half of the cache"),
            chosen("enable_prefix_caching", True, "a document that is asked about again is not computed again"),
            chosen("block_size", 64, "prefixes are found in steps of so many tokens: small blocks find more of them"),
        ]
    if name == "agent":
        return "long sessions, a little more of the same prompt each turn", [
            chosen("enable_prefix_caching", True, "each turn adds few tokens: how much of the rest is found decides what it costs"),
            _decode_context(config, layout),
            Setting(
                flag="--kv-offloading-size",
                value="64",
                reason="sessions that pause keep what was computed in the host's memory",
                why_not=_NO_OFFLOADING,
            ),
        ]
    return "people who wait beside work that can", [
        chosen("scheduling_policy", "priority", "requests of people go first: send them with a lower priority number"),
        chosen("async_scheduling", True, "the next step is planned while one runs, so that the device has no gaps"),
    ]


def _decode_context(config: Config, layout: dict[str, Any]) -> Setting:
    """As many ranks as hold the same kv head can share out its cache, up to 8."""
    tensor = int(layout.get("tensor", 1))
    heads = config.model.hf_config.get("num_key_value_heads") or config.model.hf_config.get("num_attention_heads") or 1
    copies = max(1, tensor // int(heads))
    size = max(count for count in (8, 4, 2, 1) if count <= copies and tensor % count == 0)
    why_not = None if size > 1 else f"with {heads} kv heads on {tensor} ranks no two ranks hold the same, so there is nothing to share out"
    return Setting(
        flag="--decode-context-parallel-size",
        field="decode_context",
        is_layout=True,
        value=size if size > 1 else 8,
        reason="ranks that hold the same kv heads share out the cache, which then has room for more sessions",
        why_not=why_not,
    )


def _unless_typed(setting: Setting, options: Options, layout: dict[str, Any]) -> Setting:
    if setting.why_not is not None or setting.field is None:
        return setting
    if setting.is_layout:
        typed = layout.get(setting.field)
    else:
        default = next(field.default for field in dataclasses.fields(Options) if field.name == setting.field)
        value = getattr(options, setting.field)
        typed = None if value == default else value
    if typed is None or typed == setting.value:
        return setting
    return msgspec.structs.replace(setting, why_not=f"you chose {typed}")


def _typed(layout: dict[str, Any]) -> list[str]:
    """The layout as flags."""
    names = {
        "tensor": "--tensor-parallel-size",
        "pipeline": "--pipeline-parallel-size",
        "data": "--data-parallel-size",
        "prefill_context": "--prefill-context-parallel-size",
    }
    found = [f"{flag} {layout[name]}" for name, flag in names.items() if layout.get(name, 1) != 1]
    return [*found, *(["--enable-expert-parallel"] if layout.get("is_expert_parallel") else [])]
