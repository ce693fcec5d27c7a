#pragma once

#include <coxswain/runtime/bytes/byte_source.hpp>
#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/lazy_allocation.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <source_location>
#include <span>
#include <utility>

namespace cox {

namespace detail {

/// A tensor in device memory as dense host bytes: maps ranges of these bytes to parts of the tensor.
class DeviceWindow {
 public:
  /// Throws what plan_copy throws.
  explicit DeviceWindow(CopyDescriptor tensor) : plan_(plan_copy(tensor)), binding_(std::move(tensor.binding)) {
    if (plan_.is_linear()) plan_ = {1, plan_.size(), plan_.size()};
  }

  /// The size of the tensor in host bytes.
  [[nodiscard]] std::size_t size() const noexcept { return plan_.size(); }
  /// Returns the smallest download that includes the `size` bytes starting at `offset`: a part of one row, or whole
  /// rows. Precondition: size > 0, and the range is within this window.
  [[nodiscard]] CopyDescriptor part(std::size_t offset, std::size_t size) const {
    const std::size_t first = offset / plan_.row_bytes;
    const std::size_t rows = (offset + size - 1) / plan_.row_bytes - first + 1;
    const std::size_t skipped = rows == 1 ? offset % plan_.row_bytes : 0;
    const std::size_t width = rows == 1 ? size : plan_.row_bytes;
    Binding binding = binding_;
    const std::size_t room = binding.size_in_used();
    const std::size_t begin = first * plan_.pitch + skipped;
    binding.offset_start += begin;
    binding.offset_end += room - begin - ((rows - 1) * plan_.pitch + width);
    return {std::move(binding), {rows, width}, {plan_.pitch, 1}, 1};
  }
  /// The number of bytes in that download before the first requested byte.
  [[nodiscard]] std::size_t surplus(std::size_t offset, std::size_t size) const noexcept {
    const std::size_t in_row = offset % plan_.row_bytes;
    return in_row + size <= plan_.row_bytes ? 0 : in_row;
  }

 private:
  CopyPlan plan_;  // one row if the tensor is dense
  Binding binding_;
};

}  // namespace detail

/// Device memory that is downloaded to the host at the first access. Keeps the memory alive, but does not count as a
/// handle. The content is what the memory holds when the client's stream reaches the download. The access blocks until
/// the download has completed, and throws what ComputeClient::read throws; the next access then tries again. On a
/// device thread the rules of ComputeClient::read apply, and no client thread may be reading the same bytes. Do not
/// access it on a thread that runs stream work, because the thread would wait for itself.
///
/// A part of the bytes (slice) is downloaded separately. If the tensor is dense or the part lies in one row, exactly
/// that part is downloaded, else the rows that contain it.
///
/// Client: copyable, read_one_tensor(CopyDescriptor, site) -> Bytes.
template <class Client>
class DeviceAllocation final : public LazyAllocation {
 public:
  using Site = std::source_location;

  /// `client` is bound to the stream that the reads belong to. Throws what plan_copy throws.
  DeviceAllocation(Client client, CopyDescriptor tensor, Site site)
      : DeviceAllocation(std::make_shared<const Origin>(std::move(client), std::move(tensor), site)) {}

  [[nodiscard]] std::unique_ptr<ByteSource> open() const override { return std::make_unique<Source>(origin_, offset_); }
  [[nodiscard]] std::unique_ptr<LazyAllocation> window(std::size_t offset, std::size_t size) const override {
    return std::unique_ptr<LazyAllocation>(new DeviceAllocation(origin_, offset_ + offset, size));
  }

 private:
  struct Origin {
    Origin(Client reader, CopyDescriptor tensor, Site where)
        : client(std::move(reader)), memory(std::move(tensor)), site(where) {}
    Client client;
    detail::DeviceWindow memory;
    Site site;
  };

  class Source final : public ByteSource {
   public:
    Source(std::shared_ptr<const Origin> origin, std::size_t offset) : origin_(std::move(origin)), offset_(offset) {}
    void read(std::size_t offset, std::span<std::byte> destination) override {
      if (destination.empty()) return;
      const detail::DeviceWindow& memory = origin_->memory;
      const std::size_t begin = offset_ + offset;
      const Bytes rows = origin_->client.read_one_tensor(memory.part(begin, destination.size()), origin_->site);
      rows.copy_to(destination, memory.surplus(begin, destination.size()));
    }

   private:
    std::shared_ptr<const Origin> origin_;
    std::size_t offset_;
  };

  explicit DeviceAllocation(std::shared_ptr<const Origin> origin)
      : DeviceAllocation(origin, 0, origin->memory.size()) {}
  DeviceAllocation(std::shared_ptr<const Origin> origin, std::size_t offset, std::size_t size)
      : LazyAllocation(AllocationProperty::Device, size), origin_(std::move(origin)), offset_(offset) {}

  std::shared_ptr<const Origin> origin_;
  std::size_t offset_;
};

/// The tensor as dense row-major bytes, downloaded at the first access: see DeviceAllocation. The download belongs to
/// the current stream of `client` at this call. Does not block. Throws what plan_copy throws.
template <class Client>
[[nodiscard]] Bytes lazy_bytes(Client client, CopyDescriptor tensor,
                               std::source_location site = std::source_location::current()) {
  client.set_stream(client.stream_id());
  return Bytes::from_allocation(std::make_unique<DeviceAllocation<Client>>(std::move(client), std::move(tensor), site));
}

}  // namespace cox
