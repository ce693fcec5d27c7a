#include <coxswain/runtime/trace/task_name.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <utility>

namespace cox::trace {
namespace {

constexpr std::string_view none{};

constexpr bool opens(char c) noexcept { return c == '<' || c == '(' || c == '{'; }
constexpr bool closes(char c) noexcept { return c == '>' || c == ')' || c == '}'; }

// The name at the end of `text`: everything after the bracket or comma that precedes it.
std::string_view last_name_of(std::string_view text) {
  int depth = 0;
  std::size_t begin = text.size();
  for (; begin > 0; --begin) {
    const char c = text[begin - 1];
    if (closes(c)) ++depth;
    if (depth == 0 && (opens(c) || c == ',')) break;
    if (opens(c)) --depth;
  }
  text.remove_prefix(begin);
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

// The name at the start of `text`: everything up to the bracket or comma that ends it.
std::string_view first_name_of(std::string_view text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (depth == 0 && (closes(text[i]) || text[i] == ',')) return text.substr(0, i);
    if (opens(text[i])) ++depth;
    if (closes(text[i])) --depth;
  }
  return text;
}

// `text` without bracketed parts, our namespaces and qualifiers.
std::string plain(std::string_view text) {
  std::string short_text;
  int depth = 0;
  for (const char c : text) {
    if (opens(c)) ++depth;
    if (depth == 0) short_text += c;
    if (closes(c)) --depth;
  }
  for (const std::string_view part : {" const", "cox::", "detail::", "::::"}) {
    for (auto at = short_text.find(part); at != std::string::npos; at = short_text.find(part)) {
      short_text.replace(at, part.size(), part == "::::" ? "::" : "");
    }
  }
  while (short_text.starts_with("::")) short_text.erase(0, 2);
  while (short_text.ends_with(':') || short_text.ends_with(' ')) short_text.pop_back();
  return short_text.substr(short_text.rfind(' ') + 1);  // drops the return type of the function
}

// The function in which the closure of the client was written; empty if the closure is not a lambda.
std::string place_of(std::string_view task) {
  constexpr std::string_view lambda = "::{lambda";
  for (auto at = task.find(lambda); at != std::string_view::npos; at = task.find(lambda, at + 1)) {
    const std::string_view function = last_name_of(task.substr(0, at));
    if (function.find("cox::BasicDeviceHandle<") != std::string_view::npos) continue;
    if (std::string name = plain(function); !name.empty()) return name;
  }
  return {};
}

// The type of a closure that is not a lambda, found as the argument of one of our templates. For the task that opens a
// service, the type of the service.
std::string type_of(std::string_view task) {
  for (const std::string_view holder : {"::service_body<", "::exclusive<", "BasicDeviceHandle<"}) {
    if (const auto at = task.find(holder); at != std::string_view::npos) {
      return plain(first_name_of(task.substr(at + holder.size())));
    }
  }
  if (const auto at = task.find("PostedTask<"); at != std::string_view::npos) {
    std::string_view rest = task.substr(at + std::string_view("PostedTask<").size());
    for (int skipped = 0; skipped < 2; ++skipped)
      rest.remove_prefix(std::min(first_name_of(rest).size() + 1, rest.size()));
    return plain(first_name_of(rest));
  }
  return plain(task);
}

std::string_view verb_of(std::string_view task) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> verbs{{{"::exclusive<", "exclusive"},
                                                                                {"::open<", "open"},
                                                                                {"AsyncTask<", "submit_async"},
                                                                                {"PostedTask<", "submit"},
                                                                                {"BlockingTask<", "submit_blocking"},
                                                                                {"GuardedCall<", "submit_blocking"}}};
  for (const auto& [part, verb] : verbs) {
    if (task.find(part) != std::string_view::npos) return verb;
  }
  return none;
}

}  // namespace

std::string task_name(std::string_view demangled) {
  const std::string_view verb = verb_of(demangled);
  std::string place = place_of(demangled);
  if (place.empty()) place = type_of(demangled);
  if (verb.empty()) return place;
  return std::string(verb) + (place.empty() ? "" : " ") + place;
}

std::string task_name(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(type.name(), nullptr, nullptr, &status),
                                                         &std::free);
  return task_name(std::string_view(status == 0 ? name.get() : type.name()));
}

}  // namespace cox::trace
