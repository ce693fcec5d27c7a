#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/device_handle/base/stage.hpp>
#include <coxswain/device_handle/base/stream_id.hpp>
#include <coxswain/device_handle/queue/task.hpp>

#include <array>
#include <cstdint>
#include <typeinfo>

namespace cox::trace {

/// What an event is about.
enum class Category : std::uint8_t { Task, Stream, Collective, Memory, Client };

/// Where an event is drawn: one row each.
struct Track {
  enum class Kind : std::uint8_t { Thread, DeviceThread, Stream, Communicator };

  Kind kind = Kind::Thread;
  Stage stage = Stage::Downstream;  ///< Of device threads.
  DeviceId device{};                ///< Of all but Thread.
  std::uint64_t id = 0;             ///< The thread by the system's number, the StreamId, or the communicator's number.

  /// The calling thread, whichever it is.
  [[nodiscard]] static Track this_thread() noexcept;
  [[nodiscard]] static constexpr Track stream(DeviceId device, StreamId stream) noexcept {
    return {.kind = Kind::Stream, .device = device, .id = stream.number()};
  }
  /// What `device` does in the communicator numbered `communicator`.
  [[nodiscard]] static constexpr Track communicator(DeviceId device, std::uint64_t communicator) noexcept {
    return {.kind = Kind::Communicator, .device = device, .id = communicator};
  }

  friend constexpr auto operator<=>(const Track&, const Track&) = default;
};

/// Where and when somebody handed over the work that an event shows; an arrow is drawn from there to the event.
struct Origin {
  std::uint64_t time = 0;    ///< 0: none
  std::uint32_t thread = 0;  ///< by the system's number
};

/// A figure beside an event: bytes, cubes, ranks.
struct Argument {
  const char* name = nullptr;  ///< nullptr: none
  std::uint64_t value = 0;
};

/// Something that took from `begin` to `end`. The one event that tasks, stream work and collectives all become and
/// that every output is made of. Texts have static storage, or come from intern(). Times: now() while recorded,
/// nanoseconds since the start of the trace in a Recording.
struct Event {
  const char* name = nullptr;
  const std::type_info* type = nullptr;  ///< While recorded: of the closure, where there is no name.
  Track track;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Origin origin;
  std::array<Argument, 2> arguments{};
  StreamId stream{};           ///< Of tasks.
  const char* file = nullptr;  ///< Call site, where one is known.
  std::uint32_t line = 0;
  Category category = Category::Client;
  Outcome outcome = Outcome::Completed;
};

[[nodiscard]] const char* to_string(Category category) noexcept;
[[nodiscard]] const char* to_string(Outcome outcome) noexcept;

}  // namespace cox::trace
