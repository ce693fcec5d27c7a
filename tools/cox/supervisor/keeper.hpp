#pragma once

#include <coxswain/runtime/kept/file_descriptor.hpp>
#include <coxswain/runtime/kept/keeper_message.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cox::tools {

/// Limits of what a Keeper holds.
struct KeeperLimits {
  std::uint64_t bytes = std::uint64_t{1} << 50U;  ///< of all allocations
  std::size_t sets = 256;
  std::size_t allocations = 65536;
  /// Commits whose host values are held, for each device: the host may have queued so many that the device has not
  /// made.
  std::size_t epochs = 256;
};

/// Holds the kept memory of a program from run to run: its file descriptors, and the host values of its last commits.
/// Never opens a device. Answers the messages of the runs (KeeperMessage); each run has a connection of its own. One
/// thread.
class Keeper {
 public:
  explicit Keeper(KeeperLimits limits = {}) noexcept : limits_(limits) {}

  /// Begins a run. Returns the socket for its process, which inherits it across exec. Precondition: no run is open.
  /// Throws std::system_error.
  [[nodiscard]] FileDescriptor begin_run();
  /// The socket on which the run asks; readable when answer_one() has something to do.
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// Reads one message and answers it. Returns false if all processes of the run have closed the socket. A process that
  /// sends something else than messages is disconnected.
  bool answer_one();
  /// Ends the run: all its processes have ended. Takes what it has sent before, and drops allocations of which not all
  /// pieces have arrived. Returns whether a successor is likely to make progress: the run has given values of an update
  /// to be committed, and the one before it has committed one, too.
  bool end_run();

  /// Whether a process of this run has opened a set.
  [[nodiscard]] bool was_used() const noexcept { return used_; }
  /// Whether anything is held, so that a successor finds it.
  [[nodiscard]] bool holds_memory() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  /// "model: 12 allocations, 64 GiB on host:0, host:1, last commit 117": a line for each set.
  [[nodiscard]] std::string to_string() const;

 private:
  using Message = KeeperMessage;
  struct Allocation {
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> sizes;
    std::vector<FileDescriptor> descriptors;
    bool is_complete = false;  ///< all pieces have arrived
  };
  struct Values {
    std::uint64_t epoch = 0;
    std::vector<std::byte> bytes;
  };
  struct Set {
    std::string schema;
    std::string mode;
    std::map<std::pair<std::string, std::string>, Allocation> allocations;  // by device and name
    std::map<std::string, std::deque<Values>> values;                       // by device, the oldest first
    std::uint64_t last_found = 0;  // the epoch at which a run has found the memory last
    std::uint64_t runs_without_commit = 0;
    bool is_open = false;  // in this run
  };
  void answer(Message message);
  void open(const Message& message);
  void keep(Message message);
  void take(const Message& message);
  void forget(const Message& message);
  void note_values(Message message);
  void note_found(const Message& message);
  [[nodiscard]] Set& open_set(const Message& message);
  [[nodiscard]] std::size_t allocations() const noexcept;
  void send(const Message& message);
  void send(Message::Kind kind);

  KeeperLimits limits_;
  FileDescriptor socket_;
  std::uint64_t generation_ = 0;
  bool used_ = false;
  bool has_values_ = false;  // of an update of this run
  bool progresses_ = true;   // the run before this one has committed an update, or is not known
  std::map<std::string, Set> sets_;
};

}  // namespace cox::tools
