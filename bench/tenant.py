"""Holds memory of one GPU, as another user's process would, until it is ended.

    python bench/tenant.py --gpu 1 --take-gib 30       takes 30 GiB
    python bench/tenant.py --gpu 0 --leave-gib 4.5     takes all but 4.5 GiB of what is free

Prints one line, `ready PID BYTES`, once it holds them.
"""

from __future__ import annotations

import argparse
import os
import signal

GIB = 1 << 30


def main() -> None:
    """Take the memory, say so, and sleep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int, default=0, help="CUDA's index (default 0)")
    amount = parser.add_mutually_exclusive_group(required=True)
    amount.add_argument("--take-gib", type=float, metavar="GIB")
    amount.add_argument("--leave-gib", type=float, metavar="GIB")
    arguments = parser.parse_args()

    import torch

    torch.cuda.set_device(arguments.gpu)
    free, _ = torch.cuda.mem_get_info(arguments.gpu)
    left = None if arguments.leave_gib is None else int(arguments.leave_gib * GIB)
    size = int(arguments.take_gib * GIB) if left is None else free - left
    held = torch.empty(size, dtype=torch.uint8, device=f"cuda:{arguments.gpu}")
    print(f"ready {os.getpid()} {held.numel()}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
