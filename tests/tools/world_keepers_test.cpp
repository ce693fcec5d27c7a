#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tools/cox/supervisor/wait_readable.hpp>
#include <coxswain/tools/cox/supervisor/world_keepers.hpp>

#include <sys/mman.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::KeeperConnection;
using cox::KeptError;
using cox::KeptPieces;
using cox::test::TemporaryFolder;
using cox::tools::KeeperLimits;
using cox::tools::WorldKeepers;

namespace {

constexpr std::source_location test_site = std::source_location::current();

/// A run of two processes, both of which are this one. Answers on a thread of its own until end().
class RunOfTwo {
 public:
  explicit RunOfTwo(WorldKeepers& keepers) : keepers_(keepers) {
    keepers_.begin_run();
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        cox::tools::wait_readable(keepers_.descriptors(), std::chrono::milliseconds(5));
        keepers_.serve();
      }
    });
    for (std::size_t process = 0; process < 2; ++process)
      connections_.push_back(std::make_unique<KeeperConnection>(keepers_.path(process).string(), test_site));
  }
  RunOfTwo(const RunOfTwo&) = delete;
  RunOfTwo& operator=(const RunOfTwo&) = delete;
  ~RunOfTwo() {
    if (thread_.joinable()) static_cast<void>(end());
  }

  KeeperConnection& process(std::size_t number) { return *connections_[number]; }
  bool end() {
    connections_.clear();
    stop_.store(true);
    thread_.join();
    return keepers_.end_run();
  }

 private:
  WorldKeepers& keepers_;
  std::vector<std::unique_ptr<KeeperConnection>> connections_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

cox::HeldSet open_model(KeeperConnection& process) { return process.open("model", "v1", "in place", test_site); }

// One piece of that size.
void keep_piece(KeeperConnection& process, std::size_t bytes, const std::string& name = "weights") {
  process.keep(
      "model", "host:0", name, bytes, 0,
      [bytes] {
        KeptPieces pieces;
        pieces.descriptors.emplace_back(memfd_create("test", MFD_CLOEXEC));
        pieces.sizes.push_back(bytes);
        return pieces;
      },
      test_site);
}

void commit(KeeperConnection& process, std::uint64_t epoch) {
  process.send_values("model", "host:0", epoch, std::as_bytes(std::span(&epoch, 1)), test_site);
}

}  // namespace

TEST_CASE("Each process of a world is given what the one with its number has left") {
  const TemporaryFolder folder;
  WorldKeepers keepers(folder.path() / "kept", 2);
  {
    RunOfTwo run(keepers);
    CHECK(keepers.path(0) != keepers.path(1));
    static_cast<void>(open_model(run.process(0)));
    static_cast<void>(open_model(run.process(1)));  // of the same name, and open in both
    keep_piece(run.process(0), 100);
    keep_piece(run.process(1), 200);
    commit(run.process(1), 3);
  }
  CHECK(keepers.holds_memory());
  CHECK(keepers.bytes() == 300);
  CHECK(keepers.to_string() ==
        "process 0: model: 1 allocations, 100 B on host:0, values of update 0\n"
        "process 1: model: 1 allocations, 200 B on host:0, values of update 3\n");
  RunOfTwo run(keepers);
  CHECK(open_model(run.process(0)).memory.at({"host:0", "weights"}).bytes == 100);
  const cox::HeldSet held = open_model(run.process(1));
  CHECK(held.memory.at({"host:0", "weights"}).bytes == 200);
  CHECK(held.values.size() == 1);
}

TEST_CASE("The limits of kept memory are for all processes of a world together") {
  const TemporaryFolder folder;
  WorldKeepers keepers(folder.path() / "kept", 2, KeeperLimits{.bytes = 1000, .descriptors = 3, .allocations = 4});
  RunOfTwo run(keepers);
  for (std::size_t process = 0; process < 2; ++process) static_cast<void>(open_model(run.process(process)));
  keep_piece(run.process(0), 600);
  const auto text_of = [&](std::size_t process, std::size_t bytes, const std::string& name) {
    try {
      keep_piece(run.process(process), bytes, name);
    } catch (const KeptError& error) {
      return std::string(error.what());
    }
    return std::string("held");
  };
  CHECK_THAT(text_of(1, 401, "weights"), ContainsSubstring("needs 401 B; the supervisor holds 600 B and may hold"));
  CHECK(text_of(1, 400, "weights") == "held");
  CHECK(text_of(0, 0, "second") == "held");
  CHECK_THAT(text_of(1, 0, "second"), ContainsSubstring("the supervisor holds 3 and may hold 3 (ulimit -n)"));
}

TEST_CASE("A world is likely to make progress if each process that keeps memory is") {
  const TemporaryFolder folder;
  WorldKeepers keepers(folder.path() / "kept", 2);
  const auto run_with_commits = [&](std::uint64_t of_first, std::uint64_t of_second) {
    RunOfTwo run(keepers);
    for (std::size_t process = 0; process < 2; ++process) {
      const std::uint64_t epoch = process == 0 ? of_first : of_second;
      const cox::HeldSet held = open_model(run.process(process));
      if (held.memory.empty()) keep_piece(run.process(process), 100);
      if (!held.memory.empty()) static_cast<void>(run.process(process).found("model", epoch, test_site));
      commit(run.process(process), epoch + 1);
    }
    return run.end();
  };
  CHECK(run_with_commits(0, 0));        // new
  CHECK(run_with_commits(1, 1));        // both have found a commit
  CHECK_FALSE(run_with_commits(2, 1));  // the second one has not committed since
  CHECK(run_with_commits(3, 2));
  RunOfTwo unused(keepers);
  CHECK_FALSE(unused.end());  // no update was queued
}
