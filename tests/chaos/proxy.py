"""A TCP proxy on loopback that is a bad network: it delays, breaks connections, and forgets to close them."""
import random
import socket
import threading
import time


class Proxy:
    """Forwards to `port`. `mode`: "delay", "break" (after some bytes) or "half_open" (bytes vanish, nothing is closed).

    Lost packets are late ones to a program, since TCP sends them again: "delay" has some of 0.3 s.
    """

    def __init__(self, port, seed):
        self.mode = "delay"
        self._port = port
        self._random = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(0.2)
        self.address = "127.0.0.1:%d" % self._listening.getsockname()[1]
        self._open = set()
        self._lock = threading.Lock()
        self._stopped = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self._stopped:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port), timeout=5)
            except OSError:
                continue
            client.settimeout(0.5)
            server.settimeout(0.5)
            with self._lock:
                self._open |= {client, server}
                left = self._random.randrange(1000, 400000)
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, target, left), daemon=True).start()

    def _forward(self, source, target, left):
        mode = self.mode
        while not self._stopped:
            try:
                data = source.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            left -= len(data)
            if mode == "half_open" and left < 0:
                if not data:
                    return  # neither side learns of it
                continue
            if not data or mode == "break" and left < 0:
                break
            if mode == "delay":
                with self._lock:
                    lost, late = self._random.random() < 0.02, self._random.random() * 0.005
                time.sleep(0.3 if lost else late)
            try:
                target.sendall(data)
            except OSError:
                break
        self._close(source, target)

    def _close(self, *sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()
        with self._lock:
            self._open -= set(sockets)

    def reset(self, mode):
        """Closes all connections; the next ones are of `mode`."""
        self.mode = mode
        with self._lock:
            old = list(self._open)
        self._close(*old)

    def stop(self):
        self._stopped = True
        self.reset(self.mode)
        self._listening.close()
