"""What is checked before a command writes anything."""

from __future__ import annotations


def check_device(device: str | None) -> None:
    """Refuse a device that this machine or this PyTorch does not have; None is always fine.

    Raises:
        ValueError: saying what is missing.

    >>> check_device("cpu")
    >>> check_device("gpu")
    Traceback (most recent call last):
    ...
    ValueError: --device gpu is not a device; use e.g. cpu or cuda:0
    """
    if device is None or device == "cpu":
        return
    import torch

    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ValueError(f"--device {device} is not a device; use e.g. cpu or cuda:0") from None
    leave_out = "leave --device out to compute on the CPU"
    if wanted.type == "cuda":
        if torch.version.cuda is None and torch.version.hip is None:
            raise ValueError(
                f"--device {device} needs a GPU, but this PyTorch ({torch.__version__}) was built without CUDA; "
                f"install one with CUDA, or {leave_out}"
            )
        count = torch.cuda.device_count()
        if count == 0 or (wanted.index or 0) >= count:
            raise ValueError(f"--device {device} does not exist: PyTorch finds {count} GPU(s) here; {leave_out}")
    elif wanted.type == "mps":
        if not torch.backends.mps.is_available():
            raise ValueError(f"--device {device} needs an Apple GPU, which PyTorch does not find here; {leave_out}")
    elif wanted.type != "cpu":
        raise ValueError(f"--device {device} is not supported; use e.g. cpu or cuda:0")
