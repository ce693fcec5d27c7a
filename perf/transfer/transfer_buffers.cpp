#include <coxswain/perf/transfer/transfer_buffers.hpp>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace cox::perf {
namespace {

Bytes filled(Bytes bytes, int value) {
  std::memset(bytes.data(), value, bytes.size());
  return bytes;
}

}  // namespace

const Bytes& TransferBuffers::pageable() {
  if (pageable_.empty()) pageable_ = filled(Bytes::uninitialized(largest_), 1);
  return pageable_;
}

Bytes TransferBuffers::staged(std::size_t bytes) {
  if (staged_.empty()) {
    Bytes found = std::move(gpu_.client().reserve_staging({&largest_, 1}).front());
    if (found.property() != AllocationProperty::Pinned)
      throw std::runtime_error("cannot allocate page-locked memory of " + std::to_string(largest_) + " bytes");
    staged_ = filled(std::move(found), 2);
  }
  return std::as_const(staged_).slice(0, bytes);
}

Handle TransferBuffers::device(std::size_t bytes) {
  static_cast<void>(address());
  return device_.offset_end(largest_ - bytes);
}

CUdeviceptr TransferBuffers::address() {
  if (address_ == 0) {
    device_ = gpu_.client().create(pageable().share());
    gpu_.finish();
    address_ = gpu_.address_of(device_);
  }
  return address_;
}

void* TransferBuffers::landing() {
  if (landing_.empty()) landing_ = filled(Bytes::uninitialized(largest_), 3);
  return landing_.data();
}

void* TransferBuffers::pinned() {
  if (pinned_ == nullptr) {
    pinned_ = std::make_unique<RawPinned>(largest_);
    std::memset(pinned_->data(), 4, largest_);
  }
  return pinned_->data();
}

}  // namespace cox::perf
