#pragma once

// The kinds of devices that this build supports. TRAIN_CUDA is defined if the installed library has the CUDA server.

#include <engine/host_backend.hpp>

#ifdef TRAIN_CUDA
#include <cuda/cuda_backend.hpp>
#endif
