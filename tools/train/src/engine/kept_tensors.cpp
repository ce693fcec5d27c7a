#include <engine/kept_tensors.hpp>

#include <coxswain/runtime/bytes/bytes.hpp>

#include <span>
#include <utility>

namespace train {

template <class Backend>
KeptTensors<Backend>::KeptTensors(cox::KeptSet& set, const Device<Backend>& device, KeptLayout layout)
    : set_(set), device_(device), layout_(std::move(layout)) {
  const auto& client = device_.client();
  for (const KeptLayout::Kind kind : KeptLayout::kinds)
    memory_[kind] = has_copies()
                        ? client.memory_persistent_allocation([&] { return client.empty(layout_.bytes(kind)); })
                        : client.kept(set_, KeptLayout::names[kind], layout_.bytes(kind)).handle;
}

template <class Backend>
void KeptTensors<Backend>::load() {
  if (!has_copies()) return;
  for (const KeptLayout::Kind kind : KeptLayout::kinds)
    copy(memory_[kind], device_.client().kept_current(set_, KeptLayout::names[kind]));
}

template <class Backend>
std::vector<float> KeptTensors<Backend>::losses(std::size_t count) const {
  const cox::Handle& all = memory_[KeptLayout::Losses];
  return device_.client()
      .read_one(all.offset_end(all.size_in_used() - count * sizeof(float)))
      .template to_vector<float>();
}

template <class Backend>
void KeptTensors<Backend>::begin_update() {
  device_.client().begin_update(set_);
}

template <class Backend>
void KeptTensors<Backend>::clear() {
  for (const cox::Handle& memory : memory_) {
    const std::size_t count = memory.size_in_used() / sizeof(float);
    device_.launch(KernelId::Zero, {.columns = count}, Launch().out(memory).size(count));
  }
}

template <class Backend>
void KeptTensors<Backend>::set_losses(const std::vector<float>& losses) {
  const cox::Handle& all = memory_[KeptLayout::Losses];
  if (!losses.empty())
    device_.client().write(all.offset_end(all.size_in_used() - losses.size() * sizeof(float)),
                           cox::Bytes::copy_of(losses));
}

template <class Backend>
void KeptTensors<Backend>::set_loss(std::size_t step, const cox::Handle& loss) {
  const cox::Handle& all = memory_[KeptLayout::Losses];
  const std::size_t end = step * sizeof(float);
  copy(all.offset_start(end - sizeof(float)).offset_end(all.size_in_used() - end), loss);
}

template <class Backend>
void KeptTensors<Backend>::store() {
  if (!has_copies()) return;
  for (const KeptLayout::Kind kind : KeptLayout::kinds)
    copy(device_.client().kept_next(set_, KeptLayout::names[kind]), memory_[kind]);
}

template <class Backend>
void KeptTensors<Backend>::commit(std::uint64_t step) {
  device_.client().commit(set_, std::as_bytes(std::span(&step, 1)));
}

template <class Backend>
void KeptTensors<Backend>::copy(const cox::Handle& to, const cox::Handle& from) const {
  const std::size_t count = to.size_in_used() / sizeof(float);
  device_.launch(KernelId::Copy, {.columns = count}, Launch().out(to).in(from).size(count));
}

template class KeptTensors<HostBackend>;
#ifdef TRAIN_CUDA
template class KeptTensors<CudaBackend>;
#endif

}  // namespace train
