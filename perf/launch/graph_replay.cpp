#include <coxswain/perf/launch/graph_replay.hpp>

namespace cox::perf {
namespace {

Graph<CudaClient> capture(const Launched& launched, unsigned launches) {
  const CudaClient& client = launched.gpu().client();
  const auto work = [&] {
    for (unsigned i = 0; i < launches; ++i) launched.launch();
  };
  client.graph_prepare();
  work();
  client.graph_start_capture();
  work();
  return client.graph_stop_capture();
}

detail::DriverGraphExec capture_raw(const Launched& launched, unsigned launches) {
  const CUstream stream = launched.gpu().raw().native();
  COX_CUDA_TRY(stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (unsigned i = 0; i < launches; ++i) launched.launch_raw(stream);
  detail::DriverGraph graph;
  COX_CUDA_TRY(stream_end_capture(stream, graph.out()));
  detail::DriverGraphExec executable;
  COX_CUDA_TRY(graph_instantiate(executable.out(), graph.get(), 0));
  return executable;
}

}  // namespace

GraphReplay::GraphReplay(const Launched& launched, unsigned launches)
    : graph_(capture(launched, launches)), raw_(capture_raw(launched, launches)) {}

}  // namespace cox::perf
