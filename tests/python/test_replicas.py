"""One client and several servers: equal shares, refusals, servers that go, stop and come."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket
import threading
import time

import fake_server
import grpc
import numpy as np
import pytest
from replicas import Fleet, name_server, wait_until

import svdserve
from svdserve import _proto
from svdserve._channel import Deadline, best_health
from svdserve._replicas import Rotation, Route

EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
QUICK = svdserve.RetryPolicy(max_attempts=4, initial_backoff=0.001, max_backoff=0.002)
FULL, GONE = svdserve.Overloaded("full", retry_after=60.0), svdserve.Unavailable("gone")


@pytest.fixture
def fleet(tmp_path, start_server):
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.end()


@pytest.fixture
def fakes():
    """Three servers that do as they are told."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(fake_server.running()) for _ in range(3)]


def blocking(addresses, a, *, repeat=1, progress=None, **options):
    with svdserve.Client(addresses, retry=QUICK, **options) as client:
        return [client.svdvals(a, timeout=60, progress=progress) for _ in range(repeat)]


def with_asyncio(addresses, a, *, repeat=1, progress=None, **options):
    async def call():
        async with svdserve.AsyncClient(addresses, retry=QUICK, **options) as client:
            return [await client.svdvals(a, timeout=60, progress=progress) for _ in range(repeat)]

    return asyncio.run(call())


both = pytest.mark.parametrize("svdvals", [blocking, with_asyncio])


def addresses_of(servers):
    return [server.address for server in servers]


def equal(shares):
    return max(abs(share - sum(shares) / len(shares)) for share in shares) <= 0.15 * sum(shares) / len(shares)


class Load:
    """Calls without a pause in threads of their own."""

    def __init__(self, client, callers=3, large=False):
        self.calls, self.large, self.failures, self._ending = 0, 0, [], False
        self._client = client
        work = [self._call] * callers + [self._call_large] * large
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in work]
        for thread in self._threads:
            thread.start()

    def goes_on(self, more=30):
        goal = self.calls + more
        return wait_until(lambda: self.calls >= goal)

    def end(self):
        self._ending = True
        for thread in self._threads:
            thread.join()

    def _run(self, one):
        while not self._ending:
            try:
                one()
            except Exception as error:
                self.failures.append(error)

    def _call(self):
        self._client.svdvals(np.ones((20, 4, 4)), timeout=120)
        self.calls += 1

    def _call_large(self):
        self._client.svd(np.random.default_rng(1).standard_normal((200, 200)), pivot_strategy="round_robin", timeout=120)
        self.large += 1


@contextlib.contextmanager
def load_of(addresses, **options):
    with svdserve.Client(addresses) as client:
        load = Load(client, **options)
        try:
            yield load
        finally:
            load.end()
        assert not load.failures


# --- servers that the test decides ---------------------------------------------------------------


@both
@pytest.mark.parametrize("listed", [lambda a: a, ",".join, lambda a: ", ".join(a)])
def test_calls_are_shared_equally(fakes, svdvals, listed):
    svdvals(listed(addresses_of(fakes)), np.eye(2), repeat=30)
    assert equal([len(fake.requests) for fake in fakes])


@both
def test_pieces_of_a_call_are_shared_equally(fakes, svdvals):
    a = np.arange(1, 91, dtype=float)[:, None, None] * np.eye(2)
    (values,) = svdvals(addresses_of(fakes), a, piece_bytes=32)
    np.testing.assert_array_equal(values[:, 0], np.arange(1, 91))
    assert equal([len(fake.requests) for fake in fakes])


@both
@pytest.mark.parametrize("code, reason", [(EXHAUSTED, "OVERLOADED_BYTES"), (UNAVAILABLE, "DRAINING")])
def test_a_rejected_call_goes_to_the_next_at_once(fakes, svdvals, caplog, code, reason):
    fakes[0].handler = lambda request, context: fake_server.refuse(context, code, reason=reason, retry_after=100)
    with caplog.at_level(logging.INFO, "svdserve"):
        svdvals(addresses_of(fakes), np.eye(2), repeat=12)
    assert 1 <= len(fakes[0].requests) <= 2
    assert f"{fakes[0].address}: attempt 2 goes to another server at once" in caplog.text
    assert ("is left to itself" in caplog.text) == (code is UNAVAILABLE)


@both
def test_a_server_that_is_gone_costs_no_call(fleet, fakes, svdvals):
    svdvals([fleet.hold("127.0.0.1").address(), *addresses_of(fakes[:1])], np.eye(2), repeat=6)
    assert len(fakes[0].requests) == 6


@both
def test_all_have_rejected_it_before_it_waits(fakes, svdvals):
    for fake, delay in zip(fakes, (100, 0.05, 90)):
        fake.handler = refusing_first(delay)
    begin = time.monotonic()
    svdvals(addresses_of(fakes), np.eye(2))
    assert 0.05 <= time.monotonic() - begin < 60
    assert sum(len(fake.requests) for fake in fakes) == 4


def refusing_first(delay):
    seen = []

    def handle(request, context):
        seen.append(request)
        if len(seen) == 1:
            fake_server.refuse(context, EXHAUSTED, retry_after=delay)
        return fake_server.decompose(request)

    return handle


@both
def test_a_mistake_is_told_by_one(fakes, svdvals):
    for fake in fakes:
        fake.handler = lambda request, context: fake_server.refuse(context, grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(svdserve.InvalidArgument):
        svdvals(addresses_of(fakes), np.eye(2))
    assert sum(len(fake.requests) for fake in fakes) == 1


def test_one_that_serves_is_health_enough(fleet, address):
    gone = fleet.hold("127.0.0.1").address()
    with svdserve.Client([gone, address]) as client:
        assert client.health(timeout=60) == "SERVING"
    with svdserve.Client([gone, gone]) as client, pytest.raises(svdserve.Unavailable, match=gone):
        client.health(timeout=60)


def test_health_asks_in_turn_and_each_has_its_share_of_the_time():
    def answers():
        yield svdserve.Unavailable("it is gone")
        yield "SERVING"
        raise AssertionError("one that serves is enough")

    assert best_health(answers()) == "SERVING"
    assert 0 < Deadline(30).share(3) <= 10
    assert Deadline(None).share(3) is None


@pytest.mark.parametrize("address, error", [
    ("a:1,b", "write 'b:50051'"), ("a:1,", "must be host:port"), (["a:1", "b:1,c:1"], "must be host:port"),
    ("a:1,https://b", "the URL"),
])
def test_lists_are_checked(address, error):
    with pytest.raises(ValueError, match=error):
        svdserve.Client(address)
    with pytest.raises(TypeError):
        svdserve.Client([])
    with pytest.raises(TypeError):
        svdserve.Client(["a:1", 2])


@pytest.mark.parametrize("options", [dict(connections=0), dict(silence_timeout=0.0), dict(silence_timeout=float("nan"))])
def test_numbers_are_checked(options):
    with pytest.raises(ValueError):
        svdserve.Client("a:1", **options)


def test_a_server_named_twice_has_one_share(fakes):
    first, second = addresses_of(fakes)[:2]
    for addresses in ([first, second, first], f"{first}, {second},{first}"):
        with svdserve.Client(addresses) as client:
            assert client._settings.addresses == (first, second)


@both
def test_several_connections_carry_a_call(fakes, svdvals):
    a = np.arange(1, 10, dtype=float)[:, None, None] * np.eye(96)  # each is worth a connection
    (values,) = svdvals(addresses_of(fakes[:1]), a, piece_bytes=64 << 10, connections=3)
    np.testing.assert_array_equal(values[:, 5], np.arange(1, 10))
    assert len(set(fakes[0].peers)) == 3


@both
def test_a_bad_piece_ends_those_of_all_connections(fakes, svdvals):
    fake, over = fakes[0], threading.Event()
    begun = threading.Semaphore(0)

    def handle(request, context):
        if np.frombuffer(request.matrices.data, "<f8")[0] == 1:
            begun.acquire(timeout=60)
            fake_server.refuse(context, grpc.StatusCode.INTERNAL, reason="DEVICE_FAULT")
        context.add_callback(over.set)
        begun.release()
        over.wait(60)
        return fake_server.decompose(request)

    fake.handler = handle
    a = np.arange(1, 10, dtype=float)[:, None, None] * np.eye(96)
    with pytest.raises(svdserve.Internal) as failed:
        svdvals(fake.address, a, piece_bytes=64 << 10, connections=3)
    assert failed.value.reason == "DEVICE_FAULT" and over.wait(60)


def test_a_held_port_is_for_servers_of_the_test_alone(fleet):
    first = fleet.start()
    first.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(first.address.rpartition(":")[2])))
    second = fleet.start(listen=first.address)
    assert second.address == first.address
    with svdserve.Client(second.address) as client:
        assert client.health(timeout=60) == "SERVING"


# --- the rules -----------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def turns(rotation, calls):
    went = [rotation.next() for _ in range(calls)]
    return [went.count(i) for i in range(len(rotation))]


def test_a_replica_that_is_down_comes_back_by_its_health():
    clock = Clock()
    rotation = Rotation(["a:1", "b:2"], clock=clock)
    assert turns(rotation, 4) == [2, 2]
    assert (rotation.due(), rotation.due(), rotation.due()) == (0, 1, None)
    rotation.checked(0, True)
    rotation.checked(1, True)
    rotation.failed(0, GONE)
    assert turns(rotation, 4) == [0, 4]
    clock.now += 0.11
    assert turns(rotation, 4) == [0, 4]
    assert (rotation.due(), rotation.due()) == (0, None)
    rotation.checked(0, False)
    rotation.succeeded(0)
    assert turns(rotation, 4) == [0, 4]
    clock.now += 0.19
    assert rotation.due() is None
    clock.now += 0.02
    assert rotation.due() == 0
    rotation.checked(0, True)
    assert turns(rotation, 4) == [2, 2]


def test_a_full_replica_is_left_for_a_second_at_most():
    clock = Clock()
    rotation = Rotation(["a:1", "b:2", "c:3"], clock=clock)
    rotation.failed(2, FULL)
    assert turns(rotation, 4) == [2, 2, 0]
    assert rotation.next({0, 1}) == 2
    clock.now += 1.01
    assert turns(rotation, 6) == [2, 2, 2]


def test_the_budget_bounds_attempts_at_once():
    rotation = Rotation(["a:1", "b:2"])
    hurried = 0
    for _ in range(8):
        route = Route(rotation, QUICK)
        route.next()
        hurried += route.pause(GONE, None) == 0.0
    assert hurried == 4
    for _ in range(60):
        rotation.succeeded(0)
    assert rotation.may_hurry()


def test_a_route_tries_all_and_then_waits_the_shortest_delay():
    route = Route(Rotation(["a:1", "b:2", "c:3"]), svdserve.RetryPolicy())
    went = [route.next()]
    for retry_after, pause in ((60.0, 0.0), (2.0, 0.0)):
        assert route.pause(svdserve.Overloaded("full", retry_after=retry_after), None) == pause
        went.append(route.next())
    assert sorted(went) == [0, 1, 2]
    assert 2.0 <= route.pause(GONE, None) <= 2.5
    alone = Route(Rotation(["a:1", "b:2"]), svdserve.RetryPolicy(max_attempts=1))
    alone.next()
    assert alone.pause(GONE, None) is None


# --- real servers --------------------------------------------------------------------------------


@both
def test_real_servers_have_equal_shares(fleet, svdvals):
    servers = [fleet.start() for _ in range(3)]
    svdvals(addresses_of(servers), np.eye(4), repeat=60)
    assert equal([server.requests() for server in servers])


def test_a_rolling_update_fails_no_call(fleet):
    servers = [fleet.start("--drain-delay=200ms") for _ in range(3)]
    with load_of(addresses_of(servers), large=True) as load:
        for old in servers:
            assert load.goes_on()
            old.stop()
            new = fleet.start("--drain-delay=200ms", listen=old.address)
            assert wait_until(lambda new=new: new.requests() > 5)
        assert load.goes_on()
    assert load.large


def test_replies_tell_the_load_by_which_grpc_weighs_servers(fleet, rng):
    """gRPC's own clients hide these trailers from programs, but weighted_round_robin reads them."""
    fast, slow = fleet.start(), fleet.start("--simd=scalar")
    policy = {"weighted_round_robin": {"blackoutPeriod": "0.1s", "weightUpdatePeriod": "0.2s"}}
    options = (("grpc.service_config", json.dumps({"loadBalancingConfig": [policy]})),)
    with grpc.insecure_channel(f"ipv4:{fast.address},{slow.address}", options=options) as channel:
        decompose = channel.unary_unary(_proto.DECOMPOSE, _proto.DecomposeRequest.SerializeToString)
        a = rng.standard_normal((300, 16, 16))
        request = _proto.DecomposeRequest(matrices=_proto.MatrixBatch(
            data_type=2, memory_order=1, rows=16, cols=16, count=len(a), data=a.tobytes()))

        def are_weighed():
            before = fast.requests(), slow.requests()
            for call in [decompose.future(request, timeout=120) for _ in range(40)]:
                call.result()
            return fast.requests() - before[0] > 1.3 * (slow.requests() - before[1]) > 0

        assert wait_until(are_weighed)


@both
def test_a_large_matrix_whose_server_dies_in_the_upload_goes_to_another(fleet, svdvals, rng):
    doomed, other = fleet.start(), fleet.start()
    a = rng.standard_normal((2000, 300))

    def kill(p):
        if p.stage == "upload" and p.fraction < 0.5 and doomed.process.poll() is None and doomed.has_a_large_matrix():
            doomed.kill()

    results = []
    while doomed.process.poll() is None and len(results) < 40:  # either gets the first call of a client
        results += svdvals(addresses_of([doomed, other]), a, progress=kill)
    assert doomed.process.poll() is not None
    for values in results:
        np.testing.assert_array_equal(values, results[0])


def test_a_coroutine_leaves_a_stopped_server(fleet):
    servers = [fleet.start() for _ in range(2)]

    async def calls():
        async with svdserve.AsyncClient(addresses_of(servers)) as client:
            await asyncio.gather(*(client.svdvals(np.eye(4)) for _ in range(10)))
            servers[0].signal(signal.SIGSTOP)
            begin = time.monotonic()
            await asyncio.gather(*(client.svdvals(np.eye(4), timeout=120) for _ in range(40)))
            return time.monotonic() - begin

    assert asyncio.run(calls()) < 30


def test_a_stopped_server_is_left(fleet):
    servers = [fleet.start() for _ in range(3)]
    with load_of(addresses_of(servers), callers=4) as load:
        assert load.goes_on()
        servers[0].signal(signal.SIGSTOP)
        begin = time.monotonic()
        assert load.goes_on(100)
        assert time.monotonic() - begin < 30, "two seconds on a quiet machine; a minute is gRPC's own"
        servers[0].signal(signal.SIGCONT)
        before = servers[0].requests()
        assert wait_until(lambda: servers[0].requests() > before + 10)


def test_two_are_killed_and_a_new_one_is_found_by_its_name(fleet):
    """The connection's age is what has gRPC ask for the name again."""
    age = "--max-connection-age=3s"
    hosts = ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]
    held = fleet.hold(*hosts)
    servers = [fleet.start(age, listen=held.address(i)) for i in range(3)]
    with name_server() as names:
        names.addresses = hosts[:3]
        with load_of(f"dns://127.0.0.1:{names.port}/svdserve.test:{held.port}") as load:
            assert load.goes_on(60)
            assert wait_until(lambda: all(server.requests() > 5 for server in servers))
            for server in servers[:2]:
                server.kill()
            assert load.goes_on(60)
            new = fleet.start(age, listen=held.address(3))
            names.addresses = hosts[2:]
            before = servers[2].requests()

            def has_its_share():
                mine, others = new.requests(), servers[2].requests() - before
                return mine > 20 and mine >= 0.2 * (mine + others)

            assert wait_until(has_its_share)
