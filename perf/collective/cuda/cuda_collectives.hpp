#pragma once

#include <coxswain/perf/harness/options.hpp>

#include <cstddef>
#include <string>

namespace cox::perf {

struct CudaCollectives {
  std::size_t ranks = 0;   ///< the first so many GPUs; 0: all there are
  std::string nccl_tests;  ///< the folder of its programs, which are measured, too; empty: there is none
  bool cold = false;       ///< measure first operations of processes instead: cold_start.hpp
};

/// Measures collectives between GPUs beside NCCL alone, in one process with a thread for each GPU. Returns the exit
/// code.
int measure_cuda_collectives(Options options, const CudaCollectives& measured);

}  // namespace cox::perf
