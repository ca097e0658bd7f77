"""Run by torchrun: train with FSDP2 and checkpoints, lose a rank on the way, resume; then train again in one go."""

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

from tests.optim.ranks.fsdp_cases import Training, build, outcome

STEPS, LOST_AT = 5, 3


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if restarts and os.environ["RANK"] == "1":
        time.sleep(1.0)  # so that the other rank meets what the first start left in the store, if it can
    dist.init_process_group("gloo", timeout=timedelta(seconds=240))
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
        if step == LOST_AT and rank == 1 and not restarts:
            os.kill(os.getpid(), signal.SIGKILL)
        Training().go(net, opt, range(step, step + 1), rank, world)
        model, state = get_state_dict(net, opt)
        dcp.save({"model": model, "optimizer": state}, checkpoint_id=folder / str(step + 1))
    again, straight = build(world)
    Training().go(again, straight, range(STEPS), rank, world)
    found = {"resumed": outcome(net, opt), "straight": outcome(again, straight), "start": start, "restarts": restarts}
    found["draws"] = [optimizer.param_groups[0]["draws"] for optimizer in (opt, straight)]
    if rank == 0:
        torch.save(found, folder / "result.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
