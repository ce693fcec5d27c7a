#pragma once

#include <coxswain/perf/launch/launched.hpp>
#include <coxswain/runtime/client/graph.hpp>

namespace cox::perf {

/// A graph of some launches, captured through the client and through the driver.
class GraphReplay {
 public:
  GraphReplay(const Launched& launched, unsigned launches);
  GraphReplay(const GraphReplay&) = delete;
  GraphReplay& operator=(const GraphReplay&) = delete;
  ~GraphReplay() { COX_CUDA_CHECK(graph_exec_destroy(raw_)); }

  void replay() const { graph_.replay(); }
  /// cuGraphLaunch. The context is current.
  void replay_raw(CUstream stream) const { COX_CUDA_TRY(graph_launch(raw_, stream)); }

 private:
  Graph<CudaClient> graph_;
  CUgraphExec raw_ = nullptr;
};

}  // namespace cox::perf
