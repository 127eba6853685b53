"""Large factors by the real server: its results are those of NumPy, and its refusals say what is wrong."""

import asyncio
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus
from test_large import STRATEGIES, check_eigh, check_hyperbolic, hermitian, layouts
from test_svd import DTYPES, check, close, matrices

# A single matrix with 129 and more values is large where its progress is told.
LARGE = dict(progress=lambda p: None)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(150, 150), (129, 129), (260, 140), (140, 260), (514, 513), (20000, 3), (1, 20000),
                                   (20000, 1)])
def test_as_numpy(client, rng, shape, dtype):
    a = matrices(rng, *shape, dtype=dtype)
    options = LARGE if min(shape) <= 512 else {}
    result = client.svd(a, False, **options)
    check(a, result, False)
    assert result.status == MatrixStatus.OK and len(result.summaries) == 1
    assert close(client.svdvals(a, **options), result.S, a)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(129, 129), (300, 300), (200, 512), (2, 150, 140)])
def test_up_to_512_values_go_as_a_batch(client, rng, shape, dtype):
    a = matrices(rng, *shape, dtype=dtype)
    result = client.svd(a, False)
    check(a, result, False)
    assert (result.status == MatrixStatus.OK).all() and not result.summaries
    assert close(client.svdvals(a), result.S, a)


def test_what_makes_a_single_matrix_large(client, rng):
    told = []
    for shape, options, is_large in (((150, 140), dict(progress=told.append), True),
                                     ((150, 140), dict(pivot_strategy="recursive"), True),
                                     ((150, 140), dict(progress=told.append, fix_phases=True), False),
                                     ((2, 150, 140), dict(progress=told.append), False),
                                     ((150, 100), dict(progress=told.append), False)):
        told.clear()
        a = matrices(rng, *shape)
        result = client.svd(a, False, **options)
        check(a, result, False)
        assert bool(result.summaries) == is_large and bool(told) == (is_large and "progress" in options)
    told.clear()
    client.svdvals(matrices(rng, 30, 30), method="bisection", progress=told.append)
    assert not told


def test_what_is_not_finite_is_nan_in_a_batch(client, rng):
    a = matrices(rng, 200, 150)
    a[41, 17] = np.nan
    result = client.svd(a)
    assert result.status == MatrixStatus.NON_FINITE and all(np.isnan(x).all() for x in result)


@pytest.mark.parametrize("shape", [(230, 140), (140, 230), (150, 150)])
def test_full_bases(client, rng, shape):
    a = matrices(rng, *shape, dtype="c16")
    check(a, client.svd(a, **LARGE), True)


@pytest.mark.parametrize("rank", [0, 1, 70])
def test_without_full_rank(client, rng, rank):
    a = matrices(rng, 190, rank) @ matrices(rng, rank, 150)
    check(a, client.svd(a, False, **LARGE), False)


def test_layouts(client, rng, tmp_path):
    a = matrices(rng, 180, 150)
    expected = client.svd(a, False, **LARGE)
    for operand, _ in layouts(a, tmp_path):
        result = client.svd(operand, False, **LARGE)
        check(a, result, False)
        assert close(result.S, expected.S, a)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("variant", ["block_oriented", "full_block"])
def test_every_strategy_and_variant(client, rng, strategy, variant):
    a = matrices(rng, 150, 140)
    result = client.svd(a, False, method="jacobi", pivot_strategy=strategy, block_variant=variant, certificate=True)
    check(a, result, False)
    (summary,) = result.summaries
    assert summary.method == "jacobi" and summary.sweeps > 0 and summary.rotations >= summary.proper_rotations > 0
    assert summary.device.startswith("host:") and summary.members == 1
    assert 0 < result.certificate.residual < 1e-13 and 0 < result.certificate.left_orthogonality < 1e-11


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(400, 300), (300, 400), (5000, 300), (150, 140)])
def test_leading_triplets(client, rng, shape, dtype):
    k = min(shape)
    u, _ = np.linalg.qr(matrices(rng, shape[0], k, dtype=dtype))
    v, _ = np.linalg.qr(matrices(rng, shape[1], k, dtype=dtype))
    a = ((u * 0.3 ** np.arange(k)) @ v.conj().T).astype(u.dtype)
    result = client.svd(a, top_k=5, certificate=True, **LARGE)
    eps = np.finfo(result.S.dtype).eps
    assert result.U.shape == (shape[0], 5) and result.Vh.shape == (5, shape[1]) and result.U.dtype == a.dtype
    assert np.abs(result.S - np.linalg.svd(a, compute_uv=False)[:5]).max() < 100 * eps
    assert np.linalg.norm(a @ result.Vh.conj().T - result.U * result.S) < 20 * max(shape) * eps
    assert result.certificate.residual < 10 * max(shape) * eps
    assert (result.summaries[0].subspace_steps > 0) == (k >= 300)
    for mine, other in zip(result, client.svd(a, top_k=5, **LARGE)):
        assert np.array_equal(mine, other)


def test_principal_components_of_a_flat_spectrum(client, rng):
    a = matrices(rng, 400, 300)
    u, s, vh = client.svd(a, top_k=2, **LARGE)
    assert close(s, np.linalg.svd(a, compute_uv=False)[:2], a) and np.linalg.norm(a @ vh.T - u * s) < 1e-11


def test_a_second_time_gives_the_same_bits(client, rng):
    a = matrices(rng, 200, 140)
    for mine, other in zip(client.svd(a, **LARGE), client.svd(a, **LARGE)):
        assert np.array_equal(mine, other)


def test_too_few_sweeps_give_the_best_so_far(client, rng):
    a = matrices(rng, 200, 200)
    result = client.svd(a, method="jacobi", max_sweeps=2, **LARGE)
    assert result.status == MatrixStatus.NOT_CONVERGED and result.summaries[0].sweeps == 2
    expected = np.linalg.svd(a, compute_uv=False)
    assert np.abs(result.S - expected).max() < 0.3 * expected[0]


def test_mapped_files(client, rng, tmp_path):
    a = matrices(rng, 300, 200, dtype="f4")
    np.save(tmp_path / "a.npy", a)
    out = tuple(np.lib.format.open_memmap(tmp_path / f"{name}.npy", "w+", "f4", shape)
                for name, shape in (("u", (300, 200)), ("s", (200,)), ("vh", (200, 200))))
    client.svd(np.load(tmp_path / "a.npy", mmap_mode="r"), False, out=out, **LARGE)
    for array in out:
        array.flush()
    check(a, [np.load(array.filename) for array in out], False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m, n", [(80, 80), (120, 45), (4, 2)])
def test_hsvd(client, rng, m, n, dtype):
    q = np.linalg.qr(matrices(rng, m, n, dtype=dtype))[0]
    g = (q + 0.1 * matrices(rng, m, n, dtype=dtype)).astype(dtype)
    j = rng.choice([1, -1], n)
    result = client.hsvd(g, j, certificate=True)
    check_hyperbolic(g, j, result)
    eigenvalues = np.linalg.eigvalsh((g.astype("c16") * j) @ g.conj().T)
    expected = np.sort(np.concatenate([j * result.S.astype(float) ** 2, np.zeros(m - n)]))
    assert np.abs(np.sort(eigenvalues) - expected).max() < 1e3 * np.finfo(result.S.dtype).eps * np.abs(expected).max()
    assert result.certificate.residual < 1e3 * np.finfo(result.S.dtype).eps


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(90,), (1,), (2, 3, 7)])
def test_eigh_with_relative_accuracy(client, rng, shape, dtype):
    a = hermitian(rng, *shape, dtype=dtype)
    result = client.eigh(a, accuracy="relative", certificate=True)
    check_eigh(a, result)
    assert close(result.eigenvalues, np.linalg.eigvalsh(a), a)
    assert result.certificate.residual < 1e3 * np.finfo(dtype).eps
    assert all(s.rank == a.shape[-1] and s.factor_condition >= 1 for s in result.summaries)
    assert close(client.eigvalsh(a, "U", accuracy="relative"), result.eigenvalues, a)


def test_eigh_of_a_large_matrix(client, rng):
    a = hermitian(rng, 520)
    result = client.eigh(a)
    check_eigh(a, result)
    assert len(result.summaries) == 1 and close(client.eigvalsh(a), result.eigenvalues, a)
    assert client.eigh(a, certificate=True).summaries[0].factor_condition is None  # "tridiagonal" has no G
    plain = client.eigh(a, accuracy="relative", method="jacobi", certificate=True)
    check_eigh(a, plain)
    assert plain.summaries[0].factor_condition >= 1


def test_eigh_keeps_the_digits_of_graded_matrices(client, rng):
    d = 10.0 ** -rng.permutation(np.arange(0, 60, 3))
    k = np.eye(20) * np.where(np.arange(20) % 3, 1, -1) + 0.02  # eigenvalues near 1 and -1
    a = d[:, None] * k * d
    w = client.eigvalsh(a, accuracy="relative")
    again = client.eigvalsh(a[::-1, ::-1], accuracy="relative")
    assert np.abs(w / again - 1).max() < 1e-13
    sign, logarithm = np.linalg.slogdet(k)
    assert np.prod(np.sign(w)) == sign
    assert abs(np.log(np.abs(w)).sum() - logarithm - 2 * np.log(d).sum()) < 1e-11


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh_factored(client, rng, dtype):
    g, j = matrices(rng, 60, 35, dtype=dtype), rng.choice([1, -1], 35)
    result = client.eigh_factored(g, j, certificate=True)
    wide = g.astype("c16")
    product = (wide * j) @ wide.conj().T
    check_eigh(product.astype(dtype), result)
    assert np.count_nonzero(result.eigenvalues) == 35 and result.summaries[0].rank == 35


def test_eigh_says_which_entry_is_not_finite(client, rng):
    a = hermitian(rng, 6)
    a[1, 4] = np.nan  # of the triangle that is not read
    assert np.isfinite(client.eigvalsh(a, accuracy="relative")).all()
    with pytest.raises(svdserve.InvalidArgument, match="row 1 and column 4") as refused:
        client.eigh(a, "U", accuracy="relative")
    assert refused.value.reason == "NON_FINITE"


def test_coroutines_side_by_side(address, rng):
    large, small = [matrices(rng, 170, 140), matrices(rng, 150, 160)], matrices(rng, 50, 4, 4)

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            return await asyncio.gather(*(client.svd(a, False, **LARGE) for a in large), client.svd(small))

    first, second, third = asyncio.run(ask())
    check(large[0], first, False)
    check(large[1], second, False)
    check(small, third, True)


# --- refusals -----------------------------------------------------------------------------------

@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_told_with_its_place(client, rng, value):
    a = matrices(rng, 170, 160)
    a[41, 17] = value
    with pytest.raises(svdserve.InvalidArgument, match=r"41.*17") as refused:
        client.svd(a, **LARGE)
    assert refused.value.reason == "NON_FINITE"


@pytest.mark.parametrize("index", [(0,), (2,), (1, 2)])
def test_of_a_stack_the_matrix_that_is_not_finite_is_named(client, rng, index):
    a = matrices(rng, *(i + 1 for i in index), 17000, 2)
    a[index][4100, 1] = np.nan
    named = r"matrix \[" + ", ".join(map(str, index)) + r"\]"
    with pytest.raises(svdserve.InvalidArgument, match=rf"^{named}: .*4100.*1") as refused:
        client.svd(a, False)
    assert refused.value.reason == "NON_FINITE"
    with pytest.raises(svdserve.InvalidArgument, match=rf"^{named} of array 1: .*4100.*1"):
        client.svd([matrices(rng, 3, 3), a], False)


def test_of_a_list_of_matrices_the_one_that_is_not_finite_is_named(address, rng):
    a = matrices(rng, 17000, 2)
    a[4100, 1] = np.inf

    async def ask():
        async with svdserve.AsyncClient(address) as client:
            await client.svd([matrices(rng, 17000, 3), a], False)

    with pytest.raises(svdserve.InvalidArgument, match=r"^array 1: .*4100.*1") as refused:
        asyncio.run(ask())
    assert refused.value.reason == "NON_FINITE"


def test_hsvd_needs_full_column_rank(client, rng):
    g = matrices(rng, 60, 40)
    g[:, 7] = g[:, 3]
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.hsvd(g, np.ones(40))
    assert refused.value.reason == "RANK_DEFICIENT"


def test_what_never_fits_is_refused_before_any_payload(start_server, rng):
    with start_server("--max-large-bytes=48MiB", "--max-peer-percent=100") as address, svdserve.Client(address) as client:
        told = []
        with pytest.raises(svdserve.InvalidArgument, match="50331648") as refused:
            client.svd(matrices(rng, 700, 700), progress=told.append)
        assert refused.value.reason == "FACTOR_TOO_LARGE" and not told
        check(small := matrices(rng, 140, 140), client.svd(small, **LARGE), True)


def test_what_is_too_much_for_a_message_is_large(start_server, rng):
    with start_server("--max-message-bytes=1MiB") as address, svdserve.Client(address) as client:
        tall = matrices(rng, 2, 400, 100)
        result = client.svd(tall)  # each U is 400 x 400
        check(tall, result, True)
        assert len(result.summaries) == 2 and not client.svd(tall, full_matrices=False).summaries
        with pytest.raises(svdserve.InvalidArgument, match="bytes a message"):
            client.svd(tall, fix_phases=True)


def test_a_full_basis_without_memory_says_what_to_ask_for(client):
    with pytest.raises(MemoryError, match="full_matrices=False"):
        client.svd(np.zeros((1 << 21, 2)))  # U takes 32 TiB


@pytest.mark.parametrize("arguments, field", [
    (dict(method="bisection"), "open.options.method"), (dict(tolerance=2), "open.options.tolerance"),
    (dict(max_sweeps=-1), "open.options.max_sweeps")])
def test_options_that_the_server_refuses(client, rng, arguments, field):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.svd(matrices(rng, 520, 513), **arguments)
    assert refused.value.field == field


def test_a_wide_matrix_has_no_hyperbolic_decomposition(client, rng):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.hsvd(matrices(rng, 4, 9), np.ones(9))
    assert refused.value.reason == "INVALID_FIELD"


# --- ending it ----------------------------------------------------------------------------------

# Its sweeps take many seconds; its download, which does not, goes no further than its first report.
SLOW = """
import signal, sys, time, numpy as np, svdserve

signal.signal(signal.SIGINT, signal.default_int_handler)  # which whoever runs this in the background may ignore
stage = sys.argv[2]

def on_progress(p):
    if p.stage == stage:
        print(p.stage, flush=True)
        if stage == "download":
            time.sleep(60)

a = np.random.default_rng(1).standard_normal((600, 600) if stage == "download" else (2500, 2500))
client = svdserve.Client(sys.argv[1])
try:
    client.svd(a, method="jacobi", progress=on_progress)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("stage", ["upload", "sweep", "download"])
def test_ctrl_c_frees_the_server(start_server, stage):
    with start_server("--max-large-requests=1") as address:
        with subprocess.Popen([sys.executable, "-c", SLOW, address, stage], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            assert process.stdout.readline().decode().strip() == stage
            process.send_signal(signal.SIGINT)
            begin = time.monotonic()
            # The server takes one factor at a time: it takes the next as soon as it is rid of this one.
            with svdserve.Client(address, retry=svdserve.RetryPolicy(1000, 0.01, 0.02)) as client:
                client.svd(np.eye(40), pivot_strategy="recursive")
            assert time.monotonic() - begin < 5
            while (line := process.stdout.readline().decode().strip()) == stage:
                pass
            assert line == "interrupted"  # it lives: what freed the server was the call's end
            process.stdin.close()
            assert process.wait(60) == 0
