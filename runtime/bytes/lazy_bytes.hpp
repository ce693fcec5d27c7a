#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/bytes/host_allocation.hpp>
#include <coxswain/runtime/handle/copy_descriptor.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <utility>

namespace cox {

namespace detail {

/// A tensor in device memory as dense host bytes, which `client` downloads.
template <class Client>
class DeviceContent final : public LazyContent {
 public:
  using Site = std::source_location;

  /// `client` is bound to the stream that the reads belong to. Throws what plan_copy throws.
  DeviceContent(Client client, CopyDescriptor tensor, Site site)
      : client_(std::move(client)), plan_(plan_copy(tensor)), binding_(std::move(tensor.binding)), site_(site) {
    if (plan_.is_linear()) plan_ = {1, plan_.size(), plan_.size()};
  }

  /// The size of the tensor in host bytes.
  [[nodiscard]] std::size_t size() const noexcept { return plan_.size(); }
  [[nodiscard]] std::unique_ptr<ByteSource> open(std::size_t offset, std::size_t) const override {
    return std::make_unique<Source>(*this, offset);
  }

 private:
  class Source final : public ByteSource {
   public:
    Source(const DeviceContent& content, std::size_t offset) noexcept : content_(content), offset_(offset) {}
    void read(std::size_t offset, std::span<std::byte> destination) override {
      if (!destination.empty()) content_.read(offset_ + offset, destination);
    }

   private:
    const DeviceContent& content_;
    std::size_t offset_;
  };

  /// Downloads the smallest part that includes the range: a part of one row, or whole rows. Precondition: the range is
  /// within the tensor and not empty.
  void read(std::size_t offset, std::span<std::byte> destination) const {
    const std::size_t in_row = offset % plan_.row_bytes;
    const std::size_t rows = (in_row + destination.size() - 1) / plan_.row_bytes + 1;
    const std::size_t width = rows == 1 ? destination.size() : plan_.row_bytes;
    const std::size_t begin = offset / plan_.row_bytes * plan_.pitch + (rows == 1 ? in_row : 0);
    Binding part = binding_;
    part.offset_end += part.size_in_used() - begin - ((rows - 1) * plan_.pitch + width);
    part.offset_start += begin;
    const Bytes found =
        client_.read_one_tensor(CopyDescriptor{std::move(part), {rows, width}, {plan_.pitch, 1}, 1}, site_);
    found.copy_to(destination, rows == 1 ? 0 : in_row);
  }

  Client client_;
  CopyPlan plan_;  // one row if the tensor is dense
  Binding binding_;
  Site site_;
};

}  // namespace detail

/// The tensor as dense row-major bytes, downloaded to the host at the first access. The download belongs to the current
/// stream of `client` at this call. Does not block. Throws what plan_copy throws.
///
/// The bytes keep the device memory alive, but do not count as a handle. Their content is what the memory holds when
/// that stream reaches the download. The access blocks until the download has completed, and throws what
/// ComputeClient::read throws; the next access then tries again. On a device thread the rules of ComputeClient::read
/// apply, and no client thread may be reading the same bytes. Do not access them on a thread that runs stream work,
/// because the thread would wait for itself.
///
/// A part of the bytes (slice) is downloaded separately. If the tensor is dense or the part lies in one row, exactly
/// that part is downloaded, else the rows that contain it.
///
/// Client: copyable, read_one_tensor(CopyDescriptor, site) -> Bytes.
template <class Client>
[[nodiscard]] Bytes lazy_bytes(Client client, CopyDescriptor tensor,
                               std::source_location site = std::source_location::current()) {
  client.set_stream(client.stream_id());
  auto content = std::make_shared<const detail::DeviceContent<Client>>(std::move(client), std::move(tensor), site);
  const std::size_t size = content->size();
  return Bytes::from_allocation(
      std::make_unique<LazyAllocation>(AllocationProperty::Device, std::move(content), 0, size));
}

}  // namespace cox
