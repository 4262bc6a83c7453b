"""The reference page of tool and reasoning formats, made from their tables."""

from octavo import plugins
from octavo.parsing import catalog, vllm_names


def parsers_page() -> str:
    lines = [
        "# Tool and reasoning formats",
        "",
        "What `--tool-call-parser` and `--reasoning-parser` take beside `auto`.",
        "[Formats of tool calls and reasoning](../parsers.md) tells how one is chosen or added.",
    ]
    titles: dict[catalog.Kind, str] = {"tools": "Tool calls", "reasoning": "Reasoning"}
    for kind, title in titles.items():
        lines += [
            "",
            f"## {title}",
            "",
            "| name | what models write | whose | taken from | `auto` takes it for the types |",
            "|---|---|---|---|---|",
        ]
        for name in catalog.names(kind):
            module = plugins.load(f"parsing.{kind}", name)
            written = (module.__doc__ or "").partition("\n")[0].rstrip(".").replace("|", "\\|").replace("<", "&lt;")
            origin = catalog.origin(kind, name)
            assert origin is not None
            lines.append(f"| `{name}` | {written} | {origin.models} | {'; '.join(origin.sources)} | {', '.join(origin.model_types)} |")
    lines += ["", "## Names of vLLM that are no tables here", "", "| kind | name | read by |", "|---|---|---|"]
    for title, others in (("tool calls", vllm_names.TOOLS), ("reasoning", vllm_names.REASONING)):
        lines += [f"| {title} | `{name}` | {f'`{same}`' if same else 'nothing yet'} |" for name, same in others.items()]
    return "\n".join(lines) + "\n"
