#pragma once

#include <coxswain/device_handle/base/error.hpp>

#include <concepts>
#include <exception>

namespace cox {
namespace detail {

template <class E, class Accept>
const E* find_cause(const std::exception_ptr& error, const Accept& accept) noexcept;

template <class E, class Accept>
const E* find_cause(const std::exception& error, const Accept& accept) noexcept {
  if (const auto* found = dynamic_cast<const E*>(&error); found != nullptr && accept(*found)) return found;
  if (const auto* ours = dynamic_cast<const Error*>(&error))
    for (const std::exception_ptr& cause : ours->causes())
      if (const E* found = find_cause<E>(cause, accept)) return found;
  if (const auto* nested = dynamic_cast<const std::nested_exception*>(&error))
    return find_cause<E>(nested->nested_ptr(), accept);
  return nullptr;
}

template <class E, class Accept>
const E* find_cause(const std::exception_ptr& error, const Accept& accept) noexcept {
  if (error == nullptr) return nullptr;
  try {
    std::rethrow_exception(error);  // Itanium ABI: throws the object itself, not a copy
  } catch (const std::exception& thrown) {
    return find_cause<E>(thrown, accept);
  } catch (...) {
    return nullptr;
  }
}

}  // namespace detail

/// Returns the first E among `error` itself and all its causes: the causes() of an Error, which include all errors() of
/// a ServerError, their causes, and what std::throw_with_nested has nested. Outer errors are searched before their
/// causes, and earlier failures before later ones. Null if there is none.
///
/// Any thread. Does not block or throw. The pointer is valid as long as `error` (or a copy of the exception_ptr)
/// exists; copy the error to keep it longer.
template <std::derived_from<std::exception> E>
[[nodiscard]] const E* find_cause(const std::exception& error) noexcept {
  return detail::find_cause<E>(error, [](const E&) { return true; });
}
template <std::derived_from<std::exception> E>
[[nodiscard]] const E* find_cause(const std::exception_ptr& error) noexcept {
  return detail::find_cause<E>(error, [](const E&) { return true; });
}

/// Finds only an E of that kind: `find_cause<CollectiveError>(error, CollectiveError::Kind::Timeout)`.
template <std::derived_from<Error> E>
[[nodiscard]] const E* find_cause(const std::exception& error, typename E::Kind kind) noexcept {
  return detail::find_cause<E>(error, [kind](const E& found) { return found.kind() == kind; });
}
template <std::derived_from<Error> E>
[[nodiscard]] const E* find_cause(const std::exception_ptr& error, typename E::Kind kind) noexcept {
  return detail::find_cause<E>(error, [kind](const E& found) { return found.kind() == kind; });
}

}  // namespace cox
