from octavo.config.options import Options as Options
from octavo.frontend.async_llm import AsyncLLM as AsyncLLM
from octavo.frontend.llm import LLM as LLM
from octavo.protocol.outputs import CompletionOutput as CompletionOutput
from octavo.protocol.outputs import RequestOutput as RequestOutput
from octavo.protocol.sampling_params import BeamSearchParams as BeamSearchParams
from octavo.protocol.sampling_params import SamplingParams as SamplingParams
from octavo.protocol.sampling_params import StructuredOutputsParams as StructuredOutputsParams

__version__: str
