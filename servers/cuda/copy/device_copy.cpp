#include <coxswain/servers/cuda/copy/device_copy.hpp>

#include <coxswain/servers/cuda/driver/cuda_try.hpp>

namespace cox::detail {
namespace {

CUDA_MEMCPY2D rows_of(std::size_t rows, std::size_t row_bytes) {
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = row_bytes;
  copy.Height = rows;
  return copy;
}

}  // namespace

void copy_rows_to_device(CUdeviceptr device, const std::byte* host, std::size_t rows, std::size_t row_bytes,
                         std::size_t pitch, CUstream stream) {
  if (rows <= 1 || pitch == row_bytes) {
    COX_CUDA_TRY(copy_to_device(device, host, rows * row_bytes, stream));
    return;
  }
  CUDA_MEMCPY2D copy = rows_of(rows, row_bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  copy.srcPitch = row_bytes;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  copy.dstPitch = pitch;
  COX_CUDA_TRY(copy_rows(&copy, stream));
}

void copy_rows_to_host(std::byte* host, CUdeviceptr device, std::size_t rows, std::size_t row_bytes, std::size_t pitch,
                       CUstream stream) {
  if (rows <= 1 || pitch == row_bytes) {
    COX_CUDA_TRY(copy_to_host(host, device, rows * row_bytes, stream));
    return;
  }
  CUDA_MEMCPY2D copy = rows_of(rows, row_bytes);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  copy.dstPitch = row_bytes;
  COX_CUDA_TRY(copy_rows(&copy, stream));
}

}  // namespace cox::detail
