#pragma once

#include <coxswain/device_handle/base/error.hpp>
#include <coxswain/runtime/error/io_error.hpp>
#include <coxswain/runtime/error/server_error.hpp>

#include <algorithm>
#include <exception>
#include <new>

namespace cox::test {

/// What `f()` throws; null if nothing.
template <class F>
[[nodiscard]] std::exception_ptr caught(F&& f) {
  try {
    f();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

/// Whether want of host memory is behind the error, or an error that it caused.
[[nodiscard]] inline bool is_want_of_memory(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const ServerError& unhealthy) {
    return std::ranges::any_of(unhealthy.errors(), is_want_of_memory);
  } catch (const IoError& io) {
    return io.kind() == IoError::Kind::OutOfHostMemory || is_want_of_memory(io.cause());
  } catch (const Error& other) {
    return is_want_of_memory(other.cause());
  } catch (...) {
    return false;
  }
}

}  // namespace cox::test
