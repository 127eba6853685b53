"""cuSOLVERMp's SVD of one large matrix on all GPUs of this host, a process a GPU: the peer of rings of ranks.

    python3 tests/device/cusolvermp_peer.py [--libraries DIR] [--gpus 4] [--turns 3] 8192 16384

DIR has the wheels nvidia-cusolvermp-cu13, nvidia-cublasmp-cu13 and nvidia-nccl-cu13: `pip install --no-deps --target DIR`.
Where none is named it is the folder cusolvermp beside this file. The toolkit has the other libraries; its NCCL may be too
old. f64, random normal, thin U and V. The matrix is on the GPUs before, the results stay there. Each order has several
grids and tiles, and each line the median of so many calls after one to warm up. The norm of S beside A's shows that it is
a decomposition.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

F64, VECTORS, BY_COLUMNS = 1, 1, 0  # CUDA_R_64F, CUSOLVER_EIG_MODE_VECTOR, CUSOLVERMP_GRID_MAPPING_COL_MAJOR
NORMAL_SOURCE = 100  # CURAND_RNG_PSEUDO_DEFAULT
GRIDS = {1: [(1, 1)], 2: [(1, 2), (2, 1)], 4: [(2, 2)], 8: [(2, 4)]}
TILES = (256, 512, 1024)
I64 = ctypes.c_int64


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


def require(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what}: error {status}")


def find(folder: Path, name: str) -> str:
    found = next(folder.rglob(name), None)
    if found is None:
        raise SystemExit(f"{folder} has no {name}: install the wheels there that this file's first lines name")
    return str(found)


class Libraries:
    """CUDA's libraries, whose functions raise RuntimeError where they fail."""

    def __init__(self, folder: Path) -> None:
        self.cuda = ctypes.CDLL("libcudart.so.13")
        own_nccl = next(folder.rglob("libnccl.so.2"), "libnccl.so.2")
        self.nccl = ctypes.CDLL(str(own_nccl), mode=ctypes.RTLD_GLOBAL)
        self.blas = ctypes.CDLL("libcublas.so.13")
        self.rand = ctypes.CDLL("libcurand.so.10")
        ctypes.CDLL(find(folder, "libcublasmp.so.0"), mode=ctypes.RTLD_GLOBAL)
        self.mp = ctypes.CDLL(find(folder, "libcusolverMp.so.0"))
        self.mp.cusolverMpNUMROC.restype = I64

    def allocate(self, size: int) -> ctypes.c_void_p:
        memory = ctypes.c_void_p()
        require(self.cuda.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(max(size, 1))), f"{size} bytes of a GPU")
        return memory


class Rank:
    """One process's GPU in a grid of so many rows and columns of processes."""

    def __init__(self, libraries: Libraries, own: int, ranks: int, name: bytes) -> None:
        self.lib, self.own = libraries, own
        self.stream, self.comm, self.handle = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        require(self.lib.cuda.cudaSetDevice(own), "choosing a GPU")
        require(self.lib.cuda.cudaStreamCreate(ctypes.byref(self.stream)), "creating a stream")
        identity = UniqueId()
        ctypes.memmove(ctypes.byref(identity), name, len(name))
        require(self.lib.nccl.ncclCommInitRank(ctypes.byref(self.comm), ranks, identity, own), "joining the ranks")
        require(self.lib.mp.cusolverMpCreate(ctypes.byref(self.handle), own, self.stream), "opening cuSOLVERMp")

    def sync(self) -> None:
        require(self.lib.cuda.cudaStreamSynchronize(self.stream), "waiting for the GPU")

    def norm(self, data: ctypes.c_void_p, count: int) -> float:
        blas, result = ctypes.c_void_p(), ctypes.c_double()
        require(self.lib.blas.cublasCreate_v2(ctypes.byref(blas)), "opening cuBLAS")
        require(self.lib.blas.cublasDnrm2_v2_64(blas, I64(count), data, I64(1), ctypes.byref(result)), "a norm")
        require(self.lib.blas.cublasDestroy_v2(blas), "closing cuBLAS")
        return result.value

    def fill(self, data: ctypes.c_void_p, count: int) -> None:
        source = ctypes.c_void_p()
        require(self.lib.rand.curandCreateGenerator(ctypes.byref(source), NORMAL_SOURCE), "opening cuRAND")
        require(self.lib.rand.curandSetPseudoRandomGeneratorSeed(source, ctypes.c_ulonglong(self.own + 1)), "a seed")
        require(self.lib.rand.curandGenerateNormalDouble(source, data, ctypes.c_size_t(count), ctypes.c_double(0),
                                                         ctypes.c_double(1)), "random numbers")
        require(self.lib.cuda.cudaDeviceSynchronize(), "waiting for random numbers")
        require(self.lib.rand.curandDestroyGenerator(source), "closing cuRAND")

    def decompose(self, n: int, grid: tuple[int, int], tile: int, turns: int, meet) -> tuple[list[float], float, float]:
        """Seconds of each call; the norm of this process's part of A, and that of S."""
        lib, one, size = self.lib, I64(1), I64(n)
        rows, cols = (lib.mp.cusolverMpNUMROC(size, I64(tile), ctypes.c_uint32(at), ctypes.c_uint32(0),
                                              ctypes.c_uint32(of))
                      for at, of in ((self.own % grid[0], grid[0]), (self.own // grid[0], grid[1])))
        processes, descriptor, options = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        require(lib.mp.cusolverMpCreateDeviceGrid(self.handle, ctypes.byref(processes), self.comm, grid[0], grid[1],
                                                  BY_COLUMNS), "a grid")
        require(lib.mp.cusolverMpCreateMatrixDesc(ctypes.byref(descriptor), processes, F64, size, size, I64(tile),
                                                  I64(tile), ctypes.c_uint32(0), ctypes.c_uint32(0), I64(rows)),
                "a descriptor")
        require(lib.mp.cusolverMpGesvdDescriptorCreate(ctypes.byref(options)), "options")
        a, u, vt = (lib.allocate(8 * rows * cols) for _ in range(3))
        s, info = lib.allocate(8 * n), lib.allocate(4)
        matrices = (a, one, one, descriptor, s, u, one, one, descriptor, vt, one, one, descriptor, F64)
        on_device, on_host = ctypes.c_size_t(), ctypes.c_size_t()
        require(lib.mp.cusolverMpGesvd_bufferSize(self.handle, options, VECTORS, VECTORS, size, size, *matrices,
                                                  ctypes.byref(on_device), ctypes.byref(on_host)), "its memory")
        work, host_work = lib.allocate(on_device.value), ctypes.create_string_buffer(max(on_host.value, 1))
        seconds, norm = [], 0.0
        for _ in range(turns + 1):
            self.fill(a, rows * cols)
            norm = self.norm(a, rows * cols)
            meet()
            begin = time.perf_counter()
            require(lib.mp.cusolverMpGesvd(self.handle, options, VECTORS, VECTORS, size, size, *matrices, work,
                                           on_device, host_work, on_host, info), "cusolverMpGesvd")
            self.sync()
            seconds.append(time.perf_counter() - begin)
        of_s = self.norm(s, n)
        for memory in (a, u, vt, s, info, work):
            require(lib.cuda.cudaFree(memory), "freeing memory")
        require(lib.mp.cusolverMpGesvdDescriptorDestroy(options), "closing options")
        require(lib.mp.cusolverMpDestroyMatrixDesc(descriptor), "closing a descriptor")
        require(lib.mp.cusolverMpDestroyGrid(processes), "closing a grid")
        return seconds[1:], norm, of_s


def rank_main(own: int, args: argparse.Namespace, name: bytes, barrier, results) -> None:
    rank = Rank(Libraries(args.libraries), own, args.gpus, name)
    for n in args.orders:
        for grid in GRIDS[args.gpus]:
            for tile in TILES:
                results.put((own, rank.decompose(n, grid, tile, args.turns, barrier.wait)))
                barrier.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--libraries", type=Path, default=Path(__file__).parent / "cusolvermp")
    parser.add_argument("--gpus", type=int, choices=sorted(GRIDS), default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("orders", type=int, nargs="+")
    args = parser.parse_args()
    name = UniqueId()
    require(Libraries(args.libraries).nccl.ncclGetUniqueId(ctypes.byref(name)), "naming the ranks")
    processes = multiprocessing.get_context("spawn")
    barrier, results = processes.Barrier(args.gpus), processes.Queue()
    ranks = [processes.Process(target=rank_main, args=(own, args, bytes(name), barrier, results), daemon=True)
             for own in range(args.gpus)]
    for rank in ranks:
        rank.start()
    for n in args.orders:
        best = math.inf
        for grid in GRIDS[args.gpus]:
            for tile in TILES:
                parts = [results.get(timeout=300)[1] for _ in ranks]
                slowest = [max(turn) for turn in zip(*(seconds for seconds, _, _ in parts))]
                of_a, of_s = math.hypot(*(norm for _, norm, _ in parts)), parts[0][2]
                best = min(best, statistics.median(slowest))
                print(f"cusolverMpGesvd n = {n}, {grid[0]}x{grid[1]} GPUs, tiles of {tile}: "
                      f"{statistics.median(slowest) * 1e3:.0f} ms, norm of S {abs(of_s / of_a - 1):.1e} off", flush=True)
        print(f"cusolverMpGesvd n = {n}, the best: {best * 1e3:.0f} ms", flush=True)
    for rank in ranks:
        rank.join(60)
    return 0 if all(rank.exitcode == 0 for rank in ranks) else 1


if __name__ == "__main__":
    sys.exit(main())
