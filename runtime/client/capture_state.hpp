#pragma once

#include <coxswain/runtime/base/location.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string_view>

namespace cox {

/// The capture state of one stream. A call that is out of order throws ServerError Graph, which names the call, the
/// state of the stream and the expected call, and changes nothing. Device thread only; does not block.
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
  /// Whether work of the stream is recorded instead of run.
  [[nodiscard]] bool capturing() const noexcept { return state_ == State::Capture; }

  /// Throws ServerError Graph if `call` is not valid in the current state. For a server that must do work that may fail
  /// before it calls advance().
  void require(Call call, std::source_location site = std::source_location::current()) const;
  /// Changes to the state that follows `call`. Throws as require().
  void advance(Call call, std::source_location site = std::source_location::current());

 private:
  Location location_;
  State state_ = State::NoCapture;
};

}  // namespace cox
