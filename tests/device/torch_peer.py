"""torch.linalg.svdvals of complex64 4x4 matrices that are on the GPU already: the peer of the service's figure."""
import time

import torch

COUNT = 131072
a = torch.randn(COUNT, 4, 4, dtype=torch.complex64, device="cuda")
torch.linalg.svdvals(a)
torch.cuda.synchronize()
best = 1e30
for _ in range(5):
    begin = time.perf_counter()
    torch.linalg.svdvals(a)
    torch.cuda.synchronize()
    best = min(best, time.perf_counter() - begin)
print(f"torch.linalg.svdvals, {COUNT} 4x4 c64 on the GPU: {COUNT / best * 1e-6:.2f} M/s")
