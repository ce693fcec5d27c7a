// For tests of faults.

// Launched with more shared memory than any device has, so that the launch is refused. Writes nothing.
KERNEL void fault(Element*) {}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // NVRTC declares it
extern "C" __device__ void __assertfail(const char*, const char*, unsigned, const char*, size_t);
#endif

// Faults the GPU, so that the process cannot use it any more. 1: a trap, 2: an invalid address, 3: a failed assertion;
// 0: does nothing. Writes nothing.
KERNEL void gpu_fault(Element*, Count kind) {
  if (threadIdx.x != 0) return;
  if (kind == 1) __trap();
  if (kind == 2) *reinterpret_cast<volatile Size*>(static_cast<Size>(8 * kind)) = 1;
  if (kind == 3) __assertfail("injected", "cox-train", 0, "gpu_fault", 1);
}
