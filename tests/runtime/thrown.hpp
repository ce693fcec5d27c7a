#pragma once

#include <algorithm>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace cox::test {

/// The text of what `f` throws; empty if it throws nothing.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

/// The kind of the E that `f` throws; nothing if it throws nothing.
template <class E, class F>
auto kind_of(F&& f) -> std::optional<decltype(std::declval<const E&>().kind())> {
  try {
    f();
  } catch (const E& error) {
    return error.kind();
  }
  return std::nullopt;
}

/// The kind of `error`; nothing if it is no E.
template <class E>
auto kind_in(const std::exception_ptr& error) -> std::optional<decltype(std::declval<const E&>().kind())> {
  try {
    return kind_of<E>([&] { std::rethrow_exception(error); });
  } catch (...) {
    return std::nullopt;
  }
}

/// Whether all `parts` occur in `text`.
inline bool mentions(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

}  // namespace cox::test
