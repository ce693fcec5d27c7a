#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using cox::FileDescriptor;
using cox::HeldSet;
using cox::KeeperConnection;
using cox::KeeperMessage;
using cox::KeeperWait;
using cox::KeptError;
using cox::KeptPieces;
using cox::tools::Keeper;
using cox::tools::KeeperLimits;

namespace {

constexpr std::source_location here = std::source_location::current();

/// A run of a keeper, which answers on a thread of its own until the run has ended.
class Run {
 public:
  explicit Run(Keeper& keeper) : keeper_(keeper), connection_(std::in_place, keeper.begin_run().release()) {
    thread_ = std::thread([&keeper] {
      while (keeper.answer_one()) {
      }
    });
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (thread_.joinable()) static_cast<void>(end());
  }

  KeeperConnection* operator->() { return &*connection_; }
  /// Returns whether a successor is likely to make progress.
  bool end() {
    connection_.reset();
    thread_.join();
    return keeper_.end_run();
  }

 private:
  Keeper& keeper_;
  std::optional<KeeperConnection> connection_;
  std::thread thread_;
};

KeptPieces pieces_with(const std::vector<std::string>& contents) {
  KeptPieces pieces;
  for (const std::string& text : contents) {
    pieces.descriptors.emplace_back(memfd_create("test", MFD_CLOEXEC));
    REQUIRE(write(pieces.descriptors.back().get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    pieces.sizes.push_back(text.size());
  }
  return pieces;
}

std::string content(const FileDescriptor& descriptor) {
  std::string text(256, '\0');
  const ssize_t size = pread(descriptor.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

KeptError::Kind kind_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const KeptError& error) {
    return error.kind();
  }
  FAIL("no KeptError");
  return KeptError::Kind::Order;
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (int i = 0; i < 4096; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1U : 0U;
  return count;
}

}  // namespace

TEST_CASE("A keeper gives a run what the one before has left, piece by piece") {
  const std::size_t before = open_descriptors();
  {
    Keeper keeper;
    {
      Run run(keeper);
      CHECK(run->open("model", "v1", "in place", here).memory.empty());
      run->keep("model", "host:0", "weights", 100, pieces_with({"first", "second"}), here);
      run->keep("model", "host:1", "weights", 100, pieces_with({"other"}), here);
      run->send_values("model", "host:0", 1, bytes_of("step 1"), here);
      run->send_values("model", "host:0", 2, bytes_of("step 2"), here);
    }
    CHECK(keeper.holds_memory());
    CHECK(keeper.bytes() == 16);
    CHECK(keeper.to_string() == "model: 2 allocations, 16 B on host:0, host:1, last commit 2\n");
    Run run(keeper);
    const HeldSet held = run->open("model", "v1", "in place", here);
    CHECK(held.generation == 2);
    CHECK(held.memory == std::map<std::pair<std::string, std::string>, std::uint64_t>{{{"host:0", "weights"}, 100},
                                                                                      {{"host:1", "weights"}, 100}});
    REQUIRE(held.values.size() == 2);
    CHECK((held.values[1].device == "host:0" && held.values[1].epoch == 2));
    CHECK(std::memcmp(held.values[1].bytes.data(), "step 2", 6) == 0);
    const KeptPieces pieces = run->take("model", "host:0", "weights", here);
    REQUIRE(pieces.descriptors.size() == 2);
    CHECK(pieces.sizes == std::vector<std::uint64_t>{5, 6});
    CHECK(content(pieces.descriptors[0]) == "first");
    CHECK(content(pieces.descriptors[1]) == "second");
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("More pieces than a packet holds arrive in their order") {
  Keeper keeper;
  std::vector<std::string> contents;
  for (int i = 0; i < 600; ++i) contents.push_back(std::to_string(i));
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  run->keep("model", "host:0", "weights", 1, pieces_with(contents), here);
  const KeptPieces pieces = run->take("model", "host:0", "weights", here);
  REQUIRE(pieces.descriptors.size() == 600);
  for (std::size_t i = 0; i < 600; ++i) CHECK(content(pieces.descriptors[i]) == contents[i]);
}

TEST_CASE("Only memory of which all pieces have arrived is held") {
  Keeper keeper;
  FileDescriptor socket = keeper.begin_run();
  const auto send = [&](KeeperMessage message) { send_message(socket.get(), message, KeeperWait::Yes, here); };
  KeeperMessage open;
  open.kind = KeeperMessage::Kind::Open;
  open.set = "model";
  send(std::move(open));
  KeptPieces pieces = pieces_with({"part"});
  KeeperMessage keep;
  keep.kind = KeeperMessage::Kind::Keep;
  keep.set = "model";
  keep.device = "host:0";
  keep.name = "weights";
  keep.number = 0;  // more follow, but the process ends
  keep.sizes = pieces.sizes;
  keep.descriptors = std::move(pieces.descriptors);
  send(std::move(keep));
  CHECK(keeper.answer_one());
  CHECK(keeper.answer_one());
  CHECK(keeper.bytes() == 4);
  socket.reset();
  CHECK_FALSE(keeper.end_run());
  CHECK_FALSE(keeper.holds_memory());
  CHECK(keeper.bytes() == 0);
}

TEST_CASE("A set is given to a run with the same schema and mode alone, and stays held") {
  Keeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "v1", "in place", here));
    run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here);
  }
  Run run(keeper);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v2", "in place", here)); }) == KeptError::Kind::Schema);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v1", "double", here)); }) == KeptError::Kind::Schema);
  CHECK(run->open("model", "v1", "in place", here).memory.size() == 1);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v1", "in place", here)); }) == KeptError::Kind::InUse);
}

TEST_CASE("A set that was closed can be opened again in the same run, with a greater generation") {
  Keeper keeper;
  Run run(keeper);
  const HeldSet first = run->open("model", "v1", "in place", here);
  run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here);
  run->close("model");
  const HeldSet second = run->open("model", "v1", "in place", here);
  CHECK(second.memory.size() == 1);
  CHECK(second.generation > first.generation);
}

TEST_CASE("A keeper refuses what is unknown, held already or beyond its limits") {
  Keeper keeper(KeeperLimits{.bytes = 10, .sets = 1, .allocations = 2});
  Run run(keeper);
  CHECK(kind_of([&] { static_cast<void>(run->take("model", "host:0", "weights", here)); }) == KeptError::Kind::Order);
  static_cast<void>(run->open("model", "", "in place", here));
  CHECK(kind_of([&] { static_cast<void>(run->open("other", "", "in place", here)); }) == KeptError::Kind::Limit);
  CHECK(kind_of([&] { static_cast<void>(run->take("model", "host:0", "weights", here)); }) == KeptError::Kind::Order);
  run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here);
  CHECK(kind_of([&] { run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here); }) ==
        KeptError::Kind::InUse);
  CHECK(kind_of([&] { run->keep("model", "host:0", "more", 7, pieces_with({"seven b"}), here); }) ==
        KeptError::Kind::Limit);
  CHECK(keeper.bytes() == 4);
  run->keep("model", "host:0", "more", 6, pieces_with({"six by"}), here);
  run->forget("model", "host:0", "weights", here);
  run->keep("model", "host:0", "again", 4, pieces_with({"text"}), here);
  CHECK(kind_of([&] { run->keep("model", "host:0", "third", 0, pieces_with({""}), here); }) == KeptError::Kind::Limit);
  run->forget("model", "", "", here);
  CHECK_FALSE(keeper.holds_memory());
}

TEST_CASE("Runs without a commit are counted, and only one that has made progress promises more") {
  Keeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here);
    CHECK_FALSE(run.end());  // nothing was committed
  }
  for (const std::uint64_t epoch : {3U, 7U}) {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    CHECK(run->found("model", epoch, here) == 0);
    run->send_values("model", "host:0", epoch + 1, {}, here);
    CHECK(run.end());
  }
  for (std::uint64_t runs = 1; runs < 4; ++runs) {  // each sends values, but the memory stays at epoch 7
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    CHECK(run->found("model", 7, here) == runs);
    run->send_values("model", "host:0", 8, {}, here);
    CHECK_FALSE(run.end());
  }
}

TEST_CASE("The values of the last epochs are held; those of a history that was given up are not") {
  Keeper keeper(KeeperLimits{.epochs = 2});
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    for (const std::uint64_t epoch : {1U, 2U, 3U}) run->send_values("model", "host:0", epoch, bytes_of("old"), here);
    run->send_values("model", "host:0", 3, bytes_of("new"), here);
  }
  Run run(keeper);
  const HeldSet held = run->open("model", "", "in place", here);
  REQUIRE(held.values.size() == 2);
  CHECK((held.values[0].epoch == 2 && held.values[1].epoch == 3));
  CHECK(std::memcmp(held.values[1].bytes.data(), "new", 3) == 0);
}

TEST_CASE("A process that sends something else is disconnected, and what was held stays") {
  Keeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, pieces_with({"text"}), here);
  }
  const FileDescriptor socket = keeper.begin_run();
  REQUIRE(write(socket.get(), "hello", 5) == 5);
  CHECK_FALSE(keeper.answer_one());
  CHECK_FALSE(keeper.end_run());
  CHECK(keeper.holds_memory());
}

TEST_CASE("A connection belongs to the process that has made it") {
  Keeper keeper;
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  const pid_t child = fork();
  if (child == 0) {
    try {
      run->send_values("model", "host:0", 1, {}, here);
    } catch (const KeptError& error) {
      _exit(error.kind() == KeptError::Kind::Forked ? 0 : 1);
    }
    _exit(2);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
