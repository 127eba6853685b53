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
import helm_test as helm  # noqa: E402
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

    def test_it_takes_what_the_chart_renders(self):
        values = helm.values_of(helm.CHART / "examples/untrusted.yaml")
        for tls in ({"enabled": False}, {"enabled": True, "clientCa": False}, values["tls"]):
            data = helm.render({**values, "tls": tls})["ConfigMap"]["data"]
            for name, text in data.items():
                (self.folder / "etc" / name).write_text(proxy.moved(text, self.folder))
            profile = yaml.safe_load(proxy.moved(data["envoy.yaml"], self.folder))
            self.assertEqual(proxy.validate(profile, self.folder), "")
            self.assertIn("local_ratelimit", data["envoy.yaml"])
            self.assertEqual("require_client_certificate" in data["envoy.yaml"], bool(tls.get("clientCa")))

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
