// kept_elsewhere.hpp on the second of two GPUs, which run 1 does not see, and which is the first one in run 2.

#if COX_GPU_TESTS

#include <coxswain/servers/cuda/server/cuda_server.hpp>
#include <coxswain/tests/programs/kept_elsewhere.hpp>

int main() {
  const int number = kept_elsewhere::run_number();
  if (number == 1) setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  if (number == 2) setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  const auto found = cox::enumerate_cuda_devices();
  if (number == 0 && found.size() != 2) {
    std::fprintf(stderr, "skipped: needs 2 GPUs. %s\n", cox::why_no_cuda().c_str());
    return 0;
  }
  return kept_elsewhere::run(cox::CudaClient::load(number == 0 ? found.back() : found.front()));
}

#else
int main() {}
#endif
