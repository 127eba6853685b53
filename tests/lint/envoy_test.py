"""Envoy takes the profile of deploy/envoy, as it is shipped, with its options, and as the Helm chart makes a sidecar of it.

    build/release/tests/lint/tools/bin/python tests/lint/envoy_test.py
"""
import pathlib
import re
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/edge"))
import envoy_test as edge  # noqa: E402
import proxy  # noqa: E402


class Envoy(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = pathlib.Path(self._folder.name)
        proxy.place_certificates(self.folder)
        self.profile = yaml.safe_load(proxy.moved((proxy.PROFILE / "envoy.yaml").read_text(), self.folder))

    def test_it_takes_the_profile(self):
        self.assertEqual(proxy.validate(self.profile, self.folder), "")

    def test_it_takes_the_options(self):
        edge.add_options(self.profile, self.folder)
        self.assertEqual(proxy.validate(self.profile, self.folder), "")

    def test_mistakes_are_found(self):
        self.profile["static_resources"]["clusters"][0]["lb_policy"] = "NO_SUCH"
        self.assertIn("NO_SUCH", proxy.validate(self.profile, self.folder))

    def test_routes_name_calls_of_the_contract(self):
        proto = (ROOT / "proto/svdserve/v1/svd_service.proto").read_text()
        streams = set(re.findall(r"rpc (\w+)\(stream ", proto))
        pattern = next(iter(re.findall(r"SvdService/\((.*)\)", (proxy.PROFILE / "envoy.yaml").read_text())))
        self.assertEqual(set(pattern.split("|")), streams)


if __name__ == "__main__":
    unittest.main()
