#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <cstddef>

namespace cox::detail {

/// Dense host rows into device rows. Lazy bytes are not brought into memory: whole rows are read where they belong, and
/// small ones through at most upload_chunk bytes. Blocks while a file is read. Throws IoError FileUnreadable,
/// FileTooShort or OutOfHostMemory if the bytes are lazy; the device rows are then not defined.
void upload(const CopyPlan& plan, const Bytes& host, std::byte* device);
inline constexpr std::size_t upload_chunk = std::size_t{1} << 20U;
/// Device rows into dense host rows.
void download(const CopyPlan& plan, const std::byte* device, std::byte* host) noexcept;

}  // namespace cox::detail
