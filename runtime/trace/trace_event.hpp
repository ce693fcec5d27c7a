#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <array>
#include <cstdint>
#include <typeinfo>

namespace cox::trace {

/// The kind of work that an event describes.
enum class Category : std::uint8_t { Task, Stream, Collective, Memory, Client };

/// The row of the timeline in which an event is shown.
struct Track {
  enum class Kind : std::uint8_t { Thread, DeviceThread, Stream, Communicator };

  Kind kind = Kind::Thread;
  Stage stage = Stage::Downstream;  ///< For DeviceThread only.
  DeviceId device{};                ///< For all kinds but Thread.
  std::uint64_t id = 0;             ///< The system's thread number, the StreamId, or the communicator's number.

  /// The row of the calling thread, of kind Thread even on a device thread.
  [[nodiscard]] static Track this_thread() noexcept;
  [[nodiscard]] static constexpr Track stream(DeviceId device, StreamId stream) noexcept {
    return {.kind = Kind::Stream, .device = device, .id = stream.number()};
  }
  /// The row of `device` in the communicator numbered `communicator`.
  [[nodiscard]] static constexpr Track communicator(DeviceId device, std::uint64_t communicator) noexcept {
    return {.kind = Kind::Communicator, .device = device, .id = communicator};
  }

  friend constexpr auto operator<=>(const Track&, const Track&) = default;
};

/// The time and thread at which the work of an event was handed over; an arrow is drawn from there to the event.
struct Origin {
  std::uint64_t time = 0;    ///< 0: none
  std::uint32_t thread = 0;  ///< the system's number of the thread
};

/// A number attached to an event: bytes, cubes, ranks.
struct Argument {
  const char* name = nullptr;  ///< nullptr: none
  std::uint64_t value = 0;
};

/// Work that lasted from `begin` to `end`. Tasks, stream work and collectives are all recorded as events, and every
/// output is made from events. Texts have static storage, or come from intern(). Times: now() while recording,
/// nanoseconds since the start of the trace in a Recording.
struct Event {
  const char* name = nullptr;
  const std::type_info* type = nullptr;  ///< While recording: type of the closure, if there is no name.
  Track track;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Origin origin;
  std::array<Argument, 2> arguments{};
  StreamId stream{};           ///< For tasks only.
  const char* file = nullptr;  ///< Call site, if known.
  std::uint32_t line = 0;
  Category category = Category::Client;
  Outcome outcome = Outcome::Completed;
};

[[nodiscard]] const char* to_string(Category category) noexcept;
[[nodiscard]] const char* to_string(Outcome outcome) noexcept;

}  // namespace cox::trace
