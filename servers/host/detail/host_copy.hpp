#pragma once

#include <coxswain/runtime/copy_plan.hpp>

#include <cstddef>

namespace cox::detail {

/// Dense host rows into device rows.
void upload(const CopyPlan& plan, const std::byte* host, std::byte* device) noexcept;
/// Device rows into dense host rows.
void download(const CopyPlan& plan, const std::byte* device, std::byte* host) noexcept;

}  // namespace cox::detail
