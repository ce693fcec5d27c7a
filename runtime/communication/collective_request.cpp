#include <coxswain/runtime/communication/collective_request.hpp>

#include <fmt/format.h>

#include <iterator>
#include <string_view>

namespace cox {
namespace {

std::string site_of(const CollectiveRequest& request) {
  return fmt::format("{}:{}", request.caller.site.file_name(), request.caller.site.line());
}

template <class T>
std::string differs(std::string_view argument, const CollectiveRequest& first, const T& its,
                    const CollectiveRequest& other, const T& others) {
  return fmt::format("the {} is {} in {} at {} and {} in {} at {}", argument, its, to_string(first.operation),
                     site_of(first), others, to_string(other.operation), site_of(other));
}

}  // namespace

std::string to_string(const CollectiveTag& tag) { return fmt::format("part {} of step {}", tag.part, tag.step); }

std::string to_string(const CollectiveRequest& request) {
  const CollectiveOperationFacts& facts = facts_of(request.operation);
  // Each operation between processes needs this text: no intermediate strings.
  fmt::memory_buffer text;
  const auto end = std::back_inserter(text);
  fmt::format_to(end, "{}", facts.name);
  if (facts.reduces) fmt::format_to(end, " ({})", to_string(request.reduce_operation));
  if (facts.rooted) fmt::format_to(end, " (root {})", request.root);
  if (facts.has_elements) fmt::format_to(end, " of {} {}", request.count, to_string(request.element_type));
  fmt::format_to(end, " at {}:{}", request.caller.site.file_name(), request.caller.site.line());
  return fmt::to_string(text);
}

std::string to_string(const CollectiveRequest& first, std::size_t size) {
  return size == 1 ? to_string(first) : fmt::format("a group of {}, {} first", size, to_string(first));
}

std::optional<std::string> mismatch(const CollectiveRequest& first, const CollectiveRequest& other) {
  const bool counterparts = is_transfer(first.operation) && is_transfer(other.operation);
  if (counterparts ? first.operation == other.operation : first.operation != other.operation)
    return fmt::format("the operation is {} at {} and {} at {}", to_string(first.operation), site_of(first),
                       to_string(other.operation), site_of(other));
  if (!(first.tag == other.tag)) return differs("tag", first, to_string(first.tag), other, to_string(other.tag));
  const CollectiveOperationFacts& facts = facts_of(first.operation);
  if (facts.has_elements && first.count != other.count) return differs("count", first, first.count, other, other.count);
  if (facts.has_elements && first.element_type != other.element_type)
    return differs("element type", first, to_string(first.element_type), other, to_string(other.element_type));
  if (facts.reduces && first.reduce_operation != other.reduce_operation)
    return differs("reduce operation", first, to_string(first.reduce_operation), other,
                   to_string(other.reduce_operation));
  if (facts.rooted && first.root != other.root) return differs("root", first, first.root, other, other.root);
  return std::nullopt;
}

std::optional<std::string> mismatch(const CollectiveRequests& first, const CollectiveRequests& other) {
  if (first.size() != other.size())
    return fmt::format("the group has {} operations at {} and {} at {}", first.size(), site_of(first.front()),
                       other.size(), site_of(other.front()));
  for (std::size_t i = 0; i < first.size(); ++i) {
    std::optional<std::string> difference = mismatch(first[i], other[i]);
    if (!difference) continue;
    return first.size() == 1 ? difference : fmt::format("in operation {} of the group, {}", i + 1, *difference);
  }
  return std::nullopt;
}

}  // namespace cox
