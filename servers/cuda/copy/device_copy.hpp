#pragma once

#include <coxswain/servers/cuda/driver/driver.hpp>

#include <cstddef>

namespace cox::detail {

/// Copies dense rows of page-locked host memory to rows `pitch` bytes apart on the device, on a stream. Throws
/// CudaError.
void copy_rows_to_device(CUdeviceptr device, const std::byte* host, std::size_t rows, std::size_t row_bytes,
                         std::size_t pitch, CUstream stream);
/// Copies rows `pitch` bytes apart on the device to dense rows of page-locked host memory, on a stream. Throws
/// CudaError.
void copy_rows_to_host(std::byte* host, CUdeviceptr device, std::size_t rows, std::size_t row_bytes, std::size_t pitch,
                       CUstream stream);

}  // namespace cox::detail
