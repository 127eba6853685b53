"""The judgement of a soak: series that leak and series that do not."""
import contextlib
import dataclasses
import io
import random
import unittest

import chaos


def series(rise=0.0, descriptors=lambda n: 18, threads=lambda n: 31, count=60, waver=0.5):
    """Samples of one a minute; the rise in an hour and the wavering of memory are in MiB."""
    noise = random.Random(1)
    samples = []
    for n in range(count):
        in_use, resident = (first + rise * n / 60 + noise.uniform(-waver, waver) for first in (4, 40))
        samples.append((60.0 * n, chaos.Usage(resident * chaos.MIB, in_use * chaos.MIB, descriptors(n), threads(n))))
    return samples


class Judge(unittest.TestCase):
    def judge(self, samples, hours=1.0):
        with contextlib.redirect_stdout(io.StringIO()):
            return chaos.judge(samples, hours)

    def test_a_steady_server_leaks_nothing(self):
        self.assertIsNone(self.judge(series()))
        self.assertIsNone(self.judge(series(rise=-20)))

    def test_a_burst_is_no_leak(self):
        samples = series(descriptors=lambda n: 90 if n == 30 else 18, threads=lambda n: 33 if n < 40 else 31)
        samples[20] = (samples[20][0], dataclasses.replace(samples[20][1], resident=400 * chaos.MIB))
        self.assertIsNone(self.judge(samples))

    def test_leaks_are_found(self):
        self.assertIn("memory", self.judge(series(rise=3)))
        self.assertIn("memory in_use", self.judge(series(rise=3), hours=0.5))
        self.assertIn("descriptors", self.judge(series(descriptors=lambda n: 18 + n // 4)))
        self.assertIn("threads", self.judge(series(threads=lambda n: 31 + n // 10)))

    def test_a_short_run_is_not_judged(self):
        with self.assertRaises(chaos.Failure):
            self.judge(series(count=5))


if __name__ == "__main__":
    unittest.main()
