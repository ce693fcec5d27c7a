// What the log says of a host device, from level debug on.

#include <coxswain/tests/servers/host/open_host.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <coxswain/device_handle/thread/stall.hpp>
#include <coxswain/runtime/config/process_settings.hpp>
#include <coxswain/runtime/error/log.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

using namespace cox;
using cox::test::OpenHost;

namespace {

/// All that is logged while this lives; it goes nowhere else.
class AllLines {
 public:
  explicit AllLines(std::function<void(std::string_view)> also = [](std::string_view) {}) : also_(std::move(also)) {
    LogOptions options;
    options.level = LogLevel::Debug;
    options.to_stderr = false;
    options.callback = [this](LogSubsystem, LogLevel level, std::string_view text) {
      {
        const std::lock_guard lock(mutex_);
        lines_.push_back(std::string(level == LogLevel::Debug ? "debug: " : "") + std::string(text));
      }
      also_(text);
    };
    log::start(options);
  }
  AllLines(const AllLines&) = delete;
  AllLines& operator=(const AllLines&) = delete;
  ~AllLines() { log::stop(); }

  [[nodiscard]] bool have(const std::string& line) {
    log::flush();
    const std::lock_guard lock(mutex_);
    return std::ranges::find(lines_, line) != lines_.end();
  }

 private:
  std::function<void(std::string_view)> also_;
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace

TEST_CASE("At level debug the log tells of settings that are given, and of devices that open and are shut down") {
  AllLines lines;
  set_settings({{"collectives.max_ahead", 77U}});
  {
    OpenHost host({.threads_per_device = 3, .memory_capacity = 1'000'000});
    CHECK(lines.have("debug: collectives.max_ahead is 77 (code)"));
    CHECK(lines.have("debug: host:0 is open: 1.00 MB (1000000 B), 3 threads"));
    CHECK_FALSE(lines.have("debug: host:0 was shut down"));
  }
  CHECK(lines.have("debug: host:0 was shut down"));
  reset_settings({"collectives.max_ahead"});
}

TEST_CASE("A stall goes to the log where it runs, unless the program takes stalls itself") {
  std::promise<std::string> told;
  std::atomic<bool> is_held{false};
  AllLines lines([&, once = false](std::string_view text) mutable {
    // On a busy machine the task that opens the device may be reported as well: a caller waits behind that one.
    if (text.find("a task has held the device thread of host:0") == std::string_view::npos || !is_held || once) return;
    once = true;
    told.set_value(std::string(text));
  });
  set_settings({{"device_thread.stall_threshold", std::chrono::nanoseconds(std::chrono::milliseconds(1))}});
  {
    OpenHost host;
    std::promise<void> go;
    host.client().device_handle().submit([&, gone = go.get_future()](HostServer&) {
      is_held = true;
      gone.wait();
    });
    CHECK(told.get_future().get().find("0 queued after it") != std::string::npos);
    go.set_value();
  }
  reset_settings({"device_thread.stall_threshold"});
  log::stop();
  set_stall_callback([](const StallReport&) {});
  AllLines later;
  CHECK_FALSE(offer_stall_callback([](const StallReport&) {}));  // the program's is still there
  log::stop();
  CHECK_FALSE(offer_stall_callback([](const StallReport&) {}));
  set_stall_callback(nullptr);
  AllLines third;
  set_stall_callback([](const StallReport&) {});
  log::stop();  // which leaves a callback alone that was set while it ran
  CHECK_FALSE(offer_stall_callback([](const StallReport&) {}));
  set_stall_callback(nullptr);
}
