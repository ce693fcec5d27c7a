#!/usr/bin/env python3
"""all_reduce of torch.distributed over the GPUs of this machine, in the sizes of perf_collective --cuda, a process for
each GPU. Medians of rounds in microseconds: in a stream (many issued, waited for once) and one at a time."""
import argparse
import os
import statistics
import time

SIZES = [8, 1 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20]


def measure(rank, world, rounds, quick):
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    for size in SIZES:
        data = torch.zeros(size // 4, device="cuda")
        count = max(10, min(800, (4 << 30) // size))
        if quick:
            count = max(5, count // 4)

        def run(times, wait):
            torch.cuda.synchronize()
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(times):
                dist.all_reduce(data)
                if wait:
                    torch.cuda.synchronize()
            torch.cuda.synchronize()
            return (time.perf_counter() - begin) / times * 1e6

        run(max(2, count // 10), False)
        stream = statistics.median(run(count, False) for _ in range(rounds))
        alone = statistics.median(run(max(2, count // 10), True) for _ in range(rounds))
        if rank == 0:
            print(f"all_reduce of {size:>10} B f32: in a stream {stream:9.2f} us, one at a time {alone:9.2f} us", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=0, help="number of GPUs (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a quarter of the work")
    options = parser.parse_args()
    import torch
    import torch.multiprocessing as multiprocessing

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    world = options.gpus or torch.cuda.device_count()
    multiprocessing.spawn(measure, args=(world, options.rounds, options.quick), nprocs=world)


if __name__ == "__main__":
    main()
