#pragma once

#include <coxswain/device_handle/base/device_id.hpp>
#include <coxswain/tools/cox/stress/law.hpp>
#include <coxswain/tools/cox/stress/sequence.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace cox::stress {

/// One observed violation of a law.
struct Violation {
  Law law = Law::Order;
  std::string expected{};
  std::string got{};
  std::optional<std::uint32_t> client{};
  std::optional<DeviceId> device{};
  std::optional<std::uint64_t> stream{};
  std::optional<Sequence> sequence{};  ///< Of the closure or piece of work; contains the operation.

  /// "client 3, device host:1, stream 17, operation 4711", as far as it is known.
  [[nodiscard]] std::string location() const;
};

/// The text, cut to about ten lines of a terminal; the number of omitted letters is appended.
[[nodiscard]] std::string clipped(const std::string& text);

/// Several lines: the law, where, the expected and the actual result.
[[nodiscard]] std::string to_string(const Violation& violation);

}  // namespace cox::stress
