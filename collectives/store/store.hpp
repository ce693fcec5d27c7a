#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cox {

/// A small key-value store that all processes of a world reach. It is used once, when the world starts: the processes
/// exchange addresses through it. The keys of a run and restart are separate from those of all others.
///
/// All calls block until they have completed, or until the deadline; they throw StoreError. A deadline of
/// time_point::max() never passes. One thread at a time.
class Store {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  static constexpr std::size_t max_key = 256;           ///< bytes
  static constexpr std::size_t max_value = 1ULL << 20;  ///< bytes

  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  /// Ends the use of the store without waiting for other processes: see close().
  virtual ~Store() = default;

  /// Sets the value of the key, and replaces an earlier one.
  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline);
  /// Waits until the key has a value, and returns it.
  [[nodiscard]] std::vector<std::byte> get(std::string_view key, Deadline deadline);
  /// Adds to the number that the key holds as decimal text; a key without a value counts as 0. Returns the sum. Throws
  /// Protocol if the value is not a number or the sum overflows.
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline);
  /// Sets the value to `desired` if it is `expected`. An empty `expected` means that the key has no value, or an empty
  /// one. Returns the value that the key has afterwards; empty if it has none.
  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired, Deadline deadline);
  /// Ends the use of the store. The process that holds the store waits until all others have closed it; if that takes
  /// longer than the deadline, it throws Timeout, which names them, and the store ends. Later calls throw Unreachable.
  void close(Deadline deadline);

 protected:
  /// `prefix` is put before all keys.
  explicit Store(std::string prefix) : prefix_(std::move(prefix)) {}

  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }

 private:
  virtual void do_set(const std::string& key, std::span<const std::byte> value, Deadline deadline) = 0;
  virtual std::vector<std::byte> do_get(const std::string& key, Deadline deadline) = 0;
  virtual std::int64_t do_add(const std::string& key, std::int64_t amount, Deadline deadline) = 0;
  virtual std::vector<std::byte> do_compare_set(const std::string& key, std::span<const std::byte> expected,
                                                std::span<const std::byte> desired, Deadline deadline) = 0;
  virtual void do_close(Deadline deadline) = 0;

  [[nodiscard]] std::string full_key(std::string_view key) const;

  std::string prefix_;
  bool closed_ = false;
};

namespace detail {

/// The prefix of the keys of one run and restart: "cox/job7/0/". A slash in `run` is escaped.
[[nodiscard]] std::string store_prefix(std::string_view run, std::uint32_t restart);

/// The sum of `amount` and the number in `value`, decimal text; an empty value counts as 0. Throws StoreError Protocol,
/// which names `key`.
[[nodiscard]] std::int64_t add_to_value(std::span<const std::byte> value, std::int64_t amount, const std::string& key);
/// `number` as decimal text.
[[nodiscard]] std::vector<std::byte> value_of_number(std::int64_t number);

/// The time until `deadline`, at most `longest` and at least zero.
[[nodiscard]] std::chrono::nanoseconds time_until(Store::Deadline deadline, std::chrono::nanoseconds longest);

}  // namespace detail

}  // namespace cox
