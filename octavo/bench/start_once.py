"""The process of one measured start: options come as a line of JSON, and a line goes out when the engine can answer."""

import json
import sys
import time


def main() -> int:
    values = json.loads(sys.stdin.readline())
    begin = time.perf_counter()
    from octavo import environment, logging
    from octavo.config.options import Options
    from octavo.errors import OctavoError
    from octavo.frontend.llm import LLM

    logging.configure(environment.logging_level(), "bench")
    try:
        with LLM.from_options(Options(**values)):
            print(json.dumps({"engine_s": time.perf_counter() - begin}), flush=True)
    except OctavoError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
