"""Times the vendor's BF16 product (cuBLASLt through PyTorch) on the shapes of cuda_bench, with graphs and rotating weights: the peer of our products."""
import torch


def measure(count, launch):
    """Microseconds a launch, median of 15 graph replays."""
    launch(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            launch(i)
    times = []
    for _ in range(18):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / count)
    return sorted(times[3:])[7]


def main():
    print("cuBLASLt BF16 through PyTorch, us (GB/s of weights) for M = 1, 4, 8, 16, 64; M = 2048 in TFLOP/s")
    for rows, cols in ((8192, 4096), (4096, 8192), (24576, 4096)):
        sets = max(3, min(12, (400 << 20) // (rows * cols * 2)))
        weights = [torch.randn(rows, cols, device="cuda", dtype=torch.bfloat16) for _ in range(sets)]
        line = f"{rows:>6}x{cols:<5}"
        for tokens in (1, 4, 8, 16, 64, 2048):
            x = torch.randn(tokens, cols, device="cuda", dtype=torch.bfloat16)
            us = measure(sets, lambda i: x @ weights[i].T)
            line += f"{us:>8.1f} ({rows * cols * 2 / us / 1000:.0f})" if tokens <= 64 else f"{us:>9.0f} {2 * tokens * rows * cols / us / 1e6:.0f}T"
        print(line)


if __name__ == "__main__":
    main()
