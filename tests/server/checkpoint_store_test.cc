// Files of large matrices: what an earlier server left is found, what is damaged or somebody else's is not.
#include "server/checkpoint/checkpoint_store.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/hanging_disk.h"

namespace svdserve::server {
namespace {

namespace fs = std::filesystem;

class CheckpointStoreTest : public ::testing::Test {
 protected:
  static constexpr int64_t kBytes = 1000;

  CheckpointStoreTest() : directory_((fs::temp_directory_path() / "svdserve_test_XXXXXX").string()) {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    restart();
  }
  ~CheckpointStoreTest() override {
    store_.reset();
    fs::remove_all(directory_);
  }

  // As if the server had been killed after its last transfer, and started again.
  void restart() {
    store_.reset();
    std::string why;
    store_ = CheckpointStore::open({directory_, 3 * kBytes, absl::Minutes(10), interval_, patience_, state_patience_},
                                   &clock_, &recorder_, &why);
    ASSERT_NE(store_, nullptr) << why;
  }
  std::string reopen() {
    std::string why;
    return CheckpointStore::open({directory_, kBytes, absl::Minutes(10)}, &clock_, &recorder_, &why) ? "opened" : why;
  }
  Checkpoint begin(int64_t bytes = kBytes, const std::string& owner = "me", int64_t states = 0) {
    return store_->begin(owner, "4 x 2", bytes, states, [this] { ++taken_; });
  }
  static std::string save(Checkpoint& files, CheckpointPart part, const std::vector<std::string>& parts,
                          const std::string& header = "") {
    ConstParts spans;
    for (const std::string& p : parts) spans.emplace_back(p.data(), p.size());
    std::promise<std::string> done;
    files.save(part, header, spans, nullptr, [&](const std::string& failed) { done.set_value(failed); });
    return done.get_future().get();
  }
  // A matrix with an operand on disk.
  Checkpoint saved(const std::string& operand = "operand", const std::string& owner = "me") {
    Checkpoint files = begin(kBytes, owner);
    EXPECT_EQ(save(files, CheckpointPart::kOperand, {operand}), "");
    return files;
  }
  static std::string load(Checkpoint& files, CheckpointPart part, std::vector<std::string>* parts,
                          std::string* header = nullptr) {
    MutableParts spans;
    for (std::string& p : *parts) spans.emplace_back(p.data(), p.size());
    std::promise<std::string> done;
    files.load(part, spans, nullptr, [&](const std::string& failed, const std::string& text) {
      if (header != nullptr) *header = text;
      done.set_value(failed);
    });
    return done.get_future().get();
  }
  std::optional<std::string> operand(Checkpoint& files, size_t bytes) {
    std::vector<std::string> parts = {std::string(bytes, '.')};
    const std::string failed = load(files, CheckpointPart::kOperand, &parts);
    return failed.empty() ? std::optional(parts[0]) : std::nullopt;
  }
  CheckpointStore::Claim claim(const ResumeToken& token, Checkpoint* files, const std::string& owner = "me",
                               const std::string& description = "4 x 2") {
    return store_->claim(
        token, owner, description, [this] { ++taken_; }, files);
  }
  // Saves a state of these bytes in a group of its own. False: it was not due, or is not on disk.
  bool save_state(LargeStateStore& states, LargeState state, const std::string& bytes) {
    const auto before = recorder_.factors();
    if (!states.due() || !states.begin(state, bytes.size())) return false;
    states.write(bytes.data(), bytes.size() / 2);
    states.write(bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2);
    states.end();
    await([&] {
      const auto now = recorder_.factors();
      return now.states > before.states || now.checkpoint_failures > before.checkpoint_failures;
    });
    return recorder_.factors().states > before.states;
  }
  static std::string state_of(LargeStateStore& states, LargeState state) {
    std::string bytes(states.open(state), '.');
    EXPECT_TRUE(states.read(bytes.data(), bytes.size() / 2));
    EXPECT_TRUE(states.read(bytes.data() + bytes.size() / 2, bytes.size() - bytes.size() / 2));
    return bytes;
  }
  std::unique_ptr<LargeStateStore> states_of(Checkpoint& files, int64_t others_bytes = 0) {
    return files.states(others_bytes, &cancel_);
  }
  fs::path folder(const ResumeToken& token) const { return fs::path(directory_) / absl::BytesToHexString(token); }
  // The store does it in the background.
  static void await(const std::function<bool()>& condition) {
    while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void await_removed(const ResumeToken& token) {
    await([&] { return !fs::exists(folder(token)); });
  }

  std::string directory_;
  absl::Duration interval_;  // between states
  absl::Duration patience_ = absl::Minutes(5), state_patience_ = absl::Minutes(5);
  std::atomic<bool> cancel_{false};
  FakeClock clock_;
  CountingRecorder recorder_;
  std::unique_ptr<CheckpointStore> store_;
  int taken_ = 0;
};

using Claim = CheckpointStore::Claim;

// The room is three times kBytes.
TEST_F(CheckpointStoreTest, StatesTakeNoRoomOfOperandsAndResults) {
  constexpr int64_t kSmall = kBytes / 5;
  Checkpoint with = begin(kSmall, "me", kBytes);
  ASSERT_TRUE(with);
  EXPECT_EQ(store_->usage().bytes, kSmall + kBytes);
  Checkpoint without = begin(kSmall, "me", kBytes);  // not in the lower half
  ASSERT_TRUE(without);
  EXPECT_EQ(store_->usage().bytes, 2 * kSmall + kBytes);
  EXPECT_TRUE(begin(3 * kBytes / 2, "you", kBytes));
}

// Nor do files go for states.
TEST_F(CheckpointStoreTest, StatesKeepTheFilesOfOthers) {
  for (const char* const owner : {"me", "you"}) saved("operand", owner);
  Checkpoint next = begin(kBytes / 2, "him", kBytes);
  ASSERT_TRUE(next);
  EXPECT_EQ(store_->usage().bytes, 2 * kBytes + kBytes / 2);
}

TEST_F(CheckpointStoreTest, ANewServerFindsWhatWasSaved) {
  ResumeToken token;
  {
    Checkpoint files = begin();
    token = files.token();
    EXPECT_EQ(token.size(), kResumeTokenBytes);
    EXPECT_FALSE(files.has(CheckpointPart::kOperand));
    EXPECT_EQ(save(files, CheckpointPart::kOperand, {"first ", "", "second"}), "");
    EXPECT_EQ(save(files, CheckpointPart::kResults, {"", "results"}, "a\nheader"), "");
  }
  restart();
  EXPECT_EQ(store_->usage().matrices, 1);
  EXPECT_EQ(store_->usage().bytes, kBytes);
  Checkpoint files;
  ASSERT_EQ(claim(token, &files), Claim::kYes);
  EXPECT_EQ(files.token(), token);
  EXPECT_EQ(operand(files, 12), "first second");
  ASSERT_TRUE(files.has(CheckpointPart::kResults));
  std::vector<std::string> results = {"....", "..."};
  std::string header;
  EXPECT_EQ(load(files, CheckpointPart::kResults, &results, &header), "");
  EXPECT_EQ(header, "a\nheader");
  EXPECT_EQ(results, (std::vector<std::string>{"resu", "lts"}));
  files.drop();
  await_removed(token);
  EXPECT_EQ(claim(token, &files), Claim::kUnknown);
}

TEST_F(CheckpointStoreTest, NobodyElseFindsIt) {
  const ResumeToken token = saved().token();
  Checkpoint files;
  EXPECT_EQ(claim("", &files), Claim::kUnknown);
  EXPECT_EQ(claim(std::string(kResumeTokenBytes, 'x'), &files), Claim::kUnknown);
  EXPECT_EQ(claim(token, &files, "you"), Claim::kUnknown);
  EXPECT_EQ(claim(token, &files, "me", "2 x 4"), Claim::kDiffers);
  EXPECT_FALSE(files);
  EXPECT_EQ(claim(token, &files), Claim::kYes);
  const struct {
    fs::path path;
    mode_t mode;
  } expected[] = {{folder(token), 0700}, {folder(token) / "operand", 0600}, {folder(token) / "request", 0600}};
  for (const auto& e : expected) {
    struct stat about {};
    ASSERT_EQ(stat(e.path.c_str(), &about), 0) << e.path;
    EXPECT_EQ(about.st_mode & 07777u, e.mode) << e.path;
  }
}

TEST_F(CheckpointStoreTest, TokensDiffer) {
  const Checkpoint a = begin(), b = begin();
  EXPECT_NE(a.token(), b.token());
}

TEST_F(CheckpointStoreTest, AnOperandThatWasNotSavedIsNoMatrix) {
  ResumeToken token;
  {
    const Checkpoint files = begin();
    token = files.token();
    Checkpoint other;
    EXPECT_EQ(claim(token, &other), Claim::kUnknown);
  }
  EXPECT_EQ(store_->usage().matrices, 0);
  await([&] { return store_->usage().bytes == 0; });
}

// The server was killed in the middle of it.
TEST_F(CheckpointStoreTest, UnfinishedFilesGoAndForeignOnesStay) {
  const ResumeToken without_request = saved().token(), without_operand = saved().token(), damaged = saved().token();
  store_.reset();
  fs::remove(folder(without_request) / "request");
  fs::rename(folder(without_operand) / "operand", folder(without_operand) / "operand.unfinished");
  std::ofstream(folder(damaged) / "request", std::ios::app) << "more";
  const fs::path foreign[] = {fs::path(directory_) / "lost+found", fs::path(directory_) / std::string(32, 'G')};
  for (const fs::path& path : foreign) fs::create_directory(path);
  restart();
  EXPECT_EQ(store_->usage().matrices, 0);
  for (const ResumeToken& token : {without_request, without_operand, damaged}) EXPECT_FALSE(fs::exists(folder(token)));
  for (const fs::path& path : foreign) EXPECT_TRUE(fs::exists(path)) << path;
}

TEST_F(CheckpointStoreTest, DamagedOperandsAreNotLoaded) {
  const std::string text(3000000, 'o');  // several pieces
  const auto flip = [](size_t at) {
    return [at](const fs::path& file) {
      std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
      f.seekg(static_cast<std::streamoff>(at));
      const char c = static_cast<char>(f.get() ^ 1);
      f.seekp(static_cast<std::streamoff>(at));
      f.put(c);
    };
  };
  const std::function<void(const fs::path&)> damages[] = {
      flip(0),
      flip(1500000),
      flip(text.size() - 1),
      flip(text.size()),       // of the trailer: its name
      flip(text.size() + 16),  // its checksum
      [&](const fs::path& file) { fs::resize_file(file, text.size()); },
      [](const fs::path& file) { fs::resize_file(file, 0); },
      [&](const fs::path& file) { fs::resize_file(file, text.size() + 1000); },
      [](const fs::path& file) { fs::remove(file); },
      [](const fs::path& file) {
        fs::rename(file, file.string() + "2");
        fs::create_symlink(file.string() + "2", file);  // the same bytes, by a link
      }};
  for (size_t i = 0; i < std::size(damages); ++i) {
    Checkpoint files = saved(text);
    EXPECT_EQ(operand(files, text.size()), text);
    damages[i](folder(files.token()) / "operand");
    EXPECT_EQ(operand(files, text.size()), std::nullopt) << i;
    files.drop();
  }
  EXPECT_EQ(recorder_.factors().checkpoint_failures, static_cast<int>(std::size(damages)));
}

TEST_F(CheckpointStoreTest, AClaimThatWasTakenOverIsVoid) {
  Checkpoint old = saved(), young;
  ASSERT_EQ(claim(old.token(), &young), Claim::kYes);
  EXPECT_EQ(taken_, 1);
  old.drop();
  old = {};
  EXPECT_EQ(operand(young, 7), "operand");
  const ResumeToken token = young.token();
  young = {};
  EXPECT_EQ(claim(token, &old), Claim::kYes);
  EXPECT_EQ(taken_, 1);  // nobody held it
}

TEST_F(CheckpointStoreTest, FilesThatNobodyClaimsMakeRoomTheOldestFirst) {
  const ResumeToken oldest = saved().token(), next = saved().token();
  Checkpoint held = saved();
  EXPECT_TRUE(begin());
  EXPECT_FALSE(begin(2 * kBytes + 1));  // what is held stays
  Checkpoint files;
  EXPECT_EQ(claim(oldest, &files), Claim::kUnknown);
  EXPECT_EQ(claim(next, &files), Claim::kYes);
  EXPECT_EQ(operand(files, 7), "operand");
  await_removed(oldest);
}

TEST_F(CheckpointStoreTest, FilesThatWereReleasedAreDroppedLater) {
  Checkpoint held = saved();
  const ResumeToken token = held.token();
  const auto drop = held.release();
  ASSERT_TRUE(drop);
  EXPECT_FALSE(held.release());  // it has no claim any more
  EXPECT_EQ(store_->usage().matrices, 1);
  drop();
  await_removed(token);
  EXPECT_EQ(store_->usage().matrices, 0);
  drop();  // and they are gone
}

TEST_F(CheckpointStoreTest, FilesThatWereReleasedMakeRoom) {
  Checkpoint held = saved();
  const ResumeToken token = held.token();
  const auto drop = held.release();
  Checkpoint next = begin(3 * kBytes);
  EXPECT_TRUE(next);
  await_removed(token);
  drop();
  EXPECT_EQ(store_->usage().matrices, 1);
}

TEST_F(CheckpointStoreTest, FilesThatAreClaimedAgainAreNotDropped) {
  Checkpoint held = saved(), again;
  const ResumeToken token = held.token();
  const auto drop = held.release();
  ASSERT_EQ(claim(token, &again), Claim::kYes);
  drop();
  EXPECT_EQ(operand(again, 7), "operand");
  again = {};  // and neither when that call has ended
  drop();
  ASSERT_EQ(claim(token, &again), Claim::kYes);
  EXPECT_EQ(operand(again, 7), "operand");
}

TEST_F(CheckpointStoreTest, TheOwnerOfMostFilesMakesRoom) {
  const ResumeToken modest = saved("operand", "you").token();
  std::vector<ResumeToken> greedy;
  for (int i = 0; i < 4; ++i) greedy.push_back(saved().token());
  Checkpoint yours, mine;
  EXPECT_EQ(claim(modest, &yours, "you"), Claim::kYes);
  EXPECT_EQ(claim(greedy[1], &mine), Claim::kUnknown);
  EXPECT_EQ(claim(greedy[2], &mine), Claim::kYes);
}

TEST_F(CheckpointStoreTest, FilesThatNobodyClaimsGoAfterTheirTime) {
  const ResumeToken token = saved().token();
  Checkpoint held = saved();
  clock_.advance(absl::Minutes(10) - absl::Seconds(1));
  store_->remove_expired();
  EXPECT_EQ(store_->usage().matrices, 2);
  clock_.advance(absl::Seconds(1));
  store_->remove_expired();
  EXPECT_EQ(store_->usage().matrices, 1);
  await_removed(token);
  held = {};
  clock_.advance(absl::Minutes(9));
  restart();  // it counts from the start
  clock_.advance(absl::Minutes(10) - absl::Seconds(1));
  store_->remove_expired();
  EXPECT_EQ(store_->usage().matrices, 1);
}

TEST_F(CheckpointStoreTest, ADiskThatIsFullFailsTheFilesAlone) {
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  Checkpoint files = begin();
  const std::string failed = save(files, CheckpointPart::kOperand, {std::string(5000, 'x')});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(failed, "");
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 1);
  Checkpoint other;
  EXPECT_EQ(claim(files.token(), &other), Claim::kUnknown);
  await_removed(files.token());
}

// --- states -------------------------------------------------------------------------------------

constexpr LargeState kEveryState[] = {LargeState::kFactors, LargeState::kStart, LargeState::kSweep};

TEST_F(CheckpointStoreTest, ANewServerFindsStates) {
  ResumeToken token;
  {
    Checkpoint files = saved();
    token = files.token();
    const auto states = states_of(files);
    for (const LargeState state : kEveryState) EXPECT_EQ(states->open(state), 0u);
    for (const LargeState state : kEveryState) EXPECT_TRUE(save_state(*states, state, name(state)));
    EXPECT_TRUE(save_state(*states, LargeState::kSweep, "a later one"));
  }
  restart();
  Checkpoint files;
  ASSERT_EQ(claim(token, &files), Claim::kYes);
  const auto states = states_of(files);
  EXPECT_EQ(state_of(*states, LargeState::kFactors), "factors");
  EXPECT_EQ(state_of(*states, LargeState::kStart), "start");
  EXPECT_EQ(state_of(*states, LargeState::kSweep), "a later one");
  EXPECT_EQ(operand(files, 7), "operand");
  struct stat about {};
  ASSERT_EQ(stat((folder(token) / "sweep").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777u, 0600u);
  EXPECT_EQ(recorder_.factors().states, 4);
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 0);
  files.drop();
  await_removed(token);
}

TEST_F(CheckpointStoreTest, AStateThatIsDamagedOrMissingIsNone) {
  Checkpoint files = saved();
  const auto states = states_of(files);
  const fs::path file = folder(files.token()) / "start";
  const std::function<void()> damages[] = {[&] { fs::resize_file(file, 20); }, [&] { fs::resize_file(file, 300); },
                                           [&] { fs::resize_file(file, 0); },
                                           [&] { std::fstream(file, std::ios::in | std::ios::out).put('x'); }};
  for (const auto& damage : damages) {
    ASSERT_TRUE(save_state(*states, LargeState::kStart, std::string(200, 's')));
    EXPECT_EQ(state_of(*states, LargeState::kStart), std::string(200, 's'));
    damage();
    std::string bytes(states->open(LargeState::kStart), '.');
    EXPECT_TRUE(bytes.empty() || !states->read(bytes.data(), bytes.size()));
  }
  EXPECT_EQ(recorder_.factors().checkpoint_failures, static_cast<int>(std::size(damages)));
  ASSERT_TRUE(save_state(*states, LargeState::kStart, "short"));
  ASSERT_EQ(states->open(LargeState::kStart), 5u);
  char bytes[6];
  EXPECT_FALSE(states->read(bytes, 6));
  EXPECT_EQ(recorder_.factors().checkpoint_failures, static_cast<int>(std::size(damages)) + 1);
  fs::remove(file);
  EXPECT_EQ(states->open(LargeState::kStart), 0u);
  EXPECT_EQ(recorder_.factors().checkpoint_failures, static_cast<int>(std::size(damages)) + 1);
}

TEST_F(CheckpointStoreTest, StatesComeAfterTheOperandAndFromOneCallAlone) {
  Checkpoint files = begin();
  const auto states = states_of(files);
  EXPECT_FALSE(states->due());
  EXPECT_EQ(states->open(LargeState::kSweep), 0u);
  ASSERT_EQ(save(files, CheckpointPart::kOperand, {"operand"}), "");
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, "old"));
  Checkpoint young;
  ASSERT_EQ(claim(files.token(), &young), Claim::kYes);
  EXPECT_FALSE(states->due());
  const auto of_young = states_of(young);
  EXPECT_EQ(state_of(*of_young, LargeState::kSweep), "old");
  EXPECT_TRUE(save_state(*of_young, LargeState::kSweep, "young"));
  EXPECT_EQ(states_of(young, kBytes), nullptr);  // all the room is the others'
}

TEST_F(CheckpointStoreTest, OneGroupOfStatesIsOnItsWayToTheDisk) {
  Checkpoint files = saved();
  const auto states = states_of(files);
  // The matrix's lane is busy until it may end.
  std::promise<void> busy, may_end;
  const std::string other = "x";
  files.save(CheckpointPart::kResults, "", {std::span(other.data(), other.size())}, nullptr, [&](const std::string&) {
    busy.set_value();
    may_end.get_future().wait();
  });
  busy.get_future().wait();
  ASSERT_TRUE(states->due());
  for (const LargeState state : {LargeState::kStart, LargeState::kSweep}) {
    ASSERT_TRUE(states->begin(state, 1));
    states->write("s", 1);
    states->end();
  }
  EXPECT_FALSE(states->due());
  EXPECT_FALSE(fs::exists(folder(files.token()) / "start"));
  may_end.set_value();
  await([&] { return recorder_.factors().states == 2; });  // last of all
  EXPECT_TRUE(states->due());
}

TEST_F(CheckpointStoreTest, StatesOfADeviceThatFailedAreNone) {
  Checkpoint files = saved();
  const ResumeToken token = files.token();
  auto of_failed = states_of(files);
  for (const LargeState state : kEveryState) EXPECT_TRUE(save_state(*of_failed, state, "rubbish"));
  {
    const HangingDisk disk(absl::BytesToHexString(token));
    ASSERT_TRUE(of_failed->due());
    files.states_dropper()();
    HangingDisk::await();
    EXPECT_FALSE(of_failed->due());
    const auto states = states_of(files);
    for (const LargeState state : kEveryState) EXPECT_EQ(states->open(state), 0u) << "removed soon";
    EXPECT_FALSE(states->due());
  }
  auto states = states_of(files);
  await([&] { return states->due(); });
  for (const LargeState state : kEveryState) EXPECT_FALSE(fs::exists(folder(token) / name(state)));
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, "good"));
  of_failed.reset();
  states.reset();
  files = {};
  restart();
  ASSERT_EQ(claim(token, &files), Claim::kYes);
  EXPECT_EQ(state_of(*states_of(files), LargeState::kSweep), "good");
}

// --- a disk that hangs --------------------------------------------------------------------------

TEST_F(CheckpointStoreTest, NoMatrixWaitsForTheFilesOfAnother) {
  Checkpoint slow = saved();
  const auto states = states_of(slow);
  std::future<bool> begun;  // after the disk's end
  const HangingDisk disk(absl::BytesToHexString(slow.token()));
  begun = std::async(std::launch::async, [&] { return states->due() && states->begin(LargeState::kSweep, 1); });
  HangingDisk::await();
  Checkpoint files = saved();
  EXPECT_EQ(operand(files, 7), "operand");
  EXPECT_TRUE(save_state(*states_of(files), LargeState::kSweep, "s"));
}

TEST_F(CheckpointStoreTest, TheOperandDoesNotWaitForStatesOfAnother) {
  Checkpoint slow = saved();
  const auto states = states_of(slow);
  ASSERT_TRUE(states->due() && states->begin(LargeState::kSweep, 1));
  const HangingDisk disk(absl::BytesToHexString(slow.token()));
  states->write("s", 1);
  states->end();
  HangingDisk::await();  // in fsync()
  Checkpoint files = begin();
  EXPECT_EQ(save(files, CheckpointPart::kOperand, {"operand"}), "");
}

TEST_F(CheckpointStoreTest, AComputationThatIsCancelledDoesNotWait) {
  Checkpoint files = saved();
  auto states = states_of(files);
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, "old"));
  const HangingDisk disk(absl::BytesToHexString(files.token()));
  auto begun = std::async(std::launch::async, [&] { return states->due() && states->begin(LargeState::kSweep, 1); });
  HangingDisk::await();
  cancel_ = true;
  EXPECT_FALSE(begun.get());
  // Nor does anything after it.
  EXPECT_FALSE(states->due());
  EXPECT_FALSE(states->begin(LargeState::kStart, 1));
  states->write("s", 1);
  states->end();
  EXPECT_EQ(states->open(LargeState::kSweep), 0u);
  char byte = 0;
  EXPECT_FALSE(states->read(&byte, 1));
  states.reset();
  files.drop();
}

TEST_F(CheckpointStoreTest, AComputationDoesNotWaitForEver) {
  state_patience_ = absl::Milliseconds(10);
  restart();
  Checkpoint files = saved();
  const auto states = states_of(files);
  const HangingDisk disk(absl::BytesToHexString(files.token()));
  ASSERT_TRUE(states->due());
  EXPECT_FALSE(states->begin(LargeState::kSweep, 1));
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 1);
  EXPECT_FALSE(states->due());
  EXPECT_EQ(states->open(LargeState::kSweep), 0u);
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 1);  // told once
}

TEST_F(CheckpointStoreTest, TheEndOfTheStoreDoesNotWait) {
  patience_ = absl::Milliseconds(10);
  restart();
  Checkpoint files = begin();
  const auto operand = std::make_shared<std::string>("operand"), results = std::make_shared<std::string>("results");
  int told = 0;
  const auto save = [&](CheckpointPart part, const std::shared_ptr<std::string>& bytes) {
    files.save(part, "", {std::span(bytes->data(), bytes->size())}, bytes, [&](const std::string&) { ++told; });
  };
  const HangingDisk disk(absl::BytesToHexString(files.token()));
  save(CheckpointPart::kOperand, operand);
  HangingDisk::await();
  save(CheckpointPart::kResults, results);
  files = {};
  store_.reset();
  EXPECT_EQ(told, 0);
  EXPECT_EQ(operand.use_count(), 2);  // it may still be read
  EXPECT_EQ(results.use_count(), 1);
}

TEST_F(CheckpointStoreTest, AStateThatIsNotEndedLeavesNothing) {
  Checkpoint files = saved();
  const auto unfinished = [&] {
    return std::count_if(fs::directory_iterator(folder(files.token())), fs::directory_iterator(),
                         [](const auto& file) { return file.path().extension() == ".unfinished"; });
  };
  auto states = states_of(files);
  ASSERT_TRUE(states->due() && states->begin(LargeState::kStart, 100));
  states->write("start", 5);
  EXPECT_EQ(unfinished(), 1);
  ASSERT_TRUE(states->begin(LargeState::kSweep, 100));
  EXPECT_EQ(unfinished(), 1);
  states.reset();
  await([&] { return unfinished() == 0; });
  std::ofstream(folder(files.token()) / "sweep.7.unfinished") << "of a server that was killed";
  const ResumeToken token = files.token();
  files = {};
  restart();
  ASSERT_EQ(claim(token, &files), Claim::kYes);
  EXPECT_EQ(unfinished(), 0);
}

TEST_F(CheckpointStoreTest, StatesKeepToTheirRoom) {
  Checkpoint files = saved();
  const auto states = states_of(files, kBytes - 200);
  EXPECT_TRUE(save_state(*states, LargeState::kFactors, std::string(60, 'f')));
  EXPECT_TRUE(save_state(*states, LargeState::kFactors, std::string(60, 'g')));  // in the place of the other
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, std::string(20, 's')));
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, std::string(20, 't')));
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 0);
  EXPECT_FALSE(save_state(*states, LargeState::kStart, std::string(80, 's')));
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 1);
  EXPECT_FALSE(states->due());  // and no more are tried
  EXPECT_EQ(state_of(*states, LargeState::kSweep), std::string(20, 't'));
}

TEST_F(CheckpointStoreTest, ADiskThatIsFullFailsTheStateAlone) {
  Checkpoint files = saved();
  const auto states = states_of(files);
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {400, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const bool is_saved = save_state(*states, LargeState::kSweep, std::string(500, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(is_saved);
  EXPECT_EQ(recorder_.factors().checkpoint_failures, 1);
  EXPECT_EQ(states->open(LargeState::kSweep), 0u);
  EXPECT_EQ(operand(files, 7), "operand");
}

TEST_F(CheckpointStoreTest, StatesLeaveTimeForTheComputation) {
  interval_ = absl::Seconds(1);
  restart();
  Checkpoint files = saved();
  const auto states = states_of(files);
  EXPECT_FALSE(states->due());  // it has computed for no time
  clock_.advance(absl::Seconds(1));
  EXPECT_TRUE(save_state(*states, LargeState::kSweep, "s"));
  clock_.advance(absl::Seconds(0.9));
  EXPECT_FALSE(states->due());
  clock_.advance(absl::Seconds(0.1));
  ASSERT_TRUE(states->due() && states->begin(LargeState::kSweep, 1));
  clock_.advance(absl::Seconds(2));  // the disk is slow
  states->write("s", 1);
  states->end();
  await([&] { return recorder_.factors().states == 2; });
  clock_.advance(absl::Seconds(37));
  EXPECT_FALSE(states->due());
  clock_.advance(absl::Seconds(1.1));
  EXPECT_TRUE(states->due());
}

TEST_F(CheckpointStoreTest, ADirectoryIsForOneServerAndOneUser) {
  EXPECT_EQ(reopen(), "another server uses it");
  store_.reset();
  ASSERT_EQ(chmod(directory_.c_str(), 0770), 0);
  EXPECT_EQ(reopen(), "it must belong to the server's user, and be writable by no other");
  ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
  EXPECT_EQ(reopen(), "opened");
  fs::remove_all(directory_);
  EXPECT_EQ(reopen(), "opened");  // it is made
  EXPECT_EQ(fs::status(directory_).permissions(), fs::perms::owner_all);
  fs::remove_all(directory_);
  const std::string directory = std::exchange(directory_, directory_ + "/below");
  EXPECT_EQ(reopen(), "No such file or directory");
  directory_ = directory;
  std::ofstream(directory_) << "a file";
  EXPECT_EQ(reopen(), "Not a directory");
}

}  // namespace
}  // namespace svdserve::server
