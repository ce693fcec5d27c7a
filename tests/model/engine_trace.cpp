// What a failure is explained by.
#include <coxswain/tests/model/engine.hpp>

#include <utility>

namespace cox::model {

void Engine::record(const std::string& who, const std::string& what) {
  std::array<char, 16> number{};
  std::snprintf(number.data(), number.size(), "%4llu  ", static_cast<unsigned long long>(steps_));
  trace_ += number.data();
  trace_ += who;
  trace_.append(who.size() < 14 ? 14 - who.size() : 1, ' ');
  trace_ += what + '\n';
}

void Engine::record(std::string what) { record(threads_[static_cast<std::size_t>(current_)].name, what); }

void Engine::add_name(const void* address, std::string_view text, std::size_t bytes) {
  if (tracing_) names_.push_back({static_cast<const std::byte*>(address), bytes, std::string(text)});
}

std::string Engine::name_of(const void* address) {
  const auto* place = static_cast<const std::byte*>(address);
  // The last name wins: a word inside a block may have its own.
  for (auto name = names_.rbegin(); name != names_.rend(); ++name) {
    if (place < name->begin || place >= name->begin + name->bytes) continue;
    return place == name->begin ? name->text : name->text + "+" + std::to_string(place - name->begin);
  }
  names_.push_back({place, 1, "word" + std::to_string(names_.size() + 1)});
  return names_.back().text;
}

}  // namespace cox::model
