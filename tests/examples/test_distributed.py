"""The examples that need several processes, as `torchrun` would start them."""

import os
import runpy
import socket
import sys
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

EXAMPLES = Path(__file__).parents[2] / "examples"
DEADLINE = 840.0


def start(rank: int, ports: list[int], folder: str) -> None:
    """Two runs of fsdp2.py: the second goes on where the first stopped."""
    torch.set_num_threads(1)
    os.environ.update({"MASTER_ADDR": "localhost", "RANK": str(rank), "WORLD_SIZE": "2"})
    with open(f"{folder}/{rank}.txt", "w") as sys.stdout:
        for script, port in zip(("ddp.py", "fsdp2.py", "fsdp2.py"), ports, strict=True):
            os.environ["MASTER_PORT"] = str(port)
            sys.argv = [script, f"{folder}/run"]
            runpy.run_path(str(EXAMPLES / script), run_name="__main__")


def ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("localhost", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


def test_ddp_and_fsdp2(tmp_path: Path) -> None:
    context = mp.start_processes(start, args=(ports(3), str(tmp_path)), nprocs=2, join=False, start_method="spawn")
    assert context is not None
    end = time.monotonic() + DEADLINE
    try:
        while not context.join(timeout=1.0):
            assert time.monotonic() < end, "the examples did not finish"
    finally:
        for process in context.processes:
            if process is not None and process.is_alive():
                process.kill()
                process.join()
    said = (tmp_path / "0.txt").read_text().splitlines()
    assert said[0].startswith("501 examples, accuracy 0.9")
    assert said[1].startswith("16 bytes per step")  # 4 marks of 4 bytes: VAdamW needs no products with the noise
    assert [line.split(":")[0] for line in said[2:]] == ["step 100", "step 200"]
    assert abs(float(said[3].split()[4]) - 0.997) < 0.15  # sin(1.5)
    assert (tmp_path / "run" / "posterior.safetensors").exists()
    assert (tmp_path / "1.txt").read_text() == ""
