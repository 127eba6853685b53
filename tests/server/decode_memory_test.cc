// The memory that a request takes before it is admitted: every allocation of this program is counted.
#include <gtest/gtest.h>
#include <svdserve/v1/svd_service.pb.h>

#include <memory>
#include <string>

#include "server/rpc/codec/codec.h"
#include "tests/server/wire_bytes.h"
#include "tests/support/counted_heap.h"

namespace svdserve::server {
namespace {

struct Sent {
  const char* name;
  std::string bytes;
  size_t groups;  // in it
};

// Most bytes that decoding holds, the operands aside.
int64_t held(const Sent& sent, bool streamed, const std::shared_ptr<HostMemory>& memory) {
  grpc::ByteBuffer buffer = buffer_of(streamed ? field(2, sent.bytes) : sent.bytes);
  const int64_t before = peak_bytes = live_bytes.load();
  const DecodedRequest decoded = streamed ? decode_stream_request(Rpc::kDecomposeStream, &buffer, memory)
                                          : decode_request(Rpc::kDecompose, &buffer, memory);
  return peak_bytes - before;
}

TEST(DecodeMemoryTest, IsAtMostTenTimesWhatWasSent) {
  constexpr size_t kOfAGroup = 320;  // a fixed cost, however short the group is
  v1::DecomposeRequest request;
  v1::MatrixBatch& batch = *request.add_groups();
  batch.set_data_type(v1::DATA_TYPE_F32);
  batch.set_memory_order(v1::MEMORY_ORDER_ROW_MAJOR);
  batch.set_rows(1);
  batch.set_cols(1);
  const std::string group = request.SerializeAsString(), empty = field(3, "");
  const std::string numbers = times(20000, std::string("\xf8\x07\x01", 3));      // an unknown field
  const std::string markers = times(15000, std::string("\xf3\x07\xf4\x07", 4));  // unknown fields, each of another
  const auto memory = std::make_shared<HeapMemory>();
  for (const Sent& sent : {
           Sent{"all that is allowed", snrs(kMaxSnrs) + times(kMaxGroups, group), kMaxGroups},
           Sent{"empty groups", snrs(kMaxSnrs) + times(kMaxGroups, empty), kMaxGroups},
           Sent{"60 KiB of SNRs, then groups", snrs(7500) + times(kMaxGroups, group), kMaxGroups},
           Sent{"groups, then 500 KB of SNRs", times(kMaxGroups, group) + snrs(65000), kMaxGroups},
           Sent{"2 MB of SNRs, then groups", snrs(250000) + times(kMaxGroups, empty), kMaxGroups},
           Sent{"options again and again", times(30, snrs(7500)) + group, 1},
           Sent{"empty options", times(100000, field(2, "")) + group, 1},
           Sent{"more groups than are allowed", times(50000, group), kMaxGroups},
           Sent{"empty matrices", times(100000, field(1, "")), 0},
           Sent{"unknown fields of options", group + times(10, field(2, numbers) + field(2, markers)), 1},
           Sent{"unknown fields of a group", field(3, numbers + markers), 1},
           Sent{"unknown fields of the request", group + numbers + markers, 1},
       }) {
    for (const bool streamed : {false, true}) {
      EXPECT_LE(held(sent, streamed, memory), 10 * sent.bytes.size() + kOfAGroup * sent.groups)
          << sent.name << ", " << sent.bytes.size() << " bytes" << (streamed ? " in a stream" : "");
    }
  }
}

// Nothing of what is refused, nor of unknown fields, is kept at all.
TEST(DecodeMemoryTest, OfWhatIsRefusedIsSmall) {
  const auto memory = std::make_shared<HeapMemory>();
  const std::string numbers = times(20000, std::string("\xf8\x07\x01", 3));
  for (const Sent& sent : {Sent{"SNRs", snrs(7500), 0}, Sent{"many SNRs", snrs(1000000), 0},
                           Sent{"unknown fields", times(20, field(2, numbers)), 0}}) {
    EXPECT_LE(held(sent, false, memory), 4096) << sent.name;
  }
}

}  // namespace
}  // namespace svdserve::server
