#pragma once

#include <coxswain/runtime/bytes/bytes.hpp>
#include <coxswain/runtime/tensor/copy_plan.hpp>

#include <cstddef>

namespace cox::detail {

/// Copies dense host rows to device rows. Lazy bytes are not loaded as a whole: long rows are read directly into the
/// device rows, short rows through a buffer of at most upload_chunk bytes. Blocks while a file is read. Throws IoError
/// FileUnreadable, FileTooShort or OutOfHostMemory if the bytes are lazy; the content of the device rows is then
/// undefined.
void upload(const CopyPlan& plan, const Bytes& host, std::byte* device);
inline constexpr std::size_t upload_chunk = std::size_t{1} << 20U;
/// Copies device rows to dense host rows.
void download(const CopyPlan& plan, const std::byte* device, std::byte* host) noexcept;

}  // namespace cox::detail
