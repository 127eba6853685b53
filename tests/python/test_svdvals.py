"""svdvals through the real server, held against numpy.linalg.svd."""

import asyncio

import numpy as np
import pytest

import svdserve
from svdserve import MatrixStatus, _proto, _query

METHODS = _query._METHODS_OF["svd"]
WIDE = {"f": np.float64, "c": np.complex128}


def random(rng, shape, dtype):
    a = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * rng.standard_normal(shape)
    return a.astype(dtype)


def check(values, a, tolerance_units=None):
    """Shape, type and order as NumPy's, and values within the accuracy contract of NumPy's in double precision."""
    expected = np.linalg.svd(a, compute_uv=False)
    assert (values.shape, values.dtype) == (expected.shape, expected.dtype)
    reference = np.linalg.svd(a.astype(WIDE[a.dtype.kind]), compute_uv=False)
    assert (np.diff(values, axis=-1) <= 0).all() and (values >= 0).all()
    m, n = a.shape[-2:]
    k = min(m, n)
    units = ((32 if max(m, n) > 64 * max(k, 8) else 16) + 2 * k) * (2 if a.dtype.kind == "c" else 1)
    if values.dtype == np.float64:
        units *= 2  # NumPy's own error is of the same size
    u = np.finfo(values.dtype).eps / 2
    assert (np.abs(values - reference) <= (tolerance_units or units) * u * reference[..., :1]).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (8, 8), (13, 13), (32, 32), (4, 64), (64, 4), (1, 7), (7, 1),
                                   (33, 5), (3, 1000)])
def test_every_type_method_and_shape(client, rng, dtype, method, shape):
    a = random(rng, (5, *shape), dtype)
    # Bisection promises s^2, not s: a small value may be off by the root of the unit.
    if method == "bisection":
        values = client.svdvals(a, method=method)
        reference = np.linalg.svd(a.astype(WIDE[a.dtype.kind]), compute_uv=False)
        np.testing.assert_allclose(values ** 2, reference ** 2, rtol=1e3 * np.finfo(values.dtype).eps,
                                   atol=16 * 64 * np.finfo(values.dtype).eps * float(reference.max()) ** 2)
    else:
        check(client.svdvals(a, method=method), a)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (2, 3), (2, 1, 4), (0,), (3, 0), (0, 5)])
def test_leading_dimensions_are_kept(client, rng, batch):
    a = random(rng, (*batch, 3, 2), "c8")
    values, status = client.svdvals(a, return_status=True)
    check(values, a)
    assert (status.shape, status.dtype) == (batch, np.uint8)
    assert not status.any()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (4, 0, 3), (0, 3, 3)])
def test_matrices_without_elements_are_answered_as_by_numpy(client, shape):
    expected = np.linalg.svd(np.empty(shape), compute_uv=False)
    values, status = client.svdvals(np.empty(shape), return_status=True)
    assert (values.shape, values.dtype, status.shape) == (expected.shape, expected.dtype, shape[:-2])


@pytest.mark.parametrize("dtype", ["i1", "u2", "i4", "i8", "u8", "?"])
def test_integers_become_doubles(client, rng, dtype):
    a = rng.integers(0, 2, (4, 3, 3)).astype(dtype)
    values = client.svdvals(a)
    assert values.dtype == np.float64
    np.testing.assert_allclose(values, np.linalg.svd(a, compute_uv=False), atol=1e-14)


@pytest.mark.parametrize("dtype", ["<f2", ">f2"])
def test_half_precision_has_results_of_single(client, rng, dtype):
    a = random(rng, (4, 3, 3), "f2").astype(dtype)
    check(client.svdvals(a), a.astype("f4"))


@pytest.mark.parametrize("dtype", ["g", "G", "O", "S3", "m8[s]"])
def test_types_without_a_place_on_the_wire(client, dtype):
    with pytest.raises(TypeError):
        client.svdvals(np.zeros((2, 2), dtype))


@pytest.mark.parametrize("a", [1.0, [1.0, 2.0], np.zeros(0)])
def test_less_than_two_dimensions(client, a):
    with pytest.raises(np.linalg.LinAlgError):
        client.svdvals(a)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_the_layout_of_the_array_changes_no_bit(client, rng, dtype):
    a = random(rng, (6, 5, 4), dtype)
    expected = client.svdvals(a)
    room = np.zeros((12, 7, 9), dtype)
    room[::2, 1:6, ::-2][:, :, :4] = a
    layouts = {
        "Fortran stack": np.asfortranarray(a),
        "Fortran matrices": np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
        "strided": room[::2, 1:6, ::-2][:, :, :4],
        "big-endian": a.astype(a.dtype.newbyteorder(">")),
        "leading axis last": np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, -1)), -1, 0),
        "nested lists": a.tolist() if dtype in ("f8", "c16") else a,
    }
    for name, layout in layouts.items():
        assert client.svdvals(layout).tobytes() == expected.tobytes(), name


def test_the_array_is_left_alone(client, rng):
    a = random(rng, (50, 4, 4), "f8")
    before = a.copy()
    a.flags.writeable = False
    values = client.svdvals(a)
    np.testing.assert_array_equal(a, before)
    values[0] = 0  # the answer is the caller's own, to be written to


def test_a_split_batch_has_the_bits_of_a_whole_one(address, rng):
    a = random(rng, (10_007, 4, 4), "c8")
    with svdserve.Client(address, piece_bytes=1 << 30) as whole:
        expected = whole.svdvals(a)
    check(expected, a)
    for piece_bytes, in_flight in [(100_000, 1), (100_000, 3), (777_777, 8)]:
        with svdserve.Client(address, piece_bytes=piece_bytes, max_in_flight=in_flight) as pieces:
            assert pieces.svdvals(a).tobytes() == expected.tobytes()


def test_a_batch_longer_than_a_message_is_split(start_server, rng):
    with start_server("--max-message-bytes=65536") as address, svdserve.Client(address) as client:
        assert client.info().limits.max_message_bytes == 65536
        tall = random(rng, (300, 40, 4), "f8")  # the request is what is long
        check(client.svdvals(tall), tall)
        many = random(rng, (40_000, 1, 1), "f4")  # the answer is, by the server's reckoning
        check(client.svdvals(many), many)
        one = random(rng, (3000, 4), "f8")  # goes as a large one
        check(client.svdvals(one), one)
        with pytest.raises(svdserve.InvalidArgument) as refused:
            client.capacity(one, snr_db=10)  # of which that has none
        assert refused.value.field == "matrices.data"


def test_a_matrix_that_is_not_finite_leaves_its_neighbours_alone(client, rng):
    a = random(rng, (9, 4, 4), "f8")
    expected = client.svdvals(a)
    bad = a.copy()
    bad[2, 0, 3], bad[5] = np.nan, np.inf
    values, status = client.svdvals(bad, return_status=True)
    wanted = np.zeros(9, np.uint8)
    wanted[[2, 5]] = MatrixStatus.NON_FINITE
    np.testing.assert_array_equal(status, wanted)
    assert np.isnan(values[[2, 5]]).all()
    kept = wanted == MatrixStatus.OK
    assert values[kept].tobytes() == expected[kept].tobytes()


def test_a_status_finds_its_matrix_in_any_piece_and_dimension(address, rng):
    a = random(rng, (30, 20, 3, 3), "f4")
    where = rng.random((30, 20)) < 0.1
    a[where, 1, 1] = np.inf
    with svdserve.Client(address, piece_bytes=500) as client:
        values, status = client.svdvals(a, return_status=True)
    np.testing.assert_array_equal(status == MatrixStatus.NON_FINITE, where)
    np.testing.assert_array_equal(np.isnan(values).all(axis=-1), where)


def test_a_value_beyond_the_range_is_infinite_and_said_so(client):
    a = np.stack([np.full((4, 4), np.finfo(np.float32).max), np.eye(4)]).astype(np.float32)
    values, status = client.svdvals(a, return_status=True)
    assert status.tolist() == [MatrixStatus.OUT_OF_RANGE, MatrixStatus.OK]
    assert np.isinf(values[0, 0]) and np.isfinite(values[0, 1:]).all()
    np.testing.assert_array_equal(values[1], 1)


@pytest.mark.parametrize("options, field", [
    (dict(method="bisection", tolerance=-1e-3), "options.tolerance"),
    (dict(method="bisection", tolerance=float("nan")), "options.tolerance"),
    (dict(method="bisection", tolerance=0.6), "options.tolerance"),
    (dict(method="jacobi", tolerance=1.5), "options.tolerance"),
    (dict(method="bidiagonal", tolerance=1e-3), "options.tolerance"),
    (dict(tolerance=1e-3), "options.tolerance"),
    (dict(method="jacobi", tolerance="fine"), "options.tolerance"),
    (dict(method="jacobi", max_sweeps=-1), "options.max_sweeps"),
    (dict(method="jacobi", max_sweeps=2**40), "options.max_sweeps"),
    (dict(method="bidiagonal", max_sweeps=3), "options.max_sweeps"),
    (dict(method="qr"), "options.method"),
    (dict(method="lanczos"), "options.method"),
    (dict(method=None), "options.method"),
])
def test_wrong_options_are_named(client, options, field):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.svdvals(np.eye(3), **options)
    assert refused.value.field == field
    assert refused.value.reason == "INVALID_FIELD"
    assert isinstance(refused.value, ValueError)


@pytest.mark.parametrize("shape", [(513, 513), (20_000, 2), (2, 20_000)])
def test_answers_that_large_matrices_do_not_have_are_named(client, shape):
    with pytest.raises(svdserve.InvalidArgument) as refused:
        client.precoders(np.ones(shape), 1)
    assert refused.value.field == "options.mimo"
    check(client.svdvals(np.eye(3)), np.eye(3))  # and the server goes on


def test_options_do_what_they_say(client, rng):
    a = random(rng, (20, 6, 6), "f8")
    exact = np.linalg.svd(a, compute_uv=False)
    coarse = client.svdvals(a, method="bisection", tolerance=1e-3)
    error = np.abs(coarse ** 2 - exact ** 2).max()
    assert 1e-9 < error < 4e-3 * float(exact.max()) ** 2
    _, status = client.svdvals(a, method="jacobi", max_sweeps=1, return_status=True)
    assert (status == MatrixStatus.NOT_CONVERGED).all()


def test_info_and_health(client):
    info = client.info()
    assert info.version and not info.draining
    assert info.data_types == ("f32", "f64", "c64", "c128", "f16", "bf16", "c32", "i16", "ci16")
    assert set(info.methods) == {name.lower() for name, number in _proto.METHODS.items() if number}
    assert (info.limits.max_values, info.limits.max_dimension) == (512, 16384)
    assert (info.limits.max_general_order, info.limits.max_hermitian_order) == (32, 512)
    assert info.limits.max_message_bytes == 64 << 20
    assert info.devices and all(d.healthy and d.backend == "host" and d.threads >= 1 for d in info.devices)
    assert all(d.running_factors == d.waiting_factors == 0 for d in info.devices)
    assert client.health() == client.health("svdserve.v1.SvdService") == "SERVING"
    with pytest.raises(svdserve.Error):
        client.health("no.such.Service")


def test_a_capacity_is_planned_from_the_servers_times(client, address):
    a = np.empty((1000, 4, 4), "c8")
    plan = client.plan_capacity("svdvals", a, requests_per_second=10, latency=60)
    assert plan.reachable and plan.replicas == 1 and plan.replica_cores == client.info().devices[0].threads
    assert [cost.device for cost in plan.devices] == ["host:0"] and plan.memory_bytes > plan.max_inflight_bytes
    assert "1 replicas" in repr(plan)
    vectors = client.plan_capacity("svd", a, requests_per_second=10)
    assert vectors.core_seconds > plan.core_seconds
    client.plan_capacity("capacity", a, [0, 10], group_size=10, requests_per_second=1)
    client.plan_capacity("eig", np.empty((3, 8, 8)), requests_per_second=1)
    assert not client.plan_capacity("eigh", np.empty((3, 8, 8)), requests_per_second=1, latency=1e-9).reachable

    async def asked():
        async with svdserve.AsyncClient(address) as other:
            return await other.plan_capacity("svdvals", a, requests_per_second=1e7)

    assert asyncio.run(asked()).replicas > 1
    for arguments, rate, word in ((("solve", a), 1, "verb"), (("svdvals", [a, a[:, :2]]), 1, "a: must be a batch"),
                                  (("svdvals", a), -1, "requests_per_second"),
                                  (("svdvals", np.empty((2, 600, 600))), 1, "a: "),
                                  (("svdvals", a[:0]), 1, "a: must be at least 1")):
        with pytest.raises(svdserve.InvalidArgument, match=word):
            client.plan_capacity(*arguments, requests_per_second=rate)


def test_asyncio(address, rng):
    a = random(rng, (5000, 4, 4), "c8")
    bad = a[:3].copy()
    bad[1] = np.nan

    async def main():
        async with svdserve.AsyncClient(address, piece_bytes=50_000) as client:
            many, (_, status), info, health = await asyncio.gather(
                client.svdvals(a), client.svdvals(bad, return_status=True), client.info(), client.health())
            with pytest.raises(svdserve.InvalidArgument) as refused:
                await client.svdvals(np.eye(2), tolerance=3)
            assert refused.value.field == "options.tolerance"
            assert (await client.svdvals(np.zeros((0, 3, 3)))).shape == (0, 3)
            return many, status, info, health

    many, status, info, health = asyncio.run(main())
    check(many, a)
    assert status.tolist() == [MatrixStatus.OK, MatrixStatus.NON_FINITE, MatrixStatus.OK]
    assert info.version and health == "SERVING"


def test_many_threads_share_a_client(client, rng):
    from concurrent.futures import ThreadPoolExecutor

    stacks = [random(rng, (50 + i, 3, 4), "f8") for i in range(16)]
    with ThreadPoolExecutor(8) as pool:
        for a, values in zip(stacks, pool.map(client.svdvals, stacks)):
            check(values, a)


def test_a_timeout_that_is_too_short(client, rng):
    with pytest.raises(svdserve.DeadlineExceeded):
        client.svdvals(random(rng, (200_000, 8, 8), "f8"), timeout=1e-3)
    check(client.svdvals(np.eye(3), timeout=60), np.eye(3))
