// Kept memory in one process after another, and their supervisor, all of them in this process.
#include <coxswain/device_handle/base/shutdown.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/kept/kept_set.hpp>
#include <coxswain/servers/host/server/host_server.hpp>
#include <coxswain/tests/support/catch.hpp>
#include <coxswain/tests/tools/process_keeper.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using Catch::Matchers::ContainsSubstring;
using cox::Bytes;
using cox::HostClient;
using cox::KeptError;
using cox::KeptOptions;
using cox::KeptSet;
using cox::tools::ProcessKeeper;

namespace {

constexpr cox::DeviceId only_device{cox::host_device_type, 0};
constexpr std::size_t bytes_kept = 4 * sizeof(std::uint64_t);

/// One process with a set on one device.
struct KeepingProcess {
  HostClient client = HostClient::load(only_device);
  KeptSet set;

  explicit KeepingProcess(const std::string& name, const KeptOptions& options = {})
      : set((ProcessKeeper::get(), name), {only_device}, options) {}
  KeepingProcess(const KeepingProcess&) = delete;
  KeepingProcess& operator=(const KeepingProcess&) = delete;
  ~KeepingProcess() { cox::shutdown(only_device); }

  void open(const std::string& name, std::size_t bytes = bytes_kept) {
    static_cast<void>(client.kept(set, name, bytes));
  }
  void write(const std::string& name, std::uint64_t value) {
    client.write(client.kept_next(set, name), Bytes::from_vector(std::vector<std::uint64_t>(4, value)));
  }
  void update(const std::string& name, std::uint64_t value) {
    client.begin_update(set);
    write(name, value);
    client.commit(set);
    client.sync().get();
  }
};

template <class F>
std::pair<KeptError::Kind, std::string> kept_error_in(F&& f) {
  try {
    f();
  } catch (const KeptError& error) {
    return {error.kind(), error.what()};
  }
  FAIL("no KeptError");
  return {};
}

constexpr std::chrono::seconds too_long{60};

}  // namespace

TEST_CASE("A process that opens kept memory with another size is refused, and the memory stays held") {
  {
    KeepingProcess process("size");
    process.open("a");
    process.update("a", 7);
  }
  {
    KeepingProcess process("size");
    const auto [kind, text] = kept_error_in([&] { process.open("a", 2 * bytes_kept); });
    CHECK(kind == KeptError::Kind::Size);
    CHECK_THAT(text, ContainsSubstring(" 32 bytes") && ContainsSubstring("size is 64"));
  }
  KeepingProcess process("size");
  process.open("a");
  CHECK(process.set.state().to_string() == "whole at epoch 1");
  CHECK(process.client.read_one(process.client.kept_current(process.set, "a")).to_vector<std::uint64_t>() ==
        std::vector<std::uint64_t>(4, 7));
}

TEST_CASE("An update is refused while memory is held that the process has not opened") {
  {
    KeepingProcess process("partly");
    process.open("a");
    process.open("b");
    process.client.begin_update(process.set);
    for (const char* const name : {"a", "b"}) process.write(name, 7);
    process.client.commit(process.set);
    process.client.sync().get();
  }
  KeepingProcess process("partly");
  process.open("a");
  const auto [kind, text] = kept_error_in([&] { process.client.begin_update(process.set); });
  CHECK(kind == KeptError::Kind::Order);
  CHECK_THAT(text, ContainsSubstring("memory 'b'") && ContainsSubstring("has not opened"));
  process.open("b");
  CHECK_NOTHROW(process.update("a", 8));
}

TEST_CASE("A commit fails soon if the supervisor is stopped, marks nothing, and can be made again") {
  {
    KeepingProcess process("stopped");
    process.open("a");
    const std::vector<std::byte> values(64 << 10);
    auto stopped = ProcessKeeper::get().stop();
    std::uint64_t epoch = 0;
    std::chrono::steady_clock::duration lasted{};
    const auto [kind, text] = kept_error_in([&] {
      for (;;) {
        process.client.begin_update(process.set, ++epoch);
        process.write("a", epoch);
        const auto began = std::chrono::steady_clock::now();
        try {
          process.client.commit(process.set, values);
        } catch (...) {
          lasted = std::chrono::steady_clock::now() - began;
          throw;
        }
      }
    });
    CHECK(kind == KeptError::Kind::Supervisor);
    CHECK_THAT(text, ContainsSubstring("takes no more messages"));
    CHECK(lasted < too_long);
    process.client.sync().get();
    CHECK(cox::KeptMark::from(process.set.device(only_device, {}).read_record().mark).updating);
    stopped.unlock();
    // The messages before it must be read first.
    for (bool is_committed = false; !is_committed;) {
      try {
        process.client.commit(process.set, values);
        is_committed = true;
      } catch (const KeptError&) {
      }
    }
    process.client.sync().get();
    CHECK_FALSE(cox::KeptMark::from(process.set.device(only_device, {}).read_record().mark).updating);
    CHECK(epoch > 1);
  }
  KeepingProcess process("stopped");
  process.open("a");
  CHECK_THAT(process.set.state().to_string(), ContainsSubstring("whole at epoch "));
  CHECK(process.set.state().devices[0].values->size() == std::size_t{64} << 10U);
}

TEST_CASE("A commit does not wait for a request of another thread that a stopped supervisor leaves open") {
  KeepingProcess process("first");
  process.open("a");
  auto stopped = ProcessKeeper::get().stop();
  std::thread other([] { const KeptSet set("second", {only_device}); });
  std::string text;
  const auto until = std::chrono::steady_clock::now() + too_long;
  // Until the other thread has sent its request, commits succeed, or find the socket full.
  while (text.find("earlier request") == std::string::npos && std::chrono::steady_clock::now() < until) {
    try {
      process.client.begin_update(process.set);
      process.write("a", 1);
      process.client.commit(process.set);
    } catch (const KeptError& error) {
      text = error.what();
    }
  }
  CHECK_THAT(text, ContainsSubstring("earlier request"));
  stopped.unlock();
  other.join();
  CHECK_NOTHROW(process.update("a", 2));
}

TEST_CASE("A fork of a process with kept memory can open no set") {
  KeepingProcess process("forked");
  process.open("a");
  const pid_t child = fork();
  if (child == 0) {
    int code = 1;
    try {
      const KeptSet set("of a fork", {only_device});
    } catch (const KeptError& error) {
      code = error.kind() == KeptError::Kind::Forked ? 0 : 2;
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
