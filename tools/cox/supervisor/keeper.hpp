#pragma once

#include <coxswain/runtime/kept/keeper_message.hpp>
#include <coxswain/runtime/kept/kept_error.hpp>
#include <coxswain/runtime/socket/file_descriptor.hpp>
#include <coxswain/runtime/socket/local_socket.hpp>

#include <sys/types.h>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cox::tools {

/// Limits of what a Keeper holds.
struct KeeperLimits {
  std::uint64_t bytes = std::uint64_t{1} << 50U;    ///< of all allocations (cox run --kept-limit)
  std::size_t descriptors = std::size_t{1} << 20U;  ///< of all allocations, one for each piece
  std::size_t sets = 256;
  std::size_t allocations = 65536;
  /// Commits whose host values are held, for each device: the host may have queued so many that the device has not
  /// made.
  std::size_t epochs = 256;
  std::size_t connections = 64;  ///< of processes, at a time
};

/// What is held of kept memory.
struct KeptUse {
  std::uint64_t bytes = 0;
  std::size_t descriptors = 0;
  std::size_t allocations = 0;

  KeptUse& operator+=(const KeptUse& other) noexcept {
    bytes += other.bytes;
    descriptors += other.descriptors;
    allocations += other.allocations;
    return *this;
  }
};

/// Holds the kept memory of a program from run to run: its file descriptors, and the host values of its last commits.
/// Never opens a device. Answers the messages of the processes of a run (KeeperMessage), each on a connection of its
/// own. One thread.
class Keeper {
 public:
  /// The processes of each run connect to a socket of their own: at this path, followed by the number of the run, in a
  /// folder that the user alone can access. So a process belongs to the run whose socket it was given.
  explicit Keeper(std::filesystem::path sockets, KeeperLimits limits = {});
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper() = default;

  /// The socket of the run that was begun last.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return run_.path; }
  /// Begins the run that was prepared, or a new one. Throws std::system_error. Precondition: no run is open.
  void begin_run();
  /// Prepares the next run, anew if it was prepared before: its processes may connect, and block in their first request
  /// until begin_run(). Returns their socket. Throws std::system_error.
  const std::filesystem::path& prepare_run();
  /// The prepared run is dropped; its processes get an error.
  void drop_prepared() noexcept { prepared_ = {}; }
  /// A descriptor that is readable when a process of the prepared run has connected; -1: none is prepared.
  [[nodiscard]] int prepared_descriptor() const noexcept { return prepared_.listener.get(); }
  /// Descriptors to wait for: readable when serve() has something to do.
  [[nodiscard]] std::vector<int> descriptors() const;
  /// Accepts connections, and answers the messages that have arrived. Does not wait, but for a process that does not
  /// read its answer: at most 5 s, then it is disconnected. So is a process that sends something else than messages,
  /// and one for which there is no descriptor or connection left.
  /// `others`: what other keepers of this process hold, which counts against the limits, too.
  void serve(const KeptUse& others = {});
  /// Ends the run: all its processes have ended. Takes what they have sent before, and drops allocations of which not
  /// all pieces have arrived. Returns whether a successor is likely to make progress: the run has given values of an
  /// update to be committed, and the one before it has committed one, too.
  bool end_run();
  /// The memory of all GPUs is lost. That is reported to the processes that open its sets, until one gives values of an
  /// update.
  void lose_gpu_memory();

  /// Whether a process of this run has opened a set.
  [[nodiscard]] bool was_used() const noexcept { return used_; }
  /// Whether this run has queued a commit: given its values.
  [[nodiscard]] bool run_has_values() const noexcept { return has_values_; }
  /// Whether anything is held, so that a successor finds it.
  [[nodiscard]] bool holds_memory() const noexcept;
  /// Bytes that are held.
  [[nodiscard]] std::uint64_t bytes() const noexcept;
  [[nodiscard]] KeptUse use() const noexcept {
    return {.bytes = bytes(), .descriptors = pieces(), .allocations = allocations()};
  }
  [[nodiscard]] std::uint64_t most_bytes() const noexcept { return limits_.bytes; }
  /// "model: 12 allocations, 64 GB on host:0, host:1, values of update 117": a line for each set.
  [[nodiscard]] std::string to_string() const;

 private:
  using Message = KeeperMessage;
  struct Allocation {
    std::uint64_t bytes = 0;
    std::uint64_t epoch = 0;  // of the last update before it was made
    std::vector<std::uint64_t> sizes;
    std::vector<FileDescriptor> descriptors;
    bool is_complete = false;  // all pieces have arrived
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
    std::set<std::string> lost;                                             // devices; until the next commit there
    std::uint64_t last_found = 0;  // the epoch at which a run has found the memory last
    std::uint64_t runs_without_commit = 0;
    pid_t owner = 0;       // the process of this run that has opened it; 0: none
    bool is_open = false;  // by the owner

    // Nothing is held: the epochs of what comes next may begin anew.
    void restart_history() {
      values.clear();
      last_found = 0;
      runs_without_commit = 0;
    }
  };

  // Returns false if the process is to be disconnected.
  [[nodiscard]] bool answer_one(LocalConnection& from);
  void answer(Message message, const LocalConnection& from);
  [[nodiscard]] bool refuse_pieces(const LocalConnection& from, const KeptError& error);
  void open(const Message& message, const LocalConnection& from);
  void keep(Message message, const LocalConnection& from);
  void take(const Message& message, const LocalConnection& from);
  void forget(const Message& message, const LocalConnection& from);
  void lose(const Message& message, const LocalConnection& from);
  void note_values(Message message, const LocalConnection& from);
  void note_found(const Message& message, const LocalConnection& from);
  // Throws KeptError Limit or Descriptors if an allocation with these pieces, too, is more than may be held. `part`:
  // the pieces of it that are held; may be null.
  void require_room(const Message& message, const Allocation* part) const;
  void accept_connections();
  // What was held for the device is gone.
  static void lose(Set& set, const std::string& device);
  void drop_empty_sets();
  // Closes what is held of allocations of that process of which pieces are missing.
  void drop_incomplete(const LocalConnection& from) noexcept;
  [[nodiscard]] Set& open_set(const Message& message, const LocalConnection& from);
  [[nodiscard]] std::size_t allocations() const noexcept;
  [[nodiscard]] std::size_t pieces() const noexcept;

  // The socket of a run. The destructor removes it.
  struct RunSocket {
    RunSocket() = default;
    explicit RunSocket(std::filesystem::path at);
    RunSocket(RunSocket&& other) noexcept;
    RunSocket& operator=(RunSocket&& other) noexcept;
    ~RunSocket();

    std::filesystem::path path;
    FileDescriptor listener;
  };
  [[nodiscard]] RunSocket next_socket();

  const std::filesystem::path sockets_;
  const KeeperLimits limits_;
  std::uint64_t runs_ = 0;
  RunSocket run_;
  RunSocket prepared_;
  std::vector<LocalConnection> connections_;
  FileDescriptor spare_;  // closed for a moment to disconnect a process that has no descriptor
  std::uint64_t generation_ = 0;
  KeptUse others_;  // of the last serve()
  bool used_ = false;
  bool has_values_ = false;  // of an update of this run
  bool progresses_ = true;   // the run before this one has committed an update, or is not known
  std::map<std::string, Set> sets_;
};

}  // namespace cox::tools
