#pragma once

#include <coxswain/runtime/socket/file_descriptor.hpp>

#include <sys/eventfd.h>
#include <unistd.h>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>
#include <vector>

namespace cox::tools {

/// The processes that the leader of a world has expelled: its thread adds them, the supervisor takes them.
class ExpelledProcesses {
 public:
  struct Process {
    std::uint16_t number = 0;
    std::uint32_t restart = 0;  ///< its COX_WORLD_RESTART
  };

  /// Throws std::system_error.
  ExpelledProcesses() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!event_.is_open()) throw std::system_error(errno, std::generic_category(), "eventfd");
  }

  /// Any thread. Without memory the process is not added, which is reported on the standard error stream.
  void add(const Process& process) noexcept try {
    const std::lock_guard lock(mutex_);
    processes_.push_back(process);
    const std::uint64_t one = 1;
    static_cast<void>(!::write(event_.get(), &one, sizeof one));
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "cox run: no memory: process %u, which is expelled from the world, gets no successor\n",
                 unsigned{process.number});
  }
  /// Those that were added since the last call. Any thread; does not block.
  [[nodiscard]] std::vector<Process> take() {
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    static_cast<void>(!::read(event_.get(), &count, sizeof count));
    return std::exchange(processes_, {});
  }
  /// Readable when take() has any to return.
  [[nodiscard]] int descriptor() const noexcept { return event_.get(); }

 private:
  FileDescriptor event_;
  std::mutex mutex_;
  std::vector<Process> processes_;
};

}  // namespace cox::tools
