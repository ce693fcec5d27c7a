#pragma once

#include <coxswain/tests/servers/contract/compute_backend.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace cox::test {

/// The kernels of random programs. Each cube works on one quarter of every buffer it writes, so that it matters how
/// many cubes there are; the cubes of one launch come one after the other.
enum class ProgramKernel : std::uint8_t {
  Fill,      ///< out[i] from i alone
  ScaleAdd,  ///< out[i] from itself, several times over: runs for as long as the buffer is large
  Copy,      ///< out[i] from in[i]
  Reduce,    ///< out[0] from all of in
  Permute,   ///< out[i] from some in[j]
  Mix,       ///< two outs, each from itself and an in
  Count,     ///< out[i] from in[i], as a part of a cube count: 1 or 2, seldom 0
};

/// A kernel with a number of buffers: first those it reads, then those it writes.
struct ProgramJob {
  ProgramKernel kernel = ProgramKernel::Fill;
  std::size_t ins = 0;
  std::size_t outs = 0;
  const char* name = "";
};
inline constexpr std::array program_jobs{
    ProgramJob{ProgramKernel::Fill, 0, 1, "fill"},       ProgramJob{ProgramKernel::Fill, 0, 2, "fill"},
    ProgramJob{ProgramKernel::ScaleAdd, 0, 1, "scale"},  ProgramJob{ProgramKernel::ScaleAdd, 0, 2, "scale"},
    ProgramJob{ProgramKernel::Copy, 1, 1, "copy"},       ProgramJob{ProgramKernel::Copy, 1, 3, "copy"},
    ProgramJob{ProgramKernel::Reduce, 1, 1, "reduce"},   ProgramJob{ProgramKernel::Reduce, 3, 1, "reduce"},
    ProgramJob{ProgramKernel::Permute, 1, 1, "permute"}, ProgramJob{ProgramKernel::Permute, 2, 2, "permute"},
    ProgramJob{ProgramKernel::Mix, 2, 2, "mix"},
};
inline constexpr ProgramJob count_job{ProgramKernel::Count, 1, 1, "count"};
inline constexpr std::uint32_t cubes_for_all = 4;  ///< so many write every element once

struct ProgramScalars {
  std::uint32_t factor = 1;
  std::uint32_t summand = 0;
  std::uint32_t passes = 1;
};

struct ProgramOperands {
  std::array<std::span<const std::uint32_t>, 3> in;
  std::array<std::span<std::uint32_t>, 3> out;
};

/// What cube number `cube` of a launch does: the one text for the host device and for the oracle.
void run_cube(const ProgramJob& job, const ProgramScalars& scalars, std::uint64_t cube,
              const ProgramOperands& operands);

/// The job as a kernel; its scalars are factor, summand and passes, then the number of elements of each buffer.
template <class Backend>
[[nodiscard]] typename Backend::Kernel program_kernel(const ProgramJob& job);
template <>
HostKernel program_kernel<HostBackend>(const ProgramJob& job);
#if COX_CUDA_TESTS
/// "program_copy_1_1"
[[nodiscard]] std::string cuda_name_of(const ProgramJob& job);
template <>
CudaKernel program_kernel<CudaBackend>(const ProgramJob& job);
#endif

}  // namespace cox::test
