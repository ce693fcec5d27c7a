#include <coxswain/servers/host/kernel/kernel_context.hpp>

#include <coxswain/runtime/base/byte_count.hpp>

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

const std::uint64_t* KernelContext::require_word(std::size_t i) const {
  if (i >= words_.size())
    throw LaunchError(
        LaunchError::Kind::ArgumentCount,
        "scalar " + std::to_string(i) + " does not exist: the launch has " + std::to_string(words_.size()));
  return &words_[i];
}

}  // namespace cox
