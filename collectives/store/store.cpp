#include <coxswain/collectives/store/store.hpp>

#include <coxswain/collectives/store/store_error.hpp>
#include <coxswain/runtime/config/setting_value.hpp>

#include <algorithm>
#include <charconv>
#include <system_error>

namespace cox {
namespace {

using StoreKind = StoreError::Kind;

void require_length(std::string_view key, std::span<const std::byte> value) {
  if (value.size() <= Store::max_value) return;
  throw StoreError(StoreKind::TooLarge, "the value of " + in_quotes(key) + " has " + std::to_string(value.size()) +
                                            " bytes; a store takes at most " + std::to_string(Store::max_value));
}

}  // namespace

void Store::set(std::string_view key, std::span<const std::byte> value, Deadline deadline) {
  require_length(key, value);
  do_set(full_key(key), value, deadline);
}

std::vector<std::byte> Store::get(std::string_view key, Deadline deadline) { return do_get(full_key(key), deadline); }

std::int64_t Store::add(std::string_view key, std::int64_t amount, Deadline deadline) {
  return do_add(full_key(key), amount, deadline);
}

std::vector<std::byte> Store::compare_set(std::string_view key, std::span<const std::byte> expected,
                                          std::span<const std::byte> desired, Deadline deadline) {
  require_length(key, expected);
  require_length(key, desired);
  return do_compare_set(full_key(key), expected, desired, deadline);
}

void Store::close(Deadline deadline) {
  if (closed_) return;
  closed_ = true;
  do_close(deadline);
}

std::string Store::full_key(std::string_view key) const {
  if (key.size() > max_key)
    throw StoreError(StoreKind::TooLarge, "the key " + in_quotes(key) + " has " + std::to_string(key.size()) +
                                              " bytes; a store takes at most " + std::to_string(max_key));
  std::string whole = prefix_ + std::string(key);
  if (closed_) throw StoreError(StoreKind::Unreachable, "the store is closed; the call was for " + in_quotes(whole));
  return whole;
}

std::string detail::store_prefix(std::string_view run, std::uint32_t restart) {
  std::string prefix = "cox/";
  for (const char letter : run) {
    if (letter == '/') {
      prefix += "%2F";
    } else if (letter == '%') {
      prefix += "%25";
    } else {
      prefix += letter;
    }
  }
  return prefix + "/" + std::to_string(restart) + "/";
}

std::int64_t detail::add_to_value(std::span<const std::byte> value, std::int64_t amount, const std::string& key) {
  std::int64_t number = 0;
  if (!value.empty()) {
    const auto* const begin = reinterpret_cast<const char*>(value.data());
    const auto [end, error] = std::from_chars(begin, begin + value.size(), number);
    if (error != std::errc() || end != begin + value.size())
      throw StoreError(StoreKind::Protocol, "add to " + in_quotes(key) + ": its value is not a number");
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, amount, &sum))
    throw StoreError(StoreKind::Protocol, "add to " + in_quotes(key) + ": " + std::to_string(number) + " + " +
                                              std::to_string(amount) + " exceeds 64 bits");
  return sum;
}

std::vector<std::byte> detail::value_of_number(std::int64_t number) {
  const std::string text = std::to_string(number);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::chrono::nanoseconds detail::time_until(Store::Deadline deadline, std::chrono::nanoseconds longest) {
  const auto now = std::chrono::steady_clock::now();
  if (deadline <= now) return std::chrono::nanoseconds::zero();
  return deadline - now < longest ? deadline - now : longest;
}

}  // namespace cox
