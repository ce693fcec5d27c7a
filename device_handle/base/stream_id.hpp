#pragma once

#include <coxswain/device_handle/base/visibility.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace cox {

/// Priority of a stream's work compared with other streams. Only CUDA devices use it.
enum class StreamPriority : std::uint8_t { Normal, High };

/// Identity of a logical stream of work. Every call to a device carries the caller's StreamId (law L9): work of one
/// StreamId runs in order on the device, work of two may overlap. A pure value; it owns nothing.
struct StreamId {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(StreamId, StreamId) = default;

  /// The calling thread's stream: the id of the innermost StreamScope, if there is one; otherwise an id of this
  /// thread's own, allocated at first use and kept for the life of the thread. Inside a task it is the submitter's.
  [[nodiscard]] [[gnu::always_inline]] static StreamId current() noexcept;

  /// A new id, which no other call in this process has returned or will return. The priority is part of the id.
  [[nodiscard]] static StreamId allocate(StreamPriority priority = StreamPriority::Normal) noexcept;

  [[nodiscard]] constexpr StreamPriority priority() const noexcept { return StreamPriority(value >> 63U); }
  /// The id without its priority, for display.
  [[nodiscard]] constexpr std::uint64_t number() const noexcept { return value & (~std::uint64_t{0} >> 1U); }

  /// Calls `f()` with this id as StreamId::current(). Restores the previous id afterwards, also if `f` throws.
  template <class F>
  decltype(auto) executes(F&& f) const;
};

namespace detail {

struct ThreadStream {
  StreamId id{};       // the value of current(), if `known`
  bool known = false;  // false until a scope is entered or the thread has allocated an id of its own
};

COX_VISIBILITY_DEFAULT inline ThreadStream& thread_stream() noexcept {
  static constinit thread_local ThreadStream stream;
  return stream;
}

}  // namespace detail

/// Makes `id` the calling thread's StreamId::current() until the end of the scope. Scopes nest.
class StreamScope {
 public:
  explicit StreamScope(StreamId id) noexcept : previous_(std::exchange(detail::thread_stream(), {id, true})) {}
  ~StreamScope() { detail::thread_stream() = previous_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  detail::ThreadStream previous_;
};

namespace detail {
StreamId first_stream_of_thread() noexcept;
}

inline StreamId StreamId::current() noexcept {
  const detail::ThreadStream& stream = detail::thread_stream();
  return stream.known ? stream.id : detail::first_stream_of_thread();
}

template <class F>
decltype(auto) StreamId::executes(F&& f) const {
  const StreamScope scope(*this);
  return std::forward<F>(f)();
}

}  // namespace cox

template <>
struct std::hash<cox::StreamId> {
  std::size_t operator()(cox::StreamId id) const noexcept { return std::hash<std::uint64_t>{}(id.value); }
};
