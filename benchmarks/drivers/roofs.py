"""The machine's roofs as one more engine, measured in turn with the others: reading, and products of each kind."""

import torch

from benchmarks import limits
from benchmarks.drivers import driver


class Roofs(driver.Engine):
    def __init__(self, wanted: driver.Wanted) -> None:
        super().__init__(wanted)
        torch.set_num_threads(wanted["threads"])
        torch.set_grad_enabled(False)

    def facts(self) -> driver.Value:
        return {"version": torch.__version__}

    def measure(self, name: str, number: int) -> driver.Value:
        """name: "read", or a kind of product. The best way's figure, and each way's."""
        ways = limits.read_gb_s() if name == "read" else limits.products_g_s(name)
        best = max(ways, key=lambda way: ways[way])
        return {"g_s": ways[best], "way": best, "ways": ways}


if __name__ == "__main__":
    driver.run(Roofs)
