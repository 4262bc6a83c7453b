"""A prompt in one piece or not at all (--no-enable-chunked-prefill)."""

from octavo.scheduler.limits.limit import Limit
from octavo.scheduler.request import Request, Start


class WholePrompt(Limit):
    """What a preempted request had generated may be computed again in pieces: only the prompt is whole."""

    def grant(self, request: Request, start: Start, want: int) -> int:
        return 0 if start.position + want < request.num_prompt else want
