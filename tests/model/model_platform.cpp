#include <coxswain/tests/model/model_platform.hpp>

#include <coxswain/tests/model/engine.hpp>

#include <cstring>
#include <stdexcept>

namespace cox::model {

namespace detail {
namespace {

std::uint64_t clock_outside = 0;

}  // namespace

std::uint64_t load(const void* address, std::size_t bytes) noexcept {
  return active_engine == nullptr ? read_memory(address, bytes) : active_engine->load(address, bytes);
}

void store(void* address, std::size_t bytes, std::uint64_t value, bool drains) noexcept {
  if (active_engine == nullptr) {
    std::memcpy(address, &value, bytes);
  } else {
    active_engine->store(address, bytes, value, drains);
  }
}

std::uint64_t begin_read_modify_write(void* address, std::size_t bytes, const char* operation) noexcept {
  return active_engine == nullptr ? read_memory(address, bytes)
                                  : active_engine->begin_read_modify_write(address, bytes, operation);
}

void end_read_modify_write(void* address, std::size_t bytes, std::uint64_t value) noexcept {
  if (active_engine == nullptr) {
    std::memcpy(address, &value, bytes);
  } else {
    active_engine->end_read_modify_write(address, bytes, value);
  }
}

void park(const void* address, std::uint32_t expected) {
  if (active_engine != nullptr) active_engine->park(address, expected);
}

void wake(const void* address, bool all) noexcept {
  if (active_engine != nullptr) active_engine->wake(address, all);
}

}  // namespace detail

std::uint64_t ModelPlatform::now() noexcept {
  return active_engine == nullptr ? ++detail::clock_outside : active_engine->now();
}
std::uint64_t ModelPlatform::now_early() noexcept {
  return active_engine == nullptr ? ++detail::clock_outside : active_engine->now_early();
}
std::uint64_t ModelPlatform::now_fenced() noexcept { return now(); }

void ModelPlatform::heavy_barrier() noexcept {
  if (active_engine != nullptr) active_engine->heavy_barrier();
}

void ModelPlatform::full_barrier() noexcept {
  if (active_engine != nullptr) active_engine->full_barrier();
}

void ModelPlatform::pause() noexcept {
  if (active_engine != nullptr) active_engine->pause();
}

void* ModelPlatform::allocate_block(std::size_t bytes, std::size_t alignment) {
  if (active_engine == nullptr) throw std::logic_error("allocate_block outside of an execution");
  return active_engine->allocate_block(bytes, alignment);
}

void ModelPlatform::free_block(void* block) noexcept {
  if (active_engine != nullptr) active_engine->free_block(block);
}

}  // namespace cox::model
