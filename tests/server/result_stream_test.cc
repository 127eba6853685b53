#include "server/respond/result_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace svdserve::server {
namespace {

using Stream = ResultStream<std::string, int>;
using Next = Stream::Next;
using Begun = Stream::Begun;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

bool nothing(const Next& next) { return !next.write.has_value() && !next.read && !next.finish; }

Begun read(Stream* stream, uint64_t id, bool expect_read) {
  Next next;
  const Begun begun = stream->on_read(id, &next);
  EXPECT_EQ(next.read, expect_read);
  EXPECT_FALSE(next.finish);
  return begun;
}

TEST(ResultStream, ReadsUntilTheWindowIsFull) {
  Stream stream(2);
  EXPECT_TRUE(stream.opened().read);
  EXPECT_EQ(read(&stream, 1, true), Begun::kAccepted);
  EXPECT_EQ(read(&stream, 2, false), Begun::kAccepted);
  EXPECT_EQ(stream.in_flight(), 2u);

  const Next answered = stream.on_answer(2, "two");  // in the order of their being ready
  EXPECT_EQ(answered.write, "two");
  EXPECT_FALSE(answered.read);  // the slot is taken until the answer is written
  const Next waiting = stream.on_answer(1, "one");
  EXPECT_TRUE(nothing(waiting));  // one write at a time
  const Next written = stream.on_written();
  EXPECT_EQ(written.write, "one");
  EXPECT_TRUE(written.read);
  EXPECT_TRUE(nothing(stream.on_written()));  // a read is under way
}

TEST(ResultStream, SlowReaderStopsReading) {
  Stream stream(3);
  stream.opened();
  read(&stream, 1, true);
  read(&stream, 2, true);
  read(&stream, 3, false);
  for (uint64_t id : {1, 2, 3}) EXPECT_FALSE(stream.on_answer(id, "x").read);
  EXPECT_TRUE(stream.on_written().read);
}

TEST(ResultStream, DuplicateIdIsRefusedAndTakesASlot) {
  Stream stream(2);
  stream.opened();
  EXPECT_EQ(read(&stream, 7, true), Begun::kAccepted);
  EXPECT_EQ(read(&stream, 7, false), Begun::kDuplicate);
  EXPECT_EQ(stream.on_refused("duplicate").write, "duplicate");
  EXPECT_TRUE(stream.on_written().read);
  EXPECT_EQ(stream.in_flight(), 1u);
  EXPECT_EQ(stream.on_answer(7, "seven").write, "seven");
  EXPECT_EQ(read(&stream, 7, false), Begun::kAccepted);  // answered: it may be used again
}

TEST(ResultStream, FinishesWhenTheLastAnswerIsWritten) {
  Stream stream(4);
  stream.opened();
  read(&stream, 1, true);
  read(&stream, 2, true);
  EXPECT_TRUE(nothing(stream.on_reads_closed()));
  EXPECT_FALSE(stream.on_answer(1, "one").finish);
  EXPECT_FALSE(stream.on_answer(2, "two").finish);
  EXPECT_FALSE(stream.on_written().finish);
  EXPECT_TRUE(stream.on_written().finish);
}

TEST(ResultStream, EmptyStreamFinishesAtHalfClose) {
  Stream stream(4);
  stream.opened();
  EXPECT_TRUE(stream.on_reads_closed().finish);
  EXPECT_TRUE(nothing(stream.on_reads_closed()));
}

TEST(ResultStream, BreakingHandsOutWhatIsToBeCancelledAndWaitsForIt) {
  Stream stream(4);
  stream.opened();
  for (uint64_t id : {1, 2, 3}) {
    read(&stream, id, true);
    EXPECT_TRUE(stream.attach(id, static_cast<int>(id) * 10));
  }
  EXPECT_EQ(stream.on_answer(3, "three").write, "three");
  std::vector<int> handles;
  EXPECT_TRUE(nothing(stream.on_broken(&handles)));
  EXPECT_THAT(handles, UnorderedElementsAre(10, 20));
  EXPECT_TRUE(nothing(stream.on_broken(&handles)));
  EXPECT_THAT(handles, IsEmpty());
  EXPECT_TRUE(nothing(stream.on_reads_closed()));
  EXPECT_TRUE(nothing(stream.on_answer(1, "late")));
  EXPECT_TRUE(stream.on_answer(2, "late").finish);
}

TEST(ResultStream, HandleThatComesAfterTheBreakIsTheCallersToCancel) {
  Stream stream(4);
  stream.opened();
  read(&stream, 1, true);
  std::vector<int> handles;
  stream.on_broken(&handles);
  EXPECT_THAT(handles, IsEmpty());
  EXPECT_FALSE(stream.attach(1, 10));
  EXPECT_TRUE(stream.on_answer(1, "cancelled").finish);
}

TEST(ResultStream, HandleOfAnAnsweredRequestIsForgotten) {
  Stream stream(4);
  stream.opened();
  read(&stream, 1, true);
  stream.on_answer(1, "one");
  EXPECT_TRUE(stream.attach(1, 10));
  std::vector<int> handles;
  stream.on_broken(&handles);
  EXPECT_THAT(handles, IsEmpty());
}

// Whatever the order of events: at most one read and one write, the window is kept, finish comes once and last.
TEST(ResultStream, InvariantsHoldUnderRandomEvents) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const size_t window = 1 + random() % 5;
    Stream stream(window);
    bool reading = false, writing = false, finished = false;
    std::set<uint64_t> in_flight;
    size_t unwritten = 0, to_read = random() % 30;
    const auto act = [&](const Next& next) {
      EXPECT_FALSE(finished && !nothing(next));
      EXPECT_FALSE(next.read && reading);
      EXPECT_FALSE(next.write.has_value() && writing);
      reading |= next.read;
      writing |= next.write.has_value();
      finished |= next.finish;
    };
    act(stream.opened());
    for (int step = 0; step < 1000 && !finished; ++step) {
      const unsigned event = random() % 3;
      if (event == 0 && reading) {
        reading = false;
        if (to_read == 0) {
          act(stream.on_reads_closed());
          continue;
        }
        --to_read;
        ++unwritten;
        EXPECT_LE(unwritten, window);
        const uint64_t id = random() % 8;
        Next next;
        const bool is_new = stream.on_read(id, &next) == Begun::kAccepted;
        EXPECT_EQ(is_new, in_flight.insert(id).second);
        act(next);
        if (!is_new) act(stream.on_refused("duplicate"));
      } else if (event == 1 && !in_flight.empty()) {
        const uint64_t id = *in_flight.begin();
        in_flight.erase(id);
        act(stream.on_answer(id, "answer"));
      } else if (event == 2 && writing) {
        writing = false;
        --unwritten;
        act(stream.on_written());
      }
    }
    EXPECT_TRUE(finished) << seed;
    EXPECT_EQ(unwritten, 0u);
  }
}

}  // namespace
}  // namespace svdserve::server
