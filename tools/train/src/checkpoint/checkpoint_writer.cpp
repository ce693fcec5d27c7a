#include <checkpoint/checkpoint_writer.hpp>

#include <coxswain/device_handle/base/error.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace train {
namespace {

void report(std::uint64_t step, const std::exception& error) {
  std::fprintf(stderr, "checkpoint of step %llu was not written: %s\n", static_cast<unsigned long long>(step),
               error.what());
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path folder, std::string fingerprint, CheckpointRanks ranks)
    : folder_(std::move(folder)), fingerprint_(std::move(fingerprint)), ranks_(ranks), thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() { finish(); }

void CheckpointWriter::add(std::uint64_t step, Part part) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return complete_count() < 2; });
  pending_[step].parts.push_back(std::move(part));
  changed_.notify_all();
}

void CheckpointWriter::add_losses(std::uint64_t step, std::vector<float> losses) {
  const std::lock_guard lock(mutex_);
  pending_[step].losses = std::move(losses);
  pending_[step].has_losses = true;
  changed_.notify_all();
}

void CheckpointWriter::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::size_t CheckpointWriter::complete_count() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(pending_, [this](const auto& entry) { return complete(entry.second); }));
}

void CheckpointWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || complete_count() > 0; });
    const auto first = std::ranges::find_if(pending_, [this](const auto& entry) { return complete(entry.second); });
    if (first == pending_.end()) return;  // a rank that failed has left a checkpoint incomplete
    const std::uint64_t step = first->first;
    Pending pending = std::move(first->second);
    pending_.erase(first);
    lock.unlock();
    changed_.notify_all();
    write(step, std::move(pending));
    lock.lock();
  }
}

// A checkpoint that cannot be written does not end the training: the one before it is still there.
void CheckpointWriter::write(std::uint64_t step, Pending pending) {
  try {
    Checkpoint checkpoint{fingerprint_, step, std::move(pending.losses), {}};
    for (Part& part : pending.parts) {
      std::vector<cox::Bytes> contents = part.contents.get();
      for (std::size_t i = 0; i < contents.size(); ++i)
        checkpoint.tensors.emplace(std::move(part.names[i]), std::move(contents[i]));
    }
    write_checkpoint(folder_, checkpoint, ranks_);
    ++written_;
  } catch (const cox::Error& error) {
    ++not_downloaded_;
    report(step, error);
  } catch (const std::exception& error) {
    ++not_written_;
    report(step, error);
  }
}

}  // namespace train
