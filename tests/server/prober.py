"""A process of its own that asks for a URL every 50 ms until its input ends, and prints the longest time between two answers.

Usage: python -m tests.server.prober URL
"""

import http.client
import sys
import threading
import time
from urllib.parse import urlsplit

POLL_S = 0.05


def main() -> int:
    parts = urlsplit(sys.argv[1])
    over, longest_s = threading.Event(), 0.0
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    last = 0.0
    while not over.wait(POLL_S):
        connection.request("GET", parts.path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status
        now = time.monotonic()
        longest_s = max(longest_s, now - last) if last else 0.0
        if not last:
            print("probing", flush=True)
        last = now
    print(longest_s)
    return 0


if __name__ == "__main__":
    sys.exit(main())
