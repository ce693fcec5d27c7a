// Random collectives and transfers over two GPUs: the ranks get the same bits whether both GPUs belong to one process,
// or each to a process of its own.

#include <cstdio>

#if COX_GPU_TESTS

#include <coxswain/servers/cuda/device/cuda_devices.hpp>
#include <coxswain/tests/programs/world_gpu_collectives.hpp>

int main(int count, char** arguments) {
  if (count > 1) return cox::test::guarded_work(arguments);
  // The processes open the GPUs themselves: this one only counts them.
  if (cox::enumerate_cuda_devices().size() < 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  return cox::test::compare({{1, 2}, {2, 1}}, "10");
}

#else

int main() { return 0; }

#endif
