"""The includes that are allowed: a table of folders, and a check of every #include against it.

The rule of a file is that of the longest prefix of its path. A file may always include its own folder. `project` lists
everything else of the project ("a/" is everything below a, "a/*" the files of a itself). `libraries` lists every library
that is not the language's own.
"""
import dataclasses
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

LIBRARIES = {
    "absl": r"absl/",
    "tbb": r"(oneapi/)?tbb/",
    "highway": r"hwy/",
    "blas": r"(cblas|lapacke?)\.h$",
    "cuda": r"(cuda|cooperative_groups|cub/|thrust/|cublas|cusolver|cusparse|curand|cufft|nccl|nv(rtc|ml|tx|JitLink))",
    "intrinsics": r"(x86\w*intrin|[a-z]*mmintrin|cpuid|arm_neon|arm_sve)\.h$",  # Highway's business
    "grpc": r"grpc(pp)?/",
    "openssl": r"openssl/",
    "proto": r"google/(protobuf|rpc)/|.*\.pb\.h$",
    "prometheus": r"prometheus/",
    "zlib": r"zlib\.h$",
    "eigen": r"Eigen/",
    "gtest": r"(gtest|gmock)/",
    "benchmark": r"benchmark/",
}


@dataclasses.dataclass(frozen=True)
class Rule:
    project: tuple = ()    # files, or folders as above
    libraries: tuple = ()  # keys of LIBRARIES


# A request, how it is to be computed and its outcome: plain values that every stage may speak of.
VALUES = ("engine/problem.h", "engine/large_engine.h", "engine/options.h", "engine/outputs.h", "engine/result.h", "engine/planner.h")
# The facade; back ends share its vocabulary.
EXECUTION = ("engine/execution.h", "engine/cuda_outcome.h", "engine/outputs.h", "engine/vector_layout.h")
# The facade of large factors, which is plain values and an interface too.
FACTORS = ("engine/large_engine.h",)
ENGINE = VALUES + EXECUTION + FACTORS + ("engine/svd_engine.h", "engine/cuda_engine.h", "engine/cuda_large_engine.h")
# The server's own vocabulary, and what a stage tells about itself.
SERVER = ("server/*", "server/base/", "server/metrics/recorder.h", "server/large/large_memory.h",
          "server/large/large_request.h")
# The parts that put the stages together. No stage knows them.
DOORS = ("server/pipeline.h", "server/large/large_pipeline.h", "server/config.h")
CORE_LIBRARIES = ("absl",)
CLI_SEES = ("client/cpp/*",)



def algorithms(*subjects):
    return Rule(("engine/core/",) + VALUES + tuple(f"engine/algorithms/{s}/" for s in subjects), ("highway",))


def back_end(folder, subjects, libraries):
    return Rule(("engine/policies/", "engine/core/", "engine/algorithms/") + VALUES + EXECUTION +
                tuple(f"{folder}/{s}/" if s else f"{folder}/" for s in subjects), ("absl",) + libraries)


def host(*subjects):
    return back_end("engine/backends/host", subjects, ("tbb", "highway"))


# Headers of the large matrices' subject that its parts see.
LARGE_LANE = tuple(f"engine/backends/cuda/large/{name}.h" for name in ("large_lane", "library_work", "reflectors"))


def cuda(*subjects, table=False):
    """`table`: the subject has functions of the plugin's table."""
    rule = back_end("engine/backends/cuda", subjects, ("cuda",))
    door = tuple(f"engine/backends/cuda_door/{name}.h" for name in ("plugin_abi", "states_across"))
    return Rule(rule.project + (door if table else ()), rule.libraries)


RULES = {
    # The engine has never heard of the service: no gRPC, no protobuf, no Prometheus.
    "engine/policies": Rule(),
    "engine/core": Rule((), ("highway",)),
    # One folder a subject; each knows only those before it.
    "engine/algorithms/jacobi": algorithms(),
    "engine/algorithms/tall": algorithms(),
    "engine/algorithms/lanes": algorithms("jacobi", "tall"),
    "engine/algorithms/general": algorithms("jacobi", "tall"),
    "engine/algorithms/blocks": algorithms("jacobi", "lanes", "tall"),
    "engine/algorithms/finish": algorithms("tall"),
    "engine/algorithms/mimo": algorithms(),
    "engine/algorithms/states": algorithms(),
    "engine/algorithms/large": algorithms("jacobi", "general", "states"),
    # The same subjects in the back ends. `base` and `device` are what their subjects share.
    "engine/backends/host/base": host(),
    "engine/backends/host/packs": host("base"),
    "engine/backends/host/finish": host("base"),
    "engine/backends/host/mimo": host("base", "packs"),
    "engine/backends/host/tall": host("base", "packs"),
    "engine/backends/host/dense": host("base"),
    "engine/backends/host/merges": host("base", "dense"),
    "engine/backends/host/forms": host("base", "dense", "merges"),
    "engine/backends/host/values": host("base"),
    "engine/backends/host/general": host("base", "dense"),
    "engine/backends/host/shears": host("base", "dense", "forms", "general"),
    "engine/backends/host/p_steps": host("base", "dense"),
    "engine/backends/host/large": host("base", "p_steps", "packs", "finish", "dense", "forms", "general", "shears",
                                        "values"),
    # The ring of members that compute a large matrix together knows neither; members are a back end's.
    "engine/backends/ring": Rule(("engine/core/", "engine/algorithms/large/") + VALUES, ("absl",)),
    # Matrices in the host's memory, of which any back end has panels at a time.
    "engine/backends/streamed": Rule(("engine/core/", "engine/algorithms/large/") + VALUES, ()),
    # Members that are processes: their messages, and what both ends do with these.
    "engine/backends/ranks": Rule(("engine/algorithms/large/", "engine/algorithms/states/", "engine/backends/ring/") + VALUES,
                                  ("absl",)),
    "engine/backends/host/members": Rule(host("base", "dense", "large", "p_steps").project +
                                         ("engine/backends/ring/", "engine/backends/ranks/"), ("tbb",)),
    "engine/backends/host": host(""),
    # CUDA is known to the kernels and their plugin alone. The contract of the engine and the plugin is in cuda_door.
    "engine/backends/cuda/device": cuda(),
    "engine/backends/cuda/lanes": cuda("device"),
    "engine/backends/cuda/finish": cuda("device"),
    "engine/backends/cuda/general": cuda("device", "lanes"),
    "engine/backends/cuda/mimo": cuda("device"),
    "engine/backends/cuda/tall": cuda("device", "lanes"),
    "engine/backends/cuda/by_rows": cuda("device", "lanes"),
    "engine/backends/cuda/blocks": cuda("bidiagonal", "device", "lanes", "tall"),
    "engine/backends/cuda/p_steps": cuda("device"),
    "engine/backends/cuda/large": Rule(cuda("device", "p_steps", "tridiagonal", table=True).project +
                                       ("engine/backends/streamed/",), ("cuda",)),
    "engine/backends/cuda/tridiagonal": Rule(cuda("device", "p_steps").project + LARGE_LANE, ("cuda",)),
    "engine/backends/cuda/members": Rule(cuda("device", "large", "p_steps", table=True).project +
                                         ("engine/backends/ring/", "engine/backends/ranks/", "engine/backends/streamed/"),
                                         ("cuda",)),
    "engine/backends/cuda/side_by_side": cuda("device", "lanes", "large", "p_steps"),
    "engine/backends/cuda": cuda("", table=True),
    "engine/backends/cuda_door": Rule(VALUES + EXECUTION, ("absl",)),
    "engine": Rule(("engine/",), ("absl", "tbb")),
    # A program on matrices that are on the GPU already, as a user would write it.
    "engine/cuda_example.cu": Rule(("engine/cuda_engine.h",), ("cuda",)),
    # One folder a stage, in the order of the flow. A stage knows the next one's interface, never one before it.
    # The rpc stage: the calls, and their messages as bytes.
    "server/rpc": Rule(VALUES + SERVER + DOORS + ("server/rpc/", "server/device/device.h", "wire/"),
                       ("absl", "grpc", "openssl", "proto")),
    "server/rpc/calls": Rule(VALUES + SERVER + DOORS + ("server/rpc/access_log_options.h", "server/rpc/connection_traffic.h",
                              "server/rpc/codec/", "server/large/", "server/respond/", "wire/"),
                             ("absl", "grpc", "proto")),
    "server/rpc/small": Rule(VALUES + SERVER + DOORS +
                             ("server/rpc/connection_traffic.h", "server/rpc/calls/", "server/rpc/codec/", "server/large/",
                              "server/device/device.h", "server/device/cost/capacity.h", "wire/"),
                             ("absl", "grpc", "proto")),
    "server/rpc/codec": Rule(VALUES + SERVER + ("server/respond/", "wire/"), ("absl", "grpc", "proto")),
    "server/validate": Rule(VALUES + SERVER + ("wire/limits.h",), CORE_LIBRARIES),
    "server/admit": Rule(VALUES + SERVER, CORE_LIBRARIES),
    "server/batch": Rule(VALUES + SERVER + ("server/device/",), CORE_LIBRARIES),
    "server/device": Rule(ENGINE + SERVER + ("server/device/cost/",), CORE_LIBRARIES),
    "server/device/cost": Rule(ENGINE + SERVER, CORE_LIBRARIES),
    "server/device/large": Rule(ENGINE + SERVER + ("server/device/*",), CORE_LIBRARIES),
    "server/respond": Rule(VALUES + SERVER, CORE_LIBRARIES),
    "server/metrics": Rule(VALUES + SERVER, CORE_LIBRARIES),
    # Furniture: what any process needs, and what knows nothing of requests.
    "server/base": Rule((), CORE_LIBRARIES),
    # The doors, which put the stages together; the edge; and the configuration.
    "server/pipeline": Rule(VALUES + SERVER + ("server/",), CORE_LIBRARIES),
    "server/large": Rule(VALUES + SERVER + ("server/admit/", "server/checkpoint/", "server/device/", "server/validate/"),
                         CORE_LIBRARIES),
    # Files of large matrices, and who may go on with them.
    "server/checkpoint": Rule(VALUES + SERVER + ("wire/crc32c.h",), CORE_LIBRARIES),
    "server/config": Rule(ENGINE + SERVER + DOORS, CORE_LIBRARIES),
    "server/limits": Rule(VALUES + SERVER + DOORS, CORE_LIBRARIES),
    "server/main.cc": Rule(ENGINE + DOORS + ("server/",), CORE_LIBRARIES),
    "server": Rule(VALUES + SERVER + ("server/device/device.h",), CORE_LIBRARIES),
    # Computations and names that both ends of the wire share.
    "wire": Rule(("wire/",), ("grpc", "intrinsics", "proto")),
    # The clients see the wire and nothing behind it.
    "client/cpp": Rule(("wire/", "client/cpp/"), ("absl", "grpc", "proto")),
    "client/cpp/eigen.h": Rule((), ("eigen",)),  # programs include it, the client does not
    "client/cpp/calls": Rule(("wire/", "client/cpp/*", "client/cpp/wire/"), ("absl", "grpc", "proto")),
    "client/cpp/calls/large": Rule(("wire/", "client/cpp/*", "client/cpp/calls/*", "client/cpp/wire/"), ("absl", "grpc", "proto")),
    "client/cpp/wire": Rule(("wire/", "client/cpp/*"), ("absl", "grpc", "proto")),
    # svdctl sees the public face of the library.
    "client/cli": Rule(CLI_SEES + ("client/cli/",), ("absl",)),
    "client/cli/commands": Rule(CLI_SEES + ("client/cli/*", "client/cli/files/", "client/cli/formats/", "client/cli/guide/", "client/cli/load/",
                                          "client/cli/report/"),
                                ("absl",)),
    "client/cli/guide": Rule(CLI_SEES + ("client/cli/*",), ("absl",)),
    "client/cli/formats": Rule(CLI_SEES + ("client/cli/*", "client/cli/files/", "client/cli/report/"), ("absl", "zlib")),
    "client/cli/files": Rule(CLI_SEES + ("client/cli/*",), ("absl",)),
    "client/cli/load": Rule(CLI_SEES + ("client/cli/*", "client/cli/report/"), ("absl",)),
    "client/cli/report": Rule(CLI_SEES + ("client/cli/*", "client/cli/files/"), ("absl",)),
    # Tests may look into everything; nothing looks into them.
    "tests": Rule(("engine/", "server/", "client/", "wire/"), tuple(LIBRARIES)),
}

# Only implementations: a folder's .cc files may use these besides. The recorder is an interface without Prometheus.
SOURCES_WITH = {"server/metrics": ("prometheus",)}

# Headers that programs outside the tree include, with the libraries that these and their includes may need.
PUBLIC = {"engine/svd_engine.h": ("absl",), "engine/cuda_engine.h": ("absl",), "engine/large_engine.h": (),
          "client/cpp/client.h": (), "client/cpp/eigen.h": ("eigen",)}

BENCHMARKS = re.compile(r"_bench\.cc$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def longest_prefix(path, table):
    keys = [k for k in table if path == k or path.startswith(k + "/") or ("/" in k and path.startswith(k + "."))]
    return max(keys, key=len, default=None)


def library_of(include):
    return next((name for name, pattern in LIBRARIES.items() if re.match(pattern, include)), None)


def allowed_libraries(path):
    rule = RULES[longest_prefix(path, RULES)]
    allowed = set(rule.libraries)
    if not path.endswith(".h"):
        allowed |= set(SOURCES_WITH.get(longest_prefix(path, SOURCES_WITH), ()))
    if BENCHMARKS.search(path):
        allowed |= {"benchmark", "blas"}
    return allowed


def may_include(path, include):
    allowed = RULES[longest_prefix(path, RULES)].project
    folder = include.rsplit("/", 1)[0]
    if include in DOORS and not path.startswith("tests/"):
        return include in allowed or path.rsplit(".", 1)[0] == include.rsplit(".", 1)[0]
    if folder == path.rsplit("/", 1)[0] or folder + "/*" in allowed:
        return True
    return any(include == entry or entry.endswith("/") and include.startswith(entry) for entry in allowed)


def check(root):
    """Returns one line for every include that the table does not allow."""
    faults = []
    files = [p for top in ("engine", "server", "client", "wire", "tests") for p in sorted((root / top).rglob("*"))
             if p.suffix in (".h", ".cc", ".cu", ".cuh")]
    for file in files:
        path = file.relative_to(root).as_posix()
        if longest_prefix(path, RULES) is None:
            faults.append(f"{path}: its folder has no rule in tests/layering/layering_test.py")
            continue
        for quote, include in INCLUDE.findall(file.read_text(encoding="utf-8")):
            library = library_of(include)
            if (root / include).exists() or include.split("/")[0] in ("engine", "server", "client", "wire", "tests"):
                if path.startswith("tests/") and include.startswith("tests/"):
                    continue
                if not may_include(path, include):
                    faults.append(f"{path}: may not include {include}")
            elif library is not None and library not in allowed_libraries(path):
                faults.append(f"{path}: may not use {library} ({include})")
            elif library is None and quote == '"':
                faults.append(f'{path}: "{include}" is no path from the root of the project')
    return faults


def check_public(root, header, libraries):
    """Returns one line for every library that `header`, or a header that it leads to, must not ask its user for."""
    faults, seen, waiting = [], set(), [header]
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for _, include in INCLUDE.findall((root / path).read_text(encoding="utf-8")):
            if (root / include).exists():
                waiting.append(include)
            elif library_of(include) not in (None, *libraries):
                faults.append(f"{path}: {header} leads to {include}")
    return faults


class Layering(unittest.TestCase):
    def test_every_include_is_allowed(self):
        faults = check(ROOT)
        self.assertEqual(faults, [], "\n" + "\n".join(faults))

    def test_public_headers_ask_for_no_more_than_they_say(self):
        for header, libraries in PUBLIC.items():
            with self.subTest(header=header):
                self.assertEqual(check_public(ROOT, header, libraries), [])

    def test_every_rule_is_of_a_room_that_exists(self):
        for key in RULES:
            self.assertTrue((ROOT / key).exists() or any(ROOT.glob(key + ".*")), f"no {key} any more: drop its rule")


class PlantedFaults(unittest.TestCase):
    """The check itself: each of these must be found."""

    def faults(self, path, line):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(f"// a planted file\n{line}\n")
            return check(pathlib.Path(folder))

    def test_faults_are_found(self):
        for path, line in (
            ("engine/core/lane.h", '#include "engine/algorithms/lanes/bidiagonalize.h"'),
            ("engine/algorithms/lanes/dqds.h", '#include "engine/backends/host/launch.h"'),
            ("engine/algorithms/lanes/dqds.h", "#include <tbb/parallel_for.h>"),
            ("engine/svd_engine.cc", "#include <grpcpp/grpcpp.h>"),
            ("engine/svd_engine.cc", '#  include "svdserve/v1/svd_service.pb.h"'),
            ("engine/backends/host/launch.cc", "#include <prometheus/counter.h>"),
            ("engine/backends/host/launch.cc", '#include "server/request.h"'),
            ("engine/core/lane.h", "#include <immintrin.h>"),
            ("wire/crc32c.h", '#include "server/error.h"'),
            ("server/batch/batch.cc", '#include "wire/crc32c.h"'),
            ("engine/core/lane.h", "#include <cuda_fp16.h>"),
            ("engine/algorithms/tall/qr.h", "#include <cooperative_groups.h>"),
            ("engine/cuda_engine.h", "#include <cuda_runtime_api.h>"),
            ("engine/cuda_engine.cc", "#include <cuda.h>"),
            ("engine/backends/host/launch.cc", "#include <cub/cub.cuh>"),
            ("engine/backends/host/launch.cc", '#include "engine/backends/cuda_door/cuda_lane.h"'),
            ("engine/backends/cuda/launch.h", '#include "engine/backends/host/launch.h"'),
            ("engine/backends/cuda/lanes/lane_kernel.h", "#include <hwy/highway.h>"),
            ("engine/backends/cuda/lanes/lane_kernel.h", '#include "engine/backends/cuda/launch.h"'),
            ("engine/backends/cuda_door/cuda_lane.h", '#include "engine/cuda_engine.h"'),
            ("engine/backends/host/tall/tall_shape.cc", '#include "engine/backends/host/large/blocked_batch.h"'),
            ("engine/algorithms/jacobi/rotation.h", '#include "engine/algorithms/lanes/dqds.h"'),
            ("engine/core/lane.h", '#include "engine/policies/host_tuning.h"'),
            ("engine/backends/cuda/plugin.cu", '#include "server/device/device.h"'),
            ("engine/cuda_example.cu", '#include "engine/backends/cuda_door/plugin_abi.h"'),
            ("engine/backends/cuda/mimo/answers.h", '#include "engine/backends/cuda_door/plugin_abi.h"'),
            ("server/device/cuda_device.cc", "#include <cuda_runtime.h>"),
            ("server/device/cuda_device.cc", '#include "engine/backends/cuda_door/cuda_lane.h"'),
            ("client/cpp/client.cc", '#include "engine/cuda_engine.h"'),
            ("server/admit/ledger.h", '#include "server/validate/validate.h"'),
            ("server/batch/batch.h", '#include "server/admit/ledger.h"'),
            ("server/batch/batch.h", '#include "server/pipeline.h"'),
            ("server/batch/batch.cc", '#include "engine/svd_engine.h"'),
            ("server/device/queue.cc", "#include <google/protobuf/message.h>"),
            ("server/respond/stream.h", '#include "server/rpc/codec/codec.h"'),
            ("server/metrics/recorder.h", "#include <prometheus/counter.h>"),
            ("server/rpc/codec/codec.h", '#include "engine/svd_engine.h"'),
            ("server/main.cc", "#include <grpcpp/grpcpp.h>"),
            ("client/cpp/client.cc", '#include "engine/problem.h"'),
            ("client/cpp/options.h", "#include <Eigen/Core>"),
            ("client/cli/main.cc", "#include <grpcpp/grpcpp.h>"),
            ("server/batch/batch.cc", '#include "tests/support/fake_clock.h"'),
            ("server/batch/batch.cc", '#include "batch.h"'),
            ("server/extra/thing.cc", '#include "server/pipeline.h"'),
        ):
            with self.subTest(path=path, line=line):
                self.assertEqual(len(self.faults(path, line)), 1)

    def test_a_public_header_that_leads_to_generated_code_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "client/cpp").mkdir(parents=True)
            (root / "client/cpp/client.h").write_text('#include "client/cpp/types.h"\n#include <span>\n')
            (root / "client/cpp/types.h").write_text('#include "svdserve/v1/svd_service.pb.h"\n')
            self.assertEqual(len(check_public(root, "client/cpp/client.h", ())), 1)

    def test_what_is_allowed_passes(self):
        for path, line in (
            ("engine/svd_engine.cc", '#include "engine/backends/host/launch.h"'),
            ("engine/algorithms/dqds_bench.cc", "#include <benchmark/benchmark.h>"),
            ("server/device/host_device.cc", '#include "engine/svd_engine.h"'),
            ("server/device/cuda_device.cc", '#include "engine/cuda_engine.h"'),
            ("engine/backends/cuda/plugin.cu", "#include <cuda_runtime.h>"),
            ("engine/cuda_example.cu", "#include <cuda_runtime.h>"),
            ("tests/device/kernel_bench.cu", "#include <cusolverDn.h>"),
            ("server/pipeline.cc", '#include "server/batch/batch.h"'),
            ("server/metrics/prometheus_recorder.cc", "#include <prometheus/counter.h>"),
            ("server/rpc/codec.cc", '#include "svdserve/v1/svd_service.pb.h"'),
            ("client/cpp/client.cc", "#include <grpcpp/grpcpp.h>"),
            ("tests/server/batch_test.cc", '#include "tests/support/fake_clock.h"'),
            ("engine/problem.h", "#include <cstdint>"),
        ):
            with self.subTest(path=path, line=line):
                self.assertEqual(self.faults(path, line), [])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=1))
