# The server's edge: what knows gRPC, protobuf, Prometheus and the command line. Included by CMakeLists.txt beside it.
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)

configure_file(version.h.in ${CMAKE_BINARY_DIR}/gen/server/version.h @ONLY)
add_library(svdserve_server_version INTERFACE)
target_include_directories(svdserve_server_version INTERFACE ${CMAKE_BINARY_DIR}/gen)

svdserve_library(svdserve_server_peers
  SOURCES peer_address.cc
  PUBLIC absl::strings)

svdserve_library(svdserve_server_config
  SOURCES config.cc limits.cc base/machine.cc
  PUBLIC svdserve_engine svdserve_server_log absl::time
  PRIVATE svdserve_server_peers svdserve_server_version absl::strings
  APART)

svdserve_library(svdserve_server_sockets
  SOURCES base/listening_socket.cc
  PRIVATE absl::strings)

# Signals and files of the process.
svdserve_library(svdserve_server_process
  SOURCES base/small_file.cc base/stop_signals.cc
  PUBLIC svdserve_server_values
  PRIVATE svdserve_server_log svdserve_server_sockets)

svdserve_library(svdserve_server_metrics
  SOURCES metrics/prometheus_recorder.cc metrics/http_exposer.cc metrics/http_reply.cc
  PUBLIC svdserve_server_values svdserve_server_sockets
  PRIVATE svdserve_server_version svdserve_server_config prometheus-cpp::core absl::status
  APART)

svdserve_library(svdserve_server_rpc
  SOURCES rpc/connection_acceptor.cc rpc/connection_guard.cc rpc/library_logs.cc rpc/rpc_server.cc rpc/tls_credentials.cc rpc/tls_files.cc
          rpc/calls/unary_call.cc rpc/calls/decompose_large_call.cc rpc/calls/stream_call.cc
          rpc/calls/call_log.cc rpc/connection_traffic.cc rpc/calls/health_call.cc rpc/calls/open_calls.cc rpc/calls/read_turns.cc rpc/self_probe.cc
          rpc/calls/small_read.cc
          rpc/small/health_service.cc rpc/small/reflection_service.cc rpc/small/small_call.cc
          rpc/small/small_methods.cc
          rpc/codec/announcement.cc rpc/codec/decode.cc rpc/codec/encode.cc rpc/codec/large_codec.cc rpc/codec/message_builder.cc
  PUBLIC svdserve_server_core svdserve_server_peers svdserve_server_sockets absl::flat_hash_map
  PRIVATE svdserve_server_version svdserve_server_config svdserve_proto svdserve_reflection_proto svdserve_wire
          svdserve_server_process gRPC::grpc++ OpenSSL::SSL absl::strings)

svdserve_program(svdserve
  SOURCES main.cc
  LIBS svdserve_server_rpc svdserve_server_metrics svdserve_server_config svdserve_server_core svdserve_server_device
       svdserve_server_process svdserve_server_version)
