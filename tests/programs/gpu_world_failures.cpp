// What two processes with a GPU each are notified of when one of them fails, and that the other one continues.

#include <cstdio>

#if COX_GPU_TESTS

#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/tests/programs/world_gpu_failures.hpp>

int main(int count, char** arguments) {
  using namespace cox::test;
  if (count > 1) return run_scenario(arguments[2]);
  if (cox::enumerate_cuda_devices().size() < 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  FailureTest test(2);
  test.run_all(3000);
  for (const std::string kernels : {"COX_COLLECTIVES_PEER_MEMORY=true", "COX_COLLECTIVES_PEER_MEMORY=false"})
    test.run("killed beside a long kernel", {kernels}, test.signal(1, SIGKILL),
             test.survivors("killed beside a long kernel", {FailureKind::ProcessGone}, 3000), {1});
  test.run("GPU fault", {}, [](WorldProcesses&) {}, test.survivors("GPU fault", {FailureKind::ProcessGone}, 0), {1});
  return test.result();
}

#else

int main() { return 0; }

#endif
