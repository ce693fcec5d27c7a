#pragma once

#include <coxswain/runtime/base/location.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string_view>

namespace cox {

/// How far one stream is with the capture of a graph. A call out of order throws ServerError Graph, which says which
/// call, what the stream is doing and what is expected, and changes nothing. Device thread only; does not block.
///
///     NoCapture --graph_prepare--> Prepare --graph_start_capture--> Capture --graph_stop_capture--> NoCapture
class CaptureState {
 public:
  enum class State : std::uint8_t { NoCapture, Prepare, Capture };
  enum class Call : std::uint8_t { Prepare, Start, Stop };

  static constexpr std::array<std::string_view, 3> call_names{"graph_prepare", "graph_start_capture",
                                                              "graph_stop_capture"};
  static_assert(call_names.size() == static_cast<std::size_t>(Call::Stop) + 1);

  explicit CaptureState(const Location& location) noexcept : location_(location) {}

  [[nodiscard]] const Location& location() const noexcept { return location_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  /// Work of the stream is recorded, not run.
  [[nodiscard]] bool capturing() const noexcept { return state_ == State::Capture; }

  /// Whether `call` is the next one. Throws ServerError Graph if not. For a server that has to do things that may fail
  /// before the call counts.
  void require(Call call, std::source_location site = std::source_location::current()) const;
  /// The call has been made. Throws as require().
  void advance(Call call, std::source_location site = std::source_location::current());

 private:
  Location location_;
  State state_ = State::NoCapture;
};

}  // namespace cox
