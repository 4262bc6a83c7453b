"""A prompt in one piece or not at all (--no-enable-chunked-prefill)."""

from octavo.scheduler.limits.limit import BEGINNING
from octavo.scheduler.request import Request, Start


class WholePrompt:
    """What a preempted request had generated may be computed again in pieces: only the prompt is whole."""

    relieved_by_preemption = False

    def start_step(self) -> None:
        pass

    def find(self, request: Request) -> Start:
        return BEGINNING

    def grant(self, request: Request, start: Start, want: int) -> int:
        return 0 if start.position + want < request.num_prompt else want

    def take(self, request: Request, start: Start, granted: int) -> None:
        pass

    def release(self, request: Request) -> None:
        pass
