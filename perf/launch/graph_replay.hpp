#pragma once

#include <coxswain/perf/launch/launched.hpp>
#include <coxswain/runtime/client/graph.hpp>
#include <coxswain/servers/cuda/driver/driver_object.hpp>

namespace cox::perf {

/// A graph of some launches, captured through the client and through the driver.
class GraphReplay {
 public:
  GraphReplay(const Launched& launched, unsigned launches);

  void replay() const { graph_.replay(); }
  /// cuGraphLaunch. The context is current.
  void replay_raw(CUstream stream) const { COX_CUDA_TRY(graph_launch(raw_.get(), stream)); }

 private:
  Graph<CudaClient> graph_;
  detail::DriverGraphExec raw_;
};

}  // namespace cox::perf
