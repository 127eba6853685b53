// Requests of several batches: validated, admitted and answered together, computed each for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/server/own_options.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using ::testing::ElementsAre;

// A request of groups as its caller sees it. It is answered once.
struct GroupsTicket : TicketOf<GroupsAnswer> {
  ~GroupsTicket() { EXPECT_LE(calls(), 1); }

  std::shared_ptr<TestMemory> memory = std::make_shared<TestMemory>();
};

struct Shape {
  int64_t rows, cols, count;
};

// Groups of these shapes; every element of group i is i + 1.
std::vector<Request> groups_of(const std::vector<Shape>& shapes, const std::shared_ptr<TestMemory>& memory) {
  size_t elements = 0;
  for (const Shape& s : shapes) elements += static_cast<size_t>(s.rows * s.cols * s.count);
  memory->payload.reserve(elements);
  std::vector<Request> groups;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& s = shapes[i];
    const size_t first = memory->payload.size(), mine = static_cast<size_t>(s.rows * s.cols * s.count);
    memory->payload.resize(first + mine, static_cast<double>(i + 1));
    Request request;
    request.problem = {s.rows, s.cols, DType::kF64, Order::kRowMajor};
    request.count = s.count;
    request.payload = memory->payload.data() + first;
    request.payload_bytes = mine * sizeof(double);
    request.memory = memory;
    groups.push_back(std::move(request));
  }
  return groups;
}

class GroupsTest : public ::testing::Test {
 protected:
  std::shared_ptr<GroupsTicket> submit(std::vector<Request> groups, std::shared_ptr<GroupsTicket> ticket) {
    ticket->handle =
        h.pipeline->submit_groups(std::move(groups), [ticket](GroupsAnswer a) { ticket->done(std::move(a)); });
    return ticket;
  }
  std::shared_ptr<GroupsTicket> submit(const std::vector<Shape>& shapes) {
    auto ticket = std::make_shared<GroupsTicket>();
    auto groups = groups_of(shapes, ticket->memory);
    return submit(std::move(groups), std::move(ticket));
  }

  PipelineHarness h;
};

TEST_F(GroupsTest, AreAnsweredTogetherInTheirOrder) {
  const auto ticket = submit(std::vector<Shape>{{2, 2, 1}, {3, 1, 2}, {1, 4, 0}, {2, 2, 1}});
  const GroupsAnswer& answer = ticket->wait();
  ASSERT_TRUE(answer.error.ok()) << answer.error.message;
  ASSERT_EQ(answer.groups.size(), 4u);
  for (const Answer& group : answer.groups) EXPECT_TRUE(group.error.ok());
  EXPECT_EQ(answer.groups[2].devices, "");
  EXPECT_EQ(answer.groups[3].devices, "fake:0");
  EXPECT_THAT(ticket->memory->values, ElementsAre(1, 2, 2, 2, 4, 5));
}

TEST_F(GroupsTest, JoinEqualBatchesOfOthers) {
  const TicketPtr busy = h.occupy();
  const TicketPtr other = h.submit(3);
  const auto ticket = submit(std::vector<Shape>{{2, 2, 5}, {3, 3, 1}});
  h.device().open();
  EXPECT_TRUE(ticket->wait().error.ok());
  EXPECT_TRUE(other->wait().error.ok());
  bool joined = false;
  for (const auto& seen : h.device().seen()) joined = joined || seen.counts == std::vector<int64_t>{3, 5};
  EXPECT_TRUE(joined);
}

TEST_F(GroupsTest, AreOneRequestToTheLedger) {
  const TicketPtr busy = h.occupy();
  auto ticket = submit(std::vector<Shape>{{2, 2, 1}, {2, 2, 2}});
  EXPECT_EQ(h.pipeline->stats().inflight_requests, 2);
  EXPECT_EQ(h.pipeline->stats().inflight_bytes, 4 * kLedgerBytes);
  h.device().open();
  ticket->wait();
}

TEST_F(GroupsTest, AreAdmittedTogetherOrNotAtAll) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_inflight_bytes = 3 * kLedgerBytes;
  PipelineHarness small(options);
  auto ticket = std::make_shared<GroupsTicket>();
  ticket->handle = small.pipeline->submit_groups(groups_of({{2, 2, 2}, {2, 2, 2}}, ticket->memory),
                                                 [ticket](GroupsAnswer a) { ticket->done(std::move(a)); });
  EXPECT_EQ(ticket->wait().error.reason, Reason::kOverloadedBytes);
  EXPECT_EQ(small.pipeline->stats().inflight_bytes, 0);
  EXPECT_TRUE(small.device().seen().empty());
}

TEST_F(GroupsTest, AreCancelledTogether) {
  const TicketPtr busy = h.occupy();
  const auto ticket = submit(std::vector<Shape>{{2, 2, 1}, {3, 3, 1}, {4, 4, 1}});
  EXPECT_FALSE(ticket->done());
  h.pipeline->cancel(ticket->handle);
  EXPECT_EQ(ticket->wait().error.reason, Reason::kCancelled);
  h.device().open();
  EXPECT_TRUE(busy->wait().error.ok());
  EXPECT_EQ(h.device().seen().size(), 1u);
}

TEST_F(GroupsTest, ExpireTogether) {
  const TicketPtr busy = h.occupy();
  auto ticket = std::make_shared<GroupsTicket>();
  std::vector<Request> groups = groups_of({{2, 2, 1}, {3, 3, 1}}, ticket->memory);
  for (Request& group : groups) group.deadline = h.clock.now() + absl::Seconds(1);
  submit(std::move(groups), ticket);
  h.clock.advance(absl::Seconds(2));
  EXPECT_EQ(ticket->wait().error.reason, Reason::kDeadlineExceeded);
}

TEST_F(GroupsTest, TheFirstThatFailsEndsTheOthers) {
  h.device().close();
  const auto ticket = submit(std::vector<Shape>{{2, 2, 1}, {3, 3, 1}, {4, 4, 1}});
  h.device().await_begun(1);
  h.device().fail([] {
    DeviceOutcome outcome;
    outcome.status = absl::InternalError("broken");
    return outcome;
  });
  h.device().let(1);
  EXPECT_EQ(ticket->wait().error.reason, Reason::kDeviceFault);
  EXPECT_EQ(h.device().seen().size(), 1u);
}

TEST_F(GroupsTest, AreRefusedByTheirPath) {
  const auto error_of = [this](std::vector<Shape> shapes, const std::function<void(std::vector<Request>*)>& spoil) {
    auto ticket = std::make_shared<GroupsTicket>();
    auto groups = groups_of(shapes, ticket->memory);
    spoil(&groups);
    return submit(std::move(groups), ticket)->wait().error;
  };
  EXPECT_EQ(error_of({{2, 2, 1}, {0, 2, 1}}, [](auto*) {}).field, "groups[1].rows");
  EXPECT_EQ(error_of({{2, 2, 1}, {2, 2, 1}}, [](auto* g) { --(*g)[1].payload_bytes; }).field, "groups[1].data");
  EXPECT_EQ(error_of({{2, 2, 3}, {2, 2, 1}}, [](auto* g) { (*g)[0].count = -1; }).field, "groups[0].count");
  EXPECT_EQ(error_of({}, [](auto*) {}).field, "groups");
  EXPECT_EQ(error_of(std::vector<Shape>(kMaxGroups + 1, {1, 1, 1}), [](auto*) {}).field, "groups");
  EXPECT_EQ(error_of({{2, 2, 1}}, [](auto* g) { own_options(&(*g)[0])->top_k = 3; }).field, "options.top_k");
  EXPECT_EQ(h.pipeline->stats().inflight_requests, 0);
}

TEST_F(GroupsTest, TheWholeReplyKeepsToTheLimit) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_message_bytes = 4096 + 2 * (512 + 10 * (2 * 8 + 5));
  PipelineHarness small(options);
  for (const int64_t count : {10, 11}) {
    auto ticket = std::make_shared<GroupsTicket>();
    small.pipeline->submit_groups(groups_of({{2, 2, 10}, {2, 2, count}}, ticket->memory),
                                  [ticket](GroupsAnswer a) { ticket->done(std::move(a)); });
    EXPECT_EQ(ticket->wait().error.reason, count == 10 ? Reason::kNone : Reason::kReplyTooLarge);
  }
}

TEST_F(GroupsTest, OfManyShapesAllComeBack) {
  std::vector<Shape> shapes;
  for (int64_t i = 0; i < 500; ++i) shapes.push_back({1 + i % 7, 1 + i % 5, i % 4});
  const auto ticket = submit(shapes);
  ASSERT_TRUE(ticket->wait().error.ok());
  size_t at = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (int64_t m = 0; m < shapes[i].count; ++m) {
      for (int64_t j = 0; j < std::min(shapes[i].rows, shapes[i].cols); ++j) {
        ASSERT_EQ(ticket->memory->values[at++], static_cast<double>(i + 1) + static_cast<double>(j));
      }
    }
  }
  EXPECT_EQ(at, ticket->memory->values.size());
}

}  // namespace
}  // namespace svdserve::server
