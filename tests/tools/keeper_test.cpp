#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tests/support/variable.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <source_location>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::FileDescriptor;
using cox::HeldSet;
using cox::KeeperConnection;
using cox::KeeperMessage;
using cox::KeeperWait;
using cox::KeptError;
using cox::KeptPieces;
using cox::test::TemporaryFolder;
using cox::tools::Keeper;
using cox::tools::KeeperLimits;

namespace {

constexpr std::source_location here = std::source_location::current();

/// A keeper with a socket in a folder of its own.
class TestKeeper {
 public:
  explicit TestKeeper(KeeperLimits limits = {}) : keeper_(folder_.path() / "kept", limits) {}
  Keeper* operator->() { return &keeper_; }
  Keeper& operator*() { return keeper_; }

 private:
  TemporaryFolder folder_;
  Keeper keeper_;
};

/// A run of a keeper, which answers on a thread of its own until the run has ended, with one process: this one.
class Run {
 public:
  explicit Run(TestKeeper& keeper) : keeper_(*keeper) {
    keeper_.begin_run();
    thread_ = std::thread([this] {
      while (!stop_.load()) {
        std::vector<pollfd> watched;
        for (const int each : keeper_.descriptors()) watched.push_back({.fd = each, .events = POLLIN, .revents = 0});
        static_cast<void>(poll(watched.data(), watched.size(), 5));
        keeper_.serve();
      }
    });
    connection_.emplace(keeper_.path().string(), here);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (thread_.joinable()) static_cast<void>(end());
  }

  KeeperConnection* operator->() { return &*connection_; }
  KeeperConnection& operator*() { return *connection_; }
  /// Returns whether a successor is likely to make progress.
  bool end() {
    connection_.reset();
    stop_.store(true);
    thread_.join();
    return keeper_.end_run();
  }

 private:
  Keeper& keeper_;
  std::optional<KeeperConnection> connection_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// This process has no descriptor left.
class WithoutDescriptors {
 public:
  WithoutDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit less{.rlim_cur = std::min<rlim_t>(before_.rlim_cur, 512), .rlim_max = before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &less) == 0);
    for (int i = dup(0); i >= 0; i = dup(0)) occupied_.emplace_back(i);
  }
  WithoutDescriptors(const WithoutDescriptors&) = delete;
  WithoutDescriptors& operator=(const WithoutDescriptors&) = delete;
  ~WithoutDescriptors() { static_cast<void>(setrlimit(RLIMIT_NOFILE, &before_)); }

 private:
  rlimit before_{};
  std::vector<FileDescriptor> occupied_;
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

/// Pieces with these contents, made when they are taken.
cox::KeptPieceSource source_of(std::vector<std::string> contents) {
  return [contents = std::move(contents), taken = std::size_t{0}]() mutable {
    const std::size_t end = std::min(contents.size(), taken + KeeperMessage::pieces_at_a_time);
    const auto at = [&](std::size_t i) { return contents.begin() + static_cast<std::ptrdiff_t>(i); };
    KeptPieces next = pieces_with({at(taken), at(end)});
    taken = end;
    next.are_last = taken == contents.size();
    return next;
  };
}

std::vector<std::string> numbers_to(int count) {
  std::vector<std::string> texts;
  for (int i = 0; i < count; ++i) texts.push_back(std::to_string(i));
  return texts;
}

std::string content(const FileDescriptor& descriptor) {
  std::string text(256, '\0');
  const ssize_t size = pread(descriptor.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return text;
}

/// All pieces that the keeper holds of that memory.
KeptPieces take_all(KeeperConnection& connection, const std::string& set, const std::string& device,
                    const std::string& name) {
  KeptPieces all;
  for (all.are_last = false; !all.are_last;) {
    KeptPieces next = connection.take(set, device, name, all.sizes.size(), here);
    std::ranges::move(next.descriptors, std::back_inserter(all.descriptors));
    std::ranges::move(next.sizes, std::back_inserter(all.sizes));
    all.are_last = next.are_last;
  }
  return all;
}

std::string text_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const KeptError& error) {
    return error.what();
  }
  return {};
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

TEST_CASE("The socket of a keeper may lie in a folder with a long name") {
  const TemporaryFolder folder;
  const std::filesystem::path deep = folder.path() / std::string(150, 'd');
  std::filesystem::create_directory(deep);
  Keeper keeper(deep / "kept");
  keeper.begin_run();
  const FileDescriptor connection = cox::connect_local(keeper.path());
  keeper.serve();
  CHECK(keeper.descriptors().size() == 2);
}

TEST_CASE("A keeper gives a run what the one before has left, piece by piece") {
  const std::size_t before = open_descriptors();
  {
    TestKeeper keeper;
    {
      Run run(keeper);
      CHECK(run->open("model", "v1", "in place", here).memory.empty());
      run->keep("model", "host:0", "weights", 100, 0, source_of({"first", "second"}), here);
      run->keep("model", "host:1", "weights", 100, 5, source_of({"other"}), here);
      run->send_values("model", "host:0", 1, bytes_of("step 1"), here);
      run->send_values("model", "host:0", 2, bytes_of("step 2"), here);
    }
    CHECK(keeper->holds_memory());
    CHECK(keeper->bytes() == 16);
    CHECK(keeper->to_string() == "model: 2 allocations, 16 B on host:0, host:1, values of update 2\n");
    Run run(keeper);
    const HeldSet held = run->open("model", "v1", "in place", here);
    CHECK(held.generation == 2);
    REQUIRE(held.memory.size() == 2);
    CHECK(held.memory.at({"host:0", "weights"}).bytes == 100);
    CHECK(held.memory.at({"host:1", "weights"}).epoch == 5);
    REQUIRE(held.values.size() == 2);
    CHECK((held.values[1].device == "host:0" && held.values[1].epoch == 2));
    CHECK(std::memcmp(held.values[1].bytes.data(), "step 2", 6) == 0);
    const KeptPieces pieces = take_all(*run, "model", "host:0", "weights");
    REQUIRE(pieces.descriptors.size() == 2);
    CHECK(pieces.sizes == std::vector<std::uint64_t>{5, 6});
    CHECK(content(pieces.descriptors[0]) == "first");
    CHECK(content(pieces.descriptors[1]) == "second");
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("A process holds few descriptors at a time, however many pieces its memory has") {
  TestKeeper keeper;
  const std::vector<std::string> contents = numbers_to(1000);
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  const std::size_t before = open_descriptors();
  std::size_t given = 0;
  bool holds_more = false;  // than the keeper, which is in this process, too
  auto source = source_of(contents);
  run->keep(
      "model", "host:0", "weights", 1, 0,
      [&] {
        holds_more = holds_more || open_descriptors() != before + given;
        KeptPieces next = source();
        given += next.sizes.size();
        return next;
      },
      here);
  CHECK(given == contents.size());
  CHECK_FALSE(holds_more);
  CHECK(open_descriptors() == before + given);
  for (std::size_t first = 0; first < contents.size();) {
    const KeptPieces pieces = run->take("model", "host:0", "weights", first, here);
    REQUIRE((!pieces.sizes.empty() && pieces.sizes.size() <= KeeperMessage::pieces_at_a_time));
    CHECK(open_descriptors() <= before + given + 2 * KeeperMessage::pieces_at_a_time);
    for (const FileDescriptor& each : pieces.descriptors) CHECK(content(each) == contents[first++]);
    CHECK(pieces.are_last == (first == contents.size()));
  }
  CHECK(kind_of([&] { static_cast<void>(run->take("model", "host:0", "weights", 1000, here)); }) ==
        KeptError::Kind::Order);
}

TEST_CASE("Only memory of which all pieces have arrived is held") {
  TestKeeper keeper;
  keeper->begin_run();
  FileDescriptor socket = cox::connect_local(keeper->path());
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
  keeper->serve();
  CHECK(keeper->bytes() == 4);
  socket.reset();
  CHECK_FALSE(keeper->end_run());
  CHECK_FALSE(keeper->holds_memory());
  CHECK(keeper->bytes() == 0);
}

TEST_CASE("A set is given to a run with the same schema and mode alone, and stays held") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "v1", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  }
  Run run(keeper);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v2", "in place", here)); }) == KeptError::Kind::Schema);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v1", "double", here)); }) == KeptError::Kind::Schema);
  CHECK(run->open("model", "v1", "in place", here).memory.size() == 1);
  CHECK(kind_of([&] { static_cast<void>(run->open("model", "v1", "in place", here)); }) == KeptError::Kind::InUse);
}

TEST_CASE("A set that was closed can be opened again in the same run, with a greater generation") {
  TestKeeper keeper;
  Run run(keeper);
  const HeldSet first = run->open("model", "v1", "in place", here);
  run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  run->close("model");
  const HeldSet second = run->open("model", "v1", "in place", here);
  CHECK(second.memory.size() == 1);
  CHECK(second.generation > first.generation);
}

TEST_CASE("Two processes of a run have connections of their own, and a set belongs to one of them") {
  TestKeeper keeper;
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  const std::string path = keeper->path();
  const pid_t child = fork();
  if (child == 0) {
    int code = 2;
    try {
      KeeperConnection other(path, here);
      static_cast<void>(other.open("mine", "", "in place", here));
      static_cast<void>(other.open("model", "", "in place", here));
    } catch (const KeptError& error) {
      code = error.kind() == KeptError::Kind::InUse ? 0 : 1;
    }
    _exit(code);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(run->take("model", "host:0", "weights", 0, here).descriptors.size() == 1);
}

TEST_CASE("A process of a prepared run is answered when that run begins, and has what the run before has left") {
  TestKeeper keeper;
  std::optional<Run> run(std::in_place, keeper);
  static_cast<void>((*run)->open("model", "", "in place", here));
  (*run)->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  const std::string prepared = keeper->prepare_run();
  CHECK(prepared != keeper->path().string());
  CHECK_FALSE(cox::is_readable(keeper->prepared_descriptor()));
  std::atomic<bool> opened{false};
  std::thread successor([&] {
    KeeperConnection connection(prepared, here);
    const HeldSet held = connection.open("model", "", "in place", here);
    opened.store(true);
    CHECK(held.memory.size() == 1);
    CHECK(held.generation == 2);
    CHECK(content(connection.take("model", "host:0", "weights", 0, here).descriptors[0]) == "text");
  });
  while (!cox::is_readable(keeper->prepared_descriptor())) std::this_thread::yield();
  (*run)->send_values("model", "host:0", 1, {}, here);  // the run goes on
  static_cast<void>(run->end());
  CHECK_FALSE(opened.load());
  run.reset();
  run.emplace(keeper);
  CHECK(keeper->path() == prepared);
  successor.join();
  CHECK(opened.load());
}

TEST_CASE("A process of a run that has ended, or that was prepared and dropped, cannot connect any more") {
  TestKeeper keeper;
  keeper->begin_run();
  const std::string first = keeper->path();
  const std::string prepared = keeper->prepare_run();
  const FileDescriptor waits = cox::connect_local(prepared);
  keeper->drop_prepared();
  CHECK(cox::is_readable(waits.get()));  // its end
  CHECK_THROWS_AS(cox::connect_local(prepared), std::system_error);
  static_cast<void>(keeper->end_run());
  CHECK_THROWS_AS(cox::connect_local(first), std::system_error);
  keeper->begin_run();
  CHECK(keeper->path() != first);
  CHECK_NOTHROW(cox::connect_local(keeper->path()));
}

// In one case: a process has one connection to a supervisor, which its first set opens.
TEST_CASE("A set is refused devices without its memory, and drops all memory of a device that has lost some") {
  constexpr const char* mode = "in place, 2 devices";
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", mode, here));
    for (const char* const device : {"GPU-01", "GPU-02"})
      for (const char* const name : {"weights", "moments"})
        run->keep("model", device, name, 4, 0, source_of({"text"}), here);
  }
  {
    Run run(keeper);
    const cox::test::Variable variable(KeeperConnection::variable, keeper->path().c_str());
    constexpr cox::DeviceId first{1, 0};
    constexpr cox::DeviceId second{1, 1};
    cox::KeptSet set("model", {first, second});
    const auto identify = [&](cox::DeviceId device, const char* key) {
      set.identify(set.device(device, here), key, here);
    };
    CHECK_THAT(text_of([&] { identify(first, "GPU-03"); }),
               ContainsSubstring("for GPU-01, GPU-02, not for ") && ContainsSubstring("(GPU-03); it stays held"));
    CHECK_NOTHROW(identify(first, "GPU-02"));
    CHECK(kind_of([&] { identify(second, "GPU-03"); }) == KeptError::Kind::Schema);
    CHECK_NOTHROW(identify(second, "GPU-01"));
    set.lose(set.device(first, here));
  }
  Run run(keeper);
  const HeldSet held = run->open("model", "", mode, here);
  CHECK(held.memory.size() == 2);
  CHECK(held.memory.contains({"GPU-01", "weights"}));
  CHECK(held.lost == std::set<std::string>{"GPU-02"});
}

TEST_CASE("The memory of GPUs is lost alone, and the next processes learn that until one makes an update") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
    run->keep("model", "GPU-01", "weights", 5, 0, source_of({"other"}), here);
  }
  keeper->lose_gpu_memory();
  CHECK(keeper->bytes() == 4);
  const std::set<std::string> lost{"GPU-01"};
  {
    Run run(keeper);
    CHECK(run->open("model", "", "in place", here).lost == lost);
    run->keep("model", "GPU-01", "weights", 5, 0, source_of({"newer"}), here);
  }
  {
    Run run(keeper);
    CHECK(run->open("model", "", "in place", here).lost == lost);
    run->send_values("model", "GPU-01", 1, {}, here);
  }
  Run run(keeper);
  CHECK(run->open("model", "", "in place", here).lost.empty());
}

TEST_CASE("A set of which all memory is lost is known to the next process, with another schema not") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "1", "in place", here));
    run->keep("model", "GPU-01", "weights", 5, 0, source_of({"other"}), here);
    run->send_values("model", "GPU-01", 1000, {}, here);
    CHECK(run->found("model", 1000, here) == 0);
  }
  keeper->lose_gpu_memory();
  {
    Run run(keeper);
    const HeldSet held = run->open("model", "1", "in place", here);
    CHECK(held.lost.size() == 1);
    CHECK(held.values.empty());
    CHECK(run->found("model", 1, here) == 0);  // the epochs begin anew: it has made progress
  }
  Run run(keeper);
  CHECK(run->open("model", "2", "in place", here).lost.empty());
}

TEST_CASE("A process that speaks another version gets an error that names both") {
  TestKeeper keeper;
  Run run(keeper);
  const FileDescriptor socket = cox::connect_local(keeper->path());
  std::vector<std::byte> packet = KeeperMessage{}.encode();
  packet[4] = std::byte{1};
  REQUIRE(send(socket.get(), packet.data(), packet.size(), 0) == static_cast<ssize_t>(packet.size()));
  const auto refusal = cox::receive_message(socket.get(), here);
  REQUIRE(refusal);
  CHECK(refusal->kind == KeeperMessage::Kind::Refused);
  CHECK_THAT(refusal->text,
             ContainsSubstring("version 1") && ContainsSubstring("version " + std::to_string(KeeperMessage::version)));
  CHECK_FALSE(cox::receive_message(socket.get(), here));
}

TEST_CASE("A keeper without descriptors, or with too many connections, disconnects new processes and goes on") {
  TestKeeper keeper(KeeperLimits{.connections = 3});
  keeper->begin_run();
  const auto ends = [](const FileDescriptor& socket) {
    char byte = 0;
    return recv(socket.get(), &byte, 1, MSG_DONTWAIT) == 0;
  };
  std::vector<FileDescriptor> sockets;
  const auto connect = [&] { sockets.push_back(cox::connect_local(keeper->path())); };
  for (int i = 0; i < 4; ++i) connect();
  keeper->serve();
  CHECK_FALSE(cox::is_readable(keeper->descriptors().front()));  // else its caller would never wait
  CHECK(ends(sockets.back()));
  CHECK_FALSE(ends(sockets.front()));
  sockets.clear();
  keeper->serve();
  connect();
  {
    const WithoutDescriptors without;
    keeper->serve();
    CHECK_FALSE(cox::is_readable(keeper->descriptors().front()));
  }
  CHECK(ends(sockets.back()));
  connect();
  keeper->serve();
  CHECK_FALSE(ends(sockets.back()));
}

TEST_CASE("A keeper refuses what is unknown, held already or beyond its limits") {
  TestKeeper keeper(KeeperLimits{.bytes = 10, .sets = 1, .allocations = 2});
  Run run(keeper);
  CHECK(kind_of([&] { static_cast<void>(run->take("model", "host:0", "weights", 0, here)); }) ==
        KeptError::Kind::Order);
  static_cast<void>(run->open("model", "", "in place", here));
  CHECK(kind_of([&] { static_cast<void>(run->open("other", "", "in place", here)); }) == KeptError::Kind::Limit);
  CHECK(kind_of([&] { static_cast<void>(run->take("model", "host:0", "weights", 0, here)); }) ==
        KeptError::Kind::Order);
  run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  CHECK(kind_of([&] { run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here); }) ==
        KeptError::Kind::InUse);
  CHECK(kind_of([&] { run->keep("model", "host:0", "more", 7, 0, source_of({"seven b"}), here); }) ==
        KeptError::Kind::Limit);
  CHECK(keeper->bytes() == 4);
  run->keep("model", "host:0", "more", 6, 0, source_of({"six by"}), here);
  run->forget("model", "host:0", "weights", here);
  run->keep("model", "host:0", "again", 4, 0, source_of({"text"}), here);
  CHECK(kind_of([&] { run->keep("model", "host:0", "third", 0, 0, source_of({""}), here); }) == KeptError::Kind::Limit);
  run->forget("model", "", "", here);
  CHECK_FALSE(keeper->holds_memory());
}

TEST_CASE("Memory beyond the limit is refused with what is needed, held and allowed, and nothing of it is held") {
  TestKeeper keeper(KeeperLimits{.bytes = 1000, .descriptors = 70});
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  // As its first packet says how large it is, nothing else of it is taken.
  std::size_t batches = 0;
  auto source = source_of(numbers_to(200));
  const auto keep = [&](std::uint64_t bytes) {
    run->keep("model", "host:0", "more", bytes, 0, [&] { return ++batches, source(); }, here);
  };
  CHECK_THAT(text_of([&] { keep(997); }),
             ContainsSubstring("memory 'more' of the kept set 'model' on host:0 needs 997 B; the supervisor holds 4 B "
                               "and may hold 1.00 kB (1000 B) (cox run --kept-limit)"));
  CHECK(batches == 1);
  CHECK(keeper->bytes() == 4);
  // The pieces are counted, whatever the size.
  source = source_of({std::string(500, 'x'), std::string(497, 'x')});
  CHECK(kind_of([&] { keep(1); }) == KeptError::Kind::Limit);
  CHECK(keeper->bytes() == 4);
  KeptPieces forged = pieces_with({"", "", ""});
  forged.sizes = {~std::uint64_t{0} / 2 + 1, ~std::uint64_t{0} / 2 + 1, 5};  // the sum is 5 in 64 bits
  CHECK(kind_of([&] { run->keep("model", "host:0", "more", 5, 0, [&] { return std::move(forged); }, here); }) ==
        KeptError::Kind::Limit);
  source = source_of(numbers_to(70));
  CHECK_THAT(text_of([&] { keep(1); }), ContainsSubstring("6 more file descriptors; the supervisor holds 65 and may "
                                                          "hold 70 (ulimit -n)"));
  CHECK(keeper->bytes() == 4);
  source = source_of(numbers_to(69));
  CHECK_NOTHROW(keep(1));
}

TEST_CASE("A supervisor without descriptors refuses memory, holds nothing of it and answers on") {
  TestKeeper keeper;
  Run run(keeper);
  static_cast<void>(run->open("model", "", "in place", here));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  std::vector<FileDescriptor> occupied;
  auto source = source_of(numbers_to(100));
  std::size_t batches = 0;
  const auto kind = kind_of([&] {
    run->keep(
        "model", "host:0", "weights", 1, 0,
        [&] {
          KeptPieces next = source();
          if (++batches != 2) return next;
          const int highest = std::ranges::max_element(next.descriptors, {}, &FileDescriptor::get)->get();
          const rlimit less{.rlim_cur = static_cast<rlim_t>(highest) + 1, .rlim_max = limit.rlim_max};
          REQUIRE(setrlimit(RLIMIT_NOFILE, &less) == 0);
          for (int i = dup(0); i >= 0; i = dup(0)) occupied.emplace_back(i);
          return next;
        },
        here);
  });
  occupied.clear();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(batches == 2);
  CHECK(kind == KeptError::Kind::Descriptors);
  CHECK(keeper->bytes() == 0);
  CHECK_FALSE(keeper->holds_memory());
  CHECK_NOTHROW(run->keep("model", "host:0", "weights", 1, 0, source_of(numbers_to(100)), here));
  CHECK(keeper->holds_memory());
}

TEST_CASE("A process without descriptors gets an error, and its memory once it has some") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 1, 0, source_of(numbers_to(100)), here);
  }
  Run run(keeper);
  const std::string path = keeper->path();
  const pid_t child = fork();
  if (child == 0) {
    KeeperConnection connection(path, here);
    static_cast<void>(connection.open("model", "", "in place", here));
    const std::size_t before = open_descriptors();
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit less{.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 300), .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &less);
    std::vector<FileDescriptor> occupied;
    for (int i = dup(0); i >= 0; i = dup(0)) occupied.emplace_back(i);
    occupied.resize(occupied.size() - std::min<std::size_t>(occupied.size(), 5));
    KeptError::Kind kind = KeptError::Kind::Order;
    try {
      static_cast<void>(connection.take("model", "host:0", "weights", 0, here));
    } catch (const KeptError& error) {
      kind = error.kind();
    }
    occupied.clear();
    if (kind != KeptError::Kind::Descriptors) _exit(1);
    if (open_descriptors() != before) _exit(2);
    const KeptPieces pieces = connection.take("model", "host:0", "weights", 64, here);
    _exit(pieces.sizes.size() == 36 && content(pieces.descriptors[0]) == "64" ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("Runs without a commit are counted, and only one that has made progress promises more") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
    CHECK_FALSE(run.end());  // nothing was committed
  }
  for (const std::uint64_t epoch : {3U, 7U}) {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    CHECK(run->found("model", epoch, here) == 0);
    run->send_values("model", "host:0", epoch + 1, {}, here);
    CHECK(run.end());
    CHECK_FALSE(keeper->end_run());  // no other one has begun
  }
  for (std::uint64_t runs = 1; runs < 4; ++runs) {  // each sends values, but the memory stays at epoch 7
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    CHECK(run->found("model", 7, here) == runs);
    run->send_values("model", "host:0", 8, {}, here);
    CHECK_FALSE(run.end());
  }
}

TEST_CASE("The values of the last epochs are held; those of a history that was replaced are not") {
  TestKeeper keeper(KeeperLimits{.epochs = 2});
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
    for (const std::uint64_t epoch : {1U, 2U, 3U}) run->send_values("model", "host:0", epoch, bytes_of("old"), here);
    run->send_values("model", "host:0", 3, bytes_of("new"), here);
  }
  Run run(keeper);
  const HeldSet held = run->open("model", "", "in place", here);
  REQUIRE(held.values.size() == 2);
  CHECK((held.values[0].epoch == 2 && held.values[1].epoch == 3));
  CHECK(std::memcmp(held.values[1].bytes.data(), "new", 3) == 0);
}

TEST_CASE("Values of a device without memory are not held") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
    for (int i = 0; i < 100; ++i) run->send_values("model", "invented:" + std::to_string(i), 1, bytes_of("x"), here);
    run->send_values("model", "host:0", 1, bytes_of("values"), here);
  }
  Run run(keeper);
  CHECK(run->open("model", "", "in place", here).values.size() == 1);
}

TEST_CASE("A process that sends something else is disconnected, and what was held stays") {
  TestKeeper keeper;
  {
    Run run(keeper);
    static_cast<void>(run->open("model", "", "in place", here));
    run->keep("model", "host:0", "weights", 4, 0, source_of({"text"}), here);
  }
  keeper->begin_run();
  const FileDescriptor socket = cox::connect_local(keeper->path());
  REQUIRE(write(socket.get(), "hello", 5) == 5);
  keeper->serve();
  CHECK(keeper->descriptors().size() == 1);  // that which accepts
  CHECK_FALSE(keeper->end_run());
  CHECK(keeper->holds_memory());
}

TEST_CASE("A connection belongs to the process that has made it") {
  TestKeeper keeper;
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
