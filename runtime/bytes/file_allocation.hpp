#pragma once

#include <coxswain/runtime/bytes/file_source.hpp>
#include <coxswain/runtime/bytes/lazy_allocation.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cox::detail {

/// A range of a file. The file is open only while it is being read, so that thousands of these objects hold no file
/// descriptors.
class FileAllocation final : public LazyAllocation {
 public:
  FileAllocation(FileSource::Path path, std::uint64_t offset, std::size_t size) noexcept
      : LazyAllocation(AllocationProperty::File, size), path_(std::move(path)), offset_(offset) {}

  [[nodiscard]] std::unique_ptr<ByteSource> open() const override {
    return std::make_unique<FileSource>(path_, offset_, size());
  }
  [[nodiscard]] std::unique_ptr<LazyAllocation> window(std::size_t offset, std::size_t size) const override {
    return std::make_unique<FileAllocation>(path_, offset_ + offset, size);
  }

 private:
  FileSource::Path path_;
  std::uint64_t offset_;
};

}  // namespace cox::detail
