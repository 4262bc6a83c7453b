"""The CPU as a device answers what the device plane asks."""

import torch

from octavo.config.config import DeviceConfig
from octavo.device.cpu import create


def test_the_cpu_has_threads_memory_and_number_formats() -> None:
    before = torch.get_num_threads()
    cpu = create(DeviceConfig(device="cpu", threads=2, cores=None, attention_backend=None, op_implementations="fast"))
    try:
        assert torch.get_num_threads() == 2
        assert cpu.kind == "cpu"
        assert cpu.description.endswith("2 threads")
        assert 0 < cpu.available_bytes() <= cpu.total_bytes()
        assert 0 < cpu.used_bytes() < cpu.total_bytes()
        assert cpu.allocate(100).numel() == 100
        assert cpu.refuses_dtype(torch.bfloat16) is None
        assert "torch.float32" in (cpu.refuses_dtype(torch.float64) or "")
        cpu.synchronize()
    finally:
        torch.set_num_threads(before)
