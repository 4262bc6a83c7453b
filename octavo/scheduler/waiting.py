"""The waiting queue: requests without a row, the one that comes first on top. Leaving it from the middle costs nothing."""

import heapq

from octavo.scheduler.request import Request

MOST_GONE = 64  # entries of requests that have gone, before they are swept out


class WaitingQueue:
    """A heap by `order`; requests that leave from the middle are marked and skipped later. Their number is bounded by the others'."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, float, int], Request]] = []
        self._gone = 0
        self.aside: list[Request] = []  # for the rest of this step, so that first() gives who comes after them

    def __len__(self) -> int:
        return len(self._heap) + len(self.aside) - self._gone

    def push(self, request: Request) -> None:
        heapq.heappush(self._heap, (request.order, request))

    def first(self) -> Request | None:
        while self._heap:
            request = self._heap[0][1]
            if not request.is_ended:
                return request
            heapq.heappop(self._heap)
            self._gone -= 1
        return None

    def pop(self) -> Request:
        """Take the one that first() gave."""
        return heapq.heappop(self._heap)[1]

    def set_aside(self) -> None:
        """Let those behind the first one have a look in this step."""
        self.aside.append(self.pop())

    def put_back(self) -> None:
        """Who was set aside stands in its old place again."""
        for request in self.aside:
            self.push(request)
        self.aside.clear()

    def mark_gone(self) -> None:
        """One that waits here has just been marked as ended."""
        self._gone += 1
        if self._gone > MOST_GONE and self._gone * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[1].is_ended]
            heapq.heapify(self._heap)
            self._gone = 0
