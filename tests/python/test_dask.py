"""Blocks of Dask arrays, on worker processes, over several servers."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from replicas import Fleet, wait_until

import svdserve

pytest.importorskip("distributed")
import dask.array as da  # noqa: E402
from distributed import LocalCluster  # noqa: E402
from distributed import Client as Cluster  # noqa: E402

import svdserve.dask as blocks  # noqa: E402


@pytest.fixture(scope="module")
def addresses(fleet):
    yield [server.address for server in fleet.replicas]


@pytest.fixture(scope="module")
def fleet(start_server, tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    for _ in range(2):
        fleet.start("--max-inflight-bytes=16MiB", "--max-message-bytes=8MiB")
    yield fleet
    fleet.end()


@pytest.fixture(scope="module")
def cluster(addresses):
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as local, \
            Cluster(local) as cluster:
        yield cluster


def channels(rng, *shape):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def same(result, expected):
    assert result.dtype == expected.dtype and result.shape == expected.shape
    np.testing.assert_array_equal(result.compute(), expected)


def test_the_bits_are_those_of_one_client(cluster, addresses, rng):
    a = channels(rng, 6, 50, 5, 4)
    x = da.from_array(a, chunks=(2, 20, 5, 4))
    gram = np.einsum("...ij,...kj->...ik", a, a.conj())
    y = da.from_array(gram, chunks=(6, 10, 5, 5))
    with svdserve.Client(addresses[0]) as client:
        same(blocks.svdvals(x, address=addresses), client.svdvals(a))
        same(blocks.capacity(x, [0, 10], water_filling=True, address=addresses), client.capacity(a, [0, 10], water_filling=True))
        same(blocks.capacity(x, 10.0, address=addresses), client.capacity(a, 10.0))
        same(blocks.precoders(x, 2, address=addresses), client.precoders(a, 2))
        same(blocks.eigvalsh(y, address=",".join(addresses)), client.eigvalsh(gram))
        for result, expected in zip(blocks.svd(x, address=addresses), client.svd(a, full_matrices=False)):
            same(result, expected)
        for result, expected in zip(blocks.eigh(y, address=addresses), client.eigh(gram)):
            same(result, expected)


def test_one_client_a_worker_and_few_calls_at_once(cluster, fleet, addresses, rng):
    x = da.from_array(channels(rng, 200, 8, 4, 4), chunks=(1, 8, 4, 4))
    blocks.svdvals(x, address=addresses, at_once=1).compute()
    before = cluster.run(lambda: len(blocks._workers))
    blocks.svdvals(x + 1, address=addresses, at_once=1).compute()
    assert cluster.run(lambda: len(blocks._workers)) == before
    assert all(n <= 3 for n in before.values())  # of the tests in this file
    rejected = sum(server.requests("RESOURCE_EXHAUSTED") for server in fleet.replicas)
    assert rejected < 0.01 * sum(server.requests() for server in fleet.replicas)


def test_a_killed_workers_blocks_are_computed_again(addresses, rng):
    a = channels(rng, 40, 2000, 8, 8)
    x = da.from_array(a, chunks=(1, 2000, 8, 8))
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local, \
            Cluster(local) as cluster, svdserve.Client(addresses) as client:
        expected = client.svdvals(a)
        future = cluster.compute(blocks.svdvals(x, address=addresses))
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        (pid, *_) = cluster.run(os.getpid).values()
        wait_until(lambda: done.is_set() or any(cluster.run(lambda: len(blocks._workers)).values()))
        os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal(future.result(timeout=300), expected)


def test_mistakes_are_told_before_anything_is_computed(rng):
    x = da.from_array(channels(rng, 4, 4, 4), chunks=(2, 2, 4))
    with pytest.raises(svdserve.InvalidArgument, match=r"write a.rechunk"):
        blocks.svdvals(x)
    with pytest.raises(svdserve.InvalidArgument, match="leading dimensions"):
        blocks.svdvals(x[0])
    whole = x.rechunk({-1: -1, -2: -1})
    with pytest.raises(svdserve.InvalidArgument, match="method"):
        blocks.svd(whole, method="quick")
    with pytest.raises(ValueError, match="at_once"):
        blocks.svdvals(whole, at_once=0)
    with pytest.raises(ValueError, match="host:port"):
        blocks.svdvals(whole, address="nowhere")
