"""The judgement of a soak: series that leak and series that do not."""
import random
import unittest

import chaos


def series(rise_an_hour=0.0, descriptors=lambda n: 18, threads=lambda n: 31, count=60, jitter=0.5):
    """Samples of one a minute; the jitter of memory is in MiB."""
    noise = random.Random(1)
    return [(60.0 * n, ((40 + rise_an_hour * n / 60 + noise.uniform(-jitter, jitter)) * chaos.MIB, descriptors(n), threads(n)))
            for n in range(count)]


class Judge(unittest.TestCase):
    def judge(self, samples, noise=0.3):
        return chaos.judge(samples, noise * chaos.MIB, 1.0)

    def test_a_steady_server_leaks_nothing(self):
        self.assertIsNone(self.judge(series()))
        self.assertIsNone(self.judge(series(rise_an_hour=-20)))

    def test_a_burst_is_no_leak(self):
        samples = series(descriptors=lambda n: 90 if n == 30 else 18, threads=lambda n: 33 if n < 40 else 31)
        at, (_, descriptors, threads) = samples[20]
        samples[20] = (at, (400 * chaos.MIB, descriptors, threads))
        self.assertIsNone(self.judge(samples))

    def test_leaks_are_found(self):
        self.assertIn("memory", self.judge(series(rise_an_hour=3)))
        self.assertIn("descriptors", self.judge(series(descriptors=lambda n: 18 + n // 4)))
        self.assertIn("threads", self.judge(series(threads=lambda n: 31 + n // 10)))

    def test_a_short_run_is_not_judged(self):
        with self.assertRaises(chaos.Failure):
            self.judge(series(count=5))


if __name__ == "__main__":
    unittest.main()
