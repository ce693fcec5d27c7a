#pragma once

#include <coxswain/runtime/kept/keeper_connection.hpp>
#include <coxswain/tests/support/temporary_folder.hpp>
#include <coxswain/tools/cox/supervisor/keeper.hpp>

#include <poll.h>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace cox::tools {

/// The keeper of this process's connection, which is made once. It answers on a thread of its own until the process
/// ends.
class ProcessKeeper {
 public:
  static ProcessKeeper& get() {
    static ProcessKeeper keeper;
    return keeper;
  }
  [[nodiscard]] std::string path() const { return keeper_.path(); }
  /// It answers nothing until the lock is released, as a supervisor that is stopped.
  [[nodiscard]] std::unique_lock<std::mutex> stop() { return std::unique_lock(serves_); }

 private:
  ProcessKeeper() {
    keeper_.begin_run();
    if (setenv(KeeperConnection::variable, keeper_.path().c_str(), 1) != 0) throw std::runtime_error("setenv");
    thread_ = std::thread([this] {
      while (!ends_.load()) {
        std::vector<pollfd> watched;
        for (const int each : keeper_.descriptors()) watched.push_back({.fd = each, .events = POLLIN, .revents = 0});
        static_cast<void>(poll(watched.data(), watched.size(), 5));
        const std::lock_guard lock(serves_);
        keeper_.serve();
      }
    });
  }
  ~ProcessKeeper() {
    ends_.store(true);
    thread_.join();
  }

  test::TemporaryFolder folder_;
  Keeper keeper_{folder_.path() / "kept"};
  std::mutex serves_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace cox::tools
