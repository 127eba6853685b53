"""PyTorch on matrices that are on the GPU already: the peer of the service's figure, and with `vectors` of U, S, V's, with `eig` of general
eigenproblems'."""
import sys
import time

import torch

DTYPES = {"f32": torch.float32, "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128}
# rows, cols, type, matrices: few where it loops over them.
VECTORS = [(4, 4, "c64", 131072), (8, 8, "c64", 65536), (16, 16, "f64", 16384), (16, 16, "c64", 16384),
           (32, 32, "f64", 8192), (32, 32, "c64", 8192), (64, 64, "f64", 256), (128, 128, "f64", 128),
           (4, 64, "c64", 1024), (64, 16, "f64", 1024), (256, 32, "f64", 1024)]


def rate(work, matrices):
    """Millions of matrices a second, the best of 5 after one to warm up."""
    best = 1e30
    for i in range(6):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if i > 0:
            best = min(best, time.perf_counter() - begin)
    return matrices / best * 1e-6


def random(m, n, dtype, count):
    return torch.randn(count, m, n, dtype=DTYPES[dtype], device="cuda")


def max_residual(a, values, vectors):
    difference = a @ vectors - vectors * values[:, None, :]
    u = torch.finfo(a.dtype).eps / 2
    return (difference.norm(dim=(1, 2)) / a.norm(dim=(1, 2))).max().item() / u


def main():
    if sys.argv[1:] == ["vectors"]:
        for m, n, dtype, count in VECTORS:
            a = random(m, n, dtype, count)
            speed = rate(lambda: torch.linalg.svd(a, full_matrices=False), count)
            print(f"torch.linalg.svd, {count} {m}x{n} {dtype} on the GPU: {speed:.6f} M/s", flush=True)
        return
    if sys.argv[1:] == ["eig"]:
        for n in (4, 8, 16, 32):
            for dtype in ("c64", "c128"):
                a = random(n, n, dtype, 256)
                speed = rate(lambda: torch.linalg.eig(a), 256)
                residual = max_residual(a, *torch.linalg.eig(a))
                print(f"torch.linalg.eig, 256 {n}x{n} {dtype} on the GPU: {speed:.6f} M/s, residual {residual:.1f} u",
                      flush=True)
        return
    a = random(4, 4, "c64", 131072)
    print(f"torch.linalg.svdvals, {len(a)} 4x4 c64 on the GPU: {rate(lambda: torch.linalg.svdvals(a), len(a)):.2f} M/s")


if __name__ == "__main__":
    main()
