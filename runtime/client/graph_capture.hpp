#pragma once

#include <coxswain/device_handle/base/task_error.hpp>
#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/base/location.hpp>
#include <coxswain/runtime/buffer/capture_memory.hpp>
#include <coxswain/runtime/client/capture_state.hpp>
#include <coxswain/runtime/error/server_error.hpp>
#include <coxswain/runtime/handle/managed_memory.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

namespace cox {

/// The capture of a graph on one stream, for servers. Between prepare and start the work runs as usual, as a warm-up:
/// the memory that it touches is kept, and the allocations of the capture are served from it. Graph: the type to which
/// the work of the capture is added; default-constructible. Device thread only.
template <class Graph>
class GraphCapture {
 public:
  explicit GraphCapture(const Location& location) noexcept : state_(location) {}

  [[nodiscard]] bool idle() const noexcept { return state_.state() == CaptureState::State::NoCapture; }
  [[nodiscard]] bool preparing() const noexcept { return state_.state() == CaptureState::State::Prepare; }
  [[nodiscard]] bool capturing() const noexcept { return state_.capturing(); }

  /// require, prepare, start and stop throw ServerError Graph if they are out of order; then nothing changes.
  void require(CaptureState::Call call, std::source_location site) const { state_.require(call, site); }
  /// Throws ServerError Graph while capturing. For operations that a graph cannot hold.
  void require_none(const char* operation, std::source_location site) const {
    if (!capturing()) return;
    throw ServerError(
        ServerError::Kind::Graph,
        std::string(operation) + " is not possible while " + state_.location().to_string() + " is capturing a graph",
        site);
  }
  /// While capturing: the error if memory of `size` bytes is not available without growth of the pool.
  [[nodiscard]] ServerError no_growth(std::size_t size, std::source_location site) const {
    return {ServerError::Kind::Graph,
            "the memory pool would have to grow by " + format_byte_count(size) + " in a capture on " +
                state_.location().to_string() +
                ", which is not allowed: run the same work once between graph_prepare and the capture",
            site};
  }
  void prepare(std::source_location site) { state_.advance(CaptureState::Call::Prepare, site); }
  void start(std::source_location site) {
    auto graph = std::make_shared<Graph>();
    state_.advance(CaptureState::Call::Start, site);
    graph_ = std::move(graph);
  }
  /// Ends the capture, even if it failed, and returns the graph after calling `finish(graph)`. Throws ServerError
  /// Graph, with the failure of the capture or of `finish` as its cause.
  template <class Finish>
  [[nodiscard]] std::shared_ptr<Graph> stop(std::source_location site, Finish&& finish) {
    state_.advance(CaptureState::Call::Stop, site);
    auto graph = std::exchange(graph_, nullptr);
    warm_up_.clear();
    auto failure = std::exchange(failure_, nullptr);
    if (failure == nullptr) {
      try {
        std::forward<Finish>(finish)(*graph);
        return graph;
      } catch (...) {
        failure = std::current_exception();
      }
    }
    throw ServerError(ServerError::Kind::Graph,
                      "the capture on " + state_.location().to_string() + " failed: " + cox::describe_cause(failure),
                      site, failure);
  }

  /// While preparing: keeps the memory for the capture. Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { warm_up_.keep(memory); }
  /// While capturing: memory of that size from the warm-up, or null. Throws std::bad_alloc.
  [[nodiscard]] CaptureMemory::Buffer take_warm_up(std::size_t size) { return warm_up_.take(size); }
  /// While capturing: the graph to which work is added.
  [[nodiscard]] Graph& graph() noexcept { return *graph_; }
  /// While capturing: marks the capture as failed. The first failure is kept.
  void fail(std::exception_ptr error) noexcept {
    if (failure_ == nullptr) failure_ = std::move(error);
  }

 private:
  CaptureState state_;
  CaptureMemory warm_up_;
  std::shared_ptr<Graph> graph_;
  std::exception_ptr failure_;
};

}  // namespace cox
