#include <engine/backends.hpp>
#include <engine/kept_run.hpp>

#include <algorithm>
#include <cstring>

namespace train {

namespace {

std::vector<cox::DeviceId> devices_of(const Job& job) {
  std::vector<cox::DeviceId> devices;
  for (std::size_t i = 0; i < job.local_ranks(); ++i) devices.push_back(job.device(job.first_rank() + i));
  return devices;
}

// The memory of a process is that of its ranks.
std::string schema_of(const Job& job, const std::string& schema) {
  if (!job.ranks.spans_processes()) return schema;
  const std::size_t first = job.first_rank();
  return schema + " ranks=" + std::to_string(first) + "-" + std::to_string(first + job.local_ranks() - 1);
}

// "torn: process 0 holds epochs 13, 12; process 1 holds none".
std::string text_of(const std::vector<cox::KeptOffer>& offers) {
  std::string text;
  for (std::size_t process = 0; process < offers.size(); ++process) {
    std::string epochs;
    for (const std::uint64_t epoch : offers[process].epochs)
      if (epoch != 0) epochs += (epochs.empty() ? "" : ", ") + std::to_string(epoch);
    text += (process == 0 ? "torn: process " : "; process ") + std::to_string(process) + " holds " +
            (epochs.empty()                          ? "none"
             : epochs.find(',') == std::string::npos ? "epoch " + epochs
                                                     : "epochs " + epochs);
  }
  return text;
}

}  // namespace

KeptRun::KeptRun(const Job& job, const std::string& schema)
    : job_(job),
      set_("cox-train", devices_of(job),
           {.schema = schema_of(job, schema),
            .mode = job.options.keep == Keep::Double ? cox::KeptMode::Double : cox::KeptMode::InPlace,
            .collective_between = true}) {}

template <class Client>
void KeptRun::open(const Processes& processes) {
  open_memory<Client>();
  state_ = set_.state();
  if (processes.count() > 1) {
    agree<Client>(processes);
  } else {
    step_ = own_step();
  }
}

template <class Client>
void KeptRun::open_memory() {
  is_restored_ = true;
  for (std::size_t i = 0; i < job_.local_ranks(); ++i) {
    const std::size_t rank = job_.first_rank() + i;
    const Client client = Client::load(job_.device(rank));
    const KeptLayout layout = job_.kept_layout(rank);
    for (const KeptLayout::Kind kind : KeptLayout::kinds)
      is_restored_ = client.kept(set_, KeptLayout::names[kind], layout.bytes(kind)).restored && is_restored_;
  }
}

template <class Client>
void KeptRun::agree(const Processes& processes) {
  offers_ = processes.gather<Client>(cox::KeptOffer::from(state_));
  set_.continue_at(cox::KeptAgreement::from(offers_));
  state_ = set_.state();
  open_memory<Client>();  // whether it is restored, as of the epoch of the agreement
  constexpr auto none = ~std::uint64_t{0};
  const auto steps = processes.gather<Client>(own_step().value_or(none));
  const bool are_equal =
      std::ranges::all_of(steps, [&](std::uint64_t step) { return step != none && step == steps.front(); });
  if (are_equal) step_ = steps.front();
}

std::optional<std::uint64_t> KeptRun::own_step() const {
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
  if (!offers_.empty() && state_.last_epoch != 0 && state_.kind != cox::KeptState::Kind::Whole) return text_of(offers_);
  if (state_.kind != cox::KeptState::Kind::Whole || step()) return state_.to_string();
  const std::string epoch = std::to_string(state_.epoch);
  if (state_.suspect)
    return "suspect: " + std::to_string(state_.runs_without_commit) +
           " runs have ended without an update after epoch " + epoch;
  return "partial: whole at epoch " + epoch + ", but not all memory has been committed, or not with the same step";
}

template void KeptRun::open<HostBackend::Client>(const Processes&);
#ifdef TRAIN_CUDA
template void KeptRun::open<CudaBackend::Client>(const Processes&);
#endif

}  // namespace train
