#include <engine/kept_layout.hpp>

namespace train {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + KeptLayout::alignment - 1) / KeptLayout::alignment * KeptLayout::alignment;
}

}  // namespace

KeptLayout::KeptLayout(const ParameterList& list, std::size_t moment_parts, std::size_t steps)
    : moment_parts_(moment_parts) {
  for (const Parameter& parameter : list.all()) {
    elements_.push_back(parameter.elements);
    bytes_[Parameters] += aligned(parameter.elements * sizeof(float));
    bytes_[FirstMoments] += aligned(parameter.elements / moment_parts_ * sizeof(float));
  }
  bytes_[SecondMoments] = bytes_[FirstMoments];
  bytes_[Losses] = steps * sizeof(float);
}

std::vector<cox::Handle> KeptLayout::tensors(Kind kind, const cox::Handle& memory) const {
  std::vector<cox::Handle> views;
  std::size_t begin = 0;
  for (const std::size_t elements : elements_) {
    const std::size_t bytes = elements / (kind == Parameters ? 1 : moment_parts_) * sizeof(float);
    views.push_back(memory.offset_start(begin).offset_end(memory.size_in_used() - begin - bytes));
    begin += aligned(bytes);
  }
  return views;
}

}  // namespace train
