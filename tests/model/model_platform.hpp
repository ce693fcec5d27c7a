#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cox::model {
namespace detail {

/// The operations below are scheduling points inside a model thread and plain memory accesses anywhere else.
std::uint64_t load(const void* address, std::size_t bytes) noexcept;
void store(void* address, std::size_t bytes, std::uint64_t value, bool drains) noexcept;
/// Between begin and end no other thread runs.
std::uint64_t begin_read_modify_write(void* address, std::size_t bytes, const char* operation) noexcept;
void end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value) noexcept;
void park(const void* address, std::uint32_t expected);
void wake(const void* address, bool all) noexcept;

}  // namespace detail

/// Has the members of std::atomic and the layout of T. Under x86-TSO relaxed, release and acquire accesses and seq_cst
/// loads are plain moves; seq_cst stores and all read-modify-writes drain the store buffer of their thread.
template <class T>
class Atomic {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);

 public:
  using value_type = T;
  static constexpr bool is_always_lock_free = true;

  constexpr Atomic() noexcept : value_{} {}
  constexpr Atomic(T value) noexcept : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
    return decode(detail::load(&value_, sizeof(T)));
  }
  void store(T value, std::memory_order order = std::memory_order_seq_cst) noexcept {
    detail::store(&value_, sizeof(T), encode(value), order == std::memory_order_seq_cst);
  }
  T exchange(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    return modify("exchange", [&](T) { return value; });
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order, std::memory_order) noexcept {
    const std::uint64_t old = detail::begin_read_modify_write(&value_, sizeof(T), "compare_exchange");
    const bool equal = old == encode(expected);
    detail::end_read_modify_write(&value_, sizeof(T), equal ? encode(desired) : old);
    expected = equal ? expected : decode(old);
    return equal;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, order, order);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order, std::memory_order failure) noexcept {
    return compare_exchange_strong(expected, desired, order, failure);
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order = std::memory_order_seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, order, order);
  }
  T fetch_add(T operand, std::memory_order = std::memory_order_seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return modify("fetch_add", [&](T old) { return static_cast<T>(old + operand); });
  }
  T fetch_sub(T operand, std::memory_order = std::memory_order_seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return modify("fetch_sub", [&](T old) { return static_cast<T>(old - operand); });
  }
  T fetch_or(T operand, std::memory_order = std::memory_order_seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return modify("fetch_or", [&](T old) { return static_cast<T>(old | operand); });
  }
  T fetch_and(T operand, std::memory_order = std::memory_order_seq_cst) noexcept
    requires std::is_integral_v<T>
  {
    return modify("fetch_and", [&](T old) { return static_cast<T>(old & operand); });
  }

  /// For park and wake.
  const void* address() const noexcept { return &value_; }

 private:
  static std::uint64_t encode(T value) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
  }
  static T decode(std::uint64_t bits) noexcept {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
  template <class F>
  T modify(const char* operation, F&& next) noexcept {
    const T old = decode(detail::begin_read_modify_write(&value_, sizeof(T), operation));
    detail::end_read_modify_write(&value_, sizeof(T), encode(next(old)));
    return old;
  }

  alignas(sizeof(T) & (sizeof(T) - 1) ? alignof(T) : sizeof(T)) T value_;
};

/// The Platform policy of the explorer. A policy that plants a fault derives from it and hides one member.
struct ModelPlatform {
  template <class T>
  using atomic = Atomic<T>;

  static constexpr std::uint32_t idle_rounds = 1000;  // never reached
  static constexpr std::uint64_t stamps_per_tick = 2;
  static bool timing_requested() noexcept { return false; }

  static void prefetch_for_write(const void*) noexcept {}

  /// A stamp greater than all before it. Like rdtscp: the thread's earlier loads are done, its store buffer is not
  /// drained.
  static std::uint64_t now() noexcept;
  /// Like rdtsc: not in the future, but as far in the past as the thread's last park or heavy barrier. Which stamp is
  /// explored.
  static std::uint64_t now_early() noexcept;
  /// Stamps taken by others make no difference to this one.
  static bool clock_runs() noexcept { return true; }
  /// The clock is never set back, and never checked.
  static constexpr std::uint64_t clock_tolerance = std::uint64_t{1} << 32;
  static void distrust_clock() noexcept {}
  static void check_clock() noexcept {}
  /// The consumer's stamp: its later loads come after it.
  static std::uint64_t now_fenced() noexcept;

  /// The cheap side of the asymmetric fence: orders the compiler only. Not a scheduling point.
  static void light_barrier() noexcept {}
  /// The expensive side: drains the store buffers of all threads.
  static void heavy_barrier() noexcept;
  /// What neither side of the asymmetric fence is: drains the store buffer of the calling thread.
  static void full_barrier() noexcept;

  /// Spin hint; see Pause.
  static void pause() noexcept;

  /// Blocks while nobody wakes `word`, provided that it holds `expected`. May return for no reason if the options say
  /// so.
  static void park(atomic<std::uint32_t>& word, std::uint32_t expected) { detail::park(word.address(), expected); }
  /// Wakes one thread parked on `word`; which one is explored.
  static void wake(atomic<std::uint32_t>& word) noexcept { detail::wake(word.address(), false); }
  static void wake_all(atomic<std::uint32_t>& word) noexcept { detail::wake(word.address(), true); }

  /// Filled with a pattern, counted, kept until the execution ends, so that a use after free_block is found.
  static void* allocate_block(std::size_t bytes, std::size_t alignment);
  static void free_block(void* block) noexcept;
};

}  // namespace cox::model
