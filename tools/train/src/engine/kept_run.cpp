#include <engine/backends.hpp>
#include <engine/kept_run.hpp>

#include <cstring>

namespace train {

KeptRun::KeptRun(const Job& job, const std::string& schema)
    : job_(job),
      set_("cox-train", {job.ranks.devices().begin(), job.ranks.devices().end()},
           {.schema = schema,
            .mode = job.options.keep == Keep::Double ? cox::KeptMode::Double : cox::KeptMode::InPlace}) {}

template <class Client>
void KeptRun::open() {
  for (std::size_t rank = 0; rank < job_.ranks.world_size(); ++rank) {
    const Client client = Client::load(job_.ranks.devices()[rank]);
    const KeptLayout layout = job_.kept_layout(rank);
    for (const KeptLayout::Kind kind : KeptLayout::kinds)
      is_restored_ = client.kept(set_, KeptLayout::names[kind], layout.bytes(kind)).restored && is_restored_;
  }
  state_ = set_.state();
}

std::optional<std::uint64_t> KeptRun::step() const {
  if (state_.kind != cox::KeptState::Kind::Whole || state_.suspect || !is_restored_) return std::nullopt;
  return common_step();
}

std::optional<std::uint64_t> KeptRun::common_step() const {
  std::optional<std::uint64_t> common;
  for (const cox::KeptState::Device& device : state_.devices) {
    std::uint64_t step = 0;
    if (!device.values || device.values->size() != sizeof(step)) return std::nullopt;
    std::memcpy(&step, device.values->data(), sizeof(step));
    if (common && *common != step) return std::nullopt;
    common = step;
  }
  return common;
}

std::string KeptRun::to_string() const {
  if (!state_.supervised)
    return "unsupervised: this process was not started by cox run, so the memory ends with the process";
  if (state_.kind != cox::KeptState::Kind::Whole || step()) return state_.to_string();
  const std::string epoch = std::to_string(state_.epoch);
  if (state_.suspect)
    return "suspect: " + std::to_string(state_.runs_without_commit) +
           " runs have ended without an update after epoch " + epoch;
  return "partial: whole at epoch " + epoch + ", but not all memory has been committed, or not with the same step";
}

template void KeptRun::open<HostBackend::Client>();
#ifdef TRAIN_CUDA
template void KeptRun::open<CudaBackend::Client>();
#endif

}  // namespace train
