"""Run by torchrun: train with FSDP2, keep a checkpoint of every step, and, if asked, lose a rank on the way."""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from tests.optim.fsdp_cases import Training, build, outcome

STEPS = 5


def main(folder: Path, lost_at: int) -> None:
    torch.set_num_threads(1)
    restarted = os.environ["TORCHELASTIC_RESTART_COUNT"] != "0"
    if restarted and os.environ["RANK"] == "1":
        time.sleep(1.0)  # so that the other rank meets what the first start left in the store, if it can
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    net, opt = build(world)
    saved = [int(path.parent.name) for path in folder.glob("*/.metadata")]  # written last, so the checkpoint is whole
    start = max(saved, default=0)
    dist.barrier()
    if start:
        model, state = get_state_dict(net, opt)
        dcp.load({"model": model, "optimizer": state}, checkpoint_id=folder / str(start))
        set_state_dict(net, opt, model_state_dict=model, optim_state_dict=state)
    for step in range(start, STEPS):
        if step == lost_at and rank == 1 and not restarted:
            os.kill(os.getpid(), signal.SIGKILL)
        Training().go(net, opt, range(step, step + 1), rank, world)
        model, state = get_state_dict(net, opt)
        dcp.save({"model": model, "optimizer": state}, checkpoint_id=folder / str(step + 1))
    found = outcome(net, opt) | {"start": start, "draws": opt.param_groups[0]["draws"]}
    if rank == 0:
        torch.save(found, folder / "result.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
