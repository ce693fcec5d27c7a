#pragma once

#include <coxswain/runtime/capture_state.hpp>
#include <coxswain/runtime/managed_memory.hpp>
#include <coxswain/runtime/memory/warm_up_memory.hpp>
#include <coxswain/servers/cuda/detail/cuda_graph.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>

namespace cox::detail {

/// A stream on its way to a graph. Between prepare and start the work runs as ever, but the memory that it touches is
/// kept, and is what the capture finds. Device thread only.
class CudaCapture {
 public:
  explicit CudaCapture(const Place& place) noexcept : state_(place) {}

  [[nodiscard]] bool idle() const noexcept { return state_.state() == CaptureState::State::NoCapture; }
  [[nodiscard]] bool preparing() const noexcept { return state_.state() == CaptureState::State::Prepare; }
  [[nodiscard]] bool capturing() const noexcept { return state_.capturing(); }

  /// These throw ServerError Graph when they are out of order, and nothing changes.
  void require(CaptureState::Call call, std::source_location site) const { state_.require(call, site); }
  void prepare(std::source_location site) { state_.advance(CaptureState::Call::Prepare, site); }
  void start(std::source_location site) {
    auto graph = std::make_shared<CudaGraph>();
    state_.advance(CaptureState::Call::Start, site);
    graph_ = std::move(graph);
  }
  /// The graph, captured on `stream`; whatever becomes of it, the capture is over. Throws ServerError Graph with what
  /// failed as the cause.
  [[nodiscard]] std::shared_ptr<CudaGraph> stop(CUstream stream, const Place& place, std::source_location site);

  /// While preparing. Throws std::bad_alloc.
  void keep(const ManagedMemory& memory) { warm_up_.keep(memory); }
  /// While capturing: memory of that size from the rehearsal, or null.
  [[nodiscard]] WarmUpMemory::Buffer take_warm_up(std::size_t size) noexcept { return warm_up_.take(size); }
  /// While capturing: what the work is added to.
  [[nodiscard]] CudaGraph& graph() noexcept { return *graph_; }
  /// While capturing: the graph will be of no use. The first failure is kept.
  void fail(std::exception_ptr error) noexcept {
    if (failure_ == nullptr) failure_ = std::move(error);
  }

 private:
  CaptureState state_;
  WarmUpMemory warm_up_;
  std::shared_ptr<CudaGraph> graph_;
  std::exception_ptr failure_;
};

}  // namespace cox::detail
