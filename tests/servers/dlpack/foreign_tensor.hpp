#pragma once

// Tensors of a producer and streams of a consumer that exchange tensors with the library by DLPack.

#include <coxswain/device_handle/service/thread_context.hpp>
#include <coxswain/runtime/client/dlpack.hpp>
#include <coxswain/tests/servers/contract/foreign_memory.hpp>
#include <coxswain/tests/servers/contract/ranks.hpp>
#include <coxswain/tests/support/catch.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace cox::test {

/// How often the deleter of a tensor was called, and whether always on a device thread.
struct Deletions {
  std::atomic<int> count{0};
  std::atomic<bool> elsewhere{false};

  void wait() const {
    wait_until([&] { return count.load() != 0; });
    CHECK(count.load() == 1);
    CHECK_FALSE(elsewhere.load());
  }
};

/// A tensor as another library exports it: its memory is not the tensor's. The deleter frees the object.
struct ForeignTensor {
  DLManagedTensorVersioned managed{};
  std::vector<std::int64_t> shape;
  std::optional<std::vector<std::int64_t>> strides;
  std::shared_ptr<Deletions> deletions = std::make_shared<Deletions>();

  /// Of 32-bit integers. The caller of the deleter owns it.
  [[nodiscard]] static std::unique_ptr<ForeignTensor> make(DeviceId device, void* data, std::vector<std::int64_t> shape,
                                                           std::optional<std::vector<std::int64_t>> strides = {}) {
    auto tensor = std::make_unique<ForeignTensor>();
    tensor->shape = std::move(shape);
    tensor->strides = std::move(strides);
    DLManagedTensorVersioned& managed = tensor->managed;
    managed.version = {1, 0};
    managed.manager_ctx = tensor.get();
    managed.deleter = [](DLManagedTensorVersioned* self) {
      const std::unique_ptr<ForeignTensor> owned(static_cast<ForeignTensor*>(self->manager_ctx));
      if (ThreadContext::current() == nullptr) owned->deletions->elsewhere.store(true);
      owned->deletions->count.fetch_add(1);
    };
    managed.dl_tensor = {.data = data,
                         .device = {device.type == 0 ? kDLCPU : kDLCUDA, static_cast<std::int32_t>(device.index)},
                         .ndim = static_cast<std::int32_t>(tensor->shape.size()),
                         .dtype = {kDLUInt, 32, 1},
                         .shape = tensor->shape.data(),
                         .strides = tensor->strides ? tensor->strides->data() : nullptr,
                         .byte_offset = 0};
    return tensor;
  }
};

/// Imports it: the library owns it if that succeeds.
template <class Client>
[[nodiscard]] TensorView imported(const Client& client, std::unique_ptr<ForeignTensor>& tensor) {
  TensorView view = from_dlpack(client, &tensor->managed);
  static_cast<void>(tensor.release());
  return view;
}

/// Where a consumer uses what it gets: on host devices nowhere in particular.
template <class Backend>
struct Consumer {
  explicit Consumer(DeviceId) {}
  template <class Client>
  [[nodiscard]] DLManagedTensorVersioned* get(const Client& client, const TensorView& tensor,
                                              Access access = Access::Write) const {
    return to_dlpack(client, tensor, access);
  }
};

#if COX_CUDA_TESTS
template <>
struct Consumer<CudaBackend> {
  explicit Consumer(DeviceId device) : stream(device) {}
  template <class Client>
  [[nodiscard]] DLManagedTensorVersioned* get(const Client& client, const TensorView& tensor,
                                              Access access = Access::Write) const {
    return to_dlpack(client, tensor, stream.native(), access);
  }
  ForeignStream stream;
};
#endif

}  // namespace cox::test
