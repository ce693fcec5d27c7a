#include <coxswain/servers/host/kernel/kernel_context.hpp>

#include <coxswain/runtime/base/byte_count.hpp>
#include <coxswain/runtime/error/launch_error.hpp>

#include <string>

namespace cox {

const KernelContext::Buffer& KernelContext::require_buffer(std::size_t i, std::size_t size, std::size_t alignment,
                                                           bool reads) const {
  const std::string name = "buffer " + std::to_string(i);
  if (i >= buffers_.size())
    throw LaunchError(LaunchError::Kind::ArgumentCount,
                      name + " does not exist: the launch has " + std::to_string(buffers_.size()));
  const Buffer& given = buffers_[i];
  if (given.size % size != 0 || reinterpret_cast<std::uintptr_t>(given.data) % alignment != 0)
    throw LaunchError(LaunchError::Kind::ArgumentType, name + " of " + format_byte_count(given.size) +
                                                           " is not a whole number of aligned elements of " +
                                                           format_byte_count(size));
  if (!reads && given.access == Access::Read)
    throw LaunchError(LaunchError::Kind::ArgumentType, name + " was passed as read-only, but the kernel writes it");
  return given;
}

void KernelContext::refuse_scalar(std::size_t i, ScalarType type, std::size_t words) const {
  const std::string name = "scalar " + std::to_string(i);
  if (i >= words_.size())
    throw LaunchError(LaunchError::Kind::ArgumentCount,
                      name + " does not exist: the launch has " + std::to_string(words_.size()));
  std::size_t given = 1;
  while (types_[i + given] == ScalarType::Continued) ++given;
  const auto describe = [](ScalarType of, std::size_t count) {
    return std::string(to_string(of)) +
           (of == ScalarType::Object ? " of " + std::to_string(count) + (count == 1 ? " word" : " words") : "");
  };
  throw LaunchError(LaunchError::Kind::ArgumentType, name + " was passed as " + describe(types_[i], given) +
                                                         ", but the kernel reads " + describe(type, words));
}

}  // namespace cox
