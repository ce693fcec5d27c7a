#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cox::stress {

/// What the rounds of a stress of kept sets have found. It lies in a file that their processes map, so that nothing of
/// it is lost when one of them is killed.
struct KeptBook {
  static constexpr std::size_t sets = 2;  ///< one in each mode
  using Count = std::atomic<std::uint64_t>;

  Count rounds{0};  ///< processes that were started
  // Of them, those that were to be killed, to crash or exit, and to end by a GPU fault:
  Count kills{0};
  Count crashes{0};
  Count faults{0};
  // States that the rounds have found, of all sets:
  Count empty{0};
  Count whole{0};
  Count torn{0};
  Count corrupt{0};
  Count not_checked{0};  ///< of the whole ones
  Count wrong{0};        ///< states that were not those of the memory
  Count updates{0};      ///< of which a process has seen the end
  /// For each set: the epoch of the last update of which a process has seen the end.
  std::array<Count, sets> synced{};
  std::array<char, 1024> first_wrong{};  ///< why the first one was wrong
  std::atomic<bool> has_wrong{false};

  /// Counts a wrong state. Keeps the first text.
  void add_wrong(const std::string& why) noexcept;
};

/// A KeptBook in a file of that name. Throws std::system_error.
class MappedKeptBook {
 public:
  enum class Open : std::uint8_t { Existing, New };
  MappedKeptBook(const std::string& path, Open how);
  MappedKeptBook(const MappedKeptBook&) = delete;
  MappedKeptBook& operator=(const MappedKeptBook&) = delete;
  ~MappedKeptBook();

  [[nodiscard]] KeptBook& operator*() const noexcept { return *book_; }
  [[nodiscard]] KeptBook* operator->() const noexcept { return book_; }

 private:
  KeptBook* book_;
};

}  // namespace cox::stress
